//! The filter answers replays, costs little when Redis is away, and believes nobody but its own nodes.

use std::time::Duration;

use onlyonce::clock::{Clock, StoreTime, SystemClock};
use onlyonce::record::{Record, StateKind, Token};
use onlyonce::scope::OperationId;
use onlyonce::store::conformance::ManualClock;
use onlyonce::store::layered::{FILTER_WAIT, FilterCounts, Layered, LayeredOptions};
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::store::{
    Beat, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen, Store,
    StoreIdentity, StoreLimits, Swap, Swept, Watch,
};
use servers::Redis;

use crate::lab::{completed, done, draft, id, raw, settled, until, won};

pub(crate) type Memory = Layered<MemoryStore>;

/// A node whose view of the authority is a store of its own, so that what it knows besides comes from the filter; once Redis
/// answers it.
pub(crate) async fn node(server: &Redis, clock: &ManualClock) -> Memory {
    let authority = MemoryStore::with_clock(clock.clone()).with_identity(AUTHORITY);
    up(authority, server, LayeredOptions::new().with_clock(clock.clone())).await
}

async fn up<S: Watch + Inspect>(
    authority: S,
    server: &Redis,
    options: LayeredOptions,
) -> Layered<S> {
    let store = Layered::new(authority, &server.url(), options).unwrap();
    until(async || store.is_filter_up()).await;
    store
}

pub(crate) fn entry_key(id: OperationId) -> String {
    let number = |bytes: &[u8; 16]| u128::from_be_bytes(*bytes);
    format!("oo:filter/{:032x}/{:032x}", number(AUTHORITY.as_bytes()), number(id.as_bytes()))
}

pub(crate) fn entry(server: &Redis, id: OperationId) -> Option<Vec<u8>> {
    redis::cmd("GET").arg(entry_key(id)).query(&mut raw(server)).unwrap()
}

pub(crate) fn put(server: &Redis, id: OperationId, entry: &[u8]) {
    redis::cmd("SET").arg(entry_key(id)).arg(entry).exec(&mut raw(server)).unwrap();
}

/// Settles through the node, and waits for the copy.
pub(crate) async fn copied(
    node: &Memory,
    server: &Redis,
    draft: &Draft,
    text: &'static str,
) -> Record {
    let record = settled(node, draft, text).await;
    until(async || entry(server, draft.id).is_some()).await;
    record
}

// threat D7
#[tokio::test]
async fn a_replay_needs_no_authority_and_a_fresh_key_does() {
    let server = Redis::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let authority = SqliteStore::open(folder.path().join("onlyonce.db")).await.unwrap();
    let store = up(authority, &server, LayeredOptions::new()).await;
    let first = draft(1);
    let record = settled(&store, &first, "kept").await;
    until(async || store.counts().kept > 0).await;
    store.authority().close().await;
    let seen = store.load(first.id).await.unwrap();
    assert_eq!((seen.record.as_ref(), seen.mine), (Some(&record), false));
    let retry = Draft { not_after: seen.now.plus_ms(10_000), ..draft(1) };
    let seen = store.claim(retry.clone()).await.unwrap();
    assert_eq!((seen.record.as_ref(), seen.mine), (Some(&record), false));
    assert!(store.counts().hits >= 2);
    assert!(store.claim(draft(2)).await.is_err(), "only the authority lets anything run");
    let late = Draft { not_after: StoreTime::MAX, ..retry };
    assert!(
        store.claim(late).await.is_err(),
        "a copy of it could still insert when the record has expired"
    );
}

#[tokio::test]
async fn an_entry_lives_no_longer_than_its_record() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let node = node(&server, &clock).await;
    copied(&node, &server, &draft(1), "kept").await;
    let ttl: i64 = redis::cmd("PTTL").arg(entry_key(id(1))).query(&mut raw(&server)).unwrap();
    assert!((86_390_000..=86_400_000).contains(&ttl), "{ttl}");
}

