//! A connection that is never made has sent nothing, however short an attempt is.

use std::time::Duration;

use onlyonce::client::{Client, Retries, SendError};
use tokio::net::TcpListener;

// R159, R161
#[tokio::test]
async fn an_attempt_that_ends_during_the_tls_handshake_was_not_sent() {
    // It takes connections and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/charges", listener.local_addr().unwrap());
    let retries = Retries::new()
        .with_attempts(1)
        .with_attempt_timeout(Duration::from_millis(400))
        .with_window(Duration::from_secs(86_400));
    let end = Client::new().with_retries(retries).post(&url).body("amount=1").send().await;
    assert!(matches!(end, Err(SendError::NotThrough { .. })), "{end:?}");
}
