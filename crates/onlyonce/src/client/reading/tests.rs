//! Each answer, and each way to have none, with what it means.

use http::HeaderValue;

use super::*;
use std::time::Duration;

mod codes;

const NOW: StoreTime = StoreTime::from_ms(0);

/// Status, headers, body.
type Wire<'a> = (u16, &'a [(&'static str, &'static str)], &'a str);

fn meaning((status, headers, body): Wire<'_>) -> Meaning {
    let mut answer = Answer::new(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        answer.headers.insert(*name, HeaderValue::from_static(value));
    }
    answer.body = body.to_owned().into();
    read(&Ok(answer), NOW)
}

fn again(doubt: Option<Doubt>) -> Meaning {
    Meaning::Again(Again { doubt, pause: Pause::Backoff, is_unsent: false })
}

const REPLAY: (&str, &str) = ("idempotent-replayed", "true");
const PROBLEM: (&str, &str) = ("content-type", "application/problem+json");
const OURS: (&str, &str) = ("link", crate::code::DESCRIBED_BY);
const FOR_ALL: Meaning = Meaning::Refused(Refusal::OfRecord);
const FOR_ITSELF: Meaning = Meaning::Refused(Refusal::OfAttempt(Stop::Refused));
const FAILED: Option<Doubt> = Some(Doubt::ServerError);

// R153, R154; threat J3
#[test]
fn statuses_are_retried_as_listed_and_no_other() {
    for status in [200, 201, 202, 204] {
        assert_eq!(meaning((status, &[], "")), Meaning::Success, "{status}");
    }
    for status in [301, 302, 304] {
        let redirected = Meaning::Closed(Doubt::Redirected);
        assert_eq!(meaning((status, &[], "")), redirected, "{status}");
    }
    for status in [425, 429] {
        assert_eq!(meaning((status, &[], "")), again(None), "{status}");
    }
    // Some services answer 408 when the handler takes too long.
    for status in [408, 500, 502, 503, 504] {
        assert_eq!(meaning((status, &[], "")), again(FAILED), "{status}");
    }
    assert_eq!(meaning((409, &[], "")), again(Some(Doubt::Conflict)));
    for status in
        [400, 401, 402, 403, 404, 405, 407, 410, 411, 413, 415, 418, 421, 422, 451, 501, 505]
    {
        assert_eq!(meaning((status, &[], "")), FOR_ITSELF, "{status}");
    }
    for status in [507, 508, 511, 520, 599] {
        assert_eq!(meaning((status, &[], "")), Meaning::Closed(Doubt::ServerError), "{status}");
    }
}

// R154, R155
#[test]
fn a_replay_is_terminal_whatever_else_it_says() {
    let also = |name, value| [REPLAY, (name, value)];
    assert_eq!(meaning((201, &[REPLAY], "")), Meaning::Success);
    assert_eq!(meaning((402, &[REPLAY], "")), FOR_ALL);
    for status in [400, 401, 404, 409, 413, 422, 501] {
        assert_eq!(meaning((status, &[REPLAY], "")), FOR_ALL, "{status}");
    }
    let failed = Meaning::Closed(Doubt::ServerError);
    for status in [500, 502, 503, 504] {
        assert_eq!(meaning((status, &[REPLAY], "")), failed, "{status}");
        let urged = also("stripe-should-retry", "true");
        assert_eq!(meaning((status, &urged, "")), failed, "{status}");
        let same_key = "{\"retry\":\"same-key\"}";
        assert_eq!(meaning((status, &[REPLAY, PROBLEM], same_key)), failed, "{status}");
    }
}

