use super::*;
use crate::clock::StoreTime;
use crate::steps::held::Answer;

const NOW: StoreTime = StoreTime::from_ms(1_000_000);
const TOKEN: Token = Token::from_bytes([7; 16]);
const ASKED: Asked<'_> = Asked { name: "charge", fingerprint: Some(b"same"), token: TOKEN };

fn held(state: StepsState, due_in_ms: i64) -> Held {
    let is_open = matches!(state, StepsState::Running | StepsState::Waiting | StepsState::Stuck);
    let expires_at = NOW.plus_ms(due_in_ms);
    Held {
        id: "id".to_owned(),
        name: "charge".to_owned(),
        fingerprint: b"same".to_vec(),
        request: "null".to_owned(),
        state,
        since: NOW,
        revision: 3,
        due_at: is_open.then(|| NOW.plus_ms(due_in_ms)),
        attempts: 1,
        calling: None,
        error: None,
        points: Vec::new(),
        answer: (state == StepsState::Completed).then(|| Answer {
            status: 200,
            headers: "{}".to_owned(),
            body: Vec::new(),
            expires_at,
        }),
        now: NOW,
    }
}

fn called(name: &str, is_repeatable: bool) -> Option<Calling> {
    Some(Calling { name: name.to_owned(), is_repeatable })
}

fn decided(held: &Held) -> Decision {
    decide(Some(held), &ASKED, &Rules::DEFAULT)
}

#[test]
fn an_operation_that_is_absent_or_expired_is_inserted() {
    assert_eq!(decide(None, &ASKED, &Rules::DEFAULT), Decision::Insert { expired: None });
    let expired = held(StepsState::Completed, 0);
    assert_eq!(decided(&expired), Decision::Insert { expired: Some(3) });
}

#[test]
fn a_completed_operation_is_replayed_to_the_same_request_alone() {
    assert_eq!(decided(&held(StepsState::Completed, 1)), Decision::Replay);
    let other = Asked { fingerprint: Some(b"other"), ..ASKED };
    for state in StepsState::ALL {
        let decision = decide(Some(&held(state, 1)), &other, &Rules::DEFAULT);
        assert_eq!(decision, Decision::Reused, "{state:?}");
    }
}

#[test]
fn an_unknown_operation_is_taken_by_nobody() {
    assert_eq!(decided(&held(StepsState::Unknown, 0)), Decision::Unknown);
    let completer = Asked { fingerprint: None, ..ASKED };
    let decision = decide(Some(&held(StepsState::Unknown, 0)), &completer, &Rules::DEFAULT);
    assert_eq!(decision, Decision::Unknown);
}

#[test]
fn a_lease_that_is_not_over_refuses_duplicates() {
    let second = Duration::from_secs(1);
    let refused = |retry_after| Decision::InProgress { retry_after };
    assert_eq!(decided(&held(StepsState::Running, 1)), refused(second));
    assert_eq!(decided(&held(StepsState::Running, 20_000)), refused(20 * second));
    assert_eq!(decided(&held(StepsState::Waiting, 900_000)), refused(60 * second));
    assert_eq!(decided(&held(StepsState::Stuck, 1)), Decision::Stuck);
}

#[test]
fn what_is_due_is_taken_and_the_attempt_is_counted() {
    for state in [StepsState::Running, StepsState::Waiting, StepsState::Stuck] {
        let Decision::Take(next) = decided(&held(state, 0)) else { panic!("{state:?}") };
        assert_eq!((next.state, next.token, next.attempts), (StepsState::Running, Some(TOKEN), 2));
        assert_eq!(next.due_ms, Some(30_000));
    }
}

#[test]
fn a_program_of_another_name_does_not_take_it() {
    let renamed = Asked { name: "charge v2", ..ASKED };
    let decision = decide(Some(&held(StepsState::Running, 0)), &renamed, &Rules::DEFAULT);
    assert_eq!(decision, Decision::OtherProgram);
}

#[test]
fn an_owner_that_died_amid_a_call_that_must_not_be_repeated_leaves_it_unknown() {
    let dead = Held { calling: called("mail sent", false), ..held(StepsState::Running, 0) };
    let Decision::GiveUp(next) = decided(&dead) else { panic!("it was taken") };
    assert_eq!((next.state, next.token, next.due_ms), (StepsState::Unknown, None, None));
    assert_eq!(next.calling, called("mail sent", false));
    assert!(next.error.unwrap().contains("mail sent"));
    let alive = Held { calling: called("mail sent", false), ..held(StepsState::Running, 1) };
    assert!(matches!(decided(&alive), Decision::InProgress { .. }));
}

#[test]
fn a_repeatable_call_keeps_its_name_until_its_point_is_committed() {
    let card = called("card charged", true);
    let dead = Held { calling: card.clone(), ..held(StepsState::Running, 0) };
    let Decision::Take(next) = decided(&dead) else { panic!("it was not taken") };
    assert_eq!(next.calling, card);
    let Decision::GiveUp(next) = decided(&Held { attempts: 20, ..dead }) else { panic!("taken") };
    assert_eq!((next.state, next.calling), (StepsState::Unknown, card.clone()));
    for (ended, attempts, state) in [
        (Ended::Failed, 1, StepsState::Waiting),
        (Ended::Stuck, 1, StepsState::Stuck),
        (Ended::Failed, 20, StepsState::Unknown),
    ] {
        let next = after(ended, card.clone(), attempts, "why".to_owned(), &Rules::DEFAULT, 1.0);
        assert_eq!((next.state, next.calling), (state, card.clone()), "{ended:?}");
    }
}

#[test]
fn attempts_that_are_used_up_leave_it_unknown_and_one_that_is_stuck_has_no_limit() {
    let used_up = |state| Held { attempts: 20, ..held(state, 0) };
    for state in [StepsState::Running, StepsState::Waiting] {
        let Decision::GiveUp(next) = decided(&used_up(state)) else { panic!("{state:?}") };
        assert_eq!(next.state, StepsState::Unknown);
    }
    assert!(matches!(decided(&used_up(StepsState::Stuck)), Decision::Take(_)));
}

#[test]
fn after_a_failure_it_waits_and_at_the_limit_it_is_unknown() {
    let after = |ended, calling, attempts| {
        after(ended, calling, attempts, "why".to_owned(), &Rules::DEFAULT, 1.0)
    };
    let waiting = after(Ended::Failed, None, 2);
    assert_eq!((waiting.state, waiting.due_ms), (StepsState::Waiting, Some(2_000)));
    assert_eq!(after(Ended::Failed, None, 20).state, StepsState::Unknown);
    let stuck = after(Ended::Stuck, None, 20);
    assert_eq!((stuck.state, stuck.attempts), (StepsState::Stuck, 10));
    for (calling, name) in [(None, BETWEEN_STEPS), (called("card charged", true), "card charged")] {
        let next = after(Ended::InDoubt, calling, 1);
        assert_eq!((next.state, next.calling), (StepsState::Unknown, called(name, false)));
    }
    for ended in [Ended::Failed, Ended::Stuck, Ended::InDoubt] {
        let next = after(ended, called("mail sent", false), 1);
        assert_eq!((next.state, next.calling), (StepsState::Unknown, called("mail sent", false)));
    }
}
