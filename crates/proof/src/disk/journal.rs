//! What the shim wrote before each change, read from the end to the beginning: the power is cut.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a power cut leaves of the changes that were never synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// Some writes, whole or torn, in no order; and the folder's changes up to some moment.
    Some(u64),
}

/// The shim's journal.
pub(super) struct Journal(Vec<Entry>);

struct Entry {
    what: What,
    inode: u64,
    offset: u64,
    size_before: u64,
    /// How many bytes were written.
    extent: u64,
    /// What they replaced, or the paths of a change to the folder.
    bytes: Vec<u8>,
    fate: Fate,
}

/// The same numbers as in the shim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Written,
    Truncated,
    Synced,
    Dropped,
    Doomed,
    Created,
    Removed,
    Renamed,
    FolderSynced,
}

/// What is known of a change when the power is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Never synced: it may be lost.
    Pending,
    Durable,
    /// Its sync failed, and nothing syncs it any more: it is lost.
    Doomed,
    /// Undone already.
    Gone,
}

/// A write that was undone, to be done again if it survives.
struct Redo {
    inode: u64,
    offset: u64,
    bytes: Vec<u8>,
    /// A truncation's.
    size: Option<u64>,
}

impl Journal {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes?,
        };
        let mut entries = Vec::new();
        let mut rest = bytes.as_slice();
        // The last entry may be cut short: its change was not made.
        while let Some((entry, after)) = Entry::read(rest) {
            entries.push(entry);
            rest = after;
        }
        let mut journal = Self(entries);
        journal.judge();
        Ok(journal)
    }

    /// Takes what was not made durable out of the files in `folders`; how many changes that were.
    pub(super) fn roll_back(&self, folders: &[&Path], survival: Survival) -> io::Result<usize> {
        let mut random = match survival {
            Survival::Nothing => None,
            Survival::Some(seed) => Some(fastrand::Rng::with_seed(seed)),
        };
        let lost = |entry: &&Entry| matches!(entry.fate, Fate::Pending | Fate::Doomed);
        let folder_changes = self.0.iter().filter(lost).filter(|entry| entry.is_path());
        let mut folder_losses = folder_changes.count();
        if let Some(random) = &mut random {
            folder_losses = random.usize(..=folder_losses);
        }
        let mut redos = Vec::new();
        let mut undone = 0;
        for (at, entry) in self.0.iter().enumerate().rev().filter(|(_, entry)| lost(entry)) {
            if !entry.is_path() {
                redos.extend(self.undo_bytes(at, entry, folders)?);
            } else if folder_losses > 0 {
                folder_losses -= 1;
                entry.undo_paths()?;
            } else {
                continue;
            }
            undone += 1;
        }
        if let Some(random) = &mut random {
            undone -= redo_some(&redos, folders, random)?;
        }
        Ok(undone)
    }

    /// What became durable, and what was lost already.
    fn judge(&mut self) {
        for at in 0..self.0.len() {
            let (before, entry) = self.0.split_at_mut(at);
            let (what, inode) = (entry[0].what, entry[0].inode);
            let pending = before.iter_mut().filter(|entry| entry.fate == Fate::Pending);
            match what {
                What::FolderSynced => pending
                    .filter(|entry| entry.is_path())
                    .for_each(|entry| entry.fate = Fate::Durable),
                What::Synced | What::Dropped | What::Doomed => pending
                    .filter(|entry| !entry.is_path() && entry.inode == inode)
                    .for_each(|entry| entry.fate = entry.fate_after(what)),
                _ => continue,
            }
            entry[0].fate = Fate::Gone;
        }
    }

    /// Puts back what a change replaced, but for what later and durable changes wrote there.
    fn undo_bytes(&self, at: usize, entry: &Entry, folders: &[&Path]) -> io::Result<Option<Redo>> {
        let Some(file) = find(entry.inode, folders)? else {
            return Ok(None);
        };
        let later: Vec<_> = self.0[at + 1..]
            .iter()
            .filter(|later| {
                later.fate == Fate::Durable && !later.is_path() && later.inode == entry.inode
            })
            .collect();
        let size = file.metadata()?.len();
        let redo = entry.redo(&file, size)?;
        let mut old = entry.bytes.clone();
        old.resize(old.len().max(entry.extent as usize), 0);
        let whole = entry.offset..entry.offset + old.len() as u64;
        let mut pieces = vec![whole];
        for later in &later {
            let written = later.offset..later.offset + later.extent;
            let left = pieces.iter().flat_map(|piece| without(piece, &written));
            pieces = left.filter(|piece| !piece.is_empty()).collect();
        }
        for piece in pieces {
            let from = (piece.start - entry.offset) as usize;
            let until = (piece.end - entry.offset) as usize;
            file.write_all_at(&old[from..until], piece.start)?;
        }
        file.set_len(if later.is_empty() { entry.size_before } else { size })?;
        Ok((entry.fate == Fate::Pending).then_some(redo))
    }
}

