//! Certificates that change while clients are connected.

use std::fs;

use futures_util::future::join_all;
use proof::tier::tiered;

use super::client::{certificates, shown};
use super::{Lab, MUTUAL, PLAIN};
use crate::upstream::QUICK;
use crate::{BODY, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connections_get_the_new_certificate_and_no_open_one_ends() {
    let t = Lab::start(PLAIN).await;
    let (client, address) = (t.client(None), t.gateway.address);
    let before = certificates(&t.path("server.pem")).remove(0);
    let mut open = Vec::new();
    for _ in 0..tiered(1_000) {
        open.push(client.open(address).await.unwrap());
    }
    t.authority.server("server", "localhost");
    let now = certificates(&t.path("server.pem")).remove(0);
    assert_ne!(before, now);
    assert_eq!(shown(&client.connect(address).await.unwrap()), before, "nobody has said so yet");
    let told = t.reload().await;
    assert!(
        told.ends_with("is in force: no route differs; certificates were read again"),
        "{told}"
    );
    assert_eq!(shown(&client.connect(address).await.unwrap()), now);
    let asking = open.iter_mut().enumerate().map(async |(n, connection)| {
        connection.post(QUICK, &format!("operation-{n:016x}"), BODY).await.unwrap().status
    });
    let statuses = within("the answers", join_all(asking)).await;
    assert!(statuses.iter().all(|status| *status == 201), "{statuses:?}");
    println!("{} connections stayed open", statuses.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used_is_not_taken_and_the_old_certificate_stays() {
    let t = Lab::start(PLAIN).await;
    let (client, address) = (t.client(None), t.gateway.address);
    let before = certificates(&t.path("server.pem")).remove(0);
    let good = fs::read(t.path("server.key")).unwrap();
    t.authority.key("server");
    let told = t.reload().await;
    assert!(
        told.ends_with("server.key: it is not the private key of the certificate in server.pem"),
        "{told}"
    );
    fs::write(t.path("server.key"), "nothing").unwrap();
    assert!(t.reload().await.contains("server.key: there is no private key in it"));
    fs::write(t.path("server.key"), good).unwrap();
    t.configure("");
    let told = t.reload().await;
    assert!(told.ends_with("[tls] cannot change while the gateway runs: restart it"), "{told}");
    assert_eq!(shown(&client.connect(address).await.unwrap()), before);
    assert_eq!(client.post(address, QUICK, "operation-1").await.unwrap().status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_is_no_longer_trusted_lets_nobody_in_again() {
    let t = Lab::start(MUTUAL).await;
    t.authority.client("alice", "/CN=alice");
    let (alice, address) = (t.client(Some("alice")), t.gateway.address);
    let mut open = alice.open(address).await.unwrap();
    assert_eq!(open.post(QUICK, "operation-1", BODY).await.unwrap().status, 201);
    let next = super::Authority::new(t.folder.path(), "next");
    next.client("bob", "/CN=bob");
    t.configure(&MUTUAL.replace("authority.pem", "next.pem"));
    assert!(t.reload().await.contains("is in force"));
    assert!(
        alice.post(address, QUICK, "operation-2").await.is_err(),
        "also not by a resumed session"
    );
    assert_eq!(
        t.client(Some("bob")).post(address, QUICK, "operation-3").await.unwrap().status,
        201
    );
    assert_eq!(open.post(QUICK, "operation-4", BODY).await.unwrap().status, 201);
    assert!(t.upstream.executions("operation-2").is_empty());
}
