//! Ownership of the store file: the lock beside it, the marker that it exists, and whether it is still the same file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::store::sqlite::error::SqliteOpenError;
use crate::store::sqlite::file::header;
use crate::store::sqlite::file::names;
use crate::store::sqlite::file::wal_check::{self, Wal};

/// A store file that this process owns until the value is dropped.
#[derive(Debug)]
pub(crate) struct OwnedFile {
    path: PathBuf,
    lock: File,
    /// The lock file says that the WAL has commits whose callers were answered.
    expects_wal: bool,
    /// The file itself, locked: see [`names::lock`]. Dropped with the rest, after the connections.
    file: Option<File>,
}

impl OwnedFile {
    /// Locks `<path>-lock`. Symbolic links are resolved first, so that a file has one lock whatever its names.
    pub(crate) fn take(path: &Path) -> Result<Self, SqliteOpenError> {
        let path = resolve(path)?;
        names::demand_one(&path)?;
        let failed = |error| SqliteOpenError::io(&path, error);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let lock = private(&mut options).open(beside(&path, "-lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {
                let expects_wal = lock.metadata().map_err(failed)?.len() > MARKER_BYTES;
                Ok(Self { path, lock, expects_wal, file: None })
            }
            Err(TryLockError::WouldBlock) => Err(SqliteOpenError::InUse { path }),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Locks the file itself, once it exists: it may have another lock file under another name.
    pub(crate) fn lock_file(&mut self) -> Result<(), SqliteOpenError> {
        self.file = names::lock(&self.path)?;
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn wal(&self) -> PathBuf {
        beside(&self.path, "-wal")
    }

    /// Whether the file exists. Refused if it existed once and is gone, or if it is not a store.
    pub(crate) fn inspect(&self) -> Result<bool, SqliteOpenError> {
        match fs::metadata(&self.path) {
            Ok(found) if found.len() == 0 => {
                Err(SqliteOpenError::Empty { path: self.path.clone() })
            }
            Ok(found) => header::check(&self.path, &self.wal(), found.len()).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_never_existed().map(|()| false)
            }
            Err(error) => Err(SqliteOpenError::io(&self.path, error)),
        }
    }

    /// Creates the file: `fill` makes it under another name, and it is renamed once it is complete and synced.
    pub(crate) fn create(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), SqliteOpenError>,
    ) -> Result<(), SqliteOpenError> {
        self.create_as(&self.path, fill)
    }

    /// Saves all records as `<path>-rescued`, in the same way. One that is there already is kept.
    pub(crate) fn rescue(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), SqliteOpenError>,
    ) -> Result<(), SqliteOpenError> {
        self.check_not_rescued()?;
        self.create_as(&rescued(&self.path), fill)
    }

