//! What is wrong with a configuration, and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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

/// A note that knows only the byte where it belongs.
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

/// The remarks in the order of the file, each said once.
pub(super) fn notes(remarks: Remarks, text: &str, file: &Path) -> Vec<Note> {
    let Remarks(mut remarks) = remarks;
    remarks.sort();
    remarks.dedup();
    let note = |remark: Remark| {
        let (line, column) = place(text, remark.at);
        Note { file: file.to_owned(), line, column, message: remark.message }
    };
    remarks.into_iter().map(note).collect()
}

fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line = before.rsplit('\n').next().unwrap_or_default();
    // No editor counts the mark that some of them put first.
    let line = line.trim_start_matches('\u{feff}');
    (1 + before.matches('\n').count(), 1 + line.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a = 1\nä = \"ö\" # x\n";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 6), (2, 1));
        assert_eq!(place(text, text.find('#').unwrap()), (2, 9));
        assert_eq!(place(text, 7), (2, 1), "inside a character");
        assert_eq!(place(text, 999), (3, 1));
        assert_eq!(place("\u{feff}a = 1", 3), (1, 1), "after a byte order mark");
    }
}
