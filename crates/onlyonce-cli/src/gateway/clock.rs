//! Says on the error output that the store's clock was set forward, and that it is right again.

use std::time::Duration;

use onlyonce::Once;
use tokio::time::sleep;

/// Watches for ever.
pub(super) async fn watch(once: &Once) {
    let is_ahead = || once.clock_ahead_by() >= AHEAD_MIN;
    loop {
        while !is_ahead() {
            sleep(PAUSE).await;
        }
        let ahead_s = once.clock_ahead_by().as_secs();
        eprintln!("onlyonce: the store's clock is {ahead_s} s too far ahead: {ADVICE}");
        while is_ahead() {
            sleep(PAUSE).await;
        }
        eprintln!("onlyonce: the store's clock is right again");
    }
}

const ADVICE: &str = "it was set forward while this gateway ran, so this gateway does not follow it, and keys are \
    kept longer. Correct the clock of the store; if it is right, restart the gateway";
/// Less is what a clock may be off by when it is read.
const AHEAD_MIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(1);
