//! The admin listener behind TLS, and the commands that ask it.

use std::process::{Command, Output};

use proof::client;

use super::client::{certificates, shown};
use super::{Lab, PLAIN};
use crate::upstream::QUICK;

const ADMIN: &str =
    "tls = { cert = \"admin.pem\", key = \"admin.key\", client_ca = \"authority.pem\" }\n";

async fn lab() -> Lab {
    let t = Lab::start(PLAIN).await;
    t.authority.server("admin", "localhost");
    t.authority.client("operator", "/CN=operator");
    t
}

/// `onlyonce COMMAND` at the admin listener, with these flags.
fn onlyonce(t: &Lab, command: &str, flags: &str) -> Output {
    let mut onlyonce = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let admin = format!("https://localhost:{}", t.gateway.admin.port());
    onlyonce.args(command.split(' ')).args(["--admin", &admin]).args(flags.split_whitespace());
    onlyonce.current_dir(t.folder.path());
    tokio::task::block_in_place(|| onlyonce.output()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_reach_an_admin_listener_with_its_own_authority() {
    let mut t = lab().await;
    t.configure(&format!("{ADMIN}[audit]\n{PLAIN}"));
    // [admin] needs a restart.
    t.gateway.kill().await;
    t.gateway = crate::gateway::Gateway::listening(t.folder.path(), "127.0.0.1:0").await;
    t.client(None).post(t.gateway.address, QUICK, "operation-1").await.unwrap();
    let known = "--admin-ca authority.pem --admin-cert operator.pem --admin-key operator.key";
    for command in ["keys list", "keys show operation-1", "sweep", "audit", "audit heads"] {
        let said = onlyonce(&t, command, known);
        assert!(said.status.success(), "{command}: {said:?}");
    }
    let listed = onlyonce(&t, "keys list", known);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("operation-1"), "{listed:?}");
    for (flags, code, told) in [
        ("", 3, "UnknownIssuer"),
        ("--admin-ca authority.pem", 3, "no answer from https://localhost:"),
        ("--admin-ca none.pem", 2, "none.pem: the file cannot be read"),
        ("--admin-ca authority.pem --admin-cert operator.pem", 2, "belong together"),
    ] {
        let said = onlyonce(&t, "keys list", flags);
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.status.code() == Some(code) && error.contains(told), "{flags}: {said:?}");
    }
    assert!(client::post_without_key(t.gateway.admin, "/api/v1/sweep", "").await.is_err());

    // Its certificate is read again too.
    t.authority.server("admin", "localhost");
    assert!(t.reload().await.contains("is in force"));
    let operator = t.client(Some("operator"));
    let now = certificates(&t.path("admin.pem")).remove(0);
    assert_eq!(shown(&operator.connect(t.gateway.admin).await.unwrap()), now);
}
