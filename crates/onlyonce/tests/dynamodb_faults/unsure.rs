//! An answer that does not say "not done" is unsure, and repeating the identical call resolves it.

use onlyonce::store::{Fault, Store, StoreError, Swap};
use servers::WireFault;

use crate::lab::{Lab, completed, done, draft, won, write};

#[tokio::test]
async fn a_claim_and_a_settle_whose_answers_are_lost_are_unsure_and_done_when_repeated() {
    let Some(lab) = Lab::start("").await else { return };
    for (number, fault) in
        (1..).zip([WireFault::ReplyLost, WireFault::FailedAfter, WireFault::CallLost])
    {
        let draft = draft(number);
        lab.fail_next("PutItem", fault);
        let claim = lab.store.claim(draft.clone()).await;
        assert!(matches!(claim, Err(Fault::Unsure(_))), "{fault:?}: {claim:?}");
        won(&lab.store, &draft).await;
        lab.fail_next("UpdateItem", fault);
        let settle = write(&lab.store, &draft, completed("first")).await;
        assert!(matches!(settle, Err(Fault::Unsure(_))), "{fault:?}: {settle:?}");
        done(&lab.store, &draft, completed("first")).await;
        let other = write(&lab.store, &draft, completed("second")).await;
        assert!(matches!(other, Ok(Swap::Stale(_))), "{other:?}");
    }
}

#[tokio::test]
async fn no_call_is_repeated_behind_our_back() {
    let Some(lab) = Lab::start("").await else { return };
    for fault in
        [WireFault::ReplyLost, WireFault::FailedAfter, WireFault::CallLost, WireFault::Throttled]
    {
        lab.wire.forget();
        lab.wire.change(move |_| fault);
        assert!(lab.store.claim(draft(1)).await.is_err());
        assert_eq!(lab.wire.counts().faults, 1, "{fault:?}");
    }
}

#[tokio::test]
async fn throttling_is_busy_and_expired_credentials_are_not_done() {
    let Some(lab) = Lab::start("").await else { return };
    lab.fail_next("PutItem", WireFault::Throttled);
    let claim = lab.store.claim(draft(1)).await;
    assert!(matches!(claim, Err(Fault::NotDone(StoreError::Busy))), "{claim:?}");
    lab.fail_next("PutItem", WireFault::Expired);
    let claim = lab.store.claim(draft(1)).await;
    assert!(matches!(claim, Err(Fault::NotDone(StoreError::Unavailable(_)))), "{claim:?}");
    won(&lab.store, &draft(1)).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_has_done_nothing() {
    let Some(mut lab) = Lab::start("").await else { return };
    let direct = lab.other_node().await;
    lab.server.kill();
    // The first call finds that the connections are gone; the others find nobody.
    drop(direct.claim(draft(1)).await);
    let claim = direct.claim(draft(2)).await;
    assert!(matches!(claim, Err(Fault::NotDone(_))), "{claim:?}");
    lab.server.start_again();
    won(&direct, &draft(2)).await;
}
