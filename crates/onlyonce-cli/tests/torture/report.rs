//! Reports are written in every form, with evidence, and without credentials.

use std::process::Command;
use std::time::Duration;

use crate::lab::torture;
use crate::server::{Bug, Server};

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_the_report_tells_the_finding_and_no_credential() {
    let server = Server::start(Bug::NoClaim).await;
    let folder = tempfile::tempdir().unwrap();
    let files = ["r.txt", "r.md", "r.html", "r.json", "r.xml"].map(|name| folder.path().join(name));
    let (url, count_url) = (server.url(), server.count_url());
    let mut arguments =
        vec![url.as_str(), "--count-url", &count_url, "--only", "T2", "--rate", "1000"];
    arguments.extend(["--auth-a", "Authorization: Bearer very-secret"]);
    for file in &files {
        arguments.extend(["--report", file.to_str().unwrap()]);
    }
    let said = torture(&arguments).await;
    assert_eq!(said.code, 1, "{}", said.stderr);
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(
            text.contains("VIOLATED") || text.contains("violated") || text.contains("<failure"),
            "{text}"
        );
        assert!(text.contains("curl -sS"), "{}", file.display());
        assert!(!text.contains("very-secret"), "{}", file.display());
    }
    assert!(!said.stdout.contains("very-secret") && !said.stderr.contains("very-secret"));
    let page = std::fs::read_to_string(&files[2]).unwrap();
    assert!(
        page.contains("prefers-color-scheme")
            && !page.contains("<script")
            && !page.contains("http-equiv")
    );
}

// The reproducer is of the seed that was used, so it is run against a server that does not know it yet.
#[tokio::test(flavor = "multi_thread")]
async fn the_script_of_a_finding_repeats_it() {
    let server = Server::start(Bug::NoClaim).await;
    let (url, count_url) = (server.url(), server.count_url());
    let arguments =
        [&url, "--count-url", &count_url, "--only", "T2", "--rate", "1000", "--format", "json"];
    let said = torture(&arguments).await;
    let findings = said.json()["findings"].clone();
    let finding =
        findings.as_array().unwrap().iter().find(|found| found["property"] == "at-most-once");
    let script = finding.unwrap()["reproducer"].as_str().unwrap().to_owned();
    // Slow enough that the second curl is there in time.
    let fresh = Server::with_time(Bug::NoClaim, Duration::from_secs(2)).await;
    let script = script.replace(&server.address.to_string(), &fresh.address.to_string());
    let run = tokio::task::spawn_blocking(move || {
        Command::new("sh").args(["-c", &script]).output().unwrap()
    });
    let output = run.await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().last().unwrap_or_default();
    assert!(last.trim().ends_with('2'), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}
