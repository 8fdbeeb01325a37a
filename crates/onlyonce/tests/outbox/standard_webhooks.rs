//! The official libraries of Standard Webhooks take our signatures, and we take theirs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use http::request::Parts;
use http::{HeaderMap, Request};
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::webhook::{Provider, Verifier};
use serde_json::{Value, json};

/// A library, in its language.
struct Library {
    program: String,
    script: &'static str,
}

impl Library {
    /// Those that are installed; scripts/test installs them.
    fn installed() -> Vec<Self> {
        let python = format!("{LANGUAGES}/python/bin/python");
        let all = [
            Self { program: python, script: "standard_webhooks.py" },
            Self { program: "node".to_owned(), script: "standard_webhooks.mjs" },
        ];
        all.into_iter().filter(Self::is_installed).collect()
    }

    fn is_installed(&self) -> bool {
        let signed = self.run(&["sign", SECRET, "msg_0"], "{}");
        let is_installed = signed.is_some_and(|output| output.status.success());
        if !is_installed {
            println!("SKIPPED: standardwebhooks is not installed for {}", self.program);
        }
        is_installed
    }

    fn run(&self, arguments: &[&str], input: &str) -> Option<Output> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outbox").join(self.script);
        let mut process = Command::new(&self.program)
            .arg(script)
            .args(arguments)
            .env("PACKAGES", format!("{LANGUAGES}/node"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        // A script that fails at once reads nothing.
        let _ = process.stdin.take()?.write_all(input.as_bytes());
        process.wait_with_output().ok()
    }

    /// Whether the library takes the delivery for genuine.
    fn takes(&self, headers: &HeaderMap, body: &str) -> bool {
        let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let headers = names.map(|name| (name, headers[name].to_str().unwrap()));
        let headers = Value::from_iter(headers);
        let delivery = json!({ "body": body, "headers": headers }).to_string();
        self.run(&["verify", SECRET], &delivery).unwrap().status.success()
    }

    /// A delivery that the library has signed.
    fn signed(&self, id: &str, body: &str) -> Parts {
        let output = self.run(&["sign", SECRET, id], body).unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let request = Request::post("/hooks")
            .header("webhook-id", id)
            .header("webhook-timestamp", said["timestamp"].as_str().unwrap())
            .header("webhook-signature", said["signature"].as_str().unwrap());
        request.body(()).unwrap().into_parts().0
    }
}

/// Judges a delivery that the relay has sent.
pub(crate) fn is_taken_by_all(headers: &HeaderMap, body: &str) {
    for library in Library::installed() {
        assert!(library.takes(headers, body), "{}", library.program);
        assert!(!library.takes(headers, &format!("{body} ")), "{}", library.program);
    }
}

// R140
#[test]
fn a_delivery_that_an_official_library_signed_is_taken() {
    let verifier = Verifier::new(Provider::Standard, [SECRET]).unwrap();
    let body = r#"{"type":"charge.paid","data":{"name":"Jürgen"}}"#;
    for library in Library::installed() {
        let (head, now) = (library.signed("msg_1", body), SystemClock.wall());
        assert!(verifier.verify(&head, body.as_bytes(), now).is_ok(), "{}", library.program);
        assert!(verifier.verify(&head, b"{}", now).is_err(), "{}", library.program);
        let stranger = Verifier::new(Provider::Standard, [OTHER_SECRET]).unwrap();
        assert!(stranger.verify(&head, body.as_bytes(), now).is_err(), "{}", library.program);
    }
}

const LANGUAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/languages");
/// "a key of twenty-four byt".
pub(crate) const SECRET: &str = "whsec_YSBrZXkgb2YgdHdlbnR5LWZvdXIgYnl0";
const OTHER_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
