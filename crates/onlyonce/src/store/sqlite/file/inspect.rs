//! Looks at a store file without opening it as a store: nothing is created, locked, recovered or written.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::clock::StoreTime;
use crate::store::sqlite::error::SqliteOpenError;
use crate::store::sqlite::file::connection::{BUSY_WAIT, set_checkpoint_at_close};
use crate::store::sqlite::file::header;
use crate::store::sqlite::file::names;
use crate::store::sqlite::file::open::check;
use crate::store::sqlite::file::ownership::{beside, check_not_rescued, check_wal_of, resolve};
use crate::store::sqlite::layout::schema;

/// What a store file is like.
#[derive(Debug)]
#[non_exhaustive]
pub struct SqliteFacts {
    /// The file, with symbolic links resolved.
    pub path: PathBuf,
    /// Whether there is a file.
    pub exists: bool,
    /// Why [`SqliteStore::open`](crate::store::sqlite::SqliteStore::open) would refuse it; `None` if nothing was found.
    pub refusal: Option<SqliteOpenError>,
    /// Whether its journal mode is WAL; the store sets it at every open.
    pub is_wal: bool,
    /// When the newest record was claimed, by the clock of that moment.
    pub newest: Option<StoreTime>,
    /// How far its pages were looked at.
    pub pages: PagesChecked,
}

/// How far the pages of a file were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PagesChecked {
    /// All of them.
    All,
    /// As many as there was time for: [`PAGES_WAIT`].
    Some,
    /// None: a process has the file open, or it was refused before.
    None,
}

/// Looks at the file. `has_owner` says that a process has it open as a store: then its pages and its log are left alone,
/// because a long read would keep the owner from emptying the log.
///
/// # Errors
/// If the operating system does not let this process look.
pub fn inspect(path: &Path, has_owner: bool) -> Result<SqliteFacts, SqliteOpenError> {
    let path = resolve(path)?;
    let mut facts = SqliteFacts {
        exists: false,
        refusal: None,
        is_wal: true,
        newest: None,
        pages: PagesChecked::None,
        path,
    };
    let wal = beside(&facts.path, "-wal");
    let had_wal = has_bytes(&wal);
    let mut looked = facts.look(has_owner);
    if looked.is_err() && !had_wal && has_bytes(&wal) {
        // A process opened the store meanwhile: what was read may be half old and half new.
        looked = facts.look(true);
    }
    if let Err(refusal) = looked {
        match refusal {
            SqliteOpenError::Io { .. } | SqliteOpenError::NoPermission { .. } => {
                return Err(refusal);
            }
            refusal => facts.refusal = Some(refusal),
        }
    }
    Ok(facts)
}

impl SqliteFacts {
    fn look(&mut self, has_owner: bool) -> Result<(), SqliteOpenError> {
        let path = self.path.clone();
        names::demand_one(&path)?;
        check_not_rescued(&path)?;
        let length = match fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.demand_new(),
            Err(error) => return Err(SqliteOpenError::io(&path, error)),
        };
        self.exists = true;
        if length == 0 {
            return Err(SqliteOpenError::Empty { path });
        }
        let wal = beside(&path, "-wal");
        header::check(&path, &wal, length)?;
        if !has_owner {
            check_wal_of(&path)?;
        }
        let failed = |error| SqliteOpenError::engine(&path, error);
        let db = connect(&path, &wal).map_err(failed)?;
        let meta = check(&db, &path)?;
        self.is_wal = is_wal(&path).map_err(|error| SqliteOpenError::io(&path, error))?;
        for class in meta.classes {
            let newest = newest(&db, class.class).map_err(failed)?;
            self.newest = self.newest.max(newest);
        }
        if !has_owner {
            self.pages = check_pages(&db, &path)?;
        }
        Ok(())
    }

    /// A file that is not there is made at the first start, unless there was one.
    fn demand_new(&self) -> Result<(), SqliteOpenError> {
        for suffix in ["-wal", "-lock"] {
            let beside = beside(&self.path, suffix);
            if has_bytes(&beside) {
                return Err(SqliteOpenError::Gone { path: self.path.clone(), beside });
            }
        }
        Ok(())
    }
}

/// From the header: a file that is read without its log tells another mode.
fn is_wal(path: &Path) -> io::Result<bool> {
    let mut header = [0; 20];
    File::open(path)?.read_exact(&mut header)?;
    Ok(header[18..] == [WAL_VERSION; 2])
}

/// Without a log the file is read as it is: else SQLite would make a log and its shared memory beside it.
fn connect(path: &Path, wal: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let how = if has_bytes(wal) { "?mode=ro" } else { "?immutable=1" };
    let db = Connection::open_with_flags(format!("file:{}{how}", escaped(path)), flags)?;
    db.busy_timeout(BUSY_WAIT)?;
    set_checkpoint_at_close(&db, false)?;
    Ok(db)
}

fn has_bytes(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() > 0)
}

/// As a path in a URI of SQLite.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                text.push(char::from(*byte));
            }
            byte => text += &format!("%{byte:02X}"),
        }
    }
    text
}

fn newest(db: &Connection, class: u8) -> rusqlite::Result<Option<StoreTime>> {
    let (table, _) = schema::record(class);
    let sql = format!(
        "SELECT max(first_claimed_at) FROM (SELECT first_claimed_at FROM {table} ORDER BY row DESC LIMIT 100)"
    );
    let newest: Option<i64> = db.query_row(&sql, [], |row| row.get(0))?;
    Ok(newest.map(StoreTime::from_ms))
}

/// Interrupted after [`PAGES_WAIT`].
fn check_pages(db: &Connection, path: &Path) -> Result<PagesChecked, SqliteOpenError> {
    let (done, ended) = mpsc::channel::<()>();
    let interrupt = db.get_interrupt_handle();
    let watch = move || {
        if ended.recv_timeout(PAGES_WAIT) == Err(RecvTimeoutError::Timeout) {
            interrupt.interrupt();
        }
    };
    let watching = thread::Builder::new().name("onlyonce-inspect".to_owned()).spawn(watch);
    watching.map_err(|error| SqliteOpenError::io(path, error))?;
    let found: rusqlite::Result<String> =
        db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    drop(done);
    match found {
        Ok(word) if word == "ok" => Ok(PagesChecked::All),
        Ok(what) => Err(SqliteOpenError::damaged(path, what)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(PagesChecked::Some)
        }
        Err(error) => Err(SqliteOpenError::engine(path, error)),
    }
}

/// How long the pages of a file are looked at.
pub const PAGES_WAIT: Duration = Duration::from_secs(60);
/// The versions for writing and reading of a file in WAL mode.
const WAL_VERSION: u8 = 2;
