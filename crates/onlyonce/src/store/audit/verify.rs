//! Reads every chain of a trail, and tells what does not fit.

use super::{ChainRow, Entry, Head, Link, Trail, WriterId};
use crate::store::Fault;

/// What a trail is like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many chains there are.
    pub writers: usize,
    /// How many entries were read.
    pub entries: u64,
    /// What does not fit; at most [`Verified::BROKEN_MAX`] are told.
    pub broken: Vec<Broken>,
}

impl Verified {
    /// How many faults are told. One is enough to know.
    pub const BROKEN_MAX: usize = 100;

    /// Whether everything fits.
    pub fn is_whole(&self) -> bool {
        self.broken.is_empty()
    }

    fn add(&mut self, chain: Self) {
        self.entries += chain.entries;
        let room = Self::BROKEN_MAX - self.broken.len();
        self.broken.extend(chain.broken.into_iter().take(room));
    }

    fn tell(&mut self, writer: WriterId, sequence: u64, what: &'static str) {
        if self.broken.len() < Self::BROKEN_MAX {
            self.broken.push(Broken { writer, sequence, what });
        }
    }
}

/// A place where a chain was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// In whose chain.
    pub writer: WriterId,
    /// At which number.
    pub sequence: u64,
    /// What is wrong there.
    pub what: &'static str,
}

/// Reads the whole trail, and compares it with the heads that were kept elsewhere, if any. Entries that are written or
/// deleted by age meanwhile are no fault.
///
/// # Errors
/// If the store gives no answer.
pub async fn verify(trail: &dyn Trail, kept: &[Head]) -> Result<Verified, Fault> {
    let mut verified = Verified::default();
    let mut heads = trail.heads().await?;
    for writer in trail.writers().await? {
        if !heads.iter().any(|head| head.writer == writer) {
            heads.push(Head::new(writer));
        }
    }
    verified.writers = heads.len();
    for head in &heads {
        verified.add(verify_chain(trail, *head, kept).await?);
    }
    for kept in kept.iter().filter(|kept| !heads.iter().any(|head| head.writer == kept.writer)) {
        verified.tell(kept.writer, kept.last.sequence, "the whole chain is gone");
    }
    Ok(verified)
}

/// Reads a chain, and again if something does not fit: a store may show the entries of a commit, or the head, a moment later than
/// the rest.
async fn verify_chain(trail: &dyn Trail, head: Head, kept: &[Head]) -> Result<Verified, Fault> {
    let mut verified = Verified::default();
    for walk in 0..WALKS_MAX {
        if walk > 0 {
            trail.catch_up().await?;
        }
        verified = Verified::default();
        let kept = kept.iter().filter(|kept| kept.writer == head.writer).copied().collect();
        let walk = Walk { trail, writer: head.writer, kept, verified: &mut verified };
        walk.run(head).await?;
        if verified.is_whole() {
            break;
        }
    }
    Ok(verified)
}

/// The way along one chain.
struct Walk<'a> {
    trail: &'a dyn Trail,
    writer: WriterId,
    /// Heads that were kept elsewhere, of this chain.
    kept: Vec<Head>,
    verified: &'a mut Verified,
}

impl Walk<'_> {
    async fn run(mut self, head: Head) -> Result<(), Fault> {
        let mut at = head.from;
        self.compare(at);
        self.beginning().await?;
        loop {
            let rows = self.trail.chain(self.writer, at.sequence, ROWS).await?;
            if rows.is_empty() {
                match self.end(at).await? {
                    Some(later) => at = later,
                    None => break,
                }
            }
            for row in &rows {
                let next = at.sequence.saturating_add(1);
                if row.sequence() > next {
                    at = self.gap(at, row.sequence()).await?;
                }
                // After a checkpoint that moved on, this row and those up to the checkpoint are deleted by now.
                if row.sequence() == at.sequence.saturating_add(1) {
                    at = self.step(at, row);
                }
            }
        }
        for kept in std::mem::take(&mut self.kept) {
            if kept.last.sequence > at.sequence {
                let what = "it is cut off: there were later entries once";
                self.verified.tell(self.writer, kept.last.sequence, what);
            }
        }
        Ok(())
    }

    /// Nothing may lie before the checkpoint: it was deleted.
    async fn beginning(&mut self) -> Result<(), Fault> {
        let head = self.head().await?;
        // Read after the head: what it calls deleted is gone by now.
        let first = self.trail.chain(self.writer, 0, 1).await?;
        if let (Some(head), Some(first)) = (head, first.first())
            && first.sequence() <= head.from.sequence
        {
            let what = "it lies before the beginning of the chain: it was added";
            self.verified.tell(self.writer, first.sequence(), what);
        }
        Ok(())
    }

    /// Checks one row, and goes on from what it says: a fault is told once, not for all that follow.
    fn step(&mut self, before: Link, row: &ChainRow) -> Link {
        self.verified.entries += 1;
        let sequence = row.sequence();
        let ChainRow::Entry(entry) = row else {
            self.verified.tell(self.writer, sequence, "it does not read");
            return Link { sequence, ..before };
        };
        let Entry { hash, .. } = **entry;
        if entry.writer != self.writer || entry.hash_after(before.hash) != hash {
            self.verified.tell(self.writer, sequence, "its hash is wrong: it was changed");
        }
        let link = Link { sequence, hash };
        self.compare(link);
        link
    }

    /// Compares with the heads that were kept elsewhere.
    fn compare(&mut self, link: Link) {
        let differs =
            |kept: &Head| kept.last.sequence == link.sequence && kept.last.hash != link.hash;
        if self.kept.iter().any(differs) {
            let what = "it is another entry than the head that was kept says";
            self.verified.tell(self.writer, link.sequence, what);
        }
    }

    /// The next row is not the next number: entries are missing, unless they were deleted by age since.
    async fn gap(&mut self, at: Link, found: u64) -> Result<Link, Fault> {
        if let Some(head) = self.head().await?
            && head.from.sequence > at.sequence
        {
            return Ok(head.from);
        }
        self.verified.tell(self.writer, at.sequence + 1, "entries are missing");
        // The hash of the entry before is gone, so the next hash does not fit either.
        Ok(Link { sequence: found - 1, ..at })
    }

    /// There are no more rows: whether the head says so too. `Some` if there are more by now.
    async fn end(&mut self, at: Link) -> Result<Option<Link>, Fault> {
        let Some(head) = self.head().await? else {
            self.verified.tell(self.writer, at.sequence, "its head is gone");
            return Ok(None);
        };
        if head.last == at {
            return Ok(None);
        }
        if head.from.sequence > at.sequence {
            return Ok(Some(head.from));
        }
        // The head was read after the rows: what it tells was committed with its entries.
        let rows = self.trail.chain(self.writer, at.sequence, 1).await?;
        if !rows.is_empty() {
            return Ok(Some(at));
        }
        let what = match head.last.sequence > at.sequence {
            true => "the last entries are missing",
            false => "the last entry is not the one that the head says",
        };
        self.verified.tell(self.writer, at.sequence.max(head.last.sequence), what);
        Ok(None)
    }

    async fn head(&self) -> Result<Option<Head>, Fault> {
        self.trail.head(self.writer).await
    }
}

/// How often a chain is read before a fault in it is told.
const WALKS_MAX: usize = 3;
/// Rows that are read at a time.
const ROWS: usize = 1_000;