// threat D10
#[tokio::test]
async fn a_silent_redis_costs_one_short_wait_and_then_nothing() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let node = node(&server, &clock).await;
    let record = copied(&node, &server, &draft(1), "kept").await;
    server.pause();
    let (took, seen) = timed(node.load(id(1))).await;
    assert_eq!(seen.unwrap().record, Some(record.clone()));
    assert!(took < FILTER_WAIT + SLACK, "{took:?}");
    until(async || !node.is_filter_up()).await;
    let (took, ()) = timed(async {
        for number in 2..502 {
            won(&node, &draft(number)).await;
            assert_eq!(node.load(id(1)).await.unwrap().record, Some(record.clone()));
        }
    })
    .await;
    assert!(took < FILTER_WAIT * 10, "a thousand calls took {took:?}");
    server.resume();
    until(async || node.is_filter_up()).await;
    let hits = node.counts().hits;
    node.load(id(1)).await.unwrap();
    assert_eq!(node.counts().hits, hits + 1);
}

// threat D9
#[tokio::test]
async fn what_redis_forgot_is_copied_again_when_it_is_read() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let node = node(&server, &clock).await;
    let record = copied(&node, &server, &draft(1), "kept").await;
    redis::cmd("FLUSHALL").exec(&mut raw(&server)).unwrap();
    assert_eq!(node.load(id(1)).await.unwrap().record, Some(record));
    until(async || entry(&server, id(1)).is_some()).await;
}

/// Each byte of an entry, flipped in its turn; the authority has nothing that it could be taken for.
// R122, threat D8
#[tokio::test]
async fn an_entry_that_was_tampered_with_is_not_believed() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let writer = node(&server, &clock).await;
    copied(&writer, &server, &draft(1), "kept").await;
    let whole = entry(&server, id(1)).unwrap();
    let reader = heard(&server, &clock).await;
    assert!(reader.load(id(1)).await.unwrap().record.is_some(), "a whole one is");
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        put(&server, id(1), &flipped);
        assert_eq!(reader.load(id(1)).await.unwrap().record, None, "byte {at}");
    }
    put(&server, id(2), &whole);
    assert_eq!(reader.load(id(2)).await.unwrap().record, None, "it is another operation's");
    assert!(reader.counts().unreadable > 0);
    put(&server, id(1), &whole);
    let options = LayeredOptions::new().with_clock(clock.clone()).with_secret("another");
    let authority = MemoryStore::with_clock(clock.clone()).with_identity(AUTHORITY);
    let stranger = up(authority, &server, options).await;
    stranger.load(id(9)).await.unwrap();
    assert_eq!(
        stranger.load(id(1)).await.unwrap().record,
        None,
        "it was signed with another secret"
    );
}

/// A node that has nothing of its own, and has heard its authority's time.
async fn heard(server: &Redis, clock: &ManualClock) -> Memory {
    let node = node(server, clock).await;
    node.load(id(99)).await.unwrap();
    node
}

// threat K37
#[tokio::test]
async fn an_entry_of_another_authority_is_none() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let first = node(&server, &clock).await;
    copied(&first, &server, &draft(1), "kept").await;
    let options = LayeredOptions::new().with_clock(clock.clone());
    let other = up(MemoryStore::with_clock(clock.clone()), &server, options.clone()).await;
    other.load(id(99)).await.unwrap();
    assert_eq!(other.load(id(1)).await.unwrap().record, None);
    won(&other, &draft(1)).await;
    let moved = entry(&server, id(1)).unwrap();
    put(&server, id(2), &moved);
    assert!(heard(&server, &clock).await.load(id(1)).await.unwrap().record.is_some());
    let nameless = up(SlowReads(MemoryStore::new(), None), &server, options).await;
    settled(&nameless, &draft(3), "not copied").await;
    assert_eq!(
        nameless.counts(),
        FilterCounts { misses: nameless.counts().misses, ..FilterCounts::default() }
    );
}

#[tokio::test]
async fn without_the_authoritys_time_nothing_is_replayed() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let writer = node(&server, &clock).await;
    let record = copied(&writer, &server, &draft(1), "kept").await;
    let reader = node(&server, &clock).await;
    assert_eq!(reader.load(id(1)).await.unwrap().record, None, "its time was not heard yet");
    assert_eq!(reader.load(id(1)).await.unwrap().record, Some(record));
    clock.advance(Duration::from_secs(61));
    assert_eq!(reader.load(id(1)).await.unwrap().record, None, "it was heard too long ago");
}

