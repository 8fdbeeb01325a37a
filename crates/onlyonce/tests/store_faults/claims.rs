//! Claims that the store does not answer.

use std::time::Duration;

use futures_util::FutureExt;
use onlyonce::Policy;
use onlyonce::clock::StoreTime;
use onlyonce::engine::Write;
use onlyonce::policy::{Recovery, StoreDown};
use onlyonce::record::StateKind;
use onlyonce::store::{Draft, Store};

use crate::faults::app::{Got, Handler, send_apart};
use crate::faults::lab::{Lab, action, gated, limits};
use crate::faults::scripted::{Act, Call};
use crate::faults::{record, records, soon, until, until_state};

// R52
#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_found_to_be_ours_and_executed_once() {
    for loss in [Act::LoseReply, Act::LoseCall] {
        let lab = Lab::new(Policy::default());
        lab.store.next(Call::Claim, 2, loss);
        let first = lab.send(KEY).await;
        assert!(first.is_fresh(), "{first:?}");
        lab.send(KEY).await.assert_replay_of(&first);
        assert_eq!(lab.executed(), 1);
        assert_eq!(lab.once.counts().disowned, 0);
    }
}

// threat J14, R52, R93
#[tokio::test]
async fn a_claim_that_is_never_answered_is_refused_disowned_and_released() {
    let lab = Lab::new(Policy::default());
    lab.store.always(Call::Claim, Act::LoseReply);
    let got = unanswered(&lab).await;
    got.assert_problem(503, "idempotency_store_unavailable");
    assert!(got.headers.contains_key("retry-after"));
    lab.store.always(Call::Claim, Act::Do);
    until_state(&lab.memory, None).await;
    assert_eq!((lab.executed(), lab.once.counts().disowned), (0, 1));
    assert!(lab.send(KEY).await.is_fresh(), "the key is free");
    assert_eq!(lab.executed(), 1);
}

// R52
#[tokio::test]
async fn a_late_copy_of_a_disowned_claim_is_released_again_and_after_its_time_inserts_nothing() {
    let lab = Lab::new(Policy::default());
    lab.store.always(Call::Claim, Act::LoseCall);
    let draft = disowned(&lab).await;
    let late = lab.memory.claim(draft.clone()).await.expect("an answer");
    assert!(late.mine, "it came in time");
    until_state(&lab.memory, None).await;
    lab.clock.pass(LATE);
    lab.memory.claim(draft).await.expect("the copy arrives");
    assert_eq!(record(&lab.memory).await, None);
    lab.store.always(Call::Claim, Act::Do);
    assert!(lab.send(KEY).await.is_fresh());
    assert_eq!(lab.executed(), 1);
}

// threat I12, R93
#[tokio::test]
async fn a_store_that_hangs_does_not_hang_its_callers() {
    let lab = Lab::new(Policy::default());
    lab.store.always(Call::Claim, Act::Hang);
    let got = soon("the caller", lab.send(KEY)).await;
    got.assert_problem(503, "idempotency_store_unavailable");
    assert_eq!(lab.executed(), 0);
}

// threat J14, R93
#[tokio::test]
async fn a_claim_that_is_definitely_not_done_is_refused_and_the_key_is_free() {
    let lab = Lab::new(Policy::default());
    lab.store.next(Call::Claim, 1, Act::NotDone);
    let got = lab.send(KEY).await;
    got.assert_problem(503, "idempotency_store_unavailable");
    assert!(got.headers.contains_key("retry-after"));
    assert_eq!((lab.executed(), lab.once.counts().store_down), (0, 1));
    assert_eq!(record(&lab.memory).await, None);
    assert!(lab.send(KEY).await.is_fresh());
}

// threat J14, R93
#[tokio::test]
async fn requests_pass_unguarded_only_where_the_policy_says_so_and_are_counted() {
    let lab = Lab::new(passing());
    lab.store.next(Call::Claim, 1, Act::NotDone);
    assert!(lab.send(KEY).await.is_fresh());
    assert_eq!((lab.executed(), lab.once.counts().passed), (1, 1));
}

