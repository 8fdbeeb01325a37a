//! Keys that outlive the process.

use std::path::Path;
use std::time::Duration;

use onlyonce::client::journal::JournalError;
use onlyonce::client::{Client, Doubt, Journal, SendError, SendOutcome, Stop};
use onlyonce::key::Key;

use crate::environment::TestTime;
use crate::server::{Act, Server, answer, with};

const SECRET: [u8; 32] = [7; 32];

async fn open(folder: &Path) -> Journal {
    Journal::open(folder.join("journal")).await.unwrap()
}

fn client(time: &TestTime, journal: &Journal) -> Client {
    time.client().with_journal(journal.clone())
}

// R151; threat J1
#[tokio::test]
async fn an_operation_is_in_the_journal_before_it_is_sent_and_gone_when_it_is_settled() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = open(folder.path()).await;
    let server = Server::start(&time, [answer(503), answer(201), answer(402)]).await;
    let path = folder.path().join("journal");
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = seen.clone();
    let retries = time.retries().with_observer(move |event| {
        if let onlyonce::client::Event::Attempt { key, .. } = event {
            let file = rusqlite::Connection::open(&path).unwrap();
            let sql = "SELECT attempts FROM entry WHERE key = ?1";
            let attempts: u32 = file.query_row(sql, [key.as_str()], |row| row.get(0)).unwrap();
            noted.lock().unwrap().push(attempts);
        }
    });
    let client = client(&time, &journal).with_retries(retries);
    client.post(&server.url()).send().await.unwrap();
    client.post(&server.url()).send().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [1, 2, 1]);
    assert!(journal.entries().await.unwrap().is_empty());
}

// R151, R152; case CLI-07; threat J1
#[tokio::test]
async fn what_is_open_is_resumed_with_the_same_key_and_the_same_bytes() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    for sealed in [false, true] {
        let journal = open(folder.path()).await;
        let journal = if sealed { journal.sealed(SECRET) } else { journal };
        let script = vec![Act::ResetBefore, with(201, "idempotent-replayed", "true")];
        let server = Server::start(&time, script).await;
        let once = time.client().with_retries(time.retries().with_attempts(1));
        let once = once.with_journal(journal.clone());
        let request = once.post(&server.url()).header("authorization", "Bearer me");
        let end = request.json(&7998).send().await.unwrap();
        assert_eq!(end.name(), "unknown");

        // Another process.
        let journal = open(folder.path()).await;
        let journal = if sealed { journal.sealed(SECRET) } else { journal };
        let resumed = client(&time, &journal).resume().await.unwrap();
        assert_eq!(resumed.left, 0);
        assert!(
            matches!(&resumed.operations[..], [(_, Ok(SendOutcome::Replayed(_)))]),
            "{resumed:?}"
        );
        assert!(journal.entries().await.unwrap().is_empty());
        let [first, again] = &server.received()[..] else { panic!() };
        assert_eq!(again.body, first.body);
        for name in ["idempotency-key", "authorization", "content-type"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
    }
}

// R158; case CLI-10; threat J2
#[tokio::test]
async fn what_the_server_may_have_forgotten_is_not_sent_again() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = open(folder.path()).await;
    let server = Server::start(&time, [Act::ResetBefore]).await;
    let once = client(&time, &journal).with_retries(time.retries().with_attempts(1));
    once.post(&server.url()).send().await.unwrap();
    time.pass(Duration::from_secs(24 * 3600));
    for _ in 0..2 {
        let resumed = once.resume().await.unwrap();
        let [(_, Ok(end))] = &resumed.operations[..] else { panic!("{resumed:?}") };
        assert!(matches!(end, SendOutcome::Unknown { stop: Stop::Window, .. }), "{end:?}");
        assert!(end.advice().contains("Reconcile"));
    }
    assert_eq!(server.received().len(), 1);
    let [open] = &journal.entries().await.unwrap()[..] else { panic!() };
    assert!(open.needs_reconciling);
    assert!(journal.forget(&open.key).await.unwrap());
    assert!(journal.entries().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_sealed_journal_shows_neither_url_nor_body_and_opens_with_its_key_alone() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = open(folder.path()).await.sealed(SECRET);
    let once = client(&time, &journal).with_retries(time.retries().with_attempts(1));
    let request =
        once.post("http://127.0.0.1:1/secret-path").header("authorization", "secret-token");
    request.body("secret-body").send().await.unwrap_err();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(7).any(|seven| seven == b"secret-"));
    }
    let wrong = open(folder.path()).await.sealed([8; 32]);
    let resumed = client(&time, &wrong).resume().await.unwrap();
    assert!(matches!(&resumed.failures[..], [(_, JournalError::Sealed)]), "{resumed:?}");
    assert!(resumed.operations.is_empty());
}

