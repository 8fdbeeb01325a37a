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
