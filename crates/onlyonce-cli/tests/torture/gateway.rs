//! Our own gateway, with the shim as the service behind it, is clean; and without an oracle nobody says so.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use proof::tier::is_full;

use crate::lab::{Said, free_address, onlyonce, torture};

/// `onlyonce serve` in a process of its own. Killed when dropped.
struct Gateway {
    url: String,
    process: Child,
    _folder: tempfile::TempDir,
}

impl Gateway {
    fn start(upstream: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", folder.path().join("onlyonce.db").display());
        let upstream = format!("http://{upstream}");
        let mut command = onlyonce();
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            &upstream,
            "--store",
            &store,
        ]);
        let mut process = command.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        Self { url: format!("http://{}/charges", address.trim()), process, _folder: folder }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

async fn attacked(more: &[&str]) -> Said {
    let shim = free_address();
    let gateway = Gateway::start(&shim);
    let mut arguments = vec![gateway.url.as_str()];
    arguments.extend(["--rate", "1000", "--format", "json", "--shim-time", "8ms"]);
    arguments.extend([
        "--auth-a",
        "Authorization: Bearer first",
        "--auth-b",
        "Authorization: Bearer other",
    ]);
    arguments.extend(["--upstream-shim", &shim]);
    if !is_full() {
        arguments.extend(["--crowd", "200"]);
    }
    arguments.extend(more);
    torture(&arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_our_gateway_is_clean() {
    let times = if is_full() { 20 } else { 3 };
    for _ in 0..times {
        let said = attacked(&[]).await;
        assert_eq!(said.violated(), Vec::<String>::new(), "{}", said.stdout);
        assert_eq!(said.code, 0, "{}\n{}", said.stdout, said.stderr);
        let properties = said.json()["properties"].as_array().unwrap().clone();
        for property in properties {
            assert_eq!(property["standing"], "not observed", "{property}");
        }
        let counts = &said.json()["counts"];
        for counter in [
            "replays",
            "cuts_in_a_request",
            "cuts_in_an_answer",
            "hang_ups_while_waiting",
            "faults_behind_the_target",
            "http_2_streams_reset",
            "of_all_cuts_closed_in_order",
            "connections_half_closed",
        ] {
            assert!(counts[counter].as_u64().unwrap() > 0, "{counter}: {counts}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_oracle_the_verdict_is_inconclusive() {
    let shim = free_address();
    let gateway = Gateway::start(&shim);
    let count_url = format!("http://{}/count?marker={{marker}}", free_address());
    let arguments =
        [gateway.url.as_str(), "--only", "T1", "--count-url", &count_url, "--format", "json"];
    let said = torture(&arguments).await;
    assert_eq!(
        (said.code, said.json()["verdict"].as_str()),
        (4, Some("inconclusive")),
        "{}",
        said.stderr
    );
}