impl Entry {
    /// The first entry of `bytes`, and the rest.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<48>()?;
        let (numbers, _) = head.as_chunks::<8>();
        let number = |at: usize| u64::from_ne_bytes(numbers[at]);
        let (bytes, rest) = rest.split_at_checked(number(5) as usize)?;
        let entry = Self {
            what: What::of(number(0))?,
            inode: number(1),
            offset: number(2),
            size_before: number(3),
            extent: number(4),
            bytes: bytes.to_vec(),
            fate: Fate::Pending,
        };
        Some((entry, rest))
    }

    fn is_path(&self) -> bool {
        matches!(self.what, What::Created | What::Removed | What::Renamed)
    }

    fn fate_after(&self, event: What) -> Fate {
        match (event, self.what) {
            (What::Dropped, _) => Fate::Gone,
            // What a file system logs is not lost with the pages that could not be written.
            (What::Doomed, What::Truncated) => Fate::Pending,
            (What::Doomed, _) => Fate::Doomed,
            _ => Fate::Durable,
        }
    }

    /// The change itself, read off the file right after it.
    fn redo(&self, file: &File, size: u64) -> io::Result<Redo> {
        let mut bytes = vec![0; self.extent.min(size.saturating_sub(self.offset)) as usize];
        file.read_exact_at(&mut bytes, self.offset)?;
        Ok(Redo {
            inode: self.inode,
            offset: self.offset,
            bytes,
            size: (self.what == What::Truncated).then_some(size),
        })
    }

    fn undo_paths(&self) -> io::Result<()> {
        let paths = String::from_utf8_lossy(&self.bytes);
        let paths: Vec<_> = paths.split('\n').map(PathBuf::from).collect();
        let [one, two, three] = paths.as_slice() else {
            return Err(io::Error::other("an entry of the journal has no three paths"));
        };
        match self.what {
            What::Created => if_there(fs::remove_file(one)),
            What::Removed => if_there(fs::rename(two, one)),
            _ => {
                if_there(fs::rename(two, one))?;
                if three.as_os_str().is_empty() {
                    return Ok(());
                }
                fs::rename(three, two)
            }
        }
    }
}

impl What {
    fn of(number: u64) -> Option<Self> {
        let all = [
            Self::Written,
            Self::Truncated,
            Self::Synced,
            Self::Dropped,
            Self::Doomed,
            Self::Created,
            Self::Removed,
            Self::Renamed,
            Self::FolderSynced,
        ];
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        all.get(at).copied()
    }
}

/// The process may have died between the entry and its change.
fn if_there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The parts of `piece` before and after what `taken` covers; they may be empty.
fn without(piece: &Range<u64>, taken: &Range<u64>) -> [Range<u64>; 2] {
    let before = piece.start..piece.end.min(taken.start);
    let after = piece.start.max(taken.end)..piece.end;
    if taken.is_empty() || before.end == piece.end || after.start == piece.start {
        return [piece.clone(), 0..0];
    }
    [before, after]
}

/// Half of the writes survive, a quarter of those only in part; how many survived whole.
fn redo_some(redos: &[Redo], folders: &[&Path], random: &mut fastrand::Rng) -> io::Result<usize> {
    let mut whole = 0;
    for redo in redos.iter().rev() {
        if random.bool() {
            continue;
        }
        let Some(file) = find(redo.inode, folders)? else {
            continue;
        };
        let is_torn = random.u8(..4) == 0;
        let sectors = redo.bytes.len() / SECTOR_BYTES;
        let bytes = match is_torn {
            true => &redo.bytes[..random.usize(..=sectors) * SECTOR_BYTES],
            false => &redo.bytes,
        };
        file.write_all_at(bytes, redo.offset)?;
        if let Some(size) = redo.size {
            file.set_len(size)?;
        }
        whole += usize::from(!is_torn);
    }
    Ok(whole)
}

/// The file with this inode, whatever it is called now.
fn find(inode: u64, folders: &[&Path]) -> io::Result<Option<File>> {
    for folder in folders {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_file() && found.ino() == inode {
                let mut options = OpenOptions::new();
                return options.read(true).write(true).open(entry.path()).map(Some);
            }
        }
    }
    Ok(None)
}

const SECTOR_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_later_is_spared() {
        let spared = |taken: Range<u64>| {
            let left = without(&(10..20), &taken).into_iter();
            left.filter(|piece| !piece.is_empty())
                .map(|piece| (piece.start, piece.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(spared(0..10), [(10, 20)]);
        assert_eq!(spared(20..30), [(10, 20)]);
        assert_eq!(spared(15..15), [(10, 20)]);
        assert_eq!(spared(5..12), [(12, 20)]);
        assert_eq!(spared(18..25), [(10, 18)]);
        assert_eq!(spared(12..18), [(10, 12), (18, 20)]);
        assert_eq!(spared(5..25), []);
    }
}
