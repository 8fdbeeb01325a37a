//! The physical limit: the same bytes appended to a file that has its blocks already, one fdatasync
//! for whatever has queued. The queue and the replies are the same as the store's.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use tokio::sync::oneshot;

use crate::load::Cycle;
use crate::operation::Drafts;

/// One writer thread and its file.
#[derive(Debug)]
pub struct Limit {
    queue: Arc<Queue>,
    drafts: Drafts,
}

#[derive(Debug, Default)]
struct Queue {
    inner: Mutex<Inner>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    items: VecDeque<Append>,
    sleeping: bool,
    closed: bool,
}

#[derive(Debug)]
struct Append {
    bytes: Box<[u8]>,
    reply: oneshot::Sender<()>,
}

impl Limit {
    /// A file in `directory`, filled once so that no append allocates a block.
    ///
    /// # Errors
    /// What the disk says.
    pub fn start(directory: &Path, seed: u64) -> io::Result<Self> {
        let file = preallocated(directory)?;
        let queue = Arc::new(Queue::default());
        let taken = queue.clone();
        thread::spawn(move || taken.write(&file));
        let drafts = Drafts::new(seed);
        Ok(Self { queue, drafts })
    }

    async fn append(&self, bytes: usize) {
        let (reply, done) = oneshot::channel();
        self.queue.push(Append { bytes: vec![b'y'; bytes].into(), reply });
        done.await.expect("the writer answers");
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.queue.inner.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.queue.arrived.notify_one();
    }
}

impl Cycle for Limit {
    type Claimed = ();

    /// The caller's own work is the same as with a store.
    async fn claim(&self) {
        let draft = self.drafts.next();
        self.append(CLAIM_BYTES).await;
        drop(draft);
    }

    async fn settle(&self, (): ()) {
        self.append(SETTLE_BYTES).await;
    }
}

impl Queue {
    fn push(&self, append: Append) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.items.push_back(append);
        let sleeping = inner.sleeping;
        drop(inner);
        if sleeping {
            self.arrived.notify_one();
        }
    }

    fn write(&self, file: &File) {
        let (mut at, mut buffer, mut batch) = (0, Vec::new(), Vec::new());
        while self.take(&mut batch) {
            buffer.clear();
            batch.iter().for_each(|append| buffer.extend_from_slice(&append.bytes));
            if at + buffer.len() as u64 > FILE_BYTES {
                at = 0;
            }
            file.write_all_at(&buffer, at).expect("the disk takes it");
            file.sync_data().expect("the disk syncs");
            at += buffer.len() as u64;
            batch.drain(..).for_each(|append| append.reply.send(()).expect("the caller waits"));
        }
    }

    fn take(&self, batch: &mut Vec<Append>) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        while inner.items.is_empty() && !inner.closed {
            inner.sleeping = true;
            inner = self.arrived.wait(inner).unwrap_or_else(PoisonError::into_inner);
            inner.sleeping = false;
        }
        batch.extend(inner.items.drain(..));
        !batch.is_empty()
    }
}

/// The median of so many appends of 4 KiB, each with its fdatasync.
///
/// # Errors
/// What the disk says.
pub fn fsync_probe(directory: &Path, count: usize) -> io::Result<Duration> {
    let file = preallocated(directory)?;
    let mut took = Vec::with_capacity(count);
    for n in 0..count {
        let before = SystemClock.boot();
        file.write_all_at(&[b'z'; 4096], n as u64 * 4096 % FILE_BYTES)?;
        file.sync_data()?;
        took.push(SystemClock.boot() - before);
    }
    took.sort_unstable();
    Ok(took[count / 2])
}

fn preallocated(directory: &Path) -> io::Result<File> {
    let path = directory.join("limit");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    let block = vec![1; 1 << 20];
    for at in (0..FILE_BYTES).step_by(block.len()) {
        file.write_all_at(&block, at)?;
    }
    file.sync_all()?;
    Ok(file)
}

const FILE_BYTES: u64 = 64 << 20;
/// What a claim makes the store keep: about one row of a record.
const CLAIM_BYTES: usize = 230;
/// What a settle makes it keep: a row with the answer of 300 bytes and its head.
const SETTLE_BYTES: usize = 360;
