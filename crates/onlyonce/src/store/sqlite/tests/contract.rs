//! What every store promises, where this one has its own way to keep it.

use std::sync::Arc;

use futures_util::future::join_all;

use super::*;
use crate::record::State;
use crate::store::{Beat, Fault, StoreError, Takeover, Watch};

#[tokio::test]
async fn what_was_written_is_read_back_whole_before_and_after_a_reopen() {
    let lab = Lab::new().await;
    let mut before = Vec::new();
    for n in 0..40 {
        match n % 4 {
            0 => drop(lab.settled(n).await),
            1 => drop(lab.unknown(n).await),
            2 => {
                let token = lab.unknown(n).await;
                lab.swap(n, owner(token), Next::Released { expires_at: None }).await;
            }
            _ => {
                let to = Next::Completed {
                    settled_by: SettledBy::Operator,
                    response: Arc::new(response(n).without_body(crate::record::NotKept::TooLarge)),
                    token: Some(Token::random()),
                };
                lab.unknown(n).await;
                let revision = lab.load(n).await.unwrap().revision();
                lab.swap(n, Guard::Unchanged(revision), to).await;
            }
        }
        before.push(lab.load(n).await);
    }
    let lab = lab.reopened().await;
    for n in 0..40 {
        assert_eq!(lab.load(n).await, before[n as usize], "{n}");
    }
}

#[tokio::test]
async fn of_many_claims_at_once_one_is_mine() {
    let lab = Lab::new().await;
    for n in 0..20 {
        let claims = (0..16).map(|_| lab.store.claim(draft(n)));
        let seen = join_all(claims).await;
        let mine = seen.iter().filter(|seen| seen.as_ref().unwrap().mine).count();
        assert_eq!(mine, 1);
    }
}

// Members of one batch see what earlier ones did, though nothing is committed yet.
#[tokio::test]
async fn calls_that_share_a_batch_act_one_after_the_other() {
    let lab = Lab::new().await;
    let claim = draft(1);
    let (token, again) = (claim.token, draft(1));
    let store = &lab.store;
    let release = store.swap(id(1), owner(token), Next::Absent);
    let settle = store.swap(id(1), owner(again.token), settle(1));
    let (first, released, second, settled, third) = tokio::join!(
        store.claim(claim),
        release,
        store.claim(again),
        settle,
        store.claim(draft(1)),
    );
    assert!(first.unwrap().mine);
    assert!(matches!(released.unwrap(), Swap::Done(_)));
    assert!(second.unwrap().mine);
    assert!(matches!(settled.unwrap(), Swap::Done(_)));
    assert_eq!(answer(&third.unwrap()), Some(&response(1)));
}

#[tokio::test]
async fn one_bad_member_fails_alone() {
    let lab = Lab::new().await;
    for n in 0..8 {
        lab.unknown(n).await;
    }
    let revision = lab.load(3).await.unwrap().revision();
    let bad = Takeover { draft: draft(3), attempt: 0, taken_from: None, first_claimed_at: None };
    let bad = lab.store.swap(id(3), Guard::Unchanged(revision), Next::Running(Box::new(bad)));
    let good = (10..30).map(|n| lab.store.claim(draft(n)));
    let more = (30..40).map(|n| lab.store.claim(draft(n)));
    let (good, bad, more) = tokio::join!(join_all(good), bad, join_all(more));
    assert!(matches!(bad, Err(Fault::NotDone(StoreError::Refused(_)))), "{bad:?}");
    for seen in good.into_iter().chain(more) {
        assert!(seen.unwrap().mine);
    }
    assert_eq!(lab.kind(3).await, Some(StateKind::Unknown));
    let lab = lab.reopened().await;
    assert_eq!(lab.kind(3).await, Some(StateKind::Unknown));
    assert_eq!(lab.list(&[StateKind::Unknown], 100).await.len(), 38);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_the_record_stays() {
    let lab = Lab::new().await;
    let token = lab.claimed(1).await;
    let body = vec![0; lab.store.limits().body_bytes_max + 1];
    let huge = Response { body: Kept::Bytes { body: body.into(), trailers: None }, ..response(1) };
    let to =
        Next::Completed { settled_by: SettledBy::Owner, response: Arc::new(huge), token: None };
    let refused = lab.store.swap(id(1), owner(token), to).await;
    assert!(matches!(refused, Err(Fault::NotDone(StoreError::Refused(_)))));
    assert_eq!(lab.kind(1).await, Some(StateKind::Running));
}

#[tokio::test]
async fn a_full_queue_is_busy() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new().with_queue_max(2);
    let store = SqliteStore::open_with(directory.path().join("store.db"), options).await.unwrap();
    let claims = join_all((0..200).map(|n| store.claim(draft(n)))).await;
    let busy = claims
        .iter()
        .filter(|claim| matches!(claim, Err(Fault::NotDone(StoreError::Busy))))
        .count();
    assert!(busy > 0);
    for (n, claim) in claims.iter().enumerate() {
        let there = store.load(id(n as u32)).await.unwrap().record.is_some();
        assert_eq!(there, claim.is_ok());
    }
}

