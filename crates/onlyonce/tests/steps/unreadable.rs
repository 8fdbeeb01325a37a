//! Operations that cannot be read: said, once and on both databases, seen by operators, and in nobody's way.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce::steps::{Completer, Run, Steps, StepsFilter, StepsState, Stopped};
use onlyonce::transaction::Reply;
use tracing::instrument::WithSubscriber;

use crate::lab::{Lab, Shop, on_both, operation};

on_both! {
    completers_say_once_what_they_cannot_read_and_do_the_rest;
    operators_see_what_cannot_be_read;
}

/// Fails for the client, and is done by a completer.
fn charge<S: Shop>() -> Steps<S, bool> {
    Steps::new("charge", async |mut run: Run<S>, _: bool| {
        let seen = run.step("asked", async |mut tx| S::effect(&mut tx, "asked").await).await;
        seen?;
        run.finish(async |mut tx| {
            S::effect(&mut tx, "charged").await?;
            Ok(Reply::new(StatusCode::CREATED, ""))
        })
        .await
    })
}

/// So many operations that wait for their next attempt.
async fn left_open<S: Shop>(shop: &S, keys: impl Iterator<Item = String>) {
    let fails = Steps::new("charge", async |_: Run<S>, _: bool| Err(Stopped::failed("later")));
    for key in keys {
        fails.run(shop, &operation(&key), &true).await.unwrap_err();
    }
}

/// What was logged, as lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + 'static {
        let log = self.clone();
        tracing_subscriber::fmt().json().with_writer(move || log.clone()).finish()
    }

    fn lines(&self, text: &str) -> Vec<String> {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

/// More of them than a completer takes at once, and all of them due before those that can be read.
// threat K26
async fn completers_say_once_what_they_cannot_read_and_do_the_rest<S: Shop>(lab: Lab) {
    lab.drop_checks();
    let shop = S::connect(&lab.address).await;
    left_open(&shop, (0..6).map(|number| format!("damaged-{number}"))).await;
    lab.let_time_pass();
    lab.sql("UPDATE {steps} SET state = 'paused'");
    let damaged: BTreeSet<_> =
        lab.sql("SELECT id FROM {steps}").lines().map(str::to_owned).collect();
    left_open(&shop, (0..3).map(|number| format!("good-{number}"))).await;
    lab.until(if lab.is_postgres() { DUE_IN_POSTGRES } else { DUE_IN_SQLITE }, "9").await;
    let log = Log::default();
    let completer = Completer::new(shop).with(&charge()).with_running_max(2);
    let completer = completer.with_poll_max(Duration::from_millis(50));
    let done = async {
        lab.until("SELECT count(*) FROM {steps} WHERE state = 'completed'", "3").await;
        // A few more looks.
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    completer.run_until(done).with_subscriber(log.subscriber()).await;
    assert_eq!(lab.effects(), "asked|3\ncharged|3");
    let said = log.lines("an operation cannot be read");
    assert_eq!(said.len(), damaged.len(), "{said:#?}");
    for id in &damaged {
        assert!(said.iter().any(|line| line.contains(id.as_str())), "{id}: {said:#?}");
    }
    assert!(said.iter().all(|line| line.contains("paused")), "{said:#?}");
}

const DUE_IN_POSTGRES: &str = "SELECT count(*) FROM {steps} WHERE due_at <= clock_timestamp()";
const DUE_IN_SQLITE: &str =
    "SELECT count(*) FROM {steps} WHERE due_at <= unixepoch('subsec') * 1000";

// threat K26
async fn operators_see_what_cannot_be_read<S: Shop>(lab: Lab) {
    lab.drop_checks();
    let (shop, operators) = (S::connect(&lab.address).await, lab.operators().await);
    for key in ["state", "headers", "status", "good"] {
        let done = charge::<S>().run(&shop, &operation(key), &true).await;
        assert!(done.is_ok(), "{done:?}");
    }
    let mut damage = vec![
        ("state", "state = 'paused'"),
        ("headers", "headers = '{\"a b\": \"c\"}'"),
        ("status", "status = 1000"),
    ];
    if !lab.is_postgres() {
        left_open(&shop, ["request".to_owned()].into_iter()).await;
        damage.push(("request", "request = CAST(x'ff' AS TEXT)"));
    }
    for (key, damage) in &damage {
        lab.sql(&format!("UPDATE {{steps}} SET {damage} WHERE key = '{key}'"));
    }
    let id = |key: &str| lab.sql(&format!("SELECT id FROM {{steps}} WHERE key = '{key}'"));
    for (key, damage) in &damage {
        let (stored, points) = operators.show(&id(key)).await.unwrap().unwrap();
        assert!(stored.unreadable.is_some(), "{damage}: {stored:?}");
        assert_eq!(points.len(), usize::from(*key != "request"), "{damage}");
        let by_key = StepsFilter { key: Some(key), ..StepsFilter::default() };
        assert_eq!(operators.list(by_key, None).await.unwrap(), [stored], "{damage}");
    }
    let (stored, _) = operators.show(&id("state")).await.unwrap().unwrap();
    assert_eq!(stored.state, StepsState::Unknown);
    assert!(stored.unreadable.unwrap().contains("paused"));
    let (stored, _) = operators.show(&id("good")).await.unwrap().unwrap();
    assert_eq!(stored.unreadable, None);
    // One of them hides no others.
    let all = StepsFilter { name: Some("charge"), ..StepsFilter::default() };
    let open = operators.list(all, None).await.unwrap();
    let open: BTreeSet<_> = open.iter().map(|stored| stored.key.as_str()).collect();
    let expected = if lab.is_postgres() { vec!["state"] } else { vec!["request", "state"] };
    assert_eq!(open, BTreeSet::from_iter(expected));
}
