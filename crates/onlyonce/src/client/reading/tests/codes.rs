//! Each code, with each status and each advice, in each shape: what the client makes of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::json;
use tonic_types::{ErrorDetails, StatusExt};

use super::*;
use crate::client::decide::{Course, End, Moment, Next, decide};
use crate::client::retries::Settings;
use crate::code::{DESCRIBED_BY, Executed, GRPC_DOMAIN, WELL_KNOWN};

/// An answer of ours.
struct Told {
    text: String,
    status: u16,
    retry: Option<Retry>,
    is_replay: bool,
}

/// All shapes of it, each with its name.
fn shapes(told: &Told) -> Vec<(&'static str, Answer)> {
    let retry = told.retry.map(Retry::text);
    let problem = json!({ "type": format!("{WELL_KNOWN}#{}", told.text), "code": told.text });
    let problem = match retry {
        Some(retry) => {
            let mut problem = problem;
            problem["retry"] = retry.into();
            problem
        }
        None => problem,
    };
    let stripe = json!({ "error": { "type": "api_error", "code": told.text } });
    vec![
        ("problem", json_answer(told, "application/problem+json", &problem)),
        ("stripe", json_answer(told, "application/json", &stripe)),
        ("grpc", grpc_answer(told, 2)),
        ("grpc, refused", grpc_answer(told, 3)),
    ]
}

fn json_answer(told: &Told, media_type: &'static str, body: &serde_json::Value) -> Answer {
    let mut answer = Answer::new(StatusCode::from_u16(told.status).unwrap());
    answer.headers.insert("content-type", HeaderValue::from_static(media_type));
    answer.headers.insert("link", HeaderValue::from_static(DESCRIBED_BY));
    answer.body = body.to_string().into();
    marked(answer, told.is_replay)
}

fn grpc_answer(told: &Told, status: u8) -> Answer {
    let metadata = told.retry.map(|retry| ("retry".to_owned(), retry.text().to_owned()));
    let details = ErrorDetails::with_error_info(
        told.text.clone(),
        GRPC_DOMAIN,
        metadata.into_iter().collect::<std::collections::HashMap<_, _>>(),
    );
    let failure = tonic::Status::with_error_details(tonic::Code::Unknown, "no", details);
    let details = STANDARD_NO_PAD.encode(failure.details());
    let mut answer = Answer::new(StatusCode::OK);
    answer.headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    answer.headers.insert("grpc-status", HeaderValue::from(u16::from(status)));
    answer.headers.insert("grpc-status-details-bin", HeaderValue::try_from(details).unwrap());
    marked(answer, told.is_replay)
}

fn marked(mut answer: Answer, is_replay: bool) -> Answer {
    if is_replay {
        answer.headers.insert(REPLAY.0, HeaderValue::from_static(REPLAY.1));
    }
    answer
}

/// Each code with each status and each advice.
fn all(mut visit: impl FnMut(Code, &Told)) {
    for code in Code::ALL {
        for status in [
            400, 401, 402, 403, 404, 405, 408, 409, 410, 412, 413, 422, 425, 429, 500, 501, 502,
            503, 504,
        ] {
            for retry in [None, Some(Retry::SameKey), Some(Retry::NewKey), Some(Retry::Never)] {
                for is_replay in [false, true] {
                    let text = code.text().to_owned();
                    visit(*code, &Told { text, status, retry, is_replay });
                }
            }
        }
    }
}

// threat K10
#[test]
fn what_was_or_may_have_been_executed_is_never_told_as_a_refusal() {
    let mut seen = 0;
    all(|code, told| {
        for (shape, answer) in shapes(told) {
            let meaning = read(&Ok(answer.clone()), NOW);
            let leaves_doubt = match meaning {
                Meaning::Closed(_) => true,
                Meaning::Again(again) => again.doubt.is_some(),
                Meaning::Refused(_) => false,
                Meaning::Success | Meaning::Done(_) => panic!("{code} as {shape}: {meaning:?}"),
            };
            let may_be = code.executed() != Executed::No;
            assert_eq!(leaves_doubt, may_be, "{code} {} as {shape}: {meaning:?}", told.status);
            let asks = matches!(meaning, Meaning::Again(_));
            assert!(
                !(asks && code.executed() == Executed::Yes),
                "{code} as {shape} is asked again"
            );
            if advice(&answer) == Retry::NewKey && shape == "problem" {
                let is_told = told.retry == Some(Retry::NewKey) || told.is_replay;
                assert!(code.executed() == Executed::No || is_told, "{code}: a new key");
            }
            seen += 1;
        }
    });
    assert!(seen > 10_000, "{seen}");
}

