//! What is said of certificates and keys that are wrong, before anything is served.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{Authority, MUTUAL, PLAIN};

/// The exit code of `onlyonce config check`, and what it says on stderr.
fn check(folder: &Path, text: &str) -> (Option<i32>, String) {
    fs::write(folder.join("a.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let said = command.args(["config", "check", "a.toml"]).current_dir(folder).output().unwrap();
    (said.status.code(), String::from_utf8(said.stderr).unwrap())
}

fn folder() -> (TempDir, Authority) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    authority.server("server", "localhost");
    (folder, authority)
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (folder, authority) = folder();
    let (folder, good) = (folder.path(), (Some(0), String::new()));
    assert_eq!(check(folder, MUTUAL), good);
    authority.key("other");
    fs::write(folder.join("empty.pem"), "").unwrap();
    fs::write(
        folder.join("broken.pem"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    for (from, to, told) in [
        ("server.pem", "none.pem", "none.pem: the file cannot be read: No such file"),
        ("server.key", "none.key", "none.key: the file cannot be read: No such file"),
        ("authority.pem", "none.pem", "none.pem: the file cannot be read: No such file"),
        ("server.pem", "empty.pem", "empty.pem: there is no certificate in it"),
        ("server.pem", "broken.pem", "broken.pem: it cannot be used: "),
        ("authority.pem", "broken.pem", "broken.pem: it cannot be used: "),
        ("server.pem", "server.key", "server.key: there is no certificate in it"),
        ("server.key", "server.pem", "server.pem: there is no private key in it"),
        (
            "server.key",
            "other.key",
            "other.key: it is not the private key of the certificate in server.pem",
        ),
    ] {
        let (code, said) = check(folder, &MUTUAL.replace(from, to));
        assert!(code == Some(2) && said.starts_with(&format!("a.toml: {told}")), "{to}: {said}");
    }
    let upstream =
        "[upstream_tls]\ncert = \"server.pem\"\nkey = \"other.key\"\nca = \"authority.pem\"\n";
    assert!(check(folder, upstream).1.contains("other.key: it is not the private key"));
    let admin = "[admin]\ntls = { cert = \"server.pem\", key = \"other.key\" }\n";
    assert!(check(folder, admin).1.contains("other.key: it is not the private key"));
}

#[test]
fn what_is_careless_is_a_warning() {
    let (folder, authority) = folder();
    authority.expired("server", "/CN=server");
    let key = folder.path().join("server.key");
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = check(folder.path(), PLAIN);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        said,
        "a.toml: warning: server.pem: this certificate expired on 2020-02-01T00:00:00Z\n\
         a.toml: warning: server.key: every user of this machine may read this private key; chmod 600 it\n"
    );
}