#[tokio::test]
async fn without_its_body_an_operation_is_handed_back_and_never_sent_half() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = open(folder.path()).await.without_bodies();
    let server = Server::start(&time, [Act::ResetBefore]).await;
    let once = client(&time, &journal).with_retries(time.retries().with_attempts(1));
    once.post(&server.url()).body("secret-body").send().await.unwrap();
    let bytes = std::fs::read(folder.path().join("journal-wal")).unwrap();
    assert!(!bytes.windows(11).any(|part| part == b"secret-body"));
    let resumed = once.resume().await.unwrap();
    let [(_, Ok(SendOutcome::Unknown { stop: Stop::Body, .. }))] = &resumed.operations[..] else {
        panic!("{resumed:?}")
    };
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn a_key_that_is_open_with_another_request_is_refused_and_with_the_same_goes_on() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = open(folder.path()).await;
    let server = Server::start(&time, [Act::ResetBefore, answer(201)]).await;
    let once = client(&time, &journal).with_retries(time.retries().with_attempts(1));
    let charge = once.post(&server.url()).with_key(Key::derive(["order", "1"]));
    charge.clone().body("amount=1").send().await.unwrap();
    let other = charge.clone().body("amount=2").send().await.unwrap_err();
    let reused = JournalError::Reused { is_in_doubt: true };
    assert_eq!(other.advice(), SendError::Journal(reused).advice());
    assert!(other.advice().contains("may have been executed"), "{}", other.advice());
    assert_eq!(charge.body("amount=1").send().await.unwrap().name(), "fresh");
    assert_eq!(server.received()[1].header("idempotency-attempt"), Some("2"));
}

#[tokio::test]
async fn two_do_not_resume_at_the_same_time() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = open(folder.path()).await;
    let held = std::fs::File::create(folder.path().join("journal-resume")).unwrap();
    held.try_lock().unwrap();
    let error = client(&time, &journal).resume().await.unwrap_err();
    assert!(matches!(error, JournalError::InUse), "{error}");
    drop(held);
    client(&time, &journal).resume().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_something_else_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    std::fs::write(&path, "my diary, which is text and longer than a header is").unwrap();
    assert!(matches!(Journal::open(&path).await, Err(JournalError::NotOurs)));
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("my diary"));
    let other = folder.path().join("other");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert!(matches!(Journal::open(&other).await, Err(JournalError::NotOurs)));
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_reads_a_journal() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let _journal = open(folder.path()).await;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}

// threat K6: what one process knows of its own attempts is not known of the other's.
#[tokio::test]
async fn a_refusal_does_not_strike_out_what_another_process_sent_meanwhile() {
    for refusal in [answer(401), with(503, "retry-after", "0")] {
        let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
        let path = folder.path().join("journal");
        let server = Server::start(&time, [refusal]).await;
        let retries = time.retries().with_attempts(1).with_observer({
            let path = path.clone();
            move |event| {
                // The other one is about to send, too, and will not be heard of again.
                if let onlyonce::client::Event::Attempt { .. } = event {
                    let file = rusqlite::Connection::open(&path).unwrap();
                    file.execute("UPDATE entry SET attempts = attempts + 1", ()).unwrap();
                }
            }
        });
        let journal = open(folder.path()).await;
        let once = client(&time, &journal).with_retries(retries);
        let end = once.post(&server.url()).send().await;
        assert!(!matches!(end, Ok(SendOutcome::Unknown { .. })), "{end:?}");
        let [open] = &journal.entries().await.unwrap()[..] else { panic!("it is gone") };
        assert!(open.is_in_doubt);
    }
}

