//! The wall clock of a gateway, which a script can set forward.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::process::Command;

/// A clock that is right until it is set.
pub(crate) struct ShiftedClock {
    library: PathBuf,
    /// How far it is ahead, in seconds.
    ahead: PathBuf,
}

impl ShiftedClock {
    /// Compiles what is preloaded, into `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        let library = folder.join("clock.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/planted/clock.c");
        let mut cc = std::process::Command::new("cc");
        cc.args(["-O1", "-Wall", "-Werror", "-fPIC", "-shared"]).arg("-o").arg(&library);
        let made = cc.arg(source).output().expect("a C compiler, as the SQLite store needs one");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { library, ahead: folder.join("ahead") }
    }

    pub(crate) fn set_ahead(&self, days: u32) {
        // In one step, so that nobody reads half of it.
        let half = self.ahead.with_extension("half");
        fs::write(&half, format!("{}\n", days * DAY_S)).unwrap();
        fs::rename(half, &self.ahead).unwrap();
    }

    /// Puts it between `command` and the system's clock.
    pub(crate) fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("SHIFTED_CLOCK", &self.ahead);
    }
}

const DAY_S: u32 = 24 * 60 * 60;
