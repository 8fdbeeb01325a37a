//! What is said about an outcome is true of it, and cron stays silent.

use crate::lab::{Gateway, LOSE, Service, answer, scripted, send};

/// One operation against a script.
fn after(acts: &[&str]) -> crate::lab::Said {
    send(&["POST", &scripted(acts), "--json", "1", "--deadline", "5s"])
}

// R161; threat K6
#[test]
fn a_refusal_after_a_lost_answer_is_unknown() {
    for status in [400, 401, 403, 404, 413, 422] {
        let said = after(&[LOSE, &answer(status, &[], "no")]);
        assert_eq!(said.code, 4, "{status}: {}", said.stderr);
        assert!(said.stderr.contains("same key"), "{}", said.stderr);
        assert!(!said.stderr.contains("Nothing happened"), "{}", said.stderr);
    }
}

// R160; threat K6
#[test]
fn a_redirect_to_a_login_page_is_not_called_success() {
    for status in [301, 302] {
        let said = after(&[&answer(status, &["location: /login"], "")]);
        assert_eq!(said.code, 4, "{status}: {}", said.stderr);
        assert!(said.stderr.contains("/login"), "{}", said.stderr);
    }
    let said = after(&[LOSE, &answer(307, &["location: /v2/charges"], "")]);
    assert_eq!(said.code, 4, "{}", said.stderr);
    assert!(said.stderr.contains("/v2/charges"), "{}", said.stderr);
}

// R161
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reused_key_does_not_say_that_nothing_happened() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    let gateway = Gateway::start(folder.path(), service.address);
    let url = format!("http://{}/charges", gateway.address);
    assert_eq!(send(&["POST", &url, "--json", "1", "--key", "order-17"]).code, 0);
    let said = send(&["POST", &url, "--json", "2", "--key", "order-17"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(!said.stderr.to_lowercase().contains("nothing happened"), "{}", said.stderr);
    assert!(said.stderr.contains("another request"), "{}", said.stderr);
}

#[test]
fn a_held_unknown_ends_early_and_says_who_must_act() {
    let problem = "{\"code\":\"idempotency_outcome_unknown\",\"retry\":\"same-key\"}";
    let lines = ["content-type: application/problem+json", "retry-after: 60"];
    let held = answer(409, &lines, problem);
    let said = send(&["POST", &scripted(&[&held]), "--json", "1"]);
    assert_eq!(said.code, 4, "{}", said.stderr);
    assert!(said.stderr.contains("operator"), "{}", said.stderr);
    assert!(!said.stderr.contains("retrying"), "{}", said.stderr);
}

// An earlier run with the same key that has ended is not known, and its outcome not either.
#[test]
fn a_refusal_of_a_key_that_may_be_older_says_what_it_does_not_know() {
    let refused = answer(404, &[], "");
    let ask = |more: &[&str], act: &str| {
        let said = send(&[&["POST", &scripted(&[act]), "--json", "1"], more].concat());
        assert_eq!(said.code, 1, "{}", said.stderr);
        said.stderr.contains("If an earlier run with this key may have been")
    };
    assert!(ask(&["--key", "order-1"], &refused));
    assert!(ask(&["--derive", "order", "--derive", "1"], &refused));
    assert!(!ask(&[], &refused), "a random key has no earlier runs");
    let replayed = answer(404, &["idempotent-replayed: true"], "");
    assert!(!ask(&["--key", "order-1"], &replayed), "a replay speaks for all");
}

#[test]
fn retries_are_told_in_plain_words() {
    let said = after(&[LOSE, &answer(201, &["idempotent-replayed: true"], "paid\n")]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stderr.contains("retrying in "), "{}", said.stderr);
    for riddle in ["same again", "Mend", "It happened, once"] {
        assert!(!said.stderr.contains(riddle), "{}", said.stderr);
    }
}

// With --quiet cron mails nothing of a success, also not of one that took two attempts.
#[test]
fn quiet_says_nothing_on_success_and_everything_on_failure() {
    let quiet = |acts: &[&str], flag| {
        send(&["POST", &scripted(acts), "--json", "1", "--key", "order-1", flag])
    };
    for flag in ["--quiet", "-q"] {
        let said = quiet(&[LOSE, &answer(201, &[], "paid\n")], flag);
        assert_eq!((said.code, said.stderr.as_str(), said.stdout.as_str()), (0, "", "paid\n"));
    }
    let said = quiet(&[LOSE, &answer(402, &[], "no")], "--quiet");
    assert_eq!(said.code, 4);
    for told in ["key ", "attempt 1", "retrying", "attempt 2: 402", "unknown"] {
        assert!(said.stderr.contains(told), "{told}: {}", said.stderr);
    }
    let said = send(&["POST", "shop.test", "--quiet"]);
    assert_eq!(said.code, 2);
    assert!(said.stderr.contains("must begin with http://"), "{}", said.stderr);
}

// R161: the journal forgets what is settled, so it does not know of a run that succeeded.
#[test]
fn a_refusal_after_an_earlier_success_does_not_ask_for_a_new_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let url = scripted(&[&answer(201, &[], "paid\n"), &answer(404, &[], "")]);
    let invoice = ["--derive", "invoice", "--derive", "17", "--journal", path.to_str().unwrap()];
    let run = || send(&[&["POST", &url, "--json", "1"], &invoice[..]].concat());
    assert_eq!(run().code, 0);
    let said = run();
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(said.stderr.contains("check at the service"), "{}", said.stderr);
    assert!(!said.stderr.contains("send it with a new key"), "{}", said.stderr);
}

// A key that nobody was told is lost when the command is stopped, and the next run makes another one.
#[test]
fn quiet_without_a_key_or_a_journal_is_refused() {
    let said = send(&["POST", "http://127.0.0.1:1/", "--json", "1", "--quiet"]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(said.stderr.contains("random key"), "{}", said.stderr);
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let ways: [&[&str]; 4] = [
        &["--key", "order-1"],
        &["--derive", "order"],
        &["-H", "Idempotency-Key: order-1"],
        &["--journal", journal.to_str().unwrap()],
    ];
    for way in ways {
        let said = send(&[&["POST", &scripted(&[&answer(201, &[], "")]), "-q"], way].concat());
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{way:?}");
    }
}

#[test]
fn what_was_executed_without_an_answer_is_not_said_to_be_lost() {
    let gone = "{\"code\":\"idempotency_response_unavailable\",\"original_status\":201}";
    let said = after(&[&answer(410, &["content-type: application/problem+json"], gone)]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let told = "executed; this run did not receive the answer";
    assert!(said.stderr.contains(told), "{}", said.stderr);
}
