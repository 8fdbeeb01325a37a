//! Commands of the user: they are run while requests are on their way, and one that fails proves nothing.

use crate::lab::{Said, torture};
use crate::server::{Bug, Server};

async fn attacked(more: &[&str]) -> Said {
    let server = Server::start(Bug::None).await;
    let (url, count_url) = (server.url(), server.count_url());
    let forget = format!("curl -sS -X POST http://{}/forget", server.address);
    let mut arguments =
        vec![url.as_str(), "--count-url", &count_url, "--rate", "1000", "--format", "json"];
    arguments.extend(more.iter().map(|word| if *word == "FORGET" { &forget } else { *word }));
    torture(&arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_forgets_when_it_is_emptied_executes_twice() {
    let said = attacked(&["--only", "T12", "--store-flush-cmd", "FORGET"]).await;
    assert!(said.violated().contains(&"at-most-once".to_owned()), "{}", said.stdout);
    assert_eq!(said.code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_forgets_when_it_is_killed_executes_twice() {
    let said = attacked(&["--only", "T10", "--kill-cmd", "FORGET", "--start-cmd", "true"]).await;
    assert!(said.violated().contains(&"at-most-once".to_owned()), "{}", said.stdout);
    let script = said.json()["findings"][0]["reproducer"].as_str().unwrap().to_owned();
    assert!(script.contains("--kill-cmd"), "{script}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_no_harm_is_counted_and_one_that_fails_is_inconclusive() {
    let said = attacked(&["--only", "T12", "--store-restart-cmd", "true"]).await;
    assert_eq!(
        (said.code, said.json()["counts"]["commands_run"].as_u64()),
        (0, Some(3)),
        "{}",
        said.stdout
    );
    let said = attacked(&["--only", "T12", "--store-restart-cmd", "false"]).await;
    assert_eq!(
        (said.code, said.json()["verdict"].as_str()),
        (4, Some("inconclusive")),
        "{}",
        said.stdout
    );
}
