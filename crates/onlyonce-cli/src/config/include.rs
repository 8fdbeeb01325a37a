//! Which files a text of `include` means: `routes/payments.toml`, or `routes/*.toml`.

use std::io;
use std::path::{Path, PathBuf};

use super::error::ConfigError;

/// The files that `pattern` means, seen from `folder`, by their names.
pub(super) fn matching(pattern: &str, folder: &Path) -> Result<Vec<PathBuf>, IncludeError> {
    let path = Path::new(pattern);
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(IncludeError::NoName)?;
    let folder = folder.join(path.parent().unwrap_or_else(|| Path::new("")));
    let Some((before, after)) = name.split_once('*') else {
        return match pattern.contains('*') {
            true => Err(IncludeError::Wildcard),
            false => Ok(vec![folder.join(name)]),
        };
    };
    if pattern.matches('*').count() > 1 {
        return Err(IncludeError::Wildcard);
    }
    let mut found: Vec<_> = names(&folder)?
        .into_iter()
        .filter(|name| is_between(name, before, after))
        .map(|name| folder.join(name))
        .collect();
    found.sort();
    match found.is_empty() {
        true => Err(IncludeError::NoFile),
        false => Ok(found),
    }
}

fn names(folder: &Path) -> Result<Vec<String>, IncludeError> {
    let unreadable = |source| IncludeError::Folder { folder: folder.display().to_string(), source };
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut names = Vec::new();
    for (count, entry) in here.read_dir().map_err(unreadable)?.enumerate() {
        if count == ENTRIES_MAX {
            return Err(IncludeError::Crowded { entries_max: ENTRIES_MAX });
        }
        // A name that is no UTF-8 matches no pattern, which is.
        names.extend(entry.map_err(unreadable)?.file_name().into_string());
    }
    Ok(names)
}

/// As a shell has it: what begins with a dot is hidden, so that the copies of editors are not read.
fn is_between(name: &str, before: &str, after: &str) -> bool {
    name.len() >= before.len() + after.len()
        && name.starts_with(before)
        && name.ends_with(after)
        && (!before.is_empty() || !name.starts_with('.'))
}

/// Why files cannot be included. Correct `include`, or put the files there.
#[derive(Debug, thiserror::Error)]
pub(super) enum IncludeError {
    #[error("it names no file; write such as \"routes/*.toml\"")]
    NoName,
    #[error(
        "one `*` may stand in the name of the files, and none in their folder, such as \"routes/*.toml\""
    )]
    Wildcard,
    #[error(
        "no file matches, and without its routes the requests would be left to [policy]; add a file, or remove the pattern"
    )]
    NoFile,
    #[error("{folder}: the folder cannot be read")]
    Folder {
        folder: String,
        #[source]
        source: io::Error,
    },
    #[error("the folder has more than {entries_max} entries")]
    Crowded { entries_max: usize },
    #[error("more than {files_max} files are included")]
    TooMany { files_max: usize },
    #[error("the files together have more than {bytes_max} bytes")]
    TooLong { bytes_max: usize },
    #[error(transparent)]
    File(#[from] ConfigError),
}

const ENTRIES_MAX: usize = 10_000;
