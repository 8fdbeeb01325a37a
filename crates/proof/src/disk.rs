//! A disk that fails on command, and a power that can be cut: the files of one process, by `shim/disk.c`.

mod journal;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use self::journal::Journal;
pub use self::journal::Survival;

/// The shim, compiled.
#[derive(Debug)]
pub struct Shim {
    library: PathBuf,
}

impl Shim {
    /// Compiles it into `folder`.
    pub fn build(folder: &Path) -> io::Result<Self> {
        let library = folder.join("disk.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/shim/disk.c");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-pthread"]);
        let made = cc.arg("-o").arg(&library).arg(source).output();
        let made = made.map_err(|error| {
            io::Error::other(format!(
                "`cc` does not run ({error}): these tests need a C compiler, as the SQLite store does"
            ))
        })?;
        if made.status.success() {
            return Ok(Self { library });
        }
        let why = String::from_utf8_lossy(&made.stderr).into_owned();
        Err(io::Error::other(format!("{source} does not compile: {why}")))
    }
}

/// What the shim is told, and what it tells, about the files of one prefix.
#[derive(Debug)]
pub struct Disk {
    /// The path that its files begin with.
    prefix: PathBuf,
    /// Where the shim's own files are: on the same file system, and not under the prefix.
    desk: PathBuf,
}

impl Disk {
    /// The files `folder/prefix*`. The shim's own go into `folder/desk`.
    pub fn new(folder: &Path, prefix: &str) -> io::Result<Self> {
        let folder = folder.canonicalize()?;
        let disk = Self { prefix: folder.join(prefix), desk: folder.join("desk") };
        fs::create_dir_all(disk.kept())?;
        disk.arm("none 0 *")?;
        Ok(disk)
    }

    /// Puts the shim between `command` and its disk.
    pub fn under(&self, shim: &Shim, command: &mut Command) {
        let settings: [(&str, OsString); 6] = [
            ("LD_PRELOAD", shim.library.clone().into()),
            ("DISK_PREFIX", self.prefix.clone().into()),
            ("DISK_KEPT", self.kept().into()),
            ("DISK_CONTROL", self.control().into()),
            ("DISK_JOURNAL", self.journal().into()),
            ("DISK_FAULTS", self.desk.join("faults").into()),
        ];
        command.envs(settings);
    }

    /// What fails from now on: `KIND N SUFFIX`, as the shim's head explains.
    pub fn arm(&self, words: &str) -> io::Result<()> {
        // In place and in one write: the shim holds the file open, and may read it at any moment.
        let mut options = fs::OpenOptions::new();
        let mut control = options.write(true).create(true).truncate(false).open(self.control())?;
        control.write_all(format!("{words:<CONTROL_BYTES$}").as_bytes())
    }

    /// The faults so far, a line each.
    pub fn faults(&self) -> Vec<String> {
        let text = fs::read_to_string(self.desk.join("faults")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// After the process is dead: takes from the files what was never synced, and begins anew.
    /// How many changes were undone.
    pub fn cut_power(&self, survival: Survival) -> io::Result<usize> {
        let folder =
            self.prefix.parent().ok_or_else(|| io::Error::other("the prefix has no folder"))?;
        let journal = Journal::read(&self.journal())?;
        let undone = journal.roll_back(&[folder, &self.kept()], survival)?;
        self.forget()?;
        Ok(undone)
    }

    fn forget(&self) -> io::Result<()> {
        for name in ["journal", "faults"] {
            match fs::remove_file(self.desk.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::remove_dir_all(self.kept())?;
        fs::create_dir(self.kept())?;
        self.arm("none 0 *")
    }

    fn kept(&self) -> PathBuf {
        self.desk.join("kept")
    }

    fn control(&self) -> PathBuf {
        self.desk.join("control")
    }

    fn journal(&self) -> PathBuf {
        self.desk.join("journal")
    }
}

/// Every text is padded to this, so that none is left of a longer one.
const CONTROL_BYTES: usize = 100;