#[tokio::test]
async fn a_renewal_changes_the_revision_and_the_next_write_keeps_it_growing() {
    let lab = Lab::new().await;
    let token = lab.claimed(1).await;
    let before = lab.load(1).await.unwrap();
    lab.clock.advance(10_000);
    let lease = Lease::new(Duration::from_secs(30));
    let beats =
        lab.store.renew(&[(id(1), token), (id(1), Token::random()), (id(2), token)], lease).await;
    assert_eq!(beats.unwrap(), [Beat::Kept, Beat::Lost, Beat::Lost]);
    let after = lab.load(1).await.unwrap();
    assert_eq!(after.count, before.count + 1);
    assert_eq!(after.state, State::Running { lease_until: lab.clock.wall().plus_ms(30_000) });
    let stale =
        lab.swap(1, Guard::Unchanged(before.revision()), Next::Unknown { since: None }).await;
    assert!(matches!(stale, Swap::Stale(_)));
    lab.swap(1, owner(token), settle(1)).await;
    assert_eq!(lab.load(1).await.unwrap().count, after.count + 1);
    let lab = lab.reopened().await;
    assert_eq!(lab.load(1).await.unwrap().count, after.count + 1);
}

#[tokio::test]
async fn a_repeated_claim_and_a_repeated_settle_change_nothing() {
    let lab = Lab::new().await;
    let draft = draft(1);
    let first = lab.store.claim(draft.clone()).await.unwrap();
    let second = lab.store.claim(draft.clone()).await.unwrap();
    assert!(first.mine && second.mine);
    assert_eq!(first.record, second.record);
    let done = lab.swap(1, owner(draft.token), settle(1)).await;
    assert_eq!(lab.swap(1, owner(draft.token), settle(1)).await, done);
}

#[tokio::test]
async fn a_late_draft_inserts_nothing() {
    let lab = Lab::new().await;
    let late = Draft { not_after: lab.clock.wall().plus_ms(-1), ..draft(1) };
    let seen = lab.store.claim(late).await.unwrap();
    assert_eq!((seen.record, seen.mine), (None, false));
    assert_eq!(lab.load(1).await, None);
}

#[tokio::test]
async fn an_expired_record_is_taken_and_its_old_answer_is_gone() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    lab.clock.advance(TTL_MS);
    let seen = lab.store.claim(draft(1)).await.unwrap();
    let record = seen.record.unwrap();
    assert!(record.is_expired(seen.now));
    let taking = Draft { ttl_ms: 1_000, ..draft(1) };
    let token = taking.token;
    let attempt = Takeover { draft: taking, attempt: 1, taken_from: None, first_claimed_at: None };
    let to = Next::Running(Box::new(attempt));
    lab.swap(1, Guard::Unchanged(record.revision()), to).await;
    assert_eq!(lab.load(1).await.unwrap().token, token);
    let lab = lab.reopened().await;
    assert_eq!(lab.load(1).await.unwrap().token, token);
    assert_eq!(lab.kind(1).await, Some(StateKind::Unknown));
}

#[tokio::test]
async fn a_waiter_is_woken_after_the_commit() {
    let lab = Lab::new().await;
    let token = lab.claimed(1).await;
    let changed = lab.store.changed(id(1));
    let waiter = async {
        changed.await;
        lab.kind(1).await
    };
    let (kind, _) = tokio::join!(waiter, lab.swap(1, owner(token), settle(1)));
    assert_eq!(kind, Some(StateKind::Completed));
}

#[tokio::test]
async fn listings_give_every_record_once_in_pages_of_any_size() {
    let lab = Lab::new().await;
    for n in 0..30 {
        match n % 3 {
            0 => drop(lab.settled(n).await),
            1 => drop(lab.unknown(n).await),
            _ => drop(lab.claimed(n).await),
        }
    }
    let other = Draft { ttl_ms: 5, ..draft(100) };
    lab.store.claim(other).await.unwrap();
    for limit in [1, 2, 7, 100] {
        let ids =
            |picked: fn(u32) -> bool| (0..30).filter(|n| picked(*n)).map(id).collect::<Vec<_>>();
        assert_eq!(lab.list(&[StateKind::Completed], limit).await, ids(|n| n % 3 == 0));
        assert_eq!(lab.list(&[StateKind::Unknown], limit).await, ids(|n| n % 3 == 1));
        assert_eq!(lab.list(&[StateKind::Running], limit).await.len(), 11);
        assert_eq!(lab.list(&StateKind::ALL, limit).await.len(), 31);
        assert_eq!(lab.list(&[StateKind::Released], limit).await, []);
    }
}

#[tokio::test]
async fn a_load_sees_every_write_that_was_answered() {
    let lab = Arc::new(Lab::new().await);
    let writers = (0..8).map(|writer| {
        let lab = lab.clone();
        async move {
            for step in 0..25 {
                let n = writer * 1000 + step;
                lab.settled(n).await;
                let seen = lab.store.load(id(n)).await.unwrap();
                assert_eq!(answer(&seen), Some(&response(n)));
            }
        }
    });
    join_all(writers).await;
}
