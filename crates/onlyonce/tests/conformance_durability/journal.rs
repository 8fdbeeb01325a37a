//! A store that is one file: each write is appended to it, and it is read when it is opened.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::record::{Record, Token, codec};
use onlyonce::scope::OperationId;
use onlyonce::store::cas::{self, Effect};
use onlyonce::store::{Beat, Draft, Fault, Guard, Lease, Next, Seen, Store, StoreError, Swap};

pub(super) struct Journal {
    inner: Mutex<Inner>,
    writes_first: bool,
}

struct Inner {
    records: BTreeMap<OperationId, Record>,
    file: BufWriter<File>,
}

impl Journal {
    /// `writes_first`: before it answers. If not, what it answered may be in its own buffer only.
    pub(super) fn open(path: &Path, writes_first: bool) -> io::Result<Self> {
        let options = OpenOptions::new().read(true).append(true).create(true).clone();
        let mut file = options.open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let inner =
            Inner { records: replayed(&bytes), file: BufWriter::with_capacity(1 << 16, file) };
        Ok(Self { inner: Mutex::new(inner), writes_first })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no writer panics")
    }

    fn append(
        &self,
        inner: &mut Inner,
        id: OperationId,
        record: Option<Record>,
    ) -> Result<(), Fault> {
        let bytes = record.as_ref().map_or_else(Vec::new, codec::encode);
        let length = u32::try_from(bytes.len()).expect("a record is smaller than 4 GiB");
        let entry = [id.as_bytes(), &length.to_be_bytes()[..], &bytes].concat();
        inner.file.write_all(&entry).map_err(unsure)?;
        if self.writes_first {
            inner.file.flush().map_err(unsure)?;
        }
        match record {
            Some(record) => inner.records.insert(id, record),
            None => inner.records.remove(&id),
        };
        Ok(())
    }
}

impl Inner {
    fn seen(&self, id: OperationId, mine: bool) -> Seen {
        Seen { record: self.records.get(&id).cloned(), mine, now: SystemClock.wall() }
    }
}

impl Store for Journal {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        let mut inner = self.lock();
        let found = inner.records.get(&draft.id);
        if let Some(record) = cas::claim(found, &draft, SystemClock.wall()) {
            self.append(&mut inner, draft.id, Some(record))?;
        }
        let mine = cas::is_mine(inner.records.get(&draft.id), &draft);
        Ok(inner.seen(draft.id, mine))
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        Ok(self.lock().seen(id, false))
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        let mut inner = self.lock();
        match cas::swap(inner.records.get(&id), &guard, &to, SystemClock.wall()) {
            Effect::Stale => Ok(Swap::Stale(Box::new(inner.seen(id, false)))),
            Effect::Already(revision) => Ok(Swap::Done(revision)),
            Effect::Delete(revision) => {
                self.append(&mut inner, id, None)?;
                Ok(Swap::Done(revision))
            }
            Effect::Write(record) => {
                let revision = record.revision();
                self.append(&mut inner, id, Some(*record))?;
                Ok(Swap::Done(revision))
            }
        }
    }

    async fn renew(&self, held: &[(OperationId, Token)], _: Lease) -> Result<Vec<Beat>, Fault> {
        Ok(vec![Beat::Unsure; held.len()])
    }
}

/// The records after every whole entry; one that was cut off was never answered.
fn replayed(mut bytes: &[u8]) -> BTreeMap<OperationId, Record> {
    let mut records = BTreeMap::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<20>() {
        let (id, length) = head.split_at(16);
        let id = OperationId::from_bytes(id.try_into().expect("16 bytes"));
        let length = u32::from_be_bytes(length.try_into().expect("4 bytes")) as usize;
        let Some((entry, after)) = rest.split_at_checked(length) else {
            break;
        };
        match entry {
            [] => records.remove(&id),
            _ => records.insert(id, codec::decode(entry).expect("a whole entry is readable")),
        };
        bytes = after;
    }
    records
}

fn unsure(error: io::Error) -> Fault {
    Fault::Unsure(StoreError::Unavailable(error.into()))
}
