//! What is wrong with a configuration, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a configuration cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read. Check its path and its permissions.
    #[error("{}: the file cannot be read", .file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is too long for a configuration. Check that it is one.
    #[error("{}: the file has more than {bytes_max} bytes", .file.display())]
    TooLong {
        /// Which file.
        file: PathBuf,
        /// What is allowed.
        bytes_max: u64,
    },
    /// Correct what each line names.
    #[error("{}", lines(.0))]
    Wrong(Vec<Note>),
}

fn lines(notes: &[Note]) -> String {
    let lines: Vec<_> = notes.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// One sentence about one place of a file: `onlyonce.toml:12:3: unknown name …`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// Which file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1, in characters.
    pub column: usize,
    /// What is to be said.
    pub message: String,
}

impl Note {
    /// The note as a line that says that it is no error.
    pub fn as_warning(&self) -> String {
        let message = format!("warning: {}", self.message);
        let note = Self { message, ..self.clone() };
        note.to_string()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, message) = (self.file.display(), &self.message);
        write!(f, "{file}:{}:{}: {message}", self.line, self.column)
    }
}

/// A note that knows only the byte where it belongs, among all files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Remark {
    at: usize,
    message: String,
}

impl Remark {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// All that is wrong with a part of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Remarks(pub(super) Vec<Remark>);

impl Remarks {
    /// The value, unless there is something to remark.
    pub(super) fn gather<T>(&mut self, read: Result<T, impl Into<Self>>) -> Option<T> {
        read.map_err(|wrong| self.0.extend(wrong.into().0)).ok()
    }

    /// Each place and what is to be said there, in the order of the files, once.
    pub(super) fn in_order(mut self) -> impl Iterator<Item = (usize, String)> {
        self.0.sort();
        self.0.dedup();
        self.0.into_iter().map(|remark| (remark.at, remark.message))
    }

    /// Nothing, or what was gathered.
    pub(super) fn none(self) -> Result<(), Self> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(self),
        }
    }
}

impl From<Remark> for Remarks {
    fn from(remark: Remark) -> Self {
        Self(vec![remark])
    }
}
