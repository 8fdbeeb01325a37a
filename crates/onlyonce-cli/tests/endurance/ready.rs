//! A gateway whose store is away is live and not ready, and becomes ready again by itself.

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