// R152
#[tokio::test]
async fn credentials_are_renewed_by_a_resume_and_the_request_stays_the_same() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = open(folder.path()).await;
    let server = Server::start(&time, [Act::ResetBefore, answer(201)]).await;
    let once = client(&time, &journal).with_retries(time.retries().with_attempts(1));
    let request = once.post(&server.url()).header("authorization", "Bearer old");
    request.json(&7998).send().await.unwrap();

    let header = |name: &'static str, value: &'static str| {
        (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
    };
    let mut once = client(&time, &journal);
    for (name, value) in [
        header("authorization", "Bearer new"),
        header("content-type", "text/plain"),
        header("idempotency-key", "another"),
        header("x-trace", "1"),
        header("x-trace", "2"),
    ] {
        once = once.with_header(name, value);
    }
    once.resume().await.unwrap();
    let [first, again] = &server.received()[..] else { panic!() };
    assert_eq!(again.header("authorization"), Some("Bearer new"));
    for name in ["idempotency-key", "content-type"] {
        assert_eq!(again.header(name), first.header(name), "{name}");
    }
    let traces = again.headers.iter().filter(|(name, _)| name == "x-trace").count();
    assert_eq!(traces, 2);
}

#[tokio::test]
async fn entries_show_where_a_request_goes_and_nothing_secret() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    for (seal, target) in [(None, Some("POST http://127.0.0.1:1/charges")), (Some(SECRET), None)] {
        let folder = folder.path().join(if seal.is_some() { "sealed" } else { "plain" });
        std::fs::create_dir(&folder).unwrap();
        let journal = open(&folder).await;
        let journal = match seal {
            Some(seal) => journal.sealed(seal),
            None => journal,
        };
        let once = client(&time, &journal).with_retries(time.retries().with_attempts(1));
        let url = "http://127.0.0.1:1/charges?token=secret";
        once.post(url).body("secret").send().await.unwrap_err();
        let [entry] = &journal.entries().await.unwrap()[..] else { panic!() };
        assert_eq!(entry.target.as_deref(), Some("POST http://127.0.0.1:1/charges"));
        assert_eq!((entry.attempts, entry.is_in_doubt, entry.needs_reconciling), (2, false, false));
        assert!(!format!("{entry:?}").contains("secret"));
        // Without the key of the seal.
        let [entry] = &open(&folder).await.entries().await.unwrap()[..] else { panic!() };
        assert_eq!(entry.target.as_deref(), target);
    }
}

/// Another program makes the disk fail: no attempt can be noted any more.
fn refuse_notes(path: &Path) {
    let file = rusqlite::Connection::open(path).unwrap();
    let full = "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    file.execute_batch(&format!(
        "CREATE TRIGGER full BEFORE UPDATE OF attempts ON entry {full};
         CREATE TRIGGER fuller BEFORE INSERT ON entry {full};"
    ))
    .unwrap();
}

// R151; threat J1: what was sent without a note would be "not executed" after a crash.
#[tokio::test]
async fn an_attempt_that_cannot_be_noted_is_not_sent() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = open(folder.path()).await;
    let server = Server::start(&time, [with(503, "retry-after", "0"), Act::ResetBefore]).await;
    let once = client(&time, &journal).with_retries(time.retries().with_attempts(1));
    let charge = once.post(&server.url()).with_key(Key::derive(["order", "1"]));
    charge.clone().send().await.unwrap_err();
    refuse_notes(&folder.path().join("journal"));

    for _ in 0..2 {
        let error = charge.clone().send().await.unwrap_err();
        assert!(matches!(error, SendError::NotThrough { stop: Stop::Journal, .. }), "{error:?}");
        assert!(std::error::Error::source(&error).is_some(), "the cause is told");
    }
    assert_eq!(server.received().len(), 1);
    let [open] = &journal.entries().await.unwrap()[..] else { panic!("it is gone") };
    assert_eq!((open.attempts, open.is_in_doubt), (1, false));
}

