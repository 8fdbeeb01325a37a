//! A machine that was paused with its boot clock, and whose first call afterwards settles an operation.

use std::time::Duration;

use onlyonce::record::State;
use onlyonce::store::{Fault, Guard, Next, Store, Swap};
use servers::WireFault;

use crate::lab::{Lab, completed, done, draft, won, write};

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

/// Whoever has read the record as expired before its time was set right must not write over it.
#[tokio::test]
async fn a_record_that_is_kept_longer_has_another_revision() {
    let Some(lab) = Lab::start("").await else { return };
    let draft = draft(1);
    won(&lab.store, &draft).await;
    lab.wire.set_clock_ahead(PAUSE);
    let Ok(Swap::Done(told)) = write(&lab.store, &draft, completed("first")).await else {
        panic!("the owner settles");
    };
    let record = lab.store.load(draft.id).await.unwrap().record.unwrap();
    assert_eq!(record.revision(), told);
    assert_eq!(record.count, 3, "claimed, completed, kept");
    let read_before = onlyonce::record::Revision { count: 2, ..told };
    let swap = lab.store.swap(draft.id, Guard::Unchanged(read_before), Next::Absent).await;
    assert!(matches!(swap, Ok(Swap::Stale(_))), "{swap:?}");
}

#[tokio::test]
async fn an_answer_is_kept_for_its_whole_time_if_the_reply_to_its_settle_was_lost() {
    let Some(lab) = Lab::start("").await else { return };
    let draft = draft(1);
    won(&lab.store, &draft).await;
    lab.wire.set_clock_ahead(PAUSE);
    lab.fail_next("UpdateItem", WireFault::ReplyLost);
    let settle = write(&lab.store, &draft, completed("first")).await;
    assert!(matches!(settle, Err(Fault::Unsure(_))), "{settle:?}");
    done(&lab.store, &draft, completed("first")).await;
    let seen = lab.store.load(draft.id).await.unwrap();
    let Some(State::Completed { expires_at, .. }) = seen.record.map(|record| record.state) else {
        panic!("it is completed");
    };
    assert!(expires_at.since_ms(seen.now) > draft.ttl_ms - 10_000);
}
