//! An outcome is printed before the journal lets go of it.

use std::fs::File;
use std::io::Read;

use crate::lab::{Gateway, Said, Service, answer, onlyonce, scripted, send};

/// A replay of the answer that was printed in part, or not at all.
const REPLAYED: &str = "idempotent-replayed: true";

// threat K11
#[test]
fn an_outcome_that_was_not_printed_stays_in_the_journal_and_a_resume_prints_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let file = path.to_str().unwrap();
    let paid = [&answer(201, &[], "ch_1")[..], &answer(201, &[REPLAYED], "ch_1")];
    for (format, acts) in [("text", paid), ("json", paid)] {
        let url = scripted(&acts);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let arguments = ["send", "POST", &url, "--journal", file, "--format", format, "--quiet"];
        let sent = onlyonce(&arguments).stdout(full).output().unwrap();
        let stderr = String::from_utf8(sent.stderr).unwrap();
        assert_eq!(sent.status.code(), Some(0), "it was executed: {stderr}");
        assert!(stderr.contains("stays in the journal"), "{stderr}");
        assert!(send(&["--list", "--journal", file]).stdout.contains("in doubt"));

        let Said { code, stdout, .. } = send(&["--resume", "--journal", file, "--format", "json"]);
        assert_eq!(code, 0);
        let told: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((&told["outcome"], &told["body"]), (&"replayed".into(), &"ch_1".into()));
        assert_eq!(send(&["--list", "--journal", file]).stdout, "");
    }
}

// threat K11
#[test]
fn a_resume_that_cannot_print_keeps_every_operation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let file = path.to_str().unwrap();
    for key in ["order-1", "order-2"] {
        let url = scripted(&["", &answer(201, &[], "paid"), &answer(201, &[REPLAYED], "paid")]);
        let first = ["POST", &url, "--key", key, "--journal", file, "--max-attempts", "1"];
        assert_eq!(send(&first).code, 4);
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let arguments = ["send", "--resume", "--journal", file];
    let resumed = onlyonce(&arguments).stdout(full).output().unwrap();
    let stderr = String::from_utf8(resumed.stderr).unwrap();
    assert_eq!(resumed.status.code(), Some(3), "one was skipped: {stderr}");
    assert!(stderr.contains("could not be printed"), "{stderr}");
    assert_eq!(send(&["--list", "--journal", file]).stdout.lines().count(), 3);

    let said = send(&["--resume", "--journal", file]);
    assert_eq!(said.stdout, "order-1 replayed 201\norder-2 fresh 201\n", "{}", said.stderr);
}

// threats J1, K11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_prints_the_outcome_is_printed_by_a_resume() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let file = path.to_str().unwrap();
    let service = Service::start().await;
    let gateway = Gateway::start(folder.path(), service.address);
    let url = format!("http://{}/receipts", gateway.address);
    let arguments = ["send", "POST", &url, "--key", "order-1", "--journal", file];
    let mut child = onlyonce(&arguments).spawn().unwrap();
    // The receipt is larger than a pipe, so that after its first byte the rest is still to be written.
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    let said = send(&["--resume", "--journal", file]);
    assert_eq!(said.stdout, "order-1 replayed 201\n", "{}", said.stderr);
    assert_eq!(service.executions("order-1"), 1);
}
