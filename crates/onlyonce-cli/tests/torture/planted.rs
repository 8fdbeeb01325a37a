//! Every planted bug is found, with the property that it violates; the server without a bug is not blamed.

use proof::tier::is_full;

use crate::closing::{Closing, Forgets};
use crate::lab::{Said, torture};
use crate::server::{Bug, Server};

/// Attacks a server with this bug. In the full tier by all programs.
async fn attacked(bug: Bug, only: &str) -> Said {
    let server = Server::start(bug).await;
    let (url, count_url) = (server.url(), server.count_url());
    let mut arguments = vec![
        url.as_str(),
        "--json",
        r#"{"amount":100,"marker":"{marker}"}"#,
        "--fail-json",
        r#"{"fail":true,"marker":"{marker}"}"#,
        "--count-url",
        &count_url,
        "--auth-a",
        "Authorization: Bearer first-caller",
        "--auth-b",
        "Authorization: Bearer second-caller",
        "--rate",
        "1000",
        "--settle",
        "300ms",
        "--format",
        "json",
        "--quiet",
    ];
    if !is_full() {
        arguments.extend(["--crowd", "80", "--only", only]);
    }
    torture(&arguments).await
}

/// Found, and nothing is blamed that is in order.
async fn is_violated(bug: Bug, only: &str, properties: &[&str]) {
    let said = attacked(bug, only).await;
    let found = said.violated();
    match is_full() {
        // All programs may find the same bug in more ways.
        true => assert!(
            properties.iter().all(|one| found.iter().any(|other| one == other)),
            "{bug:?}: {found:?}"
        ),
        false => assert_eq!(found, properties, "{bug:?}: {}", said.stdout),
    }
    assert_eq!((said.code, said.json()["verdict"].as_str()), (1, Some("violated")), "{bug:?}");
    for finding in said.json()["findings"].as_array().unwrap() {
        let script = finding["reproducer"].as_str().unwrap();
        assert!(script.contains("curl -sS") && !script.contains("first-caller"), "{script}");
        assert!(finding["timeline"].as_str().unwrap().contains('●'));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_server_is_not_blamed() {
    let said = attacked(Bug::None, "T1,T2,T3,T4,T5,T6,T7,T8,T9,T11,T15").await;
    assert_eq!(said.violated(), Vec::<String>::new(), "{}", said.stdout);
    assert_eq!((said.code, said.json()["verdict"].as_str()), (0, Some("not observed")));
    for property in ["at-most-once", "same-answer", "isolation", "mismatch", "success-executed"] {
        assert_eq!(said.standing(property), "not observed", "{property}: {}", said.stdout);
    }
    let report = said.json();
    for counter in ["replays", "409_and_425_in_progress", "changed_requests_refused", "bursts"] {
        assert!(report["counts"][counter].as_u64().unwrap() > 0, "{counter}: {}", report["counts"]);
    }
    assert_eq!(report["card"]["on_mismatch"].as_str().unwrap().split(' ').next(), Some("422"));
    assert_eq!(report["card"]["in_flight"].as_str().unwrap().split(' ').next(), Some("409"));
    assert_eq!(report["card"]["scope"], "its own: executed for each caller");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_claims_nothing_executes_twice() {
    is_violated(Bug::NoClaim, "T1,T2", &["at-most-once", "same-answer"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_released_after_a_failure_executes_twice() {
    is_violated(Bug::ReleaseOnError, "T9", &["at-most-once"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_counted_stays_counted_if_the_counter_forgets() {
    is_violated(Bug::ForgetfulCounter, "T9", &["at-most-once"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_mixed_up_between_callers_are_seen() {
    is_violated(Bug::MixedAnswers, "T8", &["isolation"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_without_the_caller_is_seen() {
    is_violated(Bug::NoPrincipal, "T8", &["isolation"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_request_that_gets_the_first_answer_is_seen() {
    is_violated(Bug::NoFingerprint, "T6", &["mismatch"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fingerprint_of_the_first_bytes_is_seen() {
    is_violated(Bug::ShortFingerprint, "T6", &["mismatch"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_cancelled_with_its_client_executes_twice() {
    is_violated(Bug::CancelsWithClient, "T3,T5", &["at-most-once"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_was_cut_short_is_seen() {
    is_violated(Bug::TruncatedReplay, "T1", &["same-answer"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_that_break_off_are_seen() {
    is_violated(Bug::BreaksReplays, "T1", &["same-answer"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_a_crowd_has_ended_is_seen() {
    is_violated(Bug::DiesOfACrowd, "T15", &["hot-key"]).await;
}

async fn closing(forgets: Forgets, only: &str) -> Said {
    let server = Closing::start(forgets).await;
    let (url, count_url) = (server.url(), server.count_url());
    let arguments = ["--rate", "1000", "--settle", "300ms", "--format", "json", "--quiet"];
    let who = [url.as_str(), "--count-url", &count_url, "--only", only];
    torture(&who.into_iter().chain(arguments).collect::<Vec<_>>()).await
}

// threat J17
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_forgotten_when_its_client_closes_in_order_executes_twice() {
    for program in ["T3", "T5"] {
        let said = closing(Forgets::AtOnce, program).await;
        assert_eq!(said.violated(), ["at-most-once"], "{program}: {}", said.stdout);
        let finding = said.json()["findings"][0]["summary"].as_str().unwrap().to_owned();
        assert!(!finding.contains("reset"), "{finding}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_forgotten_unless_it_is_asked_for_at_once_executes_twice() {
    let said = closing(Forgets::UnlessAskedAgain, "T3").await;
    assert_eq!(said.violated(), ["at-most-once"], "{}", said.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_on_when_its_client_closes_in_order_is_not_blamed() {
    let said = closing(Forgets::Never, "T3,T5,T11").await;
    assert_eq!((said.code, said.violated()), (0, Vec::new()), "{}", said.stdout);
    for counter in ["of_all_cuts_closed_in_order", "connections_half_closed"] {
        assert!(said.json()["counts"][counter].as_u64().unwrap() > 3, "{}", said.stdout);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_with_another_status_is_seen() {
    is_violated(Bug::AlwaysOk, "T1", &["same-answer"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_cut_short_are_seen() {
    is_violated(Bug::CutKeys, "T7", &["mismatch"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_without_an_execution_is_seen() {
    is_violated(Bug::Lies, "T1,T4", &["success-executed"]).await;
}
