//! Why a store could not be opened, and what to do about it.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};

/// Why a store could not be opened. A file that cannot be used is never replaced by an empty one: that would forget keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteOpenError {
    /// Another process, or this one, has the file open, maybe under another name. Stop that process, or use the store that is open.
    #[error("{path} is in use: a store file has one process; stop the other one first")]
    InUse {
        /// The store file.
        path: PathBuf,
    },
    /// The file has several names (hard links), and each name has a lock of its own: two processes could own it at once. Remove the
    /// other names.
    #[error(
        "{path} has {names} names (hard links), and each has a lock of its own: find the others with find / -xdev -samefile {path}, and remove them"
    )]
    Linked {
        /// The store file.
        path: PathBuf,
        /// How many names it has.
        names: u64,
    },
    /// The file alone is mounted into its directory, so that its lock and its log are not where other processes look for them. Mount
    /// the directory that it is in.
    #[error(
        "{path} is mounted without its folder, so that its lock and its log (-wal) are not where others look for them: mount the folder that it is in"
    )]
    Mounted {
        /// The store file.
        path: PathBuf,
    },
    /// The file existed and is gone. Restore it; or, to forget every key, remove the file that the message names.
    #[error(
        "{path} is gone, but {beside} shows that it existed: restore it from a backup, or remove {beside} to start empty and forget every key"
    )]
    Gone {
        /// The store file.
        path: PathBuf,
        /// The file that shows that the store existed.
        beside: PathBuf,
    },
    /// The file has no bytes. Restore it from a backup; or remove it, if it never was a store.
    #[error(
        "{path} is empty: restore it from a backup; if it never was a store, remove it and one is made"
    )]
    Empty {
        /// The store file.
        path: PathBuf,
    },
    /// The file is not an onlyonce store. Give another path.
    #[error("{path} is not an onlyonce store: give another path")]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// Written by a newer version. Run that version, or a newer one.
    #[error(
        "{path} has format {found}, and this build reads up to {supported}: run the version that wrote it"
    )]
    Newer {
        /// The store file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format that this build reads.
        supported: i64,
    },
    /// Written by a build that was never released. Use a new file; nothing was changed in this one.
    #[error(
        "{path} has format {found} of an unreleased build, and this build reads only format {supported}: use a new file. Retries of keys in the old one will be executed again"
    )]
    Older {
        /// The store file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format that this build reads.
        supported: i64,
    },
    /// The records were moved to another store. Open that one.
    #[error("{path} was moved to {to}: open that one")]
    Moved {
        /// The store file.
        path: PathBuf,
        /// Where its records went.
        to: String,
    },
    /// The file is not as it was written. Restore it from a backup; nothing was changed.
    #[error("{path} is damaged ({what}): restore it from a backup, and keep this copy")]
    Damaged {
        /// The store file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// The error of SQLite, if SQLite found the damage.
        #[source]
        source: Option<rusqlite::Error>,
    },
    /// The log had records that are in no other file, and it is gone or empty. Put it back; or restore the store from a backup and
    /// accept that keys are forgotten: [`SqliteOptions::with_forgetting_accepted`](super::SqliteOptions::with_forgetting_accepted).
    #[error(
        "{wal} is gone or empty, and had records that {path} does not have: put it back; or restore a backup and start once with --accept-forgetting, and a retry of an operation that is not in it will be executed again"
    )]
    LogLost {
        /// The store file.
        path: PathBuf,
        /// Its log.
        wal: PathBuf,
    },
    /// The store file or its log was replaced while the store was open, and all its records were saved as another file. Put that file
    /// in place of the store, and remove the log.
    #[error(
        "{path} or its log was replaced while it was open, and {rescued} has all records: remove {path}-wal and {path}-shm and rename {rescued} to {path}, and keep a copy of what is there now; or remove {rescued} to forget what only it has"
    )]
    Rescued {
        /// The store file.
        path: PathBuf,
        /// The file with all records.
        rescued: PathBuf,
    },
    /// A setting that durability needs could not be set. Put the file on another file system.
    #[error(
        "{path} cannot be made durable: {pragma} is {found}, not {wanted}; put it on a local disk"
    )]
    NotDurable {
        /// The store file.
        path: PathBuf,
        /// The setting.
        pragma: &'static str,
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        found: String,
    },
    /// The directory of the file does not exist. Create it first.
    #[error("the directory of {path} does not exist: make it first")]
    NoDirectory {
        /// The store file.
        path: PathBuf,
    },
    /// This user may not write the file or its directory. Change the owner or the mode of both.
    #[error("no permission for {path}: this user must be able to write it and its directory")]
    NoPermission {
        /// The store file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The disk is full. Make room.
    #[error("the disk of {path} is full: make room")]
    DiskFull {
        /// The store file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another program reads or writes the file. End it, and open the store again.
    #[error("{path} is locked by another program: end it and try again")]
    Busy {
        /// The store file.
        path: PathBuf,
        /// The error of SQLite.
        #[source]
        source: rusqlite::Error,
    },
    /// The operating system refused; its error says why. Nothing was changed.
    #[error("{path} cannot be used")]
    Io {
        /// The store file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// SQLite refused; its error says why. Nothing was changed.
    #[error("{path} cannot be opened")]
    Engine {
        /// The store file.
        path: PathBuf,
        /// The error of SQLite.
        #[source]
        source: rusqlite::Error,
    },
}

impl SqliteOpenError {
    /// From an error of the operating system.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NoDirectory { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NoPermission { path, source }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path, source: Box::new(source) }
            }
            _ => Self::Io { path, source },
        }
    }

    /// From an error of SQLite.
    pub(super) fn engine(path: &Path, source: rusqlite::Error) -> Self {
        if source.sqlite_error_code() == Some(ErrorCode::CannotOpen)
            && let Err(error) = try_files(path)
        {
            return Self::io(path, error);
        }
        let has_no_room = source.sqlite_error().is_some_and(has_no_room);
        let path = path.to_owned();
        match source.sqlite_error_code() {
            _ if has_no_room => Self::DiskFull { path, source: Box::new(source) },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged {
                path,
                what: "its pages do not read".to_owned(),
                source: Some(source),
            },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Busy { path, source }
            }
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::NoPermission {
                path,
                source: io::Error::new(io::ErrorKind::PermissionDenied, source),
            },
            _ => Self::Engine { path, source },
        }
    }

    /// Damage that was found here and not by SQLite.
    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into(), source: None }
    }
}

/// Whether the disk is full. If the shared memory of the WAL cannot grow, SQLite reports an I/O error of its own.
fn has_no_room(error: &ffi::Error) -> bool {
    error.code == ErrorCode::DiskFull || error.extended_code == ffi::SQLITE_IOERR_SHMSIZE
}

/// Tries to open the file and to create one beside it: SQLite only says that it could not, the operating system says why.
fn try_files(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open(path)?;
    let mut trial = path.as_os_str().to_owned();
    trial.push("-trial");
    OpenOptions::new().append(true).create(true).open(&trial)?;
    fs::remove_file(&trial)
}
