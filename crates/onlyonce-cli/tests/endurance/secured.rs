//! A Redis behind TLS: used if its certificate is trusted, refused with a sentence if not.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use servers::Redis;

#[test]
fn a_redis_behind_tls_is_used_if_its_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    make_certificate(folder.path());
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| path(folder.path(), name));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _redis = Redis::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        "no",
    ]);
    let store = format!("rediss://localhost:{port}");
    let trusted = sweep(&store, &certificate);
    assert!(trusted.status.success(), "{trusted:?}");
    let nobody = path(folder.path(), "empty.pem");
    fs::write(&nobody, "").unwrap();
    let refused = sweep(&store, &nobody);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.starts_with("onlyonce: the store cannot be opened: "), "{said}");
}

fn sweep(store: &str, trusted: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command
        .args(["sweep", "--store", store])
        .env("SSL_CERT_FILE", trusted)
        .env_remove("SSL_CERT_DIR");
    command.output().unwrap()
}

/// Readable by the unprivileged user that servers run as.
pub(crate) fn make_certificate(folder: &Path) {
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| path(folder, name));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args([
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
    for file in [Path::new(&certificate), Path::new(&key)] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}
