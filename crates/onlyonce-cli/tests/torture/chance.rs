//! A target that fails now and then by itself, with any key, is not accused of it; and a fault is found in it all the same.

use proof::tier::is_full;

use crate::lab::{Said, torture};
use crate::server::{Bug, Server};

async fn attacked(bug: Bug, seed: &str, only: &str) -> Said {
    let server = Server::start(bug).await;
    let (url, count_url) = (server.url(), server.count_url());
    let mut arguments = vec![url.as_str(), "--count-url", &count_url, "--seed", seed];
    arguments.extend([
        "--auth-a",
        "Authorization: Bearer a",
        "--auth-b",
        "Authorization: Bearer b",
    ]);
    arguments.extend(["--rate", "1000", "--settle", "300ms", "--format", "json", "--quiet"]);
    if !is_full() {
        arguments.extend(["--crowd", "80", "--only", only]);
    }
    torture(&arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_fails_one_request_in_six_is_not_accused() {
    for seed in ["1", "2", "3"] {
        let said = attacked(Bug::FailsNowAndThen, seed, "T1,T9,T15").await;
        assert_eq!(said.violated(), Vec::<String>::new(), "seed {seed}: {}", said.stdout);
        assert_eq!(said.code, 0, "seed {seed}: {}", said.stdout);
        assert!(said.json()["counts"]["5xx_answers"].as_u64().unwrap() > 0, "{}", said.stdout);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_fails_one_request_in_six_and_dies_of_a_crowd_is_accused_of_that() {
    let said = attacked(Bug::FailsNowAndThenAndDies, "1", "T15").await;
    assert_eq!(said.violated(), ["hot-key"], "{}", said.stdout);
    let summary = said.json()["findings"][0]["summary"].as_str().unwrap().to_owned();
    assert!(summary.contains("after the crowd 12 of 12"), "{summary}");
}
