//! Signs certificates, with the command openssl.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A root, its key, and the folder where what it signs is put.
pub(super) struct Authority {
    folder: PathBuf,
    name: String,
}

impl Authority {
    /// One with its certificate in `NAME.pem`.
    pub(super) fn new(folder: &Path, name: &str) -> Self {
        let authority = Self { folder: folder.to_owned(), name: name.to_owned() };
        fs::write(folder.join("ca.cnf"), CONFIG).unwrap();
        fs::write(folder.join("index.txt"), "").unwrap();
        let (subject, key) = (format!("/O=onlyonce/CN={name}"), format!("{name}.key"));
        authority.openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        let certificate = format!("{name}.pem");
        authority.openssl(&[
            "req",
            "-x509",
            "-key",
            &key,
            "-days",
            "2",
            "-subj",
            &subject,
            "-out",
            &certificate,
        ]);
        authority
    }

    /// A server's certificate in `FILE.pem`, and its key in `FILE.key`.
    pub(super) fn server(&self, file: &str, names: &str) {
        self.key(file);
        let names: Vec<_> = names.split(' ').map(|name| format!("DNS:{name}")).collect();
        let names = format!("subjectAltName={},IP:127.0.0.1", names.join(","));
        self.sign(file, &format!("/CN={file}"), &names, NOW);
    }

    /// A client's certificate of this subject.
    pub(super) fn client(&self, file: &str, subject: &str) {
        self.key(file);
        self.renew(file, subject);
    }

    /// Another certificate for the key that is in `FILE.key`.
    pub(super) fn renew(&self, file: &str, subject: &str) {
        self.sign(file, subject, "extendedKeyUsage=clientAuth", NOW);
    }

    /// One that is over.
    pub(super) fn expired(&self, file: &str, subject: &str) {
        self.key(file);
        self.sign(file, subject, "subjectAltName=DNS:localhost", PAST);
    }

    pub(super) fn key(&self, file: &str) {
        let key = format!("{file}.key");
        self.openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        fs::set_permissions(self.folder.join(key), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn sign(&self, file: &str, subject: &str, extension: &str, [from, until]: [&str; 2]) {
        let [request, key, certificate] =
            ["csr", "key", "pem"].map(|kind| format!("{file}.{kind}"));
        self.openssl(&["req", "-new", "-key", &key, "-subj", subject, "-out", &request]);
        fs::write(self.folder.join("extensions.cnf"), extension).unwrap();
        let [own, own_key] = ["pem", "key"].map(|kind| format!("{}.{kind}", self.name));
        self.openssl(&[
            "ca",
            "-batch",
            "-config",
            "ca.cnf",
            "-notext",
            "-extfile",
            "extensions.cnf",
            "-cert",
            &own,
            "-keyfile",
            &own_key,
            "-startdate",
            from,
            "-enddate",
            until,
            "-in",
            &request,
            "-out",
            &certificate,
        ]);
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        let made = command.args(arguments).current_dir(&self.folder).output();
        let made = made.expect("openssl is installed");
        assert!(made.status.success(), "{arguments:?}: {made:?}");
    }
}

const NOW: [&str; 2] = ["20200101000000Z", "20991231235959Z"];
const PAST: [&str; 2] = ["20200101000000Z", "20200201000000Z"];
const CONFIG: &str = "[ca]\ndefault_ca = d\n[d]\ndatabase = index.txt\nnew_certs_dir = .\nunique_subject = no\n\
                      policy = p\ndefault_md = sha256\nrand_serial = yes\npreserve = yes\n[p]\ncommonName = optional\n\
                      organizationName = optional\n";
