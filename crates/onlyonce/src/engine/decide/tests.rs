//! One test per situation, and the rules of the states by their number.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::*;
use crate::engine::lapse::Lapses;
use crate::fingerprint::Fingerprint;
use crate::record::{Kept, KeyText, SettledBy, Token};
use crate::scope::{OperationId, Principal};
use crate::store::cas::{self, Effect};
use crate::store::{Guard, Lease, Next};

const NOW: StoreTime = StoreTime::from_ms(1_000_000);
const LEASE_MS: i64 = 30_000;
const QUIET_MS: i64 = 60_000;
const TTL_MS: i64 = 86_400_000;
const ID: OperationId = OperationId::from_bytes([1; 16]);
const FIRST: Token = Token::from_bytes([1; 16]);
const SECOND: Token = Token::from_bytes([2; 16]);

fn draft(token: Token) -> Draft {
    Draft {
        id: ID,
        token,
        key: KeyText::new("k"),
        fingerprint: Fingerprint { version: 1, canonical: [1; 32], raw: [1; 32] },
        principal: Principal::anonymous(),
        route: "r".into(),
        target: "api.test/charges".into(),
        lease: Lease::new(Duration::from_millis(LEASE_MS as u64)),
        quiet_ms: QUIET_MS,
        ttl_ms: TTL_MS,
        not_after: StoreTime::MAX,
    }
}

fn response() -> Arc<Response> {
    let body = Kept::Bytes { body: Bytes::from_static(b"{}"), trailers: None };
    Arc::new(Response { status: StatusCode::CREATED, headers: HeaderMap::new(), body })
}

fn running() -> Record {
    cas::claim(None, &draft(FIRST), NOW).unwrap()
}

fn after(record: &Record, write: Write, now: StoreTime) -> Record {
    match cas::swap(Some(record), &write.guard, &write.next, now) {
        Effect::Write(record) => *record,
        other => panic!("{other:?}"),
    }
}

fn unknown() -> Record {
    after(&running(), Write::mark_unknown(FIRST), NOW)
}

fn released() -> Record {
    let write = Write::release_for(&unknown(), NOW, true).unwrap();
    after(&unknown(), write, NOW)
}

fn completed() -> Record {
    after(&running(), Write::settle(FIRST, response()), NOW)
}

fn seen(record: Record, now: StoreTime) -> Seen {
    Seen { record: Some(record), mine: false, now }
}

fn decided(seen: &Seen, recovery: Recovery) -> Decision {
    decide(seen, Asked { draft: &draft(SECOND), recovery })
}

fn decided_for_other_request(record: Record) -> Decision {
    let fingerprint = Fingerprint { version: 1, canonical: [9; 32], raw: [9; 32] };
    let draft = Draft { fingerprint, ..draft(SECOND) };
    decide(&seen(record, NOW), Asked { draft: &draft, recovery: Recovery::Hold })
}

const REDRIVE: Recovery = Recovery::Redrive { within: Duration::from_secs(3600) };

#[test]
fn a_claim_of_ours_is_executed() {
    let seen = Seen { mine: true, ..seen(running(), NOW) };
    let expected = Decision::Execute { attempt: 1, taken_from: None };
    assert_eq!(decided(&seen, Recovery::Hold), expected);
}

// R48, R53: a claim that did not land is never executed.
#[test]
fn a_claim_that_came_too_late_is_given_up() {
    let seen = Seen { record: None, mine: false, now: NOW };
    assert_eq!(decided(&seen, Recovery::Hold), Decision::GiveUp);
}

// R70: a clock that was a day ahead has been put back, and what was claimed by it seems to be from the future.
#[test]
fn an_unknown_outcome_of_nobody_knows_when_is_not_sent_again() {
    let unknown = after(&running(), Write::reap(running().revision()), NOW);
    let at = |now: StoreTime| decided(&seen(unknown.clone(), now), REDRIVE);
    assert!(matches!(at(NOW), Decision::Take(_)));
    assert!(matches!(at(NOW.plus_ms(-1)), Decision::Unknown { .. }));
}

