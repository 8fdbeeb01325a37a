//! What the desk does by itself: it listens to events, takes samples, and counts for those who watch.

use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use tokio::time::{MissedTickBehavior, interval};

use super::desk::Desk;
use super::samples::{STEP_S, Sample};
use super::summary;

/// Remembers what happens, often enough that no event is missed.
pub(super) async fn events(desk: Desk) {
    let mut moment = interval(EVENTS_EVERY);
    moment.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        moment.tick().await;
        drop(desk.recent());
    }
}

/// Takes a sample of the counts at each step.
pub(super) async fn samples(desk: Desk) {
    let mut step = interval(Duration::from_secs(STEP_S));
    step.set_missed_tick_behavior(MissedTickBehavior::Skip);
    step.tick().await;
    loop {
        step.tick().await;
        let sample = Sample::take(&desk.once);
        desk.samples().add(SystemClock.wall(), sample);
    }
}

/// Each second, while someone listens: the moving parts of the summary, made once for all listeners.
pub(super) async fn moving(desk: Desk) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        second.tick().await;
        if desk.moving.receiver_count() > 0 {
            let moving = summary::moving(&desk).await;
            desk.moving.send_replace(moving.to_string().into());
        }
    }
}

/// The engine keeps some thousand events for a listener that is behind.
const EVENTS_EVERY: Duration = Duration::from_millis(50);
