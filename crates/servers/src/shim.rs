//! Libraries that stand between a server and its machine, and the file by which a test tells them what to do.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::folder;

/// One of them, at work.
#[derive(Debug)]
pub(crate) struct Shim {
    library: PathBuf,
    state: PathBuf,
    /// The variable that names the file.
    variable: &'static str,
}

impl Shim {
    /// `shim/clock.c`: right, until it is told otherwise.
    pub(crate) fn clock(folder: &Path) -> Self {
        Self::build(folder, "clock", "CLOCK_AHEAD", &0_i64.to_ne_bytes())
    }

    /// `shim/disk.c`: sound, until it is told otherwise.
    pub(crate) fn disk(folder: &Path) -> Self {
        Self::build(folder, "disk", "DISK_STATE", b"-")
    }

    fn build(folder: &Path, name: &str, variable: &'static str, state: &[u8]) -> Self {
        let library = folder.join(format!("{name}.so"));
        let source = format!("{}/shim/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-o"]).arg(&library);
        let made = cc.arg(&source).output().expect("a C compiler runs; scripts/test installs one");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{source} does not compile: {said}");
        let shim = Self { library, state: folder.join(name), variable };
        fs::write(&shim.state, state).expect("a file can be written");
        folder::hand_over(&shim.state);
        shim
    }

    /// `command` runs with it.
    pub(crate) fn put_under(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env(self.variable, &self.state);
    }

    /// What it does from now on.
    pub(crate) fn tell(&self, state: &[u8]) {
        // In place and in one write: the server may read it at any moment.
        let file = fs::OpenOptions::new().write(true).open(&self.state).expect("it can be opened");
        file.write_all_at(state, 0).expect("it can be written");
    }
}