#[test]
fn a_claim_of_ours_that_lapsed_before_we_knew_is_given_up() {
    let lapsed = after(&running(), Write::reap(running().revision()), NOW);
    let asked = Asked { draft: &draft(FIRST), recovery: REDRIVE };
    assert_eq!(decide(&seen(lapsed, NOW), asked), Decision::GiveUp);
}

// R64
#[test]
fn a_second_request_is_refused_while_the_first_runs() {
    let late = NOW.plus_ms(LEASE_MS * 10);
    for recovery in [Recovery::Hold, Recovery::Fail, Recovery::Release, REDRIVE] {
        assert_eq!(decided(&seen(running(), late), recovery), Decision::InProgress);
    }
}

// R32, R33, R62
#[test]
fn another_request_with_the_key_is_refused_in_every_live_state() {
    for record in [running(), unknown(), completed()] {
        assert_eq!(decided_for_other_request(record), Decision::Reused);
    }
}

#[test]
fn a_released_key_is_free_for_another_request() {
    assert!(matches!(decided_for_other_request(released()), Decision::Take(_)));
}

#[test]
fn a_completed_record_is_replayed() {
    assert_eq!(decided(&seen(completed(), NOW), Recovery::Hold), Decision::Replay(response()));
}

// R110; rule 2 of the states: expired is derived, never stored.
#[test]
fn an_expired_record_is_taken_as_a_first_attempt_and_not_a_moment_before() {
    let expiry = NOW.plus_ms(TTL_MS);
    let before = decided(&seen(completed(), expiry.plus_ms(-1)), Recovery::Hold);
    assert_eq!(before, Decision::Replay(response()));
    let Decision::Take(write) = decided(&seen(completed(), expiry), Recovery::Hold) else {
        panic!()
    };
    let taken = after(&completed(), *write, expiry);
    assert_eq!((taken.attempt, taken.taken_from, taken.first_claimed_at), (1, None, expiry));
}

// Rule 2: running and unknown never expire.
#[test]
fn running_and_unknown_records_never_expire() {
    for record in [running(), unknown()] {
        assert!(!record.is_expired(StoreTime::MAX));
        let phase = Phase::of(Some(&record), StoreTime::MAX);
        assert!(matches!(phase, Phase::Running | Phase::Unknown));
    }
}

#[test]
fn an_unknown_outcome_is_held() {
    assert_eq!(decided(&seen(unknown(), NOW), Recovery::Hold), Decision::Unknown { since: NOW });
}

#[test]
fn an_unknown_outcome_is_failed_where_the_route_says_so() {
    let decision = decided(&seen(unknown(), NOW), Recovery::Fail);
    assert_eq!(decision, Decision::Fail(unknown().revision()));
}

#[test]
fn a_redrive_counts_attempts_and_keeps_the_time_of_the_first_claim() {
    let later = NOW.plus_ms(1_000);
    let Decision::Take(write) = decided(&seen(unknown(), later), REDRIVE) else { panic!() };
    let taken = after(&unknown(), *write, later);
    assert_eq!((taken.attempt, taken.token, taken.first_claimed_at), (2, SECOND, NOW));
}

#[test]
fn a_redrive_ends_with_its_window_and_needs_the_same_bytes() {
    let over = NOW.plus_ms(3_600_000);
    assert_eq!(decided(&seen(unknown(), over), REDRIVE), Decision::Unknown { since: NOW });
    let spelled = Fingerprint { version: 1, canonical: [1; 32], raw: [7; 32] };
    let draft = Draft { fingerprint: spelled, ..draft(SECOND) };
    let decision = decide(&seen(unknown(), NOW), Asked { draft: &draft, recovery: REDRIVE });
    assert_eq!(decision, Decision::Unknown { since: NOW });
}

// An upstream that was given the key otherwise executes it as a new one.
#[test]
fn a_redrive_needs_to_be_sent_in_the_same_way() {
    let draft = Draft { target: "derived api.test /charges".into(), ..draft(SECOND) };
    let decision = decide(&seen(unknown(), NOW), Asked { draft: &draft, recovery: REDRIVE });
    assert_eq!(decision, Decision::Unknown { since: NOW });
}

