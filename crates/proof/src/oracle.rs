//! Counts executions outside of everything that is under test: one synced line each.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

/// An append-only file with a line per execution.
#[derive(Debug)]
pub struct Oracle(Mutex<File>);

impl Oracle {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    /// The effect: `key` is executed now. It is on the page cache of the system before this returns,
    /// which is enough: only this process is killed, never the machine.
    pub fn execute(&self, key: &str) -> io::Result<()> {
        let mut file = self.0.lock().map_err(|_| io::Error::other("an execution panicked"))?;
        file.write_all(format!("{key}\n").as_bytes())
    }

    /// The effect that `line` tells of: on the disk before this returns, so that not even the machine forgets it.
    pub fn note(&self, line: &str) -> io::Result<()> {
        let mut file = self.0.lock().map_err(|_| io::Error::other("an execution panicked"))?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()
    }

    /// How often each key was executed.
    pub fn executions(path: &Path) -> io::Result<HashMap<String, usize>> {
        let mut executions = HashMap::new();
        for key in std::fs::read_to_string(path)?.lines() {
            *executions.entry(key.to_owned()).or_default() += 1;
        }
        Ok(executions)
    }
}
