//! A store whose answers and keys nobody reads without a key: a seal over any other store.
//!
//! 1. Sealed are the text of a key, and of an answer its headers, body and trailers. Status, state, times, route, the digests
//!    of caller and request stay as they are: the store below needs them to compare, to expire and to count.
//! 2. The first key seals, every key opens. To rotate, put the new key first, and take the old one away when the longest time
//!    to live is over ([`Seal::replace`], while the engine runs).
//! 3. A value is bound to its operation and its place, an answer to its attempt and its status too: moved to another row or
//!    column it does not open.
//! 4. A value that does not open is not absent. A completed operation without its answer is *completed, not kept*: a retry
//!    gets 410, and nothing runs again.
//! 5. Values that were written before the seal was turned on are read as they are.
//!
//! It hides values from whoever reads the database, its log, its backups, or a Redis filter below the seal. Who can write to
//! the database can still delete records and put unsealed ones there. XChaCha20-Poly1305, with a random nonce for each value.
//!
//! [`Once`](crate::Once) has one over its store: `OnceBuilder::with_seal`.
//!
//! ```
//! # #[cfg(feature = "memory")] {
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use onlyonce::store::memory::MemoryStore;
//! use onlyonce::store::sealed::SealKey;
//! use onlyonce::{Once, Operation, Outcome, scope::Principal};
//!
//! // From a vault, or from the environment; 32 bytes, in hexadecimal digits or base64.
//! let key: SealKey = "ab".repeat(32).parse()?;
//! let once = Once::builder(MemoryStore::new()).with_seal(vec![key.clone()]).build();
//! let mint = || Operation::new("tokens", Principal::of("user", b"ann"), "order-17").unwrap();
//! let minted = once.run(mint(), |_| async { Ok("tok_1".to_owned()) }).await?;
//! assert_eq!(minted, Outcome::Fresh("tok_1".to_owned()));
//!
//! // A new key, while the engine runs. What the old one sealed still opens.
//! once.reseal(vec![SealKey::new([7; 32]), key]);
//! let again = once.run(mint(), |_| async { Ok("tok_2".to_owned()) }).await?;
//! assert_eq!(again, Outcome::Replayed("tok_1".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?; }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod audit;
mod key;
mod value;

use std::sync::Arc;

pub use self::key::{Seal, SealKey, SealKeyError};

use super::audit::Audit;
use super::{
    Beat, Census, Draft, Fault, Guard, Inspect, Lease, Maintain, Meter, Next, Page, Scan, Seen,
    Store, StoreLimits, Swap, Swept, Takeover, Watch, cas,
};
use crate::clock::StoreTime;
use crate::record::{Kept, NotKept, Record, Response, State, Token};
use crate::scope::{IdPrefix, OperationId};

/// A store under a seal.
#[derive(Debug)]
pub struct Sealed<S> {
    store: S,
    seal: Seal,
}

impl<S> Sealed<S> {
    /// Seals what `store` is given, and opens what it returns. Without a key, `seal` only opens, which is nothing.
    pub const fn new(store: S, seal: Seal) -> Self {
        Self { store, seal }
    }

    /// The store below.
    pub const fn store(&self) -> &S {
        &self.store
    }
}

impl<S: Store> Store for Sealed<S> {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        let id = draft.id;
        Ok(self.seal.opened(id, self.store.claim(self.seal.draft(draft)).await?))
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        Ok(self.seal.opened(id, self.store.load(id).await?))
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        let sealed = self.seal.next(id, &guard, &to);
        Ok(self.seal.swapped(id, &guard, &to, self.store.swap(id, guard, sealed).await?))
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        self.store.renew(held, lease).await
    }
}

impl<S: Watch> Watch for Sealed<S> {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.store.changed(id)
    }

    fn hears_other_nodes(&self) -> bool {
        self.store.hears_other_nodes()
    }
}

impl<S: Maintain> Maintain for Sealed<S> {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let page = self.store.scan(query).await?;
        Ok(Page { records: self.seal.all(page.records), ..page })
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        self.store.sweep(until, limit).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        self.store.check_value(name, from, to).await
    }

    /// Headers are sealed with the body, and take their part of its room.
    fn limits(&self) -> StoreLimits {
        let limits = self.store.limits();
        match self.seal.is_sealing() {
            true => StoreLimits {
                body_bytes_max: limits.body_bytes_max.saturating_sub(HEADERS_BYTES),
                ..limits
            },
            false => limits,
        }
    }

    fn meter(&self) -> Option<&dyn Meter> {
        self.store.meter()
    }
}

impl<S: Watch + Inspect> Inspect for Sealed<S> {
    async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(OperationId, Record)>, Fault> {
        Ok(self.seal.all(self.store.with_prefix(prefix, limit).await?))
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.store.audit().map(|_| self as _)
    }

    async fn census(&self) -> Result<Census, Fault> {
        self.store.census().await
    }
}

impl Seal {
    fn draft(&self, draft: Draft) -> Draft {
        Draft { key: self.close_key(draft.id, draft.key), ..draft }
    }

    fn next(&self, id: OperationId, guard: &Guard, to: &Next) -> Next {
        let token = cas::token_after(guard, to);
        match to.clone() {
            Next::Running(attempt) => {
                let draft = self.draft(attempt.draft);
                Next::Running(Box::new(Takeover { draft, ..*attempt }))
            }
            Next::Completed { settled_by, response, token: new } => {
                let response = self.close(id, token, response);
                Next::Completed { settled_by, response, token: new }
            }
            Next::Replaced(record) => Next::Replaced(Box::new(self.close_record(id, *record))),
            to @ (Next::Absent | Next::Unknown { .. } | Next::Released { .. }) => to,
        }
    }

    fn close_record(&self, id: OperationId, record: Record) -> Record {
        let token = record.token;
        let key = self.close_key(id, record.key);
        let state = match record.state {
            State::Completed { expires_at, settled_by, response } => {
                let response = self.close(id, token, response);
                State::Completed { expires_at, settled_by, response }
            }
            state => state,
        };
        Record { key, state, ..record }
    }

    /// A copy of a write that was made before found other bytes there: each copy is sealed with a nonce of its own. So
    /// whether it is the same write is judged by what the bytes say.
    fn swapped(&self, id: OperationId, guard: &Guard, to: &Next, swap: Swap) -> Swap {
        let Swap::Stale(seen) = swap else {
            return swap;
        };
        let seen = self.opened(id, *seen);
        match cas::already(seen.record.as_ref(), guard, to) {
            Some(revision) => Swap::Done(revision),
            None => Swap::Stale(Box::new(seen)),
        }
    }

    fn opened(&self, id: OperationId, seen: Seen) -> Seen {
        Seen { record: seen.record.map(|record| self.record(id, record)), ..seen }
    }

    fn all(&self, records: Vec<(OperationId, Record)>) -> Vec<(OperationId, Record)> {
        records.into_iter().map(|(id, record)| (id, self.record(id, record))).collect()
    }

    fn record(&self, id: OperationId, mut record: Record) -> Record {
        if let Some(key) = self.open_key(id, &record.key) {
            record.key = key;
        }
        if let State::Completed { response, .. } = &mut record.state
            && let Kept::Sealed(sealed) = &response.body
        {
            let opened = self.open(id, record.token, response.status, sealed);
            let opened =
                opened.unwrap_or_else(|| Response::without_body(response, NotKept::Unopened));
            *response = Arc::new(opened);
        }
        record
    }
}

/// What most servers take as the headers of an answer, and more.
const HEADERS_BYTES: usize = 64 << 10;