/// A store that is there and busy knows the key: what it would have said is not for us to skip.
// threat J14, R93
#[tokio::test]
async fn nothing_passes_while_the_store_is_there_and_takes_no_more() {
    for act in [Act::Busy, Act::Closed, Act::Refuse] {
        let lab = Lab::new(passing());
        lab.store.next(Call::Claim, 1, act);
        lab.send(KEY).await.assert_problem(503, "idempotency_store_unavailable");
        assert_eq!((lab.executed(), lab.once.counts().passed), (0, 0));
        assert_eq!(lab.once.counts().disowned, 0, "there is nothing to give back");
        assert!(lab.send(KEY).await.is_fresh(), "the key is free");
    }
}

/// A record that does not read may be a completed one: the store is not down, and the key is not absent.
// threats J14, K36; R64
#[tokio::test]
async fn nothing_passes_where_there_is_a_record_that_does_not_read() {
    let lab = Lab::new(passing());
    lab.store.always(Call::Claim, Act::Unreadable);
    // Not "not executed": the record may be of an operation that was.
    lab.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
    assert_eq!((lab.executed(), lab.once.counts().passed), (0, 0));
    assert_eq!(lab.once.counts().disowned, 0, "there is nothing to give back");
}

// threat J14, R93
#[tokio::test]
async fn nothing_passes_while_it_is_unsure_whether_the_claim_arrived() {
    let lab = Lab::new(passing());
    lab.store.always(Call::Claim, Act::LoseCall);
    let got = unanswered(&lab).await;
    got.assert_problem(503, "idempotency_store_unavailable");
    assert_eq!((lab.executed(), lab.once.counts().passed), (0, 0));
}

// threat J14: callers that shared one claim
#[tokio::test]
async fn nobody_passes_who_shared_a_claim_of_which_it_is_unsure_whether_it_arrived() {
    let lab = Lab::new(passing());
    lab.store.always(Call::Claim, Act::LoseReply);
    let calls: Vec<_> = (0..20).map(|_| send_apart(&lab.app, KEY)).collect();
    for call in calls {
        let got = lab.pass_until_answered(STEP, call).await;
        got.assert_problem(503, "idempotency_store_unavailable");
    }
    assert_eq!((lab.executed(), lab.once.counts().passed), (0, 0));
}

// threat J14: before the store was ever heard
#[tokio::test]
async fn nothing_passes_while_the_store_gives_no_sign_of_life_at_all() {
    let unheard = |act: Act| {
        Lab::scripted(Handler::counting(), passing(), limits(), |store| {
            store.always(Call::Scan, Act::LoseCall);
            store.always(Call::Load, act);
        })
    };
    let unsure = unheard(Act::LoseCall);
    let got = unsure.send(KEY).await;
    got.assert_problem(503, "idempotency_store_unavailable");
    assert_eq!((unsure.executed(), unsure.once.counts().passed), (0, 0));
    let refused = unheard(Act::NotDone);
    assert!(refused.send(KEY).await.is_fresh());
    assert_eq!((refused.executed(), refused.once.counts().passed), (1, 1));
}

// threat J14: the store has said that it may have been executed
#[tokio::test]
async fn nothing_passes_that_the_store_knows_to_be_unknown() {
    let recoveries = [Recovery::Fail, Recovery::Redrive { within: Duration::from_secs(60 * 60) }];
    for recovery in recoveries {
        let (lab, gate) = gated(passing().with_recovery(recovery));
        let first = lab.begin(KEY).await;
        lab.reap().await;
        lab.store.next(Call::Settle, 1, Act::NotDone);
        lab.store.next(Call::Take, 1, Act::NotDone);
        let retry = soon("the retry", lab.send(KEY)).await;
        retry.assert_problem(503, "idempotency_store_unavailable");
        assert_eq!((lab.executed(), lab.once.counts().passed), (1, 0));
        gate.open();
        assert!(soon("the owner", first).await.expect("alive").is_fresh());
    }
}

