//! Other names of the store file: a hard link, or a mount of the file alone into another directory. Each name has a lock file
//! and a log of its own, so that two processes would own the file without a word, and a process that has another name than the
//! last one would not see what is only in the log.

use std::fs::File;
use std::path::Path;

use crate::store::sqlite::error::SqliteOpenError;

/// Refuses a file with more than one name. What else is wrong with it is for others to find.
pub(super) fn demand_one(path: &Path) -> Result<(), SqliteOpenError> {
    let names = hard_links(path);
    if names > 1 {
        return Err(SqliteOpenError::Linked { path: path.to_owned(), names });
    }
    match is_mounted_alone(path) {
        true => Err(SqliteOpenError::Mounted { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Of a file; a directory is no store.
#[cfg(unix)]
fn hard_links(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    found.map_or(0, |found| found.nlink())
}

#[cfg(not(unix))]
fn hard_links(_: &Path) -> u64 {
    0
}

/// Whether the file is on another mount than its directory. Kernels before 5.8 do not tell.
#[cfg(target_os = "linux")]
fn is_mounted_alone(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let mount = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
    };
    let directory = path.parent().and_then(mount);
    directory.zip(mount(path)).is_some_and(|(directory, file)| directory != file)
}

#[cfg(not(target_os = "linux"))]
fn is_mounted_alone(_: &Path) -> bool {
    false
}

/// Locks the file itself, whatever its name is here. Keep the file open for longer than SQLite has it open: when a process
/// closes any descriptor of a file, it loses the locks that SQLite has on it.
///
/// Only on Linux, and not where the file system makes this lock of the kind of locks that SQLite takes: the file would be
/// locked for SQLite too.
#[cfg(target_os = "linux")]
pub(super) fn lock(path: &Path) -> Result<Option<File>, SqliteOpenError> {
    use std::fs::TryLockError;
    let failed = |error| SqliteOpenError::io(path, error);
    let file = File::open(path).map_err(failed)?;
    let kind = rustix::fs::fstatfs(&file).map_err(|error| failed(error.into()))?.f_type;
    if LOCKS_ARE_ONE_KIND.contains(&kind.cast_unsigned()) {
        return Ok(None);
    }
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(SqliteOpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn lock(_: &Path) -> Result<Option<File>, SqliteOpenError> {
    Ok(None)
}

/// NFS, CIFS, SMB and 9P, as linux/magic.h numbers them. `onlyonce doctor` says that a store does not belong there.
#[cfg(target_os = "linux")]
const LOCKS_ARE_ONE_KIND: [u64; 4] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997];
