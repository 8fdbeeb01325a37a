//! A gateway whose store is away is live and not ready, and becomes ready again by itself; and what a gateway says of the
//! files that it may open.

use std::fs;
use std::process::{Command, Stdio};

use servers::Redis;

use crate::gateway::Gateway;
use crate::upstream::Upstream;
use crate::within;

// R104, R190
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_is_not_ready_while_its_store_is_away() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), Upstream::start().await);
    let mut redis = Redis::start(&[]);
    let top = format!("store = \"{}\"", redis.url());
    let gateway = Gateway::with_top(folder.path(), upstream.address, &top, "").await;
    until_ready_is(&gateway, "HTTP/1.1 200 ", "ready\n").await;
    redis.kill();
    until_ready_is(&gateway, "HTTP/1.1 503 ", "the store does not answer\n").await;
    assert!(gateway.admin("/health/live").await.starts_with("HTTP/1.1 200 "));
    redis.start_again();
    until_ready_is(&gateway, "HTTP/1.1 200 ", "ready\n").await;
}

async fn until_ready_is(gateway: &Gateway, begin: &str, end: &str) {
    within(end, async {
        loop {
            let told = gateway.admin("/health/ready").await;
            if told.starts_with(begin) && told.ends_with(end) {
                return;
            }
        }
    })
    .await;
}

// threat K28
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_raises_its_soft_limit_of_files_and_says_what_it_needs() {
    let upstream = Upstream::start().await;
    for (limit, at_least) in [("ulimit -S -n 256", 10_000), ("ulimit -n 300", 300)] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        let serve = format!(
            "{limit}; exec \"$0\" serve --upstream http://{} --listen 127.0.0.1:0 --admin 127.0.0.1:0",
            upstream.address
        );
        command.args(["-c", &serve, env!("CARGO_BIN_EXE_onlyonce")]);
        command.current_dir(folder.path()).stdin(Stdio::null());
        let gateway = Gateway::running(folder.path(), &mut command).await;
        let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let soft: u64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
        assert!(soft >= at_least, "{line}");
        let told = gateway.errors();
        let has_few = at_least == 300;
        let needs = "this process may open 300 files, and needs 20320";
        assert_eq!(told.contains(needs), has_few, "{told}");
    }
}
