//! Which TLS is spoken, seen by openssl.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use rustls::HandshakeKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::Client;
use super::{Lab, MUTUAL, PLAIN};
use crate::within;

/// What `openssl s_client` says of a connection that ends at once.
fn s_client(address: SocketAddr, folder: &Path, arguments: &str) -> (bool, String) {
    let mut command = Command::new("openssl");
    command
        .args(["s_client", "-connect", &address.to_string(), "-CAfile", "authority.pem"])
        .args(arguments.split(' '))
        .current_dir(folder)
        .stdin(Stdio::null());
    let said = tokio::task::block_in_place(|| command.output()).expect("openssl is installed");
    let text = [said.stdout, said.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (said.status.success(), text.concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_tls_1_2_and_1_3_with_strong_ciphers_are_spoken() {
    let t = Lab::start(PLAIN).await;
    let say = |arguments: &str| s_client(t.gateway.address, t.folder.path(), arguments);
    for (arguments, version) in [
        ("-tls1_2 -verify_return_error", "TLSv1.2"),
        ("-tls1_3 -verify_return_error", "TLSv1.3"),
        ("-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2"),
    ] {
        let (is_good, said) = say(arguments);
        assert!(is_good && said.contains(&format!("New, {version}")), "{arguments}: {said}");
        assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
    }
    // The client would, and the server says no.
    for (arguments, alert) in [
        ("-tls1 -cipher ALL:@SECLEVEL=0", "SSL alert number"),
        ("-tls1_1 -cipher ALL:@SECLEVEL=0", "SSL alert number"),
        ("-tls1_2 -cipher AES128-SHA:@SECLEVEL=0", "alert handshake failure"),
        ("-tls1_2 -cipher AES128-GCM-SHA256", "alert handshake failure"),
        ("-tls1_2 -cipher ECDHE-ECDSA-AES256-SHA:@SECLEVEL=0", "alert handshake failure"),
        ("-tls1_2 -cipher aNULL:@SECLEVEL=0", "alert handshake failure"),
        ("-tls1_2 -cipher eNULL:@SECLEVEL=0", "alert handshake failure"),
    ] {
        let (is_good, said) = say(arguments);
        assert!(!is_good && said.contains(alert), "{arguments}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_is_negotiated_before_http_1() {
    let t = Lab::start(PLAIN).await;
    let say = |arguments: &str| s_client(t.gateway.address, t.folder.path(), arguments);
    for (arguments, told) in [
        ("-alpn h2,http/1.1", "ALPN protocol: h2"),
        ("-alpn http/1.1,h2", "ALPN protocol: h2"),
        ("-alpn http/1.1", "ALPN protocol: http/1.1"),
        ("-tls1_3", "No ALPN negotiated"),
        ("-alpn spdy/1", "alert no application protocol"),
    ] {
        let (_, said) = say(arguments);
        assert!(said.contains(told), "{arguments}: {said}");
    }
}

// R188
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_resumed_without_early_data_and_with_client_certificates_never() {
    // Under "auto" a certificate is a part of the caller, and a reload would not be taken.
    let nobody = "[policy]\nprincipal = \"none\"\n";
    let t = Lab::start(&format!("{PLAIN}{nobody}")).await;
    let client = t.client(None);
    assert!(resumes(&t, &client).await);
    assert!(!client.may_send_early_data());
    t.configure(&format!("{MUTUAL}{nobody}"));
    assert!(t.reload().await.contains("is in force"), "{}", t.gateway.errors());
    t.authority.client("alice", "/CN=alice");
    assert!(!resumes(&t, &t.client(Some("alice"))).await);
}

/// Whether the second connection of a client goes on with the session of the first.
async fn resumes(t: &Lab, client: &Client) -> bool {
    for _ in 0..2 {
        let mut stream = client.connect(t.gateway.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        within("an answer", stream.read_to_end(&mut answer)).await.unwrap();
        if stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed) {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_certificates_a_client_gets_the_one_with_its_name() {
    let certs = ["server.pem", "shop.pem", "wild.pem"];
    let keys = ["server.key", "shop.key", "wild.key"];
    let t = Lab::start(PLAIN).await;
    t.authority.server("shop", "shop.example www.shop.example");
    t.authority.server("wild", "*.pay.example shop.example");
    t.configure(&format!("[tls]\ncert = {certs:?}\nkey = {keys:?}\n"));
    let told = t.reload().await;
    assert!(told.contains("is in force"), "{told}");
    for (asked, subject) in [
        ("-servername localhost", "CN = server"),
        ("-servername shop.example", "CN = shop"),
        ("-servername WWW.Shop.example", "CN = shop"),
        ("-servername eu.pay.example", "CN = wild"),
        ("-servername a.b.pay.example", "CN = server"),
        ("-servername else.example", "CN = server"),
        ("-noservername", "CN = server"),
    ] {
        let (_, said) = s_client(t.gateway.address, t.folder.path(), asked);
        assert!(said.contains(&format!("subject={subject}\n")), "{asked}: {said}");
    }
}
