//! Why a store could not be opened, and what to do about it.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};

/// Why a store could not be opened. It is never answered with an empty one: that would forget keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or this one, has it open. Stop that one, or use its store.
    #[error("{path} is in use: a store file has one process; stop the other one first")]
    InUse {
        /// The store file.
        path: PathBuf,
    },
    /// It was there and is gone. Restore it; or, to forget every key, remove what is left of it.
    #[error(
        "{path} is gone, but {beside} shows that it existed: restore it from a backup, or remove {beside} to start empty and forget every key"
    )]
    Gone {
        /// The store file.
        path: PathBuf,
        /// What shows that it existed.
        beside: PathBuf,
    },
    /// A file of no bytes. Restore the store; or remove the file, if there never was one.
    #[error(
        "{path} is empty: restore it from a backup; if it never was a store, remove it and one is made"
    )]
    Empty {
        /// The store file.
        path: PathBuf,
    },
    /// Not a store of ours. Give another path.
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
        /// Its format.
        found: i64,
        /// Ours.
        supported: i64,
    },
    /// Written by a build that was never released. Use a new file; nothing was changed in this one.
    #[error(
        "{path} has format {found} of an unreleased build, and this build reads only format {supported}: use a new file. Retries of keys in the old one will be executed again"
    )]
    Older {
        /// The store file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// Ours.
        supported: i64,
    },
    /// Its records are kept elsewhere now. Open that one.
    #[error("{path} was moved to {to}: open that one")]
    Moved {
        /// The store file.
        path: PathBuf,
        /// Where its records went.
        to: String,
    },
    /// What it holds is not what was written. Restore it from a backup; nothing was changed.
    #[error("{path} is damaged ({what}): restore it from a backup, and keep this copy")]
    Damaged {
        /// The store file.
        path: PathBuf,
        /// What was found.
        what: String,
        /// What the engine below said, if it was the one to find it.
        #[source]
        source: Option<rusqlite::Error>,
    },
    /// A setting that the promise rests on is not in force. Put the file on another file system.
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
    /// Its directory does not exist. Make it first.
    #[error("the directory of {path} does not exist: make it first")]
    NoDirectory {
        /// The store file.
        path: PathBuf,
    },
    /// This user may not. Change the owner or the mode of the file and of its directory.
    #[error("no permission for {path}: this user must be able to write it and its directory")]
    NoPermission {
        /// The store file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The disk is full. Make room.
    #[error("the disk of {path} is full: make room")]
    DiskFull {
        /// The store file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another program reads or writes the file. End it, and open the store again.
    #[error("{path} is held by another program: end it and try again")]
    Busy {
        /// The store file.
        path: PathBuf,
        /// What the engine said.
        #[source]
        source: rusqlite::Error,
    },
    /// The system refused. Its own words say why; nothing was changed.
    #[error("{path} cannot be used")]
    Io {
        /// The store file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The engine below refused. Its own words say why; nothing was changed.
    #[error("{path} cannot be opened")]
    Engine {
        /// The store file.
        path: PathBuf,
        /// What it said.
        #[source]
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// What the system said of `path`.
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

    /// What the engine said of `path`.
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

    /// What we found in `path` ourselves.
    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into(), source: None }
    }
}

/// The shared memory beside the file could not grow: the engine has no better word for a full disk there.
fn has_no_room(error: &ffi::Error) -> bool {
    error.code == ErrorCode::DiskFull || error.extended_code == ffi::SQLITE_IOERR_SHMSIZE
}

/// The engine does not say why it could not open a file or make one beside it; the system does.
fn try_files(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open(path)?;
    let mut trial = path.as_os_str().to_owned();
    trial.push("-trial");
    OpenOptions::new().append(true).create(true).open(&trial)?;
    fs::remove_file(&trial)
}
