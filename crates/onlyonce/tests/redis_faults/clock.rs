//! A clock that is held is held for every node, also for those that come later.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use onlyonce::clock::{Clock, StoreTime};
use onlyonce::store::conformance::ManualClock;
use onlyonce::store::redis::{RedisOptions, RedisStore};
use onlyonce::store::{Draft, Maintain, Store, Swept};
use servers::Redis;

use crate::lab::{draft, id, once_up, open, raw, settled, until, won};

// threats B6, I6
#[tokio::test]
async fn a_held_clock_is_held_by_all_nodes_and_over_a_restart() {
    let mut server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (one, two) = (open(&server).await, open(&server).await);
    let brief = Draft { ttl_ms: 1, ..draft(1) };
    let expired = settled(&one, &brief, "kept").await;
    one.hold_clock(true).await.unwrap();
    server.kill();
    server.start_again();
    let three = open(&server).await;
    for node in [&one, &two, &three] {
        for number in 0..200 {
            let seen = once_up(async || node.load(id(number)).await).await;
            assert!(seen.clock_held, "in every slot");
        }
        assert_eq!(node.sweep(100).await.unwrap(), Swept { deleted: 0, more: false });
    }
    assert_eq!(three.load(brief.id).await.unwrap().record, Some(expired));
    three.hold_clock(false).await.unwrap();
    assert!(!one.load(id(7)).await.unwrap().clock_held);
    assert_eq!(two.sweep(100).await.unwrap(), Swept { deleted: 1, more: false });
}

/// A day too far, told by one node to all, is forgotten by all when the clock is trusted again.
#[tokio::test]
async fn a_clock_that_is_trusted_again_is_trusted_by_nodes_that_saw_the_wrong_time() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let with_clock = RedisOptions::new().with_clock(clock.clone());
    let one = RedisStore::open_with(&server.url(), with_clock.clone()).await.unwrap();
    let two = RedisStore::open_with(&server.url(), with_clock).await.unwrap();
    let right = one.load(id(1)).await.unwrap().now;
    clock.set_wall(right.plus_ms(86_400_000));
    for node in [&one, &two] {
        assert!(node.load(id(1)).await.unwrap().now.since_ms(right) >= 86_400_000);
    }
    won(&one, &draft(1)).await;
    one.hold_clock(true).await.unwrap();
    clock.set_wall(right);
    assert!(two.load(id(2)).await.unwrap().now > right, "time does not run backward by itself");
    two.hold_clock(false).await.unwrap();
    for node in [&two, &one] {
        let now = node.load(id(1)).await.unwrap().now;
        assert!(now.since_ms(right) < 1_000, "{now:?} is not {right:?}");
    }
}

/// As they are after someone trusted the clock again and was cut off half-way, and then did so anew.
#[tokio::test]
async fn slots_that_were_trusted_unequally_often_do_not_take_each_others_time() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let with_clock = RedisOptions::new().with_clock(clock.clone());
    let one = RedisStore::open_with(&server.url(), with_clock.clone()).await.unwrap();
    let two = RedisStore::open_with(&server.url(), with_clock).await.unwrap();
    let right = one.load(id(1)).await.unwrap().now;
    let slot_of = |number: u32| u128::from_be_bytes(*id(number).as_bytes()) % 1024;
    for (number, epoch) in [(1, 2), (2, 1)] {
        let clock = format!("oo:{{{}}}:clock", slot_of(number));
        let kept = format!("0 {epoch} {}", right.as_ms());
        redis::cmd("SET").arg(clock).arg(kept).exec(&mut raw(&server)).unwrap();
    }
    clock.set_wall(right.plus_ms(86_400_000));
    assert!(one.load(id(1)).await.unwrap().now > right, "it saw a time that is a day too far");
    clock.set_wall(right);
    two.hold_clock(false).await.unwrap();
    let now = one.load(id(2)).await.unwrap().now;
    assert!(now.since_ms(right) < 1_000, "{now:?} is not {right:?}");
}

/// Nobody has told of the jump when it starts: it finds that the beat of the others is far behind.
// threat B6
#[tokio::test]
async fn a_node_that_starts_right_after_a_jump_lets_nothing_expire() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let first = open_by(&server, &clock).await;
    settled(&first, &draft(1), "kept").await;
    set_forward(&clock);
    let later = open_by(&server, &clock).await;
    assert_eq!(later.sweep(100).await.unwrap(), Swept { deleted: 0, more: false });
    let seen = later.load(draft(1).id).await.unwrap();
    assert!(seen.clock_held, "it does not trust a clock that nobody else trusts");
    assert!(seen.record.unwrap().is_expired(seen.now), "by the clock it would have expired");
    until(async || is_held(&server)).await;
    clock.advance(Duration::from_secs(20));
    assert!(later.load(draft(1).id).await.unwrap().clock_held, "now it was told");
    assert_eq!(later.sweep(100).await.unwrap(), Swept { deleted: 0, more: false });
}

