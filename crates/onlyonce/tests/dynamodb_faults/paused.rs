//! A machine that was paused with its boot clock, and whose first call afterwards settles an operation.

use std::time::Duration;

use onlyonce::record::State;
use onlyonce::store::{Next, Store};

use crate::lab::{Lab, completed, done, draft, won};

const PAUSE: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn an_answer_is_kept_for_its_whole_time_to_live_after_a_pause() {
    let Some(lab) = Lab::start("").await else { return };
    for (number, to) in (1..).zip([completed("first"), Next::Released { expires_at: None }]) {
        let draft = draft(number);
        won(&lab.store, &draft).await;
        // To this node it is as if its own clock had stood still for an hour.
        lab.wire.set_clock_ahead(PAUSE * number);
        done(&lab.store, &draft, to).await;
        let seen = lab.store.load(draft.id).await.unwrap();
        let record = seen.record.unwrap();
        let (State::Completed { expires_at, .. } | State::Released { expires_at }) = record.state
        else {
            panic!("{record:?}");
        };
        let kept_ms = expires_at.since_ms(seen.now);
        assert!((draft.ttl_ms - 10_000..=draft.ttl_ms).contains(&kept_ms), "{kept_ms} ms");
    }
}
