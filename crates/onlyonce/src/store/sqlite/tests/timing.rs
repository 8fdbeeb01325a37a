//! The store's time.

use super::*;

// threat B7
#[tokio::test]
async fn time_never_runs_backward_until_the_store_is_opened_again() {
    let lab = Lab::new().await;
    lab.clock.advance(5_000);
    lab.settled(1).await;
    let high = lab.clock.wall();
    lab.clock.advance(-1_000_000);
    assert_eq!(lab.store.load(id(1)).await.unwrap().now, high);
    let lab = lab.reopened().await;
    assert_eq!(lab.store.load(id(1)).await.unwrap().now, lab.clock.wall());
}

// threat B7: what was written while the clock was ahead lives longer, and stops nothing.
#[tokio::test]
async fn a_clock_that_was_ahead_for_a_while_is_recovered_from() {
    let lab = Lab::new().await;
    lab.clock.advance(TTL_MS * 4000);
    lab.settled(1).await;
    lab.clock.advance(-TTL_MS * 4000);
    let lab = lab.reopened().await;
    lab.settled(2).await;
    lab.clock.advance(TTL_MS + 1);
    assert_eq!(lab.sweep(10).await, (1, false), "the younger one goes by the clock that is right");
    assert!(lab.store.load(id(1)).await.unwrap().record.is_some());
}
