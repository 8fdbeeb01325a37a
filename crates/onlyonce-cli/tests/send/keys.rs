//! Where the key comes from: `--key`, `--derive`, or a header as one writes it for curl.

use onlyonce::key::Key;

use crate::lab::{Gateway, Said, Service, send};

// R149
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_a_header_is_the_key_so_the_same_command_twice_is_one_charge() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    let gateway = Gateway::start(folder.path(), service.address);
    let url = format!("http://{}/charges", gateway.address);
    let spellings: [&[&str]; 5] = [
        &["-H", "Idempotency-Key: order-17"],
        &["-H", "idempotency-key:\"order-17\""],
        &["--key", "order-17"],
        &["--key", "order-17", "-H", "Idempotency-Key: \"order-17\""],
        &["-H", "Idempotency-Key: order-17", "-H", "IDEMPOTENCY-KEY: \"order-17\""],
    ];
    for key in spellings {
        let said = send(&[&["POST", &url, "--json", "1"], key].concat());
        assert_eq!((said.code, said.stdout.as_str()), (0, "paid\n"), "{key:?}: {}", said.stderr);
        assert!(said.stderr.contains("key order-17"), "{}", said.stderr);
    }
    assert_eq!(service.executions("order-17"), 1);

    let derived = Key::derive(["invoice", "17"]);
    let header = format!("Idempotency-Key: {}", derived.as_str());
    let said = send(&[
        "POST", &url, "--json", "1", "--derive", "invoice", "--derive", "17", "-H", &header,
    ]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(service.executions(derived.as_str()), 1);
}

#[test]
fn two_different_keys_are_refused_and_nothing_is_sent() {
    let wrong: [(&[&str], &str); 6] = [
        (&["--key", "a", "-H", "Idempotency-Key: b"], "different keys"),
        (&["--derive", "invoice", "-H", "Idempotency-Key: b"], "different keys"),
        (&["-H", "Idempotency-Key: a", "-H", "idempotency-key: b"], "different keys"),
        (&["-H", "Idempotency-Key: a, b"], "more than one key"),
        (&["-H", "Idempotency-Key:"], "empty"),
        (&["-H", "Idempotency-Key: \"a"], "quoted"),
    ];
    for (arguments, told) in wrong {
        let target = ["POST", "http://127.0.0.1:1/", "--json", "1"];
        let Said { code, stderr, .. } = send(&[&target, arguments].concat());
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stderr.contains(told), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("attempt"), "{stderr}");
    }
}

#[test]
fn a_key_cannot_be_given_for_the_operations_of_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    let arguments =
        ["--resume", "--journal", file.to_str().unwrap(), "-H", "Idempotency-Key: order-17"];
    let Said { code, stderr, .. } = send(&arguments);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("Idempotency-Key"), "{stderr}");
}

// R150: an unset variable would give all invoices one key.
#[test]
fn an_empty_part_of_a_key_is_refused() {
    for parts in [&["invoice", ""][..], &["", "17"], &["invoice", " "]] {
        let parts: Vec<_> = parts.iter().flat_map(|part| ["--derive", part]).collect();
        let target = ["POST", "http://127.0.0.1:1/", "--json", "1"];
        let Said { code, stderr, .. } = send(&[&target, &parts[..]].concat());
        assert_eq!(code, 2, "{parts:?}: {stderr}");
        assert!(stderr.contains("--derive"), "{stderr}");
    }
}
