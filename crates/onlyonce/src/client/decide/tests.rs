//! Decisions, without a socket and without a clock.

use super::*;

const START: Duration = Duration::from_secs(1000);
const WALL: StoreTime = StoreTime::from_ms(1_700_000_000_000);

fn settings() -> Settings {
    Settings::default()
}

/// Half of the dice, one second after the start.
fn moment() -> Moment {
    Moment {
        wall: WALL.plus_ms(1000),
        boot: START + Duration::from_secs(1),
        budget_allows: true,
        random: u64::MAX / 2,
        window: Duration::from_secs(86_400),
    }
}

fn course() -> Course {
    Course::new(WALL, START + Duration::from_secs(60))
}

fn again(doubt: Option<Doubt>) -> Meaning {
    Meaning::Again(Again { doubt, pause: Pause::Backoff, is_unsent: false })
}

const UNSENT: Meaning =
    Meaning::Again(Again { doubt: None, pause: Pause::Backoff, is_unsent: true });

fn paused(pause: Pause) -> Meaning {
    Meaning::Again(Again { doubt: None, pause, is_unsent: false })
}

/// What is decided after these attempts, the last of which is decided upon.
fn after(meanings: &[Meaning], at: &Moment) -> Next {
    let course = meanings.iter().fold(course(), |course, meaning| course.after(meaning));
    decide(meanings.last().unwrap(), &course, &settings(), at)
}

fn wait_of(next: Next) -> Duration {
    match next {
        Next::Wait(wait) => wait,
        Next::End(end) => panic!("it ended: {end:?}"),
    }
}

// R156
#[test]
fn waits_are_drawn_from_nothing_to_a_bound_that_doubles() {
    let many = Settings { attempts_max: 100, ..settings() };
    let mut course = Course::new(WALL, Duration::MAX);
    for bound_ms in [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000] {
        course = course.after(&again(None));
        let drawn = |random| {
            let at = Moment { random, ..moment() };
            wait_of(decide(&again(None), &course, &many, &at)).as_millis()
        };
        assert_eq!(drawn(0), 0);
        assert_eq!(drawn(u64::MAX), bound_ms);
        let half = drawn(u64::MAX / 2);
        assert!(half.abs_diff(bound_ms / 2) <= 1, "{half} of {bound_ms}");
    }
}

// R155
#[test]
fn retry_after_is_the_least_wait_and_pushback_the_exact_one() {
    let two = Duration::from_secs(2);
    let least = wait_of(after(&[paused(Pause::AtLeast(two))], &moment()));
    assert!(least >= two && least <= two + Duration::from_millis(250));
    assert_eq!(wait_of(after(&[paused(Pause::Exactly(two))], &moment())), two);
    let told = Next::End(End::NotThrough(Stop::Told));
    assert_eq!(after(&[paused(Pause::Never)], &moment()), told);
}

// R156; threat J5
#[test]
fn the_fourth_attempt_is_the_last() {
    let failed = again(Some(Doubt::ServerError));
    assert!(matches!(after(&[failed; 3], &moment()), Next::Wait(_)));
    let end = End::Unknown(Doubt::ServerError, Stop::Attempts);
    assert_eq!(after(&[failed; 4], &moment()), Next::End(end));
}

// R159
#[test]
fn what_was_proved_unsent_is_free_once() {
    assert!(matches!(after(&[UNSENT; 4], &moment()), Next::Wait(_)));
    assert_eq!(after(&[UNSENT; 5], &moment()), Next::End(End::NotThrough(Stop::Attempts)));
}

#[test]
fn a_server_that_is_not_done_is_asked_until_the_deadline() {
    let in_progress = again(Some(Doubt::InProgress));
    assert!(matches!(after(&[in_progress; 50], &moment()), Next::Wait(_)));
    let late = Moment { boot: START + Duration::from_secs(60), ..moment() };
    let end = End::Unknown(Doubt::InProgress, Stop::Deadline);
    assert_eq!(after(&[in_progress; 50], &late), Next::End(end));
    assert!(matches!(after(&[in_progress; 1000], &moment()), Next::End(_)));
}

