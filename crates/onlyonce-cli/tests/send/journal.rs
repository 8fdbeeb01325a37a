//! The journal from the command line: what it holds, and what became of each operation.

use crate::lab::{LOSE, Said, answer, scripted, send};

/// A journal with an operation in doubt, one that never got through, and one for a person to look at.
fn filled(file: &str) {
    let one = |url: &str, key: &str, code: i32| {
        let secrets = ["-H", "Authorization: Bearer secret-token", "--json", "\"secret-body\""];
        let arguments = ["POST", url, "--key", key, "--journal", file, "--max-attempts", "1"];
        let said = send(&[&arguments[..], &secrets].concat());
        assert_eq!(said.code, code, "{}", said.stderr);
    };
    one(&format!("{}?token=secret-query", scripted(&[LOSE])), "order-1", 4);
    one("http://127.0.0.1:1/charges", "order-2", 3);
    one(&scripted(&[&answer(500, &["idempotent-replayed: true"], "")]), "order-3", 4);
}

#[test]
fn the_journal_is_listed_without_credentials_and_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let file = path.to_str().unwrap();
    filled(file);

    let Said { code, stdout, stderr } = send(&["--list", "--journal", file]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.len(), 4, "a heading and three operations: {stdout}");
    for (line, told) in [
        (lines[1], ["order-1", "in doubt", "POST http://127.0.0.1:"]),
        (lines[2], ["order-2", "not executed", "/charges"]),
        (lines[3], ["order-3", "needs reconciling", "/charges"]),
    ] {
        assert!(told.iter().all(|told| line.contains(told)), "{line}");
    }

    let json = send(&["--list", "--journal", file, "--format", "json"]).stdout;
    let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(first["key"], "order-1");
    assert_eq!(first["state"], "in_doubt");
    assert_eq!(first["attempts"], 1);
    assert!(first["first_sent"].as_str().unwrap().ends_with('Z'), "{first}");
    for shown in [&stdout, &json] {
        assert!(!shown.contains("secret"), "{shown}");
    }
}

#[test]
fn a_journal_that_is_not_there_is_not_called_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    for command in [&["--list"][..], &["--resume"], &["--forget", "order-1"]] {
        let said = send(&[command, &["--journal", path.to_str().unwrap()]].concat());
        assert_eq!(said.code, 2, "{command:?}: {}", said.stderr);
        assert!(said.stderr.contains("does not exist"), "{}", said.stderr);
        assert!(!path.exists());
    }
}

// R151, R161; threat K6
#[test]
fn a_resume_names_the_key_of_each_line_and_keeps_what_is_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let file = path.to_str().unwrap();
    let url =
        scripted(&[LOSE, &answer(404, &[], ""), &answer(402, &["idempotent-replayed: true"], "")]);
    let first = ["POST", &url, "--key", "order-1", "--journal", file, "--max-attempts", "1"];
    assert_eq!(send(&first).code, 4);

    let said = send(&["--resume", "--journal", file]);
    assert_eq!((said.code, said.stdout.as_str()), (4, "order-1 unknown 404\n"), "{}", said.stderr);
    for line in said.stderr.lines() {
        assert!(line.starts_with("onlyonce: order-1: "), "{line}");
    }
    let said = send(&["--resume", "--journal", file]);
    assert_eq!(said.stdout, "order-1 rejected 402\n", "{}", said.stderr);
    assert_eq!(said.code, 1);
    assert_eq!(send(&["--list", "--journal", file]).stdout, "");
}

#[test]
fn a_resume_with_nothing_to_do_is_silent_if_asked_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let file = path.to_str().unwrap();
    let paid = scripted(&[&answer(201, &[], "")]);
    assert_eq!(send(&["POST", &paid, "--journal", file]).code, 0);
    let said = send(&["--resume", "--journal", file]);
    assert!(said.stderr.contains("nothing is open"), "{}", said.stderr);
    let said = send(&["--resume", "--journal", file, "--quiet"]);
    assert_eq!((said.code, said.stderr.as_str(), said.stdout.as_str()), (0, "", ""));
}

// R158; threat J2
#[test]
fn a_request_that_is_older_than_the_window_is_not_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let file = path.to_str().unwrap();
    let url = scripted(&[LOSE]);
    let first = ["POST", &url, "--key", "order-1", "--journal", file, "--max-attempts", "1"];
    assert_eq!(send(&first).code, 4);
    let said = send(&["--resume", "--journal", file, "--window", "1ms"]);
    assert_eq!((said.code, said.stdout.as_str()), (4, "order-1 unknown -\n"), "{}", said.stderr);
    assert!(said.stderr.contains("Reconcile"), "{}", said.stderr);
}

// R161; threat K6
#[test]
fn another_request_with_a_key_in_doubt_is_not_called_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let pay = |url: &str, amount: &str, key: &str| {
        let more = ["--key", key, "--journal", path.to_str().unwrap(), "--max-attempts", "1"];
        send(&[&["POST", url, "--json", amount], &more[..]].concat())
    };
    let url = scripted(&[LOSE]);
    assert_eq!(pay(&url, "1", "order-1").code, 4);
    let said = pay(&url, "2", "order-1");
    assert_eq!(said.code, 4, "{}", said.stderr);
    let told = "The journal has this key with a different request, which may have been executed.";
    assert!(said.stderr.contains(told), "{}", said.stderr);
    assert!(!said.stderr.contains("Fix the journal"), "{}", said.stderr);

    // Nothing came of this one.
    let url = "http://127.0.0.1:1/charges";
    assert_eq!(pay(url, "1", "order-2").code, 3);
    let said = pay(url, "2", "order-2");
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(said.stderr.contains("a key of its own"), "{}", said.stderr);
}
