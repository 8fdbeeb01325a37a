//! A service that is killed with SIGKILL at each point of an operation, and amid each call, and what goes on with it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use onlyonce::steps::{PgDatabase, SqliteDatabase, StepsOutcome};

use crate::lab::{Lab, Shop, on_both, operation, tiered};
use crate::provider::Provider;
use crate::shop::{ORDER, POINTS, REACHED, World, order};

on_both! {
    a_service_killed_at_any_point_has_each_effect_once;
}

// R100, R130 to R135
async fn a_service_killed_at_any_point_has_each_effect_once<S: Shop>(lab: Lab) {
    let cycles = tiered(200).max(POINTS.len());
    for cycle in 0..cycles {
        let (key, point) = (format!("k{cycle}"), POINTS[cycle % POINTS.len()]);
        let provider = Provider::start();
        kill_at(&lab, &provider, &key, point);
        lab.let_time_pass();
        retry::<S>(&lab, &provider, &key, point).await;
        lab.sql("DELETE FROM effect");
        lab.sql("DELETE FROM {outbox}");
    }
    println!("{cycles} kills, at least {} at each of {POINTS:?}", cycles / POINTS.len());
}

/// What a client gets that retries, and what was done.
async fn retry<S: Shop>(lab: &Lab, provider: &Provider, key: &str, point: &str) {
    let shop = S::connect(&lab.address).await;
    let steps = order::<S>(World::new(provider.address));
    let first = steps.run(&shop, &operation(key), &ORDER).await.unwrap();
    let again = steps.run(&shop, &operation(key), &ORDER).await.unwrap();
    let calls = |service| (provider.calls(service), provider.effects(service));
    if point.contains("mail ") && point != "mail sent" || point == "amid mail" {
        // It may have been sent, and nobody sends it again.
        for outcome in [first, again] {
            assert!(matches!(&outcome, StepsOutcome::Unknown { .. }), "{point}: {outcome:?}");
        }
        assert_eq!(calls("mail"), (1, 1), "{point}");
        assert_eq!(lab.effects(), "saved|1", "{point}");
        return;
    }
    let StepsOutcome::Replay(again) = again else { panic!("{point}: {again:?}") };
    match first {
        StepsOutcome::Done(reply) if point != "finished" && point != "never" => {
            assert_eq!(reply, again)
        }
        StepsOutcome::Replay(reply) if point == "finished" || point == "never" => {
            assert_eq!(reply, again);
        }
        other => panic!("{point}: {other:?}"),
    }
    assert!(again.body.starts_with(b"7998 by card-"), "{:?}", again.body);
    assert_eq!(lab.effects(), "receipt|1\nsaved|1", "{point}");
    assert_eq!(lab.sql("SELECT count(*) FROM {outbox}"), "1", "{point}");
    assert_eq!(calls("mail"), (1, 1), "{point}");
    let was_called_before = point == "amid card" || point == "card answered";
    assert_eq!(calls("card"), (1 + usize::from(was_called_before), 1), "{point}");
}

/// Starts a process that does the operation up to `point`, and kills it there.
fn kill_at(lab: &Lab, provider: &Provider, key: &str, point: &str) {
    let service = point.strip_prefix("amid ");
    provider.silence(&service.into_iter().collect::<Vec<_>>());
    let address = provider.address.to_string();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "killed::child_that_orders"])
        .envs([(DATABASE, lab.address.as_str()), (PROVIDER, &address), (KEY, key), (POINT, point)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    match service {
        Some(service) => provider.until_called(service, 1),
        None => {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut lines = lines.map(Result::unwrap);
            assert!(lines.any(|line| line.contains(REACHED)), "{point:?} was not reached");
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    provider.silence(&[]);
    if lab.is_postgres() {
        // The server notices that the client is gone when its next read fails, and rolls back.
        let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'killed'";
        assert!(
            (0..LOOKS_MAX).any(|_| lab.sql(gone) == "t"),
            "the session of a dead process stays"
        );
    }
}

#[tokio::test]
#[ignore = "a child of the tests above"]
async fn child_that_orders() {
    let [database, key, point] = [DATABASE, KEY, POINT].map(|name| std::env::var(name).unwrap());
    let provider = std::env::var(PROVIDER).unwrap().parse().unwrap();
    let world = World { provider, stop_at: point };
    if database.starts_with("sqlite:") {
        ordered::<SqliteDatabase>(&database, world, &key).await;
    } else {
        ordered::<PgDatabase>(&format!("{database}?application_name=killed"), world, &key).await;
    }
}

async fn ordered<S: Shop>(database: &str, world: World, key: &str) {
    let shop = S::connect(database).await;
    let outcome = order::<S>(world).run(&shop, &operation(key), &ORDER).await.unwrap();
    assert!(matches!(outcome, StepsOutcome::Done(_)), "{outcome:?}");
    // The answer was given: killed after everything.
    println!("{REACHED}");
    std::future::pending().await
}

const LOOKS_MAX: usize = 1_000;
const DATABASE: &str = "ONLYONCE_TEST_DATABASE";
const PROVIDER: &str = "ONLYONCE_TEST_PROVIDER";
const KEY: &str = "ONLYONCE_TEST_KEY";
const POINT: &str = "ONLYONCE_TEST_POINT";