// Rule 1, the interleaving: the reaper's write against the owner's renewal, settle and a redrive. R51, R98
// threat J13
#[test]
fn rule_1_a_write_of_another_needs_the_exact_revision_it_read() {
    let read = running();
    let reap = Write::reap(read.revision());
    let renewed = cas::renew(Some(&read), FIRST, draft(FIRST).lease, NOW).unwrap();
    for changed in [renewed, completed(), unknown_then_redriven()] {
        let effect = cas::swap(Some(&changed), &reap.guard, &reap.next, NOW);
        assert_eq!(effect, Effect::Stale, "{changed:?}");
    }
}

fn unknown_then_redriven() -> Record {
    after(&unknown(), Write::redrive(&unknown(), NOW, draft(SECOND)), NOW)
}

// Rule 1, the interleaving: a zombie owner writes after its record was taken. threats B1, B2
#[test]
fn rule_1_an_owner_whose_record_was_taken_can_write_nothing() {
    let taken = unknown_then_redriven();
    let writes =
        [Write::settle(FIRST, response()), Write::release(FIRST, None), Write::mark_unknown(FIRST)];
    for write in writes {
        assert_eq!(cas::swap(Some(&taken), &write.guard, &write.next, NOW), Effect::Stale);
    }
    assert_eq!(cas::renew(Some(&taken), FIRST, draft(FIRST).lease, NOW), None);
}

// Rule 1: marking unknown and releasing an unknown keep the owner's token, settling for it does not.
#[test]
fn rule_1_others_take_a_new_token_except_to_mark_unknown_and_to_release() {
    assert_eq!(after(&running(), Write::reap(running().revision()), NOW).token, FIRST);
    assert_eq!(released().token, FIRST);
    let write = Write::settle_for(&unknown(), SettledBy::Operator, response()).unwrap();
    assert_ne!(after(&unknown(), write, NOW).token, FIRST);
}

// Rule 4, the interleaving: a later attempt that was not executed returns to what it was taken from.
#[test]
fn rule_4_a_redrive_that_was_not_executed_returns_to_unknown_since_the_first_time() {
    let later = NOW.plus_ms(5_000);
    let redriven = after(&unknown(), Write::redrive(&unknown(), NOW, draft(SECOND)), later);
    let back = after(&redriven, Write::release(SECOND, redriven.taken_from), later.plus_ms(1));
    assert_eq!(back.state, State::Unknown { since: NOW });
    assert_eq!(back.attempt, 2);
}

#[test]
fn rule_4_a_claim_of_a_released_record_that_was_not_executed_returns_to_released() {
    let State::Released { expires_at } = released().state else { panic!() };
    let later = NOW.plus_ms(5_000);
    let Decision::Take(write) = decided(&seen(released(), later), Recovery::Hold) else { panic!() };
    let taken = after(&released(), *write, later);
    assert_eq!(taken.attempt, 2);
    let back = after(&taken, Write::release(SECOND, taken.taken_from), later);
    assert_eq!(back.state, State::Released { expires_at });
}

#[test]
fn rule_4_a_first_attempt_that_was_not_executed_leaves_nothing() {
    let write = Write::release(FIRST, running().taken_from);
    assert_eq!(write.next, Next::Absent);
    let effect = cas::swap(Some(&running()), &write.guard, &write.next, NOW);
    assert!(matches!(effect, Effect::Delete(_)));
}

#[test]
fn rule_4_what_a_dead_owner_left_is_released_by_a_retry_only_after_the_quiet_time() {
    let quiet = NOW.plus_ms(QUIET_MS);
    let early = decided(&seen(unknown(), quiet.plus_ms(-1)), Recovery::Release);
    assert_eq!(early, Decision::Unknown { since: NOW });
    let late = decided(&seen(unknown(), quiet), Recovery::Release);
    assert!(matches!(late, Decision::Release(_)));
}

// Rule 5, the interleaving: an operator releases, the owner comes back late.
#[test]
fn rule_5_releasing_an_unknown_waits_for_the_quiet_time_unless_forced() {
    let quiet = NOW.plus_ms(QUIET_MS);
    assert_eq!(Write::release_for(&unknown(), quiet.plus_ms(-1), false), None);
    assert!(Write::release_for(&unknown(), quiet, false).is_some());
    assert!(Write::release_for(&unknown(), NOW, true).is_some());
    assert_eq!(Write::release_for(&running(), quiet, true), None);
}