// threat J14: the store has said that it was closed, in the round before
#[tokio::test]
async fn nothing_passes_that_this_very_request_has_closed() {
    let (lab, gate) = gated(passing().with_recovery(Recovery::Fail));
    let first = lab.begin(KEY).await;
    lab.reap().await;
    lab.store.next(Call::Claim, 1, Act::Do);
    lab.store.next(Call::Claim, 1, Act::NotDone);
    let retry = soon("the retry", lab.send(KEY)).await;
    retry.assert_problem(503, "idempotency_store_unavailable");
    assert_eq!((lab.executed(), lab.once.counts().passed), (1, 0));
    gate.open();
    let first = soon("the owner", first).await.expect("alive");
    first.assert_problem(502, "idempotency_outcome_unknown");
    assert!(first.is_replay(), "it is answered from the record");
}

// R53
#[tokio::test]
async fn a_claim_that_the_store_calls_late_is_made_again_with_the_stores_time() {
    let lab = Lab::new(Policy::default());
    assert!(lab.send("order-1").await.is_fresh());
    // More than a claim may travel, and less than what is called a jump.
    lab.clock.jump(Duration::from_secs(30));
    assert!(lab.send("order-2").await.is_fresh());
}

/// A takeover that lapses before its owner knows of it was never sent: the record must not stay unknown.
// R52, R53
#[tokio::test]
async fn a_takeover_that_lapsed_before_it_was_known_is_given_back() {
    let lab = Lab::new(Policy::default());
    released_record(&lab).await;
    let memory = lab.memory.clone();
    let lapse = action(move || {
        let (id, record) = records(&memory).now_or_never().expect("at once")[0].clone();
        let write = Write::reap(record.revision());
        let swap = memory.swap(id, write.guard, write.next);
        let _ = swap.now_or_never().expect("at once").expect("written");
    });
    lab.store.next(Call::Take, 1, Act::LoseReplyThen(lapse));
    let got = lab.send(KEY).await;
    assert!(!got.is_fresh());
    assert_eq!(lab.executed(), 0);
    until_state(&lab.memory, Some(StateKind::Released)).await;
    assert!(lab.send(KEY).await.is_fresh());
}

/// A record whose owner died, and of which someone vouched that it was not executed.
async fn released_record(lab: &Lab) {
    lab.store.next(Call::Claim, 1, Act::NotDone);
    lab.send(KEY).await;
    let draft = lab.store.claims().pop().expect("a claim was sent");
    lab.memory.claim(draft.clone()).await.expect("claimed");
    lab.reap().await;
    let record = record(&lab.memory).await.expect("a record");
    let forced = Write::release_for(&record, StoreTime::from_ms(0), true);
    let write = forced.expect("it is unknown");
    let swap = lab.memory.swap(draft.id, write.guard, write.next);
    swap.await.expect("released");
}

/// The answer to a request whose claim is never answered, without waiting for it in real time.
async fn unanswered(lab: &Lab) -> Got {
    let call = send_apart(&lab.app, KEY);
    until("the claim to be sent", || async { lab.store.made(Call::Claim) >= 2 }).await;
    lab.clock.pass(CLAIM_WAIT);
    soon("the caller", call).await.expect("the caller lives")
}

/// The claim of a request that was never answered.
async fn disowned(lab: &Lab) -> Draft {
    unanswered(lab).await;
    lab.store.claims().pop().expect("a claim was sent")
}

fn passing() -> Policy {
    Policy::default().with_store_down(StoreDown::Pass)
}

const KEY: &str = "order-4711";
const STEP: Duration = Duration::from_millis(250);
/// As long as a caller waits for its claim, and less than a copy of it may travel.
const CLAIM_WAIT: Duration = Duration::from_millis(5_100);
/// Longer than a copy of a claim may travel.
const LATE: Duration = Duration::from_secs(15);
