//! The filter's side: completed entries in Redis, each call of it short, and none while it does not answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, Value};

use super::entry::{Found, Seal, completed_at};
use crate::clock::{Clock, Reading, StoreTime, SystemClock};
use crate::record::{Record, State};
use crate::scope::OperationId;
use crate::store::redis::{Greet, Invocation, Link, Manners, Names, OpenError, Script};

pub(super) struct Filter {
    link: Link,
    names: Names,
    seal: Seal,
    /// What was last heard of Redis's own clock.
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
    /// It does not wait for Redis: without it everything works, only slower.
    pub(super) fn open(url: &str, names: Names, seal: Seal) -> Result<Self, OpenError> {
        let client = Client::open(url).map_err(OpenError::Address)?;
        let reading = Arc::new(Mutex::new(None));
        let (link, _) = Link::start(client, MANNERS, Greeting(reading.clone()))?;
        Ok(Self { link, names, seal, reading, counters: Counters::default() })
    }

    pub(super) fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// What is kept for `id`; `None` if nothing is, or Redis did not say in time.
    pub(super) async fn find(&self, id: OperationId) -> Option<Found> {
        match self.call(Script::Find, id, Vec::new()).await? {
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

    /// Keeps a record that was completed when it was read at `read_at`, of this node's boot clock.
    pub(super) async fn keep(
        &self,
        id: OperationId,
        record: &Record,
        read_at: Duration,
        now: StoreTime,
    ) {
        let Some(args) = self.keep_args(id, record, read_at, now) else {
            return count(&self.counters.dropped);
        };
        let Some(Value::Array(answer)) = self.call(Script::Keep, id, args).await else {
            return;
        };
        if let [Value::Int(now), Value::Int(kept)] = answer[..] {
            let reading = Reading::new(StoreTime::from_ms(now), SystemClock.boot());
            *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
            self.counters.kept.fetch_add(kept.unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// `None` if it has been too long, or there is nothing to keep.
    fn keep_args(
        &self,
        id: OperationId,
        record: &Record,
        read_at: Duration,
        now: StoreTime,
    ) -> Option<Vec<Vec<u8>>> {
        let State::Completed { expires_at, .. } = record.state else {
            return None;
        };
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

    /// Whether Redis has confirmed that there is no entry of `id`, and that none which was read before
    /// will be written.
    pub(super) async fn forget(&self, id: OperationId) -> bool {
        let ms = FORGOTTEN_FOR.as_millis().to_string().into_bytes();
        self.call(Script::Forget, id, vec![ms]).await.is_some()
    }

    async fn call(&self, script: Script, id: OperationId, args: Vec<Vec<u8>>) -> Option<Value> {
        if !self.link.is_up() {
            return None;
        }
        let answer =
            self.link.call(Invocation { script, keys: vec![self.names.entry(id)], args }).await;
        if answer.is_err() {
            count(&self.counters.unanswered);
        }
        answer.ok()
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A new connection is a probe: it must tell its time before anyone uses it.
struct Greeting(Arc<Mutex<Option<Reading>>>);

impl Greet for Greeting {
    async fn greet(&self, mut connection: MultiplexedConnection) -> Result<(), OpenError> {
        let time = ::redis::cmd("TIME").query_async::<(i64, i64)>(&mut connection).await;
        let (seconds, micros) = time.map_err(OpenError::Unreachable)?;
        let now = StoreTime::from_ms(seconds * 1000 + micros / 1000);
        let reading = Reading::new(now, SystemClock.boot());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        Ok(())
    }

    async fn beside(&self, _: Client, _: MultiplexedConnection) {}
}

/// How long a call of the filter may take. After one that took longer there are none for a while.
pub const FILTER_WAIT: Duration = Duration::from_millis(50);
/// An entry is written within so long of the moment when its record was read, or never.
pub(super) const KEEP_WITHIN: Duration = Duration::from_secs(1);
/// For longer than that nobody may write an entry that was forgotten.
const FORGOTTEN_FOR: Duration = Duration::from_secs(3);
/// An entry that lives longer than this in Redis is written anew when it is read.
const ENTRY_MS_MAX: i64 = 30 * 86_400_000;
const MANNERS: Manners = Manners {
    queue_max: 1024,
    answer_within: FILTER_WAIT,
    is_patient: false,
    pause_min: Duration::from_secs(1),
    pause_max: Duration::from_secs(30),
};
