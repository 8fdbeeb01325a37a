//! An answer that does not say "not done" is unsure, and repeating the identical call resolves it.

use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::store::{Beat, Draft, Fault, Store, StoreError, Swap};
use servers::WireFault;
use tokio::task::JoinSet;

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

/// Renewals are not behind a crowd, and a claim that waited for its turn too long is not sent.
#[tokio::test]
async fn a_crowd_that_gets_no_answers_holds_up_no_renewal_and_no_claim_beyond_its_time() {
    let Some(lab) = Lab::start("").await else { return };
    let owned = draft(1);
    won(&lab.store, &owned).await;
    lab.wire.change(|action| match action {
        "PutItem" => WireFault::Held,
        _ => WireFault::None,
    });
    let crowd = (1_000..1_000 + PLACES).map(|number| {
        let (store, draft) = (lab.store.clone(), draft(number));
        tokio::spawn(async move { store.claim(draft).await })
    });
    let crowd: Vec<_> = crowd.collect();
    while lab.wire.held() < PLACES as usize {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let held = [(owned.id, owned.token)];
    let renewal = lab.store.renew(&held, owned.lease);
    let beats = tokio::time::timeout(Duration::from_secs(2), renewal).await;
    assert_eq!(beats.expect("the crowd is not waited for").unwrap(), [Beat::Kept]);
    let in_time = SystemClock.wall().plus_ms(1_000);
    let late = Draft { not_after: in_time, ..draft(3) };
    let claim = tokio::spawn({
        let store = lab.store.clone();
        async move { store.claim(late).await }
    });
    while SystemClock.wall() <= in_time.plus_ms(1_000) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lab.wire.release();
    let claim = claim.await.unwrap();
    assert!(claim.as_ref().map_or(true, |seen| seen.record.is_none()), "{claim:?}");
    for claim in crowd {
        drop(claim.await.unwrap());
    }
    assert_eq!(lab.other_node().await.load(draft(3).id).await.unwrap().record, None);
}

/// More calls than the store takes at once are refused. Renewals are none of them.
#[tokio::test]
async fn a_crowd_that_fills_the_store_makes_no_lease_lapse() {
    let Some(lab) = Lab::start("").await else { return };
    let owned = draft(1);
    won(&lab.store, &owned).await;
    lab.wire.change(|action| match action {
        "PutItem" => WireFault::Held,
        _ => WireFault::None,
    });
    let mut crowd: JoinSet<_> = (0..CROWD)
        .map(|number| {
            let (store, draft) = (lab.store.clone(), draft(1_000 + number));
            async move { store.claim(draft).await }
        })
        .collect();
    let first = crowd.join_next().await.unwrap().unwrap();
    assert!(matches!(first, Err(Fault::NotDone(StoreError::Busy))), "the store is full: {first:?}");
    let beats = lab.store.renew(&[(owned.id, owned.token)], owned.lease).await;
    assert_eq!(beats.unwrap(), [Beat::Kept]);
    lab.wire.release();
    while crowd.join_next().await.is_some() {}
}

/// As many as may be on the wire at once.
const PLACES: u32 = 256;
/// More than the store takes.
const CROWD: u32 = 9_000;