// threat J3
#[test]
fn a_server_that_does_not_know_is_asked_twice() {
    let held = again(Some(Doubt::HeldUnknown));
    assert!(matches!(after(&[held; 1], &moment()), Next::Wait(_)));
    let end = End::Unknown(Doubt::HeldUnknown, Stop::Held);
    assert_eq!(after(&[held; 2], &moment()), Next::End(end));
}

// R158; threat J5
#[test]
fn a_wait_that_would_pass_the_deadline_is_not_begun() {
    let long = paused(Pause::AtLeast(Duration::from_secs(59)));
    assert_eq!(after(&[long], &moment()), Next::End(End::NotThrough(Stop::Deadline)));
    let shorter = paused(Pause::Exactly(Duration::from_secs(58)));
    assert!(matches!(after(&[shorter], &moment()), Next::Wait(_)));
}

// R157
#[test]
fn without_budget_nothing_is_retried() {
    let poor = Moment { budget_allows: false, ..moment() };
    assert_eq!(after(&[again(None)], &poor), Next::End(End::NotThrough(Stop::Budget)));
}

// R107, R158; threats F10, J2
#[test]
fn nothing_is_sent_when_the_server_may_have_forgotten_the_key() {
    let failed = again(Some(Doubt::NoAnswer));
    let day_ms = 86_400_000;
    let at = |age_ms| {
        let at = Moment { wall: WALL.plus_ms(age_ms), random: 0, ..moment() };
        after(&[failed], &at)
    };
    assert!(matches!(at(day_ms / 10 * 9), Next::Wait(_)));
    let reconcile = Next::End(End::Unknown(Doubt::NoAnswer, Stop::Window));
    assert_eq!(at(day_ms / 10 * 9 + 1), reconcile);
    // A clock that was set back tells nothing about the age.
    assert_eq!(at(-60_001), reconcile);
}

// R158
#[test]
fn a_short_window_leaves_room_for_a_whole_attempt() {
    let is_past = |age_ms, window_s| {
        let window = Duration::from_secs(window_s);
        is_past_window(WALL, WALL.plus_ms(age_ms), window, &settings())
    };
    assert!(!is_past(20_000, 30) && is_past(20_001, 30));
    assert!(!is_past(5000, 10) && is_past(5001, 10));
}

// threats J3, K6
#[test]
fn a_refusal_that_is_not_on_record_says_nothing_of_earlier_attempts() {
    let itself = Meaning::Refused(Refusal::OfAttempt(Stop::Refused));
    let lost = again(Some(Doubt::NoAnswer));
    assert_eq!(after(&[itself], &moment()), Next::End(End::Rejected));
    assert_eq!(after(&[again(None), itself], &moment()), Next::End(End::Rejected));
    let unknown = Next::End(End::Unknown(Doubt::NoAnswer, Stop::Refused));
    assert_eq!(after(&[lost, itself], &moment()), unknown);
    let for_all = Meaning::Refused(Refusal::OfRecord);
    assert_eq!(after(&[lost, for_all], &moment()), Next::End(End::Rejected));
}

// threat J5
#[test]
fn one_attempt_in_doubt_makes_the_end_unknown_whatever_came_after() {
    let lost = again(Some(Doubt::NoAnswer));
    let end = after(&[lost, UNSENT, again(None), again(None), again(None)], &moment());
    assert_eq!(end, Next::End(End::Unknown(Doubt::NoAnswer, Stop::Attempts)));
}

#[test]
fn an_answer_ends_it() {
    assert_eq!(after(&[Meaning::Success], &moment()), Next::End(End::Success));
    let gone = Meaning::Done(StatusCode::CREATED);
    assert_eq!(after(&[gone], &moment()), Next::End(End::Done(StatusCode::CREATED)));
    let closed = Meaning::Closed(Doubt::HeldUnknown);
    let end = End::Unknown(Doubt::HeldUnknown, Stop::Closed);
    assert_eq!(after(&[closed], &moment()), Next::End(end));
}

// R160
#[test]
fn what_happened_stays_done_when_its_result_cannot_be_read() {
    let done = Course { done: Some(StatusCode::SEE_OTHER), ..course() };
    for meaning in [again(None), Meaning::Refused(Refusal::OfRecord)] {
        let course = (0..4).fold(done, |course, _| course.after(&meaning));
        let end = decide(&meaning, &course, &settings(), &moment());
        assert_eq!(end, Next::End(End::Done(StatusCode::SEE_OTHER)));
    }
}