// threats K10, J5
#[test]
fn every_code_ends_within_its_budget() {
    all(|code, told| {
        for (shape, answer) in shapes(told) {
            let (end, sends) = to_its_end(&read(&Ok(answer), NOW), None);
            let most = if code == Code::InProgress { 1000 } else { 4 };
            assert!(sends <= most, "{code} as {shape} was sent {sends} times");
            let is_refusal = matches!(end, End::Rejected | End::NotThrough(_));
            assert_eq!(is_refusal, code.executed() == Executed::No, "{code} as {shape}: {end:?}");
        }
    });
}

// threats K6, K10
#[test]
fn no_code_but_one_from_the_record_ends_an_earlier_doubt() {
    all(|code, told| {
        for (shape, answer) in shapes(told) {
            let (end, _) = to_its_end(&read(&Ok(answer), NOW), Some(Doubt::NoAnswer));
            let is_settled = !matches!(end, End::Unknown(..));
            let may_settle = told.is_replay && code.executed() == Executed::No;
            assert_eq!(is_settled, may_settle, "{code} as {shape}: {end:?}");
        }
    });
}

/// How an operation ends that is answered so at every attempt, and how often it is sent.
fn to_its_end(meaning: &Meaning, doubt: Option<Doubt>) -> (End, u32) {
    let mut course = Course { doubt, ..Course::new(NOW, Duration::MAX) };
    let at = Moment {
        wall: NOW,
        boot: Duration::ZERO,
        budget_allows: true,
        random: 0,
        window: Duration::from_secs(86_400),
    };
    loop {
        course = course.after(meaning);
        if let Next::End(end) = decide(meaning, &course, &Settings::default(), &at) {
            return (end, course.sends);
        }
    }
}

// threat K10
#[test]
fn a_code_of_a_newer_server_proves_nothing_but_by_its_advice() {
    for status in [400, 402, 404, 408, 409, 410, 412, 422, 423, 500, 501, 502, 504, 507] {
        for retry in [None, Some(Retry::SameKey), Some(Retry::NewKey), Some(Retry::Never)] {
            let text = "idempotency_of_tomorrow".to_owned();
            let told = Told { text, status, retry, is_replay: false };
            for (shape, answer) in shapes(&told) {
                let (end, sends) = to_its_end(&read(&Ok(answer), NOW), None);
                let says_so = retry == Some(Retry::NewKey) && shape != "stripe";
                let is_open = matches!(end, End::Unknown(Doubt::NewerCode, _));
                assert!(is_open || says_so, "{status} {retry:?} as {shape}: {end:?}");
                assert!(sends <= 4, "{sends}");
            }
        }
    }
    // Word by word as of a stranger, this one is not ours.
    let told = Told { text: "overloaded".to_owned(), status: 503, retry: None, is_replay: false };
    let mut answer =
        json_answer(&told, "application/problem+json", &json!({ "code": "overloaded" }));
    assert_eq!(read(&Ok(answer.clone()), NOW), again(None));
    answer.headers.remove("link");
    assert_eq!(read(&Ok(answer), NOW), again(FAILED));
}

#[test]
fn the_verdict_on_a_code_is_what_the_table_says() {
    for code in Code::ALL {
        let executed = match verdict(*code) {
            Verdict::Not(_) | Verdict::Credentials => Executed::No,
            Verdict::Maybe(_) => Executed::Maybe,
            Verdict::Executed => Executed::Yes,
        };
        assert_eq!(executed, code.executed(), "{code}");
    }
}
