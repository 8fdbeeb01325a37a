//! The file and what lies beside it: who owns it, whether it is ours, and whether it is still there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::store::sqlite::error::OpenError;
use crate::store::sqlite::layout::schema;

/// A store file that this process owns until the value is dropped.
#[derive(Debug)]
pub(crate) struct OwnedFile {
    path: PathBuf,
    lock: File,
}

impl OwnedFile {
    /// Takes the lock beside `path`. Symbolic links are followed first, so that a file has one lock.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let path = resolve(path)?;
        let failed = |error| OpenError::io(&path, error);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let lock = private(&mut options).open(beside(&path, "-lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path }),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn wal(&self) -> PathBuf {
        beside(&self.path, "-wal")
    }

    /// Whether the file is there; refused if it is not and once was, or if it is not ours.
    pub(crate) fn inspect(&self) -> Result<bool, OpenError> {
        match fs::metadata(&self.path) {
            Ok(found) if found.len() == 0 => Err(OpenError::Empty { path: self.path.clone() }),
            Ok(found) => self.inspect_header(found.len()).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_never_existed().map(|()| false)
            }
            Err(error) => Err(OpenError::io(&self.path, error)),
        }
    }

    /// Puts a complete new file, made by `fill` under another name, in its place.
    pub(crate) fn create(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let failed = |error| OpenError::io(&self.path, error);
        let new = beside(&self.path, "-new");
        for left in ["-new", "-new-wal", "-new-shm", "-new-journal"] {
            remove_if_there(&beside(&self.path, left)).map_err(failed)?;
        }
        private(OpenOptions::new().write(true).create_new(true)).open(&new).map_err(failed)?;
        fill(&new)?;
        File::open(&new).and_then(|file| file.sync_all()).map_err(failed)?;
        fs::rename(&new, &self.path).map_err(failed)?;
        sync_directory(&self.path).map_err(failed)
    }

    /// Makes the names of the file and of its log durable. The engine does so too when it makes a log,
    /// but does not say when that fails: the log would be gone after a power cut.
    pub(crate) fn sync_names(&self) -> Result<(), OpenError> {
        sync_directory(&self.path).map_err(|error| OpenError::io(&self.path, error))
    }

    /// Notes beside the file that it exists, so that it is not made anew should it vanish.
    pub(crate) fn write_marker(&self) -> Result<(), OpenError> {
        let failed = |error| OpenError::io(&self.path, error);
        if self.lock.metadata().map_err(failed)?.len() > 0 {
            return Ok(());
        }
        (&self.lock).write_all(REMEMBERED.as_bytes()).map_err(failed)?;
        self.lock.sync_all().map_err(failed)?;
        sync_directory(&self.path).map_err(failed)
    }

    /// Gives the log the blocks that it will need, in one piece: a log that grows commit by commit is
    /// scattered over the disk, and every commit after that pays for it. A wish, not a need.
    #[cfg(target_os = "linux")]
    pub(crate) fn reserve_wal(&self, bytes: u64) {
        if let Ok(log) = OpenOptions::new().write(true).open(self.wal()) {
            let keep_size = rustix::fs::FallocateFlags::KEEP_SIZE;
            if rustix::fs::fallocate(&log, keep_size, 0, bytes).is_err() {
                // What was reserved before the disk was full is given back.
                let length = log.metadata().map(|found| found.len());
                drop(length.and_then(|length| log.set_len(length)));
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn reserve_wal(&self, _: u64) {}

    /// Which files these are now.
    pub(crate) fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity { file: inode(&self.path)?, wal: inode(&self.wal())? })
    }

    /// Whether the file is still the one that was opened, whatever became of its log.
    pub(crate) fn is_same_file(&self, opened: FileIdentity) -> bool {
        inode(&self.path).is_ok_and(|file| file == opened.file)
    }

    fn check_never_existed(&self) -> Result<(), OpenError> {
        let gone = |beside| Err(OpenError::Gone { path: self.path.clone(), beside });
        let lock = self.lock.metadata().map_err(|error| OpenError::io(&self.path, error))?;
        if self.wal().exists() {
            return gone(self.wal());
        }
        if lock.len() > 0 {
            return gone(beside(&self.path, "-lock"));
        }
        Ok(())
    }

    /// Reads the header before the engine does, which would recover a stranger's journal.
    fn inspect_header(&self, length: u64) -> Result<(), OpenError> {
        let mut header = [0; HEADER_BYTES];
        let read = File::open(&self.path).and_then(|mut file| file.read_exact(&mut header));
        match read {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(OpenError::damaged(&self.path, "it is cut short"));
            }
            read => read.map_err(|error| OpenError::io(&self.path, error))?,
        }
        let number = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if !header.starts_with(MAGIC) || i64::from(number(68)) != schema::APPLICATION_ID {
            return Err(OpenError::NotOurs { path: self.path.clone() });
        }
        schema::check_format(&self.path, i64::from(number(60)))?;
        let page = i64::from(u16::from_be_bytes([header[16], header[17]]));
        self.inspect_length(length, page, i64::from(number(28)))
    }

    /// A file shorter than its header says has lost its end; with a log beside it, the log may have it.
    fn inspect_length(&self, length: u64, page: i64, pages: i64) -> Result<(), OpenError> {
        if page != schema::PAGE_BYTES {
            return Err(OpenError::damaged(&self.path, "its header has another page size"));
        }
        let logged = fs::metadata(self.wal()).is_ok_and(|wal| wal.len() > 0);
        if !logged && length < (page * pages).unsigned_abs() {
            return Err(OpenError::damaged(&self.path, "it is cut short"));
        }
        Ok(())
    }
}

/// The file and its log, told apart from any that took their place.
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

/// Without inodes it is only known that the file is there.
#[cfg(not(unix))]
fn inode(path: &Path) -> io::Result<Inode> {
    fs::metadata(path).map(|_| (0, 0))
}

/// Only the owner reads keys and answers.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    match fs::canonicalize(path) {
        Ok(found) => return Ok(found),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(OpenError::io(path, error));
        }
        Err(_) => {}
    }
    let Some(name) = path.file_name() else {
        return Err(OpenError::io(path, io::ErrorKind::InvalidInput.into()));
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = fs::canonicalize(directory.unwrap_or_else(|| Path::new(".")));
    directory.map(|found| found.join(name)).map_err(|error| OpenError::io(path, error))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
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

/// A name is durable once its directory is.
fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if cfg!(unix) => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;
const REMEMBERED: &str =
    "The store beside this file exists. Whoever holds this file's lock owns it.\n";
