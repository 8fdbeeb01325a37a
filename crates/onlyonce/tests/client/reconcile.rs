//! What only a person can settle is not sent again, by whichever way.

use onlyonce::client::{Journal, SendOutcome, Stop};
use onlyonce::key::Key;

use crate::environment::TestTime;
use crate::server::{Server, with};

// R161; threats J3, K6
#[tokio::test]
async fn what_needs_reconciling_is_not_sent_again_by_the_same_command() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = Journal::open(folder.path().join("journal")).await.unwrap();
    let server = Server::start(&time, [with(500, "idempotent-replayed", "true")]).await;
    let once = time.client().with_journal(journal.clone());
    let charge = once.post(&server.url()).with_key(Key::derive(["order", "1"]));
    for _ in 0..3 {
        let end = charge.clone().send().await.unwrap();
        assert!(matches!(end, SendOutcome::Unknown { stop: Stop::Closed, .. }), "{end:?}");
    }
    assert_eq!(server.received().len(), 1);
    let [open] = &journal.entries().await.unwrap()[..] else { panic!("it is gone") };
    assert!(open.needs_reconciling);
}