#[tokio::test]
async fn an_entry_is_replayed_until_it_expires_and_no_longer() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let writer = node(&server, &clock).await;
    let brief = Draft { ttl_ms: 10_000, ..draft(1) };
    copied(&writer, &server, &brief, "kept").await;
    put(&server, id(1), &entry(&server, id(1)).unwrap());
    let reader = heard(&server, &clock).await;
    clock.advance(Duration::from_millis(9_999));
    assert!(reader.load(id(1)).await.unwrap().record.is_some());
    clock.advance(Duration::from_millis(1));
    assert_eq!(reader.load(id(1)).await.unwrap().record, None);
}

/// One after the other goes the way of the first: when the second is there, the first was tried.
#[tokio::test]
async fn an_older_copy_never_replaces_a_newer_one() {
    let server = Redis::start(&[]);
    let (early, late) = (ManualClock::new(), ManualClock::new());
    late.advance(Duration::from_secs(1_000));
    let (older, newer) = (node(&server, &early).await, node(&server, &late).await);
    copied(&newer, &server, &draft(1), "newer").await;
    let kept = entry(&server, id(1));
    let first = draft(1);
    won(&older, &first).await;
    done(&older, &first, completed("older")).await;
    copied(&older, &server, &beside(1, 2), "beside").await;
    assert_eq!(entry(&server, id(1)), kept);
}

/// The script alone: what it leaves as it is, and what it replaces.
#[test]
fn an_entry_is_kept_only_where_it_may_be() {
    let server = Redis::start(&[]);
    let mut connection = raw(&server);
    let entry_of =
        |version: u8, ms: i64| [b"oF", &[version][..], &ms.to_le_bytes(), b"and so on"].concat();
    let new = entry_of(1, 500);
    for (there, deadline, is_kept) in [
        (None, i64::MAX >> 10, true),
        (None, 5, false),
        (Some(entry_of(1, 499)), i64::MAX >> 10, true),
        (Some(entry_of(1, 500)), i64::MAX >> 10, false),
        (Some(entry_of(1, 501)), i64::MAX >> 10, false),
        (Some(entry_of(2, 1)), i64::MAX >> 10, false),
        (Some(b"oF\0".to_vec()), i64::MAX >> 10, false),
        (Some(b"garbage".to_vec()), i64::MAX >> 10, true),
    ] {
        redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
        if let Some(there) = &there {
            redis::cmd("SET").arg("entry").arg(there).exec(&mut connection).unwrap();
        }
        let mut keep = redis::cmd("EVAL");
        keep.arg(KEEP).arg(1).arg("entry").arg(deadline).arg(500).arg(10_000).arg(&new);
        let (_, kept): (i64, i64) = keep.query(&mut connection).unwrap();
        assert_eq!(kept == 1, is_kept, "{there:?}, {deadline}");
        let left: Option<Vec<u8>> = redis::cmd("GET").arg("entry").query(&mut connection).unwrap();
        assert_eq!(left, if is_kept { Some(new.clone()) } else { there });
    }
}

#[tokio::test]
async fn a_record_that_was_deleted_is_not_replayed_by_any_node() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let (writer, reader) = (node(&server, &clock).await, heard(&server, &clock).await);
    let record = copied(&writer, &server, &draft(1), "kept").await;
    assert!(reader.load(id(1)).await.unwrap().record.is_some());
    let guard = Guard::Unchanged(record.revision());
    writer.swap(id(1), guard, Next::Absent).await.unwrap();
    for node in [&writer, &reader] {
        assert_eq!(node.load(id(1)).await.unwrap().record, None);
    }
    let anew = draft(1);
    won(&writer, &anew).await;
    assert_eq!(writer.load(id(1)).await.unwrap().record.unwrap().state.kind(), StateKind::Running);
}

