//! A wall clock of a server's own, which a test may set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::folder;

/// The clock of one server, by `shim/clock.c`.
#[derive(Debug)]
pub(crate) struct ServerClock {
    library: PathBuf,
    ahead: PathBuf,
}

impl ServerClock {
    /// Right, until it is set. Its files are in `folder`.
    pub(crate) fn build(folder: &Path) -> Self {
        let clock = Self { library: folder.join("clock.so"), ahead: folder.join("ahead") };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/shim/clock.c");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-o"]).arg(&clock.library);
        let made = cc.arg(source).output().expect("a C compiler runs; scripts/test installs one");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{source} does not compile: {said}");
        fs::write(&clock.ahead, 0_i64.to_ne_bytes()).expect("a file can be written");
        folder::hand_over(&clock.ahead);
        clock
    }

    /// `command` lives by this clock.
    pub(crate) fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("CLOCK_AHEAD", &self.ahead);
    }

    pub(crate) fn set_ahead(&self, seconds: i64) {
        // In place and in one write: the server may read it at any moment.
        let file = fs::OpenOptions::new().write(true).open(&self.ahead).expect("it can be opened");
        let written = std::os::unix::fs::FileExt::write_at(&file, &seconds.to_ne_bytes(), 0);
        assert_eq!(written.expect("it can be written"), size_of::<i64>());
    }
}