// R151; threats J1, K6
#[tokio::test]
async fn a_doubt_stays_one_when_the_next_attempt_cannot_be_noted() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("journal");
    let journal = open(folder.path()).await;
    let server = Server::start(&time, [Act::ResetBefore, answer(402), answer(404)]).await;
    let retries = time.retries().with_observer(move |event| {
        if let onlyonce::client::Event::Waiting { .. } = event {
            refuse_notes(&path);
        }
    });
    let once = client(&time, &journal).with_retries(retries);
    let end = once.post(&server.url()).send().await.unwrap();
    let SendOutcome::Unknown { doubt, stop, .. } = end else { panic!("{end:?}") };
    assert_eq!((doubt, stop), (Doubt::NoAnswer, Stop::Journal));
    // The look-up, and no second attempt.
    let attempts = server.received().iter().filter(|one| one.line.starts_with("POST")).count();
    assert_eq!(attempts, 1);
    let [open] = &journal.entries().await.unwrap()[..] else { panic!("it is gone") };
    assert!(open.is_in_doubt);
}

// R151: another process settled it, or an operator struck it out, while this one waits.
#[tokio::test]
async fn an_entry_that_went_meanwhile_is_written_anew_before_the_next_attempt() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("journal");
    let journal = open(folder.path()).await;
    let server = Server::start(&time, [answer(409), Act::ResetBefore]).await;
    let retries = time.retries().with_attempts(1).with_observer(move |event| {
        if let onlyonce::client::Event::Waiting { .. } = event {
            let file = rusqlite::Connection::open(&path).unwrap();
            assert_eq!(file.execute("DELETE FROM entry", ()).unwrap(), 1);
        }
    });
    let once = client(&time, &journal).with_retries(retries);
    let end = once.post(&server.url()).json(&7998).send().await.unwrap();
    assert_eq!(end.name(), "unknown");
    let [open] = &journal.entries().await.unwrap()[..] else { panic!("it is gone") };
    assert_eq!((open.attempts, open.is_in_doubt), (2, true));
}

// R161; threat K6
#[tokio::test]
async fn outcomes_are_told_although_the_journal_cannot_be_written_any_more() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("journal");
    let journal = open(folder.path()).await;
    let replay = with(201, "idempotent-replayed", "true");
    let script = [Act::ResetBefore, Act::ResetBefore, replay.clone(), replay];
    let server = Server::start(&time, script).await;
    let once = client(&time, &journal).with_retries(time.retries().with_attempts(1));
    for _ in 0..2 {
        once.post(&server.url()).send().await.unwrap();
    }
    let file = rusqlite::Connection::open(&path).unwrap();
    let full = "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    file.execute_batch(&format!("CREATE TRIGGER full BEFORE DELETE ON entry {full}")).unwrap();

    let resumed = once.resume().await.unwrap();
    let [(_, Ok(SendOutcome::Replayed(_))), (_, Ok(SendOutcome::Replayed(_)))] =
        &resumed.operations[..]
    else {
        panic!("{resumed:?}")
    };
    assert_eq!((resumed.failures.len(), resumed.left), (2, 0));
    assert_eq!(journal.entries().await.unwrap().len(), 2);
}

// R151, R158: a key that no service has seen is not old.
#[tokio::test]
async fn what_was_proved_not_executed_is_sent_however_old_it_is() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let journal = open(folder.path()).await;
    let script = [with(503, "retry-after", "0"), Act::ResetBefore, Act::ResetBefore];
    let server = Server::start(&time, script).await;
    let once = client(&time, &journal).with_retries(time.retries().with_attempts(1));
    once.post(&server.url()).send().await.unwrap_err();
    time.pass(Duration::from_secs(25 * 3600));
    for _ in 0..2 {
        let resumed = once.resume().await.unwrap();
        let [(_, Ok(SendOutcome::Unknown { stop: Stop::Attempts, .. }))] = &resumed.operations[..]
        else {
            panic!("{resumed:?}")
        };
        // Its window begins with the attempt that may have been executed.
        time.pass(Duration::from_secs(3600));
    }
    assert_eq!(server.left(), 0);
    time.pass(Duration::from_secs(24 * 3600));
    let resumed = once.resume().await.unwrap();
    let [(_, Ok(SendOutcome::Unknown { stop, .. }))] = &resumed.operations[..] else { panic!() };
    assert_eq!(*stop, Stop::Window);
}
