//! Temporary folders that an unprivileged server may use.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use tempfile::TempDir;

use crate::process::{UNPRIVILEGED, is_root};

/// A folder that is removed when dropped.
pub(crate) fn private(name: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix(&format!("onlyonce-{name}-")).tempdir();
    let folder = folder.expect("a temporary folder can be made");
    hand_over(folder.path());
    folder
}

/// A folder in one that is removed.
pub(crate) fn make(path: &Path) {
    fs::create_dir(path).expect("a folder can be made");
    hand_over(path);
}

/// Gives `path` to the user that servers run as.
pub(crate) fn hand_over(path: &Path) {
    if is_root() {
        chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may give a file away");
    }
}

/// A file with `text` that the server may read.
pub(crate) fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).expect("a file can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
    hand_over(path);
}