#[test]
fn rule_5_a_late_owner_settles_a_released_record_if_nobody_claimed_since() {
    let settled = after(&released(), Write::settle(FIRST, response()), NOW);
    assert_eq!(settled.response(), Some(&response()));
    let reclaimed = after(&released(), Write::take(&released(), false, draft(SECOND)), NOW);
    let write = Write::settle(FIRST, response());
    assert_eq!(cas::swap(Some(&reclaimed), &write.guard, &write.next, NOW), Effect::Stale);
}

#[test]
fn rule_5_a_released_record_is_kept_for_its_ttl_and_counts_attempts_on() {
    let State::Released { expires_at } = released().state else { panic!() };
    assert_eq!(expires_at, NOW.plus_ms(TTL_MS));
    let write = Write::take(&released(), false, draft(SECOND));
    assert_eq!(after(&released(), write, NOW).attempt, 2);
}

// Rule 6, the interleaving: reaped while it was at work, the owner still holds the true answer.
#[test]
fn rule_6_an_owner_settles_what_was_marked_unknown_under_its_token() {
    let reaped = after(&running(), Write::reap(running().revision()), NOW);
    let settled = after(&reaped, Write::settle(FIRST, response()), NOW);
    assert_eq!(settled.response(), Some(&response()));
    assert_eq!(settled.attempt, 1);
}

// Rule 7: only the reaper judges a lapse, on two clocks. R96, R97; threat B11
#[test]
fn rule_7_a_lapse_needs_the_stores_clock_and_a_full_lease_of_our_own() {
    let lease = Duration::from_millis(LEASE_MS as u64);
    let over = NOW.plus_ms(LEASE_MS);
    let boot = Duration::from_secs(500);
    let mut lapses = Lapses::default();
    let mut look = |record: &Record, now, boot| {
        lapses.begin();
        let write = lapses.judge(ID, record, now, boot);
        lapses.end();
        write
    };
    assert_eq!(look(&running(), over, boot), None, "seen for the first time");
    assert_eq!(look(&running(), over, boot + lease / 2), None, "half a lease");
    let renewed = cas::renew(Some(&running()), FIRST, draft(FIRST).lease, NOW).unwrap();
    assert_eq!(look(&renewed, over, boot + lease), None, "its revision changed");
    assert_eq!(look(&renewed, over.plus_ms(-1), boot + lease * 3), None, "the store's clock");
    let write = look(&renewed, over, boot + lease * 3).unwrap();
    assert_eq!(write.guard, Guard::Unchanged(renewed.revision()));
    assert_eq!(write.next, Next::Unknown { since: None });
}

#[test]
fn rule_7_a_reaper_forgets_what_it_did_not_meet() {
    let lease = Duration::from_millis(LEASE_MS as u64);
    let over = NOW.plus_ms(LEASE_MS);
    let mut lapses = Lapses::default();
    lapses.begin();
    assert_eq!(lapses.judge(ID, &running(), over, Duration::ZERO), None);
    lapses.end();
    lapses.begin();
    lapses.end();
    lapses.begin();
    assert_eq!(lapses.judge(ID, &running(), over, lease), None, "not met in between");
    assert!(lapses.judge(ID, &running(), over, lease * 2).is_some());
}

// threat B7: the lease was given by a clock that was ahead, and nobody would ever see its end.
#[test]
fn rule_7_a_lease_of_a_clock_that_was_put_back_lapses_by_the_reapers_own_observation() {
    let lease = Duration::from_millis(LEASE_MS as u64);
    let day_before = NOW.plus_ms(-86_400_000);
    let mut lapses = Lapses::default();
    lapses.begin();
    assert_eq!(lapses.judge(ID, &running(), day_before, Duration::ZERO), None);
    lapses.end();
    lapses.begin();
    assert!(lapses.judge(ID, &running(), day_before, lease).is_some());
}