    fn create_as(
        &self,
        path: &Path,
        fill: impl FnOnce(&Path) -> Result<(), SqliteOpenError>,
    ) -> Result<(), SqliteOpenError> {
        let failed = |error| SqliteOpenError::io(&self.path, error);
        let new = beside(&self.path, "-new");
        for left in ["-new", "-new-wal", "-new-shm", "-new-journal"] {
            remove_if_there(&beside(&self.path, left)).map_err(failed)?;
        }
        private(OpenOptions::new().write(true).create_new(true)).open(&new).map_err(failed)?;
        fill(&new)?;
        File::open(&new).and_then(|file| file.sync_all()).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)?;
        sync_directory(&self.path).map_err(failed)
    }

    /// Syncs the directory, so that the names of the file and of the WAL survive a power cut. SQLite does so when it
    /// creates the WAL, but does not report a failure.
    pub(crate) fn sync_names(&self) -> Result<(), SqliteOpenError> {
        sync_directory(&self.path).map_err(|error| SqliteOpenError::io(&self.path, error))
    }

    /// Writes into the lock file that the store exists. If the store file vanishes, the next open then refuses to create
    /// an empty one.
    pub(crate) fn write_marker(&self) -> Result<(), SqliteOpenError> {
        let failed = |error| SqliteOpenError::io(&self.path, error);
        if self.lock.metadata().map_err(failed)?.len() >= MARKER_BYTES {
            return Ok(());
        }
        // A crash may have left a part of it.
        self.lock.set_len(0).map_err(failed)?;
        (&self.lock).write_all(MARKER.as_bytes()).map_err(failed)?;
        self.lock.sync_all().map_err(failed)?;
        sync_directory(&self.path).map_err(failed)
    }

    /// Notes in the lock file, durably, that the WAL has commits whose callers were answered: a WAL that is then found absent
    /// or empty was lost. Between the first commit after the WAL was empty and the answers to it: before, a crash would leave a note
    /// without a commit, and the next open would be refused for nothing.
    pub(crate) fn expect_wal(&mut self) -> io::Result<()> {
        if self.expects_wal {
            return Ok(());
        }
        (&self.lock).write_all(WAL_NOTE.as_bytes())?;
        self.lock.sync_data()?;
        self.expects_wal = true;
        Ok(())
    }

    /// Takes the note back, durably: all of the WAL is in the file. Before the WAL is emptied, for the same reason.
    pub(crate) fn expect_no_wal(&mut self) -> io::Result<()> {
        if !self.expects_wal {
            return Ok(());
        }
        self.lock.set_len(MARKER_BYTES)?;
        self.lock.sync_data()?;
        self.expects_wal = false;
        Ok(())
    }

    /// Refuses a store whose records an earlier process saved as another file.
    pub(crate) fn check_not_rescued(&self) -> Result<(), SqliteOpenError> {
        check_not_rescued(&self.path)
    }

    /// Checks the WAL before SQLite reads it. SQLite takes a WAL that is absent, empty or damaged for one that ends there, and drops
    /// commits without a word.
    pub(crate) fn check_wal(&self) -> Result<(), SqliteOpenError> {
        check_wal(&self.path, self.expects_wal)
    }

    /// Reserves disk blocks for the WAL in one piece. A WAL that grows commit by commit is scattered over the disk, and
    /// every commit becomes slower. Best effort.
    #[cfg(target_os = "linux")]
    pub(crate) fn reserve_wal(&self, bytes: u64) {
        if let Ok(log) = OpenOptions::new().write(true).open(self.wal()) {
            let keep_size = rustix::fs::FallocateFlags::KEEP_SIZE;
            if rustix::fs::fallocate(&log, keep_size, 0, bytes).is_err() {
                // Gives back what was reserved before the disk was full.
                let length = log.metadata().map(|found| found.len());
                drop(length.and_then(|length| log.set_len(length)));
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn reserve_wal(&self, _: u64) {}

    /// Which files are at the paths now.
    pub(crate) fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity { file: inode(&self.path)?, wal: inode(&self.wal())? })
    }

    /// Whether one of the files is gone, or another one is at its path.
    pub(crate) fn is_replaced(&self, opened: FileIdentity) -> bool {
        match self.identity() {
            Ok(found) => found != opened,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    pub(crate) fn is_only_wal_gone(&self, opened: FileIdentity) -> bool {
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        self.is_same_file(opened) && inode(&self.wal()).is_err_and(is_gone)
    }

    /// Whether the store file is still the one that was opened. The WAL may be another one.
    pub(crate) fn is_same_file(&self, opened: FileIdentity) -> bool {
        inode(&self.path).is_ok_and(|file| file == opened.file)
    }

    fn check_never_existed(&self) -> Result<(), SqliteOpenError> {
        let gone = |beside| Err(SqliteOpenError::Gone { path: self.path.clone(), beside });
        let lock = self.lock.metadata().map_err(|error| SqliteOpenError::io(&self.path, error))?;
        if self.wal().exists() {
            return gone(self.wal());
        }
        if lock.len() > 0 {
            return gone(beside(&self.path, "-lock"));
        }
        Ok(())
    }
}

/// See [`OwnedFile::check_not_rescued`].
pub(super) fn check_not_rescued(path: &Path) -> Result<(), SqliteOpenError> {
    let rescued = rescued(path);
    match rescued.exists() {
        true => Err(SqliteOpenError::Rescued { path: path.to_owned(), rescued }),
        false => Ok(()),
    }
}

fn rescued(path: &Path) -> PathBuf {
    beside(path, "-rescued")
}

/// What a process that does not own the file finds of its WAL, by the note in the lock file: see [`OwnedFile::check_wal`].
pub(super) fn check_wal_of(path: &Path) -> Result<(), SqliteOpenError> {
    let lock = fs::metadata(beside(path, "-lock")).map_or(0, |found| found.len());
    check_wal(path, lock > MARKER_BYTES)
}

fn check_wal(path: &Path, is_expected: bool) -> Result<(), SqliteOpenError> {
    let wal = beside(path, "-wal");
    match wal_check::look(&wal).map_err(|error| SqliteOpenError::io(path, error))? {
        Wal::Empty if is_expected => Err(SqliteOpenError::LogLost { path: path.to_owned(), wal }),
        Wal::Empty | Wal::Sound => Ok(()),
        Wal::Damaged => Err(SqliteOpenError::damaged(path, "its log is damaged")),
    }
}

/// Device and inode of the store file and of the WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    file: Inode,
    wal: Inode,
}

type Inode = (u64, u64);

#[cfg(unix)]
fn inode(path: &Path) -> io::Result<Inode> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Without inodes this only tells that the file exists.
#[cfg(not(unix))]
fn inode(path: &Path) -> io::Result<Inode> {
    fs::metadata(path).map(|_| (0, 0))
}

/// Creates files that only their owner may read: they hold keys and responses.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

pub(super) fn resolve(path: &Path) -> Result<PathBuf, SqliteOpenError> {
    match fs::canonicalize(path) {
        Ok(found) => return Ok(found),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(SqliteOpenError::io(path, error));
        }
        Err(_) => {}
    }
    let Some(name) = path.file_name() else {
        return Err(SqliteOpenError::io(path, io::ErrorKind::InvalidInput.into()));
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = fs::canonicalize(directory.unwrap_or_else(|| Path::new(".")));
    directory.map(|found| found.join(name)).map_err(|error| SqliteOpenError::io(path, error))
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Makes the names in the directory of `path` durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if cfg!(unix) => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

const MARKER: &str = "The store beside this file exists. Whoever holds this file's lock owns it.\n";
const MARKER_BYTES: u64 = MARKER.len() as u64;
/// Behind the marker. Any byte there counts: a crash may have torn it.
const WAL_NOTE: &str = "Its log (-wal) has records.\n";