/// Even if the sweep is the first to read the clock after the jump.
// threat B6
#[tokio::test]
async fn a_sweep_does_not_trust_a_clock_that_jumped() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let store = open_by(&server, &clock).await;
    settled(&store, &draft(1), "kept").await;
    set_forward(&clock);
    assert_eq!(store.sweep(100).await.unwrap(), Swept { deleted: 0, more: false });
    store.hold_clock(false).await.unwrap();
    assert_eq!(store.sweep(100).await.unwrap(), Swept { deleted: 1, more: false });
}

/// The clock jumped and was set right at once, and meanwhile someone wrote: its slot has kept that time.
// threat B6
#[tokio::test]
async fn a_time_that_is_far_ahead_of_the_clock_is_not_gone_by() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let first = open_by(&server, &clock).await;
    let kept = settled(&first, &draft(1), "kept").await;
    let ahead = clock.wall().plus_ms(90_000_000).as_ms();
    let slot = u128::from_be_bytes(*id(1).as_bytes()) % 1024;
    server.command(&format!("SET oo:{{{slot}}}:clock \"0 0 {ahead}\""));
    for node in [first, open_by(&server, &clock).await] {
        assert_eq!(node.sweep(100).await.unwrap(), Swept { deleted: 0, more: false });
        let seen = node.load(id(1)).await.unwrap();
        assert!(seen.clock_held && seen.now.as_ms() == ahead, "{seen:?}");
    }
    let last = open_by(&server, &clock).await;
    last.hold_clock(false).await.unwrap();
    let seen = last.load(id(1)).await.unwrap();
    assert_eq!((seen.clock_held, seen.record), (false, Some(kept)));
}

/// It knew of no jump when it began.
// threat B6
#[tokio::test]
async fn a_sweep_that_is_under_way_when_the_clock_jumps_deletes_nothing_by_it() {
    let server = Redis::start(&[]);
    let (go_on, gate) = mpsc::channel();
    let clock = Halting::new(gate);
    let options = RedisOptions::new().with_clock(clock.clone());
    let store = RedisStore::open_with(&server.url(), options).await.expect("the store opens");
    for number in 0..200 {
        settled(&store, &draft(number), "kept").await;
    }
    let (sweeping, runtime) = (store.clone(), tokio::runtime::Handle::current());
    let sweep = move || runtime.block_on(sweeping.sweep(1_000)).unwrap().deleted;
    let sweep = thread::Builder::new().name(HALTED.to_owned()).spawn(sweep).unwrap();
    until(async || clock.calls.load(Ordering::Acquire) == 2).await;
    set_forward(&clock.hands);
    // Nobody can be told: what is kept as the clock of the first slot is none.
    server.command("DEL oo:{0}:clock");
    server.command("RPUSH oo:{0}:clock nothing");
    until(async || store.load(id(7)).await.unwrap().clock_held).await;
    go_on.send(()).unwrap();
    let deleted = tokio::task::spawn_blocking(|| sweep.join().unwrap()).await.unwrap();
    assert_eq!(deleted, 0);
}

/// Evicted, for one: nobody else has trusted the clock meanwhile.
#[tokio::test]
async fn a_beat_that_is_lost_while_the_clock_is_trusted_again_ends_nothing() {
    let server = Redis::start(&[]);
    let (go_on, gate) = mpsc::channel();
    let clock = Halting::new(gate);
    let options = RedisOptions::new().with_clock(clock.clone());
    let store = RedisStore::open_with(&server.url(), options).await.expect("the store opens");
    store.hold_clock(true).await.unwrap();
    assert!(is_held(&server));
    let (trusting, runtime) = (store.clone(), tokio::runtime::Handle::current());
    let trust = move || runtime.block_on(trusting.hold_clock(false)).unwrap();
    let trust = thread::Builder::new().name(HALTED.to_owned()).spawn(trust).unwrap();
    until(async || clock.calls.load(Ordering::Acquire) == 2).await;
    server.command("DEL oo:{0}:beat");
    go_on.send(()).unwrap();
    tokio::task::spawn_blocking(|| trust.join().unwrap()).await.unwrap();
    assert!(!is_held(&server), "to its last slot");
}

