//! However slow the target is, a run ends, with a verdict on what was done.

use std::time::Duration;

use tokio::time::Instant;

use crate::lab::{Said, torture};
use crate::server::{Bug, Server};

async fn limited(bug: Bug, time: Duration) -> (Said, Duration) {
    let server = Server::with_time(bug, time).await;
    let (url, count_url) = (server.url(), server.count_url());
    let begin = Instant::now();
    let said = torture(&[
        &url,
        "--count-url",
        &count_url,
        "--rate",
        "1000",
        "--crowd",
        "8",
        "--settle",
        "300ms",
        "--time-limit",
        "2s",
        "--format",
        "json",
        "--quiet",
    ])
    .await;
    (said, begin.elapsed())
}

/// Programs that did not run to their end.
fn late(said: &Said) -> Vec<String> {
    let programs = said.json()["programs"].as_array().unwrap().clone();
    let late = programs.iter().filter(|program| program["skipped_for"] == "--time-limit");
    late.map(|program| program["program"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_target_gets_a_verdict_on_what_was_done_in_time() {
    let (said, took) = limited(Bug::None, Duration::from_millis(100)).await;
    assert_eq!((said.code, said.json()["verdict"].as_str()), (4, Some("inconclusive")));
    let late = late(&said);
    assert!(late.contains(&"T15".to_owned()) && !late.contains(&"T1".to_owned()), "{late:?}");
    let why = said.json()["why"].as_str().unwrap().to_owned();
    assert!(why.contains("--time-limit") && why.contains("T15"), "{why}");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_in_time_is_violated() {
    let (said, _) = limited(Bug::NoClaim, Duration::from_millis(100)).await;
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(late(&said).contains(&"T15".to_owned()), "{}", said.stdout);
}

// Each request may take ten seconds, so a trial is broken off.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_answers_no_more_does_not_hold_the_run() {
    let (said, took) = limited(Bug::Stalls, Duration::from_millis(5)).await;
    assert_eq!(said.code, 4, "{}", said.stdout);
    assert!(took < Duration::from_secs(8), "{took:?}");
}
