//! The store's time.

use super::*;

// threat B7
#[tokio::test]
async fn time_never_runs_backward_and_a_restart_remembers_it() {
    let lab = Lab::new().await;
    lab.clock.advance(5_000);
    lab.settled(1).await;
    let high = lab.clock.wall();
    lab.clock.advance(-1_000_000);
    assert_eq!(lab.store.load(id(1)).await.unwrap().now, high);
    let lab = lab.reopened().await;
    assert_eq!(lab.store.load(id(1)).await.unwrap().now, high);
}

#[tokio::test]
async fn rows_tell_the_time_to_an_open_after_a_crash() {
    let lab = Lab::new().await;
    lab.claimed(7).await;
    lab.clock.advance(5_000);
    lab.settled(1).await;
    let high = lab.clock.wall();
    let copy = lab.directory.path().join("copy.db");
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", lab.path().display());
        std::fs::copy(from, format!("{}{suffix}", copy.display())).unwrap();
    }
    lab.clock.advance(-1_000_000);
    let store = open(&copy, &lab.clock).await.unwrap();
    assert_eq!(store.load(id(1)).await.unwrap().now, high);
}

// threat I10
#[tokio::test]
async fn a_held_clock_sweeps_nothing_over_restarts_until_it_is_trusted_again() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    let true_now = lab.clock.wall();
    lab.clock.advance(TTL_MS * 4000);
    lab.claimed(2).await;
    lab.store.hold_clock(true).await.unwrap();
    assert_eq!(lab.sweep(10).await, (0, false));
    let lab = lab.reopened().await;
    let seen = lab.store.load(id(1)).await.unwrap();
    assert!(seen.clock_held && seen.record.is_some());
    let scan = Scan { states: StateSet::of(&StateKind::ALL), after: None, limit: 10 };
    assert!(lab.store.scan(scan).await.unwrap().clock_held);
    assert_eq!(lab.sweep(10).await, (0, false));
    lab.clock.advance(-TTL_MS * 4000);
    lab.store.hold_clock(false).await.unwrap();
    let seen = lab.store.load(id(1)).await.unwrap();
    assert_eq!((seen.now, seen.clock_held), (true_now, false));
    let lab = lab.reopened().await;
    let seen = lab.store.load(id(1)).await.unwrap();
    assert_eq!((seen.now, seen.clock_held), (true_now, false));
    assert_eq!(lab.sweep(10).await, (0, false));
}

/// It was asked for before the jump, and nobody has looked at the clock since.
// threat B6
#[tokio::test]
async fn a_sweep_goes_by_the_moment_when_it_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Jumping::default();
    let options = SqliteOptions::new().with_clock(clock.clone());
    let store = SqliteStore::open_with(directory.path().join("store.db"), options).await.unwrap();
    let owned = draft(1);
    store.claim(owned.clone()).await.unwrap();
    let settled = store.swap(owned.id, owner(owned.token), settle(1), Notes::default()).await;
    assert!(matches!(settled, Ok(Swap::Done(_))), "{settled:?}");
    clock.0.store(ONE_MORE, Ordering::SeqCst);
    assert_eq!(store.sweep(10).await.unwrap().deleted, 0);
    assert!(store.load(owned.id).await.unwrap().record.is_some());
    assert_eq!(store.sweep(10).await.unwrap().deleted, 1, "it had not been told of a jump");
}

/// A clock that stands still, and jumps after being read once more.
#[derive(Clone, Default)]
struct Jumping(Arc<AtomicI64>);

const ONE_MORE: i64 = 2;

impl Clock for Jumping {
    fn wall(&self) -> StoreTime {
        let has_jumped = match self.0.load(Ordering::SeqCst) {
            0 => false,
            left => {
                self.0.store((left - 1).max(1), Ordering::SeqCst);
                left == 1
            }
        };
        StoreTime::from_ms(1_000_000_000 + if has_jumped { TTL_MS * 4000 } else { 0 })
    }

    fn boot(&self) -> Duration {
        Duration::from_secs(1)
    }
}
