//! Says on the error output that the store's clock is held, and that it is trusted again.

use std::time::Duration;

use onlyonce::Once;
use tokio::time::{Instant, sleep};

/// Watches for ever.
pub(super) async fn watch(once: &Once) {
    loop {
        while !once.is_clock_held() {
            sleep(PAUSE).await;
        }
        // A store that nobody used for a while does not trust its clock at first, and then it does.
        sleep(PATIENCE).await;
        if once.is_clock_held() {
            tell_while_held(once).await;
            eprintln!("onlyonce: the store's clock is trusted again");
        }
    }
}

async fn tell_while_held(once: &Once) {
    let mut told_at: Option<Instant> = None;
    while once.is_clock_held() {
        if told_at.is_none_or(|told_at| told_at.elapsed() >= AGAIN) {
            eprintln!("onlyonce: {HELD}");
            told_at = Some(Instant::now());
        }
        sleep(PAUSE).await;
    }
}

const HELD: &str = "the store's clock was set forward by more than a minute, and is held: no key expires, and no lease \
    lapses, on any node. Put it right, then run `onlyonce sweep --confirm-clock`";
/// For longer than a store waits for others to tell of a jump.
const PATIENCE: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(1);