/// A clock that halts the second call of one thread, until it may go on.
#[derive(Clone)]
struct Halting {
    hands: ManualClock,
    calls: Arc<AtomicUsize>,
    gate: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Halting {
    fn new(gate: mpsc::Receiver<()>) -> Self {
        let (hands, calls) = (ManualClock::new(), Arc::default());
        Self { hands, calls, gate: Arc::new(Mutex::new(gate)) }
    }
}

impl Clock for Halting {
    fn wall(&self) -> StoreTime {
        let is_halted = thread::current().name() == Some(HALTED);
        if is_halted && self.calls.fetch_add(1, Ordering::AcqRel) == 1 {
            self.gate.lock().unwrap().recv().unwrap();
        }
        self.hands.wall()
    }

    fn boot(&self) -> Duration {
        self.hands.boot()
    }
}

const HALTED: &str = "halted";

/// A day without any node is no jump, once nobody says otherwise.
#[tokio::test]
async fn a_node_that_starts_after_a_day_of_rest_trusts_the_clock_after_a_while() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let first = open_by(&server, &clock).await;
    settled(&first, &draft(1), "kept").await;
    first.close().await;
    clock.advance(Duration::from_secs(86_400));
    let later = open_by(&server, &clock).await;
    assert!(later.load(draft(1).id).await.unwrap().clock_held);
    let last = open_by(&server, &clock).await;
    assert!(last.load(draft(1).id).await.unwrap().clock_held, "who doubts does not beat");
    clock.advance(Duration::from_secs(20));
    assert!(!later.load(draft(1).id).await.unwrap().clock_held);
    assert_eq!(later.sweep(100).await.unwrap(), Swept { deleted: 1, more: false });
    assert!(!is_held(&server), "nobody was told of a jump");
}

/// As after an eviction of it, or an upgrade from a version that had none.
#[tokio::test]
async fn where_there_are_records_and_no_beat_a_node_doubts() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let first = open_by(&server, &clock).await;
    assert!(!first.load(id(1)).await.unwrap().clock_held, "there is nothing that could expire");
    settled(&first, &draft(1), "kept").await;
    first.close().await;
    for lost in ["DEL oo:{0}:beat", "SET oo:{0}:beat noon"] {
        server.command(lost);
        let later = open_by(&server, &clock).await;
        assert!(later.load(id(1)).await.unwrap().clock_held, "{lost}");
        later.close().await;
    }
}

/// It was trusted again before those who had lived through the jump had looked.
#[tokio::test]
async fn a_jump_that_was_confirmed_before_it_was_noticed_is_not_told() {
    let server = Redis::start(&[]);
    let clock = ManualClock::new();
    let (first, other) = (open_by(&server, &clock).await, open_by(&server, &clock).await);
    let right = first.load(id(1)).await.unwrap().now;
    set_forward(&clock);
    other.hold_clock(false).await.unwrap();
    until(async || beat(&server) > right.as_ms()).await;
    let trusted_at = beat(&server);
    clock.advance(Duration::from_secs(1));
    until(async || beat(&server) > trusted_at).await;
    clock.advance(Duration::from_secs(1));
    until(async || beat(&server) > trusted_at + 1_000).await;
    assert!(!is_held(&server));
}

async fn open_by(server: &Redis, clock: &ManualClock) -> RedisStore {
    let options = RedisOptions::new().with_clock(clock.clone());
    RedisStore::open_with(&server.url(), options).await.expect("the store opens")
}

/// By a day and an hour: what was kept for a day would have expired.
fn set_forward(clock: &ManualClock) {
    clock.set_wall(clock.wall().plus_ms(90_000_000));
}

fn is_held(server: &Redis) -> bool {
    let kept: Option<String> =
        redis::cmd("GET").arg("oo:{1023}:clock").query(&mut raw(server)).unwrap();
    kept.is_some_and(|kept| kept.starts_with('1'))
}

/// When some node last trusted the clock.
fn beat(server: &Redis) -> i64 {
    let kept: String = redis::cmd("GET").arg("oo:{0}:beat").query(&mut raw(server)).unwrap();
    kept.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_clock_that_does_not_read_is_held() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let brief = Draft { ttl_ms: 1, ..draft(1) };
    settled(&store, &brief, "kept").await;
    let names: Vec<String> = redis::cmd("KEYS").arg("oo:*:clock").query(&mut raw(&server)).unwrap();
    assert_eq!(names.len(), 1);
    redis::cmd("SET").arg(&names[0]).arg("half past").exec(&mut raw(&server)).unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(store.load(brief.id).await.unwrap().clock_held);
    assert_eq!(store.sweep(10).await.unwrap().deleted, 0);
    store.hold_clock(false).await.unwrap();
    assert_eq!(store.sweep(10).await.unwrap().deleted, 1);
}