// R153, R154
#[test]
fn the_retry_member_of_a_problem_decides_before_the_status() {
    let problem = |status, code: &str, retry: &str| {
        let body = format!("{{\"code\":\"{code}\",\"retry\":\"{retry}\"}}");
        meaning((status, &[PROBLEM, OURS], &body))
    };
    let stranger = |status, retry: &str| {
        let body = format!("{{\"code\":\"of_a_stranger\",\"retry\":\"{retry}\"}}");
        meaning((status, &[PROBLEM], &body))
    };
    assert_eq!(problem(400, "request_incomplete", "same-key"), again(None));
    assert_eq!(problem(503, "overloaded", "same-key"), again(None));
    assert_eq!(problem(503, "upstream_unreachable", "same-key"), again(None));
    assert_eq!(problem(503, "idempotency_store_unavailable", "same-key"), again(None));
    assert_eq!(stranger(503, "same-key"), again(FAILED));
    assert_eq!(problem(409, "idempotency_in_progress", "same-key"), again(Some(Doubt::InProgress)));
    let held = Some(Doubt::HeldUnknown);
    for status in [409, 502, 504] {
        assert_eq!(problem(status, "idempotency_outcome_unknown", "same-key"), again(held));
    }
    let closed = Meaning::Closed(Doubt::HeldUnknown);
    assert_eq!(problem(502, "idempotency_outcome_unknown", "never"), closed);
    let reused = Meaning::Refused(Refusal::OfAttempt(Stop::KeyReused));
    assert_eq!(problem(422, "idempotency_key_reused", "new-key"), reused);
    assert_eq!(problem(409, "idempotency_key_reused", "new-key"), reused);
    let expired = Meaning::Closed(Doubt::KeyExpired);
    assert_eq!(problem(412, "idempotency_key_expired", "never"), expired);
    assert_eq!(problem(400, "idempotency_key_invalid", "new-key"), FOR_ITSELF);
    assert_eq!(problem(504, "idempotency_deadline_exceeded", "never"), FOR_ITSELF);
    // It is safe to send it again, but of no use without other credentials.
    assert_eq!(problem(401, "principal_missing", "same-key"), FOR_ITSELF);
    assert_eq!(problem(413, "request_too_large", "never"), FOR_ITSELF);
    assert_eq!(stranger(503, "never"), Meaning::Closed(Doubt::ServerError));
    // A document without the member, or that is no problem, leaves it to the status.
    assert_eq!(meaning((503, &[PROBLEM], "{}")), again(FAILED));
    let json = ("content-type", "application/json");
    assert_eq!(meaning((422, &[json], "{\"retry\":\"same-key\"}")), FOR_ITSELF);
}

#[test]
fn an_answer_that_was_not_kept_says_that_it_happened() {
    let body = "{\"code\":\"idempotency_response_unavailable\",\"retry\":\"never\",\"original_status\":201}";
    assert_eq!(meaning((410, &[PROBLEM], body)), Meaning::Done(StatusCode::CREATED));
    assert_eq!(meaning((410, &[PROBLEM], "{\"retry\":\"never\"}")), FOR_ITSELF);
    let unsaid = "{\"code\":\"idempotency_response_unavailable\",\"retry\":\"never\"}";
    assert_eq!(meaning((410, &[PROBLEM], unsaid)), Meaning::Closed(Doubt::AnswerNotKept));
    // The effect is there and its record is gone: a transaction that was committed before.
    assert_eq!(meaning((409, &[PROBLEM], unsaid)), Meaning::Closed(Doubt::AnswerNotKept));
    // A newer server may call it by another name.
    let newer =
        "{\"code\":\"idempotency_of_tomorrow\",\"retry\":\"never\",\"original_status\":402}";
    let declined = Meaning::Done(StatusCode::PAYMENT_REQUIRED);
    assert_eq!(meaning((410, &[PROBLEM], newer)), declined);
}

// R155
#[test]
fn stripe_should_retry_is_obeyed_where_no_problem_says_otherwise() {
    let header = |value| [("stripe-should-retry", value)];
    assert_eq!(meaning((400, &header("true"), "")), again(None));
    assert_eq!(meaning((500, &header("false"), "")), Meaning::Closed(Doubt::ServerError));
    assert_eq!(meaning((429, &header("false"), "")), FOR_ITSELF);
    assert_eq!(meaning((500, &header("perhaps"), "")), again(FAILED));
    let never = [PROBLEM, ("stripe-should-retry", "true")];
    assert_eq!(meaning((422, &never, "{\"retry\":\"never\"}")), FOR_ITSELF);
}