/// A node that has read the record before must not copy it again afterwards.
#[tokio::test]
async fn no_copy_of_a_forgotten_answer_is_taken_for_a_while() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let writer = node(&server, &clock).await;
    let record = copied(&writer, &server, &draft(1), "kept").await;
    let guard = Guard::Unchanged(record.revision());
    writer.swap(id(1), guard, Next::Absent).await.unwrap();
    assert!(entry(&server, id(1)).is_some_and(|mark| mark == b"oF\0"));
}

/// Redis lost changes no outcome: this node does not use the copy that Redis may still have.
#[tokio::test]
async fn an_answer_is_forgotten_also_while_redis_is_away() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let writer = node(&server, &clock).await;
    let record = copied(&writer, &server, &draft(1), "kept").await;
    let guard = Guard::Unchanged(record.revision());
    server.pause();
    writer.swap(id(1), guard, Next::Absent).await.unwrap();
    server.resume();
    until(async || writer.is_filter_up()).await;
    assert_eq!(writer.load(id(1)).await.unwrap().record, None);
}

/// A large answer would keep all other calls of Redis waiting.
#[tokio::test]
async fn an_answer_of_more_than_a_mebibyte_is_not_copied() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let node = node(&server, &clock).await;
    let (large, small) = (draft(1), beside(1, 2));
    let text: &'static str = "x".repeat((1 << 20) + 1).leak();
    settled(&node, &large, text).await;
    copied(&node, &server, &small, "small").await;
    assert_eq!(entry(&server, large.id), None);
}

/// While the authority hangs, a copy waits for it: neither a swap nor the drop of the store does.
#[tokio::test]
async fn nobody_waits_for_the_copies_of_others() {
    let server = Redis::start(&[]);
    let authority = SlowReads(MemoryStore::new(), Some(AUTHORITY));
    let node = up(authority, &server, LayeredOptions::new()).await;
    let (settled, taken) = (draft(1), beside(1, 2));
    won(&node, &taken).await;
    done(&node, &taken, Next::Released { expires_at: None }).await;
    let released = node.authority().0.load(taken.id).await.unwrap().record.unwrap();
    won(&node, &settled).await;
    done(&node, &settled, completed("kept")).await;
    let guard = Guard::Unchanged(released.revision());
    let to = Next::Unknown { since: None };
    let (took, swap) = timed(node.swap(taken.id, guard, to)).await;
    assert!(matches!(swap, Ok(Swap::Done(_))), "{swap:?}");
    assert!(took < SLACK, "{took:?}");
    let (took, ()) = timed(async { drop(node) }).await;
    assert!(took < SLACK, "{took:?}");
}

/// A draft whose writes go through the same queue as those of another.
fn beside(number: u32, other: u32) -> Draft {
    let mut id = *id(number).as_bytes();
    id[15] ^= 1;
    Draft { id: OperationId::from_bytes(id), ..draft(other) }
}

/// Its loads take long; everything else is done at once.
struct SlowReads(MemoryStore, Option<StoreIdentity>);

impl Store for SlowReads {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        self.0.claim(draft).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        tokio::time::sleep(SLACK * 4).await;
        self.0.load(id).await
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        self.0.swap(id, guard, to).await
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        self.0.renew(held, lease).await
    }
}

impl Watch for SlowReads {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.0.changed(id)
    }
}

impl Maintain for SlowReads {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        self.0.scan(query).await
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        self.0.sweep(until, limit).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        self.0.check_value(name, from, to).await
    }

    fn limits(&self) -> StoreLimits {
        self.0.limits()
    }

    fn identity(&self) -> Option<StoreIdentity> {
        self.1
    }
}

impl Inspect for SlowReads {}

async fn timed<T>(call: impl Future<Output = T>) -> (Duration, T) {
    let start = SystemClock.boot();
    let answer = call.await;
    (SystemClock.boot() - start, answer)
}

pub(crate) const AUTHORITY: StoreIdentity = StoreIdentity::from_bytes([7; 16]);
const KEEP: &str = include_str!("../../src/store/layered/keep.lua");
/// For a machine that is busy.
const SLACK: Duration = Duration::from_millis(450);
