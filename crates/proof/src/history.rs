//! The lines that [the checker](crate::checker) reads: what clients sent and got, and what was done to whom.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

/// A file of lines, each with the time at which it was noted.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    file: Mutex<BufWriter<File>>,
}

impl History {
    /// A new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = Mutex::new(BufWriter::new(File::create(path)?));
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds a line; the time that it was given.
    ///
    /// # Panics
    /// If the file cannot be written: a history with a gap proves nothing.
    pub fn note(&self, mut line: Value) -> u64 {
        let mut file = self.file();
        let t = now_ns();
        line["t"] = t.into();
        writeln!(file, "{line}").expect("a history can be written");
        t
    }

    /// Every line so far.
    pub fn text(&self) -> io::Result<String> {
        self.file().flush()?;
        fs::read_to_string(&self.path)
    }

    fn file(&self) -> MutexGuard<'_, BufWriter<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time by the clock that all processes of a machine share, and nobody sets.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
