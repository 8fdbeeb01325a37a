//! The files of a configuration: the one that was named, and those that it includes.
//!
//! 1. `include` names files relative to the folder of the file that says it. One `*` in a file name stands for any
//!    text but a leading dot.
//! 2. Files come in the order of the list; those of one `*` by their names. Each comes once, where it is named first.
//! 3. What matches nothing is an error: routes that are missing would leave their requests to `[policy]`, and nobody
//!    would notice.
//! 4. An included file includes nothing: it has `[[route]]` tables, and the reader refuses all else.

use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::error::{Note, Remarks};
use super::field::{Context, Field, each};
use super::include::{self, IncludeError};
use super::names::TOP;

/// The texts of all files, one after the other: a place is a byte among all of them.
#[derive(Debug)]
pub(super) struct Sources {
    main: Source,
    included: Vec<Source>,
    /// What is wrong with the files as such.
    pub(super) wrong: Remarks,
}

/// One file.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Where it begins among all of them.
    pub(super) begins_at: usize,
}

impl Sources {
    /// The file with this text, and those that it includes.
    pub(super) fn gather(text: &str, path: &Path) -> Self {
        let main = Source { path: path.to_owned(), text: text.to_owned(), begins_at: 0 };
        let mut sources = Self { main, included: Vec::new(), wrong: Remarks::default() };
        // A text that is no TOML, and whatever else is wrong in it, is the reader's to tell.
        if let Ok(table) = DeTable::parse(text) {
            let context = Context { env: &|_| None, begins_at: 0 };
            let _ = each(table.get_ref(), &TOP, context, |field| {
                if field.name.name == "include" {
                    let included = sources.include(field);
                    sources.wrong.gather(included);
                }
                Ok(())
            });
        }
        sources
    }

    fn include(&mut self, field: Field<'_>) -> Result<(), Remarks> {
        let folder = self.main.path.parent().unwrap_or_else(|| Path::new("")).to_owned();
        let mut wrong = Remarks::default();
        for member in field.members()? {
            let found = include::matching(member.text()?, &folder);
            for path in
                wrong.gather(found.map_err(|error| member.because(&error))).unwrap_or_default()
            {
                wrong.gather(self.add(path).map_err(|error| member.because(&error)));
            }
        }
        wrong.none()
    }

    fn add(&mut self, path: PathBuf) -> Result<(), IncludeError> {
        if self.all().any(|source| source.path == path) {
            return Ok(());
        }
        if self.included.len() == FILES_MAX {
            return Err(IncludeError::TooMany { files_max: FILES_MAX });
        }
        let text = super::text_of(&path)?;
        let begins_at = self.end();
        if begins_at + text.len() > BYTES_MAX {
            return Err(IncludeError::TooLong { bytes_max: BYTES_MAX });
        }
        self.included.push(Source { path, text, begins_at });
        Ok(())
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = &Source> {
        [&self.main].into_iter().chain(&self.included)
    }

    /// Past the end of the last file, whose end is a place too.
    fn end(&self) -> usize {
        self.all().next_back().map_or(0, |last| last.begins_at + last.text.len() + 1)
    }

    /// The text of the file that was named.
    pub(super) fn main(&self) -> &str {
        &self.main.text
    }

    /// The files that it includes, in their order.
    pub(super) fn included(&self) -> &[Source] {
        &self.included
    }

    /// Which file, line and column this is.
    pub(super) fn place(&self, at: usize) -> (&Path, usize, usize) {
        let source = self.all().rfind(|source| source.begins_at <= at).unwrap_or(&self.main);
        let (line, column) = place(&source.text, at - source.begins_at);
        (&source.path, line, column)
    }

    /// The remarks in the order of the files, each said once.
    pub(super) fn notes(&self, remarks: Remarks) -> Vec<Note> {
        let note = |(at, message)| {
            let (file, line, column) = self.place(at);
            Note { file: file.to_owned(), line, column, message }
        };
        remarks.in_order().map(note).collect()
    }
}

fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line = before.rsplit('\n').next().unwrap_or_default();
    // No editor counts the mark that some of them put first.
    let line = line.trim_start_matches('\u{feff}');
    (1 + before.matches('\n').count(), 1 + line.chars().count())
}

const FILES_MAX: usize = 256;
/// Of all files together.
const BYTES_MAX: usize = 8 << 20;

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
