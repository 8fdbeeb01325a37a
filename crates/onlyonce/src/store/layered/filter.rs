//! The entries in Redis: each call is short, and there are none for a while after Redis did not answer.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, Value};

use super::entry::{EntryId, Found, Seal, completed_at};
use crate::clock::{Clock, Reading, StoreTime, SystemClock};
use crate::record::{Record, State};
use crate::store::redis::{
    Keys, Link, LinkOptions, OnConnect, RedisOpenError, Script, ScriptCall, time, wait,
};
use crate::store::{Fault, StoreError, StoreIdentity};
use crate::velocity::Allowance;

pub(super) struct Filter {
    link: Link,
    keys: Keys,
    seal: Seal,
    /// Redis's own clock, as it was last read.
    reading: Arc<Mutex<Option<Reading>>>,
    pub(super) counters: Counters,
}

/// What the filter did since it was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) unreadable: AtomicU64,
    pub(super) unanswered: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) dropped: AtomicU64,
}

impl Filter {
    /// Does not wait for Redis: without it everything works, only slower.
    pub(super) fn open(url: &str, keys: Keys, seal: Seal) -> Result<Self, RedisOpenError> {
        let client = Client::open(url).map_err(RedisOpenError::Address)?;
        let reading = Arc::new(Mutex::new(None));
        let (link, _) = Link::start(client, LINK_OPTIONS, ReadTime(reading.clone()))?;
        Ok(Self { link, keys, seal, reading, counters: Counters::default() })
    }

    pub(super) fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// The entry of `id`; `None` if there is none, or Redis did not answer in time.
    pub(super) async fn find(&self, id: EntryId) -> Option<Found> {
        match self.call(Script::FilterFind, id, Vec::new()).await? {
            Value::BulkString(entry) => {
                let found = self.seal.open(id, &entry);
                if found == Found::Unreadable {
                    count(&self.counters.unreadable);
                }
                Some(found)
            }
            _ => None,
        }
    }

    /// Writes the entry of a completed record, which was read at `read_at` of this node's boot clock.
    pub(super) async fn keep(
        &self,
        id: EntryId,
        record: &Record,
        read_at: Duration,
        now: StoreTime,
    ) {
        let Some(args) = self.keep_args(id, record, read_at, now) else {
            return count(&self.counters.dropped);
        };
        let Some(Value::Array(answer)) = self.call(Script::FilterKeep, id, args).await else {
            return;
        };
        if let [Value::Int(now), Value::Int(kept)] = answer[..] {
            let reading = Reading::new(StoreTime::from_ms(now), SystemClock.boot());
            *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
            self.counters.kept.fetch_add(kept.unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// `None` if the record was read too long ago, is too large, or has no entry.
    fn keep_args(
        &self,
        id: EntryId,
        record: &Record,
        read_at: Duration,
        now: StoreTime,
    ) -> Option<Vec<Vec<u8>>> {
        let State::Completed { expires_at, response, .. } = &record.state else {
            return None;
        };
        if response.body_bytes() > BODY_BYTES_MAX {
            return None;
        }
        let to_live = expires_at.since_ms(now).min(ENTRY_MS_MAX);
        let is_in_time = SystemClock.boot().saturating_sub(read_at) < KEEP_WITHIN;
        if to_live <= 0 || !is_in_time {
            return None;
        }
        let reading = (*self.reading.lock().unwrap_or_else(PoisonError::into_inner))?;
        let deadline = reading.estimate(read_at).plus(KEEP_WITHIN);
        let entry = self.seal.entry(id, record)?;
        let completed_at = completed_at(record)?;
        let text = |ms: i64| ms.to_string().into_bytes();
        Some(vec![text(deadline.as_ms()), text(completed_at.as_ms()), text(to_live), entry])
    }

    /// Whether Redis has confirmed that it has no entry of `id`, and takes none of a record that was read before.
    pub(super) async fn forget(&self, id: EntryId) -> bool {
        let ms = FORGOTTEN_FOR.as_millis().to_string().into_bytes();
        self.call(Script::FilterForget, id, vec![ms]).await.is_some()
    }

    async fn call(&self, script: Script, id: EntryId, args: Vec<Vec<u8>>) -> Option<Value> {
        if !self.link.is_up() {
            return None;
        }
        let keys = vec![self.keys.filter_entry(id.authority, id.id)];
        let answer = self.link.call(ScriptCall { script, keys, args }).await;
        if answer.is_err() {
            count(&self.counters.unanswered);
        }
        answer.ok()
    }
}

impl Filter {
    /// See [`Meter`](crate::store::Meter): for all nodes in front of this authority.
    pub(super) async fn admit(
        &self,
        authority: StoreIdentity,
        allowances: &[Allowance],
    ) -> Result<Option<Duration>, Fault> {
        let call = self.keys.admit(Some(authority), allowances);
        match self.is_up() {
            true => wait(self.link.call(call).await?),
            false => Err(Fault::NotDone(StoreError::Unavailable("Redis is away".into()))),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Has each new connection tell Redis's time before it is used.
struct ReadTime(Arc<Mutex<Option<Reading>>>);

impl OnConnect for ReadTime {
    async fn check(&self, mut connection: MultiplexedConnection) -> Result<(), RedisOpenError> {
        let reading = Reading::new(time(&mut connection).await?, SystemClock.boot());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        Ok(())
    }

    async fn run_beside(&self, _: Client) {
        pending().await
    }
}

/// How long a call of Redis may take. After one that took longer there are none for a while.
pub const FILTER_WAIT: Duration = Duration::from_millis(50);
/// An entry is written within so long of the moment when its record was read, or never.
pub(super) const KEEP_WITHIN: Duration = Duration::from_secs(1);
/// For so long nobody may write an entry that was deleted: far longer than a write to the authority takes, also one whose
/// caller has left, and an entry of what was read before it.
const FORGOTTEN_FOR: Duration = Duration::from_secs(60);
/// A larger answer has no entry: it would not pass over the network within [`FILTER_WAIT`].
const BODY_BYTES_MAX: usize = 1 << 20;
/// An entry lives no longer than this in Redis. Then the next read of the record writes it anew.
const ENTRY_MS_MAX: i64 = 30 * 86_400_000;
const LINK_OPTIONS: LinkOptions = LinkOptions {
    calls_max: 1024,
    answer_within: FILTER_WAIT,
    waits_for_connection: false,
    // A Redis that is slow, not gone, has calls wait for it once in so long.
    retry_pause: Duration::from_secs(5),
};
