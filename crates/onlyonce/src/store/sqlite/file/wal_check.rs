//! Checks the WAL that a crash left for damage in its middle, before SQLite reads it.
//!
//! SQLite takes the first frame with a wrong checksum for the end of the WAL. That is right for the last transaction,
//! which a crash may have torn. It is wrong if commits follow: they were on disk, and their callers answered, before the
//! last transaction began. SQLite would drop them without a word, and their keys would be absent.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// What a WAL is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wal {
    /// There is none, or it has no header: no bytes, or zeros.
    Empty,
    /// What a crash may leave.
    Sound,
    /// It has commits behind a damaged frame.
    Damaged,
}

/// Reads the WAL at `path`.
pub(crate) fn look(path: &Path) -> io::Result<Wal> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Wal::Empty),
        file => file?,
    };
    let mut frames = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut log = match Frames::begin(&mut frames)? {
        Begin::Empty => return Ok(Wal::Empty),
        Begin::Damaged => return Ok(Wal::Damaged),
        Begin::Frames(log) => log,
    };
    let mut commits_lost = 0;
    while let Some(commits) = log.next(&mut frames)? {
        commits_lost += usize::from(log.broken && commits);
    }
    Ok(if commits_lost > TORN_COMMITS { Wal::Damaged } else { Wal::Sound })
}

/// What the header of the WAL says. It is shorter than a sector, so that a crash cannot tear it.
enum Begin {
    Empty,
    Damaged,
    Frames(Frames),
}

/// A walk over the frames since the last restart of the WAL, which all have the same salts.
struct Frames {
    salts: [u8; 8],
    big_endian: bool,
    sums: (u32, u32),
    /// A frame had a wrong checksum.
    broken: bool,
    page: Vec<u8>,
}

impl Frames {
    fn begin(frames: &mut impl Read) -> io::Result<Begin> {
        let mut header = [0; HEADER_BYTES];
        if !filled(frames, &mut header)? || header == [0; HEADER_BYTES] {
            return Ok(Begin::Empty);
        }
        let (magic, page) = (word(&header, 0), word(&header, 8) as usize);
        if magic & !1 != MAGIC || !page.is_power_of_two() || page > PAGE_BYTES_MAX {
            return Ok(Begin::Damaged);
        }
        let mut log = Self {
            salts: eight(&header, 16),
            big_endian: magic & 1 == 1,
            sums: (0, 0),
            broken: false,
            page: vec![0; page],
        };
        log.add(&header[..24]);
        let whole = log.sums == (word(&header, 24), word(&header, 28));
        Ok(if whole { Begin::Frames(log) } else { Begin::Damaged })
    }

    /// Whether the next frame is a commit; `None` after the last frame.
    fn next(&mut self, frames: &mut impl Read) -> io::Result<Option<bool>> {
        let mut header = [0; FRAME_BYTES];
        let mut page = std::mem::take(&mut self.page);
        let more = filled(frames, &mut header)? && filled(frames, &mut page)?;
        if more && !self.broken {
            self.add(&header[..8]);
            self.add(&page);
            let same_salts = eight(&header, 8) == self.salts;
            self.broken = !same_salts || self.sums != (word(&header, 16), word(&header, 20));
        }
        self.page = page;
        let commits = eight(&header, 8) == self.salts && word(&header, 4) != 0;
        Ok(more.then_some(commits))
    }

    /// The checksum of the WAL format, over pairs of 32-bit words.
    fn add(&mut self, bytes: &[u8]) {
        let (mut first, mut second) = self.sums;
        let word = |bytes: &[u8]| match (bytes.try_into(), self.big_endian) {
            (Ok(bytes), true) => u32::from_be_bytes(bytes),
            (Ok(bytes), false) => u32::from_le_bytes(bytes),
            (Err(_), _) => 0,
        };
        for pair in bytes.chunks_exact(8) {
            first = first.wrapping_add(word(&pair[..4])).wrapping_add(second);
            second = second.wrapping_add(word(&pair[4..])).wrapping_add(first);
        }
        self.sums = (first, second);
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn eight(bytes: &[u8], at: usize) -> [u8; 8] {
    std::array::from_fn(|offset| bytes[at + offset])
}

/// Fills `into`; false if the file ends before.
fn filled(from: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(into) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// The last transaction may be torn: its commit frame on disk, and an earlier frame not.
const TORN_COMMITS: usize = 1;
const MAGIC: u32 = 0x377F_0682;
const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 24;
const PAGE_BYTES_MAX: usize = 65_536;
const BUFFER_BYTES: usize = 1 << 18;
