//! Does the harness see anything? A gateway that is told to do what it must not is found out.

use onlyonce::CrashPoint;

use crate::clients::Load;
use crate::lab::Lab;
use crate::stores::Kind;

const CLIENTS: usize = 32;
/// Everything is sent again, also to the service that recognises nothing.
const POLICY: &str = "lease = \"1s\"\nupstream_timeout = \"20s\"\nrecovery = \"redrive\"";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gateway_that_sends_again_what_may_have_been_executed_is_found_out() {
    let mut lab = Lab::with_policy(Kind::Sqlite, POLICY).await;
    let load = Load::start(&lab.clients, CLIENTS);
    for _ in 0..2 {
        lab.kill_at(CrashPoint::AfterUpstream).await;
    }
    load.end().await;
    let (verdict, _) = lab.verdict(&[]).await;
    println!("{verdict}");
    let violation = verdict.violation.expect("something was executed twice");
    assert_eq!(violation.property, "I1", "{}", violation.timeline);
    assert!(violation.timeline.contains("FAULT kill"), "{}", violation.timeline);
}