// R153
#[test]
fn stripes_key_in_use_is_in_progress() {
    let json = ("content-type", "application/json");
    let body = "{\"error\":{\"code\":\"idempotency_key_in_use\"}}";
    assert_eq!(meaning((409, &[json], body)), again(Some(Doubt::InProgress)));
    let mismatch = "{\"error\":{\"type\":\"idempotency_error\"}}";
    let reused = Meaning::Refused(Refusal::OfAttempt(Stop::KeyReused));
    assert_eq!(meaning((400, &[json], mismatch)), reused);
    // A word of a stranger is not one of ours.
    let overloaded = "{\"error\":{\"code\":\"overloaded\"}}";
    assert_eq!(meaning((503, &[json], overloaded)), again(FAILED));
}

// R155
#[test]
fn a_503_that_asks_to_come_back_did_nothing() {
    let pause = Pause::AtLeast(Duration::from_secs(2));
    let told = Meaning::Again(Again { doubt: None, pause, is_unsent: false });
    assert_eq!(meaning((503, &[("retry-after", "2")], "")), told);
    let gateway = [("retry-after", "2"), ("via", "1.1 onlyonce")];
    assert_eq!(meaning((503, &gateway, "")), told);
    // Varnish says so too when its backend died, whatever the backend did before.
    let varnish = [("retry-after", "2"), ("via", "1.1 varnish")];
    assert_eq!(
        meaning((503, &varnish, "")),
        Meaning::Again(Again { doubt: Some(Doubt::ServerError), pause, is_unsent: false })
    );
}

// R153, R159
#[test]
fn only_what_is_proved_unsent_leaves_no_doubt() {
    let failed = |reach| read(&Err(TransportError::new(reach, "test")), NOW);
    let unsent = Again { doubt: None, pause: Pause::Backoff, is_unsent: true };
    assert_eq!(failed(Reach::NotSent), Meaning::Again(unsent));
    assert_eq!(failed(Reach::MaybeSent), again(Some(Doubt::NoAnswer)));
    assert_eq!(failed(Reach::TooLarge(StatusCode::OK)), Meaning::Done(StatusCode::OK));
    let failing = Reach::TooLarge(StatusCode::BAD_GATEWAY);
    assert_eq!(failed(failing), Meaning::Closed(Doubt::ServerError));
    assert_eq!(failed(Reach::Unusable), FOR_ITSELF);
}

// R153
#[test]
fn grpc_tells_by_its_own_status() {
    let grpc = |status: &'static str| {
        meaning((200, &[("content-type", "application/grpc+proto"), ("grpc-status", status)], ""))
    };
    assert_eq!(grpc("0"), Meaning::Success);
    assert_eq!(grpc("10"), again(Some(Doubt::InProgress)));
    // 8 is said before the handler runs, but by grpc-go also after it, of an answer that is too large.
    for code in ["2", "4", "8", "13", "14"] {
        assert_eq!(grpc(code), again(FAILED), "{code}");
    }
    for code in ["3", "5", "6", "7", "9", "11", "12", "16"] {
        assert_eq!(grpc(code), FOR_ITSELF, "{code}");
        let replayed = [("content-type", "application/grpc"), ("grpc-status", code), REPLAY];
        assert_eq!(meaning((200, &replayed, "")), FOR_ALL, "{code}");
    }
    assert_eq!(grpc("1"), Meaning::Closed(Doubt::ServerError));
    assert_eq!(grpc("15"), Meaning::Closed(Doubt::ServerError));
    let cut = meaning((200, &[("content-type", "application/grpc")], ""));
    assert_eq!(cut, again(Some(Doubt::NoAnswer)));
    let replayed = [("content-type", "application/grpc"), ("grpc-status", "14"), REPLAY];
    assert_eq!(meaning((200, &replayed, "")), Meaning::Closed(Doubt::ServerError));
}
