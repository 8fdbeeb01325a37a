//! Nobody is attacked by mistake, and exit codes say what happened.

use crate::lab::{free_address, torture};
use crate::server::{Bug, Server};

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_sends_nothing_and_says_the_same_for_the_same_seed() {
    let server = Server::start(Bug::None).await;
    let (url, count_url) = (server.url(), server.count_url());
    let arguments = |seed: &'static str| {
        [
            url.clone(),
            "--count-url".to_owned(),
            count_url.clone(),
            "--dry-run".to_owned(),
            "--seed".to_owned(),
            seed.to_owned(),
            "-H".to_owned(),
            "Authorization: Bearer very-secret".to_owned(),
        ]
    };
    let (first, second, other) = (arguments("7"), arguments("7"), arguments("8"));
    let mut texts = Vec::new();
    for arguments in [&first, &second, &other] {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let said = torture(&arguments).await;
        assert_eq!(said.code, 0, "{}", said.stderr);
        texts.push(said.stdout);
    }
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[0], texts[2]);
    assert!(
        texts[0].contains("T15") && texts[0].contains("POST /charges HTTP/1.1"),
        "{}",
        texts[0]
    );
    assert!(!texts[0].contains("very-secret"), "{}", texts[0]);
    assert_eq!(server.requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_not_allowed_is_refused() {
    for url in ["http://192.0.2.1/charges", "http://example.invalid/charges"] {
        let said = torture(&[url]).await;
        assert_eq!(said.code, 2, "{}", said.stderr);
        assert!(said.stderr.contains("--allow-host"), "{}", said.stderr);
    }
    let server = Server::start(Bug::None).await;
    let said = torture(&[&server.url(), "--count-url", "http://192.0.2.1/{marker}"]).await;
    assert_eq!((said.code, server.requests()), (2, 0), "{}", said.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oracle_that_cannot_tell_requests_apart_is_refused() {
    let server = Server::start(Bug::None).await;
    let count_url = format!("http://{}/count", server.address);
    for more in
        [vec!["--count-url", &count_url], vec!["--json", "{}", "--count-cmd", "echo {marker}"]]
    {
        let url = server.url();
        let arguments: Vec<_> = [url.as_str()].into_iter().chain(more).collect();
        let said = torture(&arguments).await;
        assert_eq!(said.code, 2, "{}", said.stderr);
        assert!(said.stderr.contains("{marker}"), "{}", said.stderr);
    }
    assert_eq!(server.requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_not_there_or_refuses_is_no_verdict() {
    let said = torture(&[&format!("http://{}/charges", free_address())]).await;
    assert_eq!(said.code, 3, "{}", said.stderr);
    let server = Server::start(Bug::None).await;
    let said = torture(&[&server.url(), "--data", "not json {marker}"]).await;
    assert_eq!(said.code, 3, "{}", said.stderr);
    assert!(said.stderr.contains("5 of 5 plain requests"), "{}", said.stderr);
    assert!(said.stderr.contains("400 not JSON (5)"), "{}", said.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_refuses_the_first_requests_is_attacked_all_the_same() {
    let server = Server::start(Bug::StartsBadly).await;
    let (url, count_url) = (server.url(), server.count_url());
    let said = torture(&[&url, "--count-url", &count_url, "--only", "T1", "--rate", "1000"]).await;
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_anybody_who_counts_the_verdict_is_inconclusive() {
    let server = Server::start(Bug::None).await;
    let url = server.url();
    let arguments = [url.as_str(), "--only", "T1,T2", "--rate", "1000", "--format", "json"];
    let said = torture(&arguments).await;
    assert_eq!((said.code, said.json()["verdict"].as_str()), (4, Some("inconclusive")));
    assert_eq!(said.standing("at-most-once"), "inconclusive");
    assert_eq!(said.standing("same-answer"), "not observed");
}

#[tokio::test(flavor = "multi_thread")]
async fn different_answers_prove_two_executions_without_anybody_who_counts() {
    let server = Server::start(Bug::NoClaim).await;
    let said =
        torture(&[&server.url(), "--only", "T2", "--rate", "1000", "--format", "json"]).await;
    assert_eq!(said.violated(), ["at-most-once", "same-answer"]);
    assert_eq!(said.code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ceiling_of_requests_holds() {
    let server = Server::start(Bug::None).await;
    let count_url = server.count_url();
    let arguments =
        ["--count-url", &count_url, "--requests-max", "60", "--rate", "1000", "--quiet"];
    let url = server.url();
    let arguments: Vec<_> = [url.as_str()].into_iter().chain(arguments).collect();
    let said = torture(&arguments).await;
    assert_eq!(said.code, 4, "{}", said.stdout);
    assert!(said.stdout.contains("--requests-max came before the end of T2"), "{}", said.stdout);
    assert!((10..=60).contains(&server.requests()), "{}", server.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_that_was_used_is_refused() {
    let server = Server::start(Bug::None).await;
    let (url, count_url) = (server.url(), server.count_url());
    let arguments =
        [&url, "--count-url", &count_url, "--seed", "3", "--only", "T1", "--rate", "1000"];
    assert_eq!(torture(&arguments).await.code, 0);
    let again = torture(&arguments).await;
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(again.stderr.contains("--seed"), "{}", again.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_flags_is_read() {
    let server = Server::start(Bug::None).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("torture.toml");
    let text = format!(
        "url = \"{}\"\ncount-url = \"{}\"\nonly = [\"T1\"]\nrate = 1000\nquiet = true\nformat = \"json\"\n",
        server.url(),
        server.count_url()
    );
    std::fs::write(&path, text).unwrap();
    let said = torture(&["--config", path.to_str().unwrap()]).await;
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(said.json()["verdict"], "not observed");
}
