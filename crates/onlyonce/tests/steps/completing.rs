//! Completers: what clients have left, what panics, and how the work is shared.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce::steps::{
    Completer, PgDatabase, Run, SqliteDatabase, Steps, StepsError, StepsOutcome, Stopped,
};
use onlyonce::transaction::Reply;
use sqlx::Connection;

use crate::lab::{Lab, Shop, answered, on_both, operation, tiered};
use crate::provider::Provider;
use crate::shop::{ORDER, World, order};

on_both! {
    a_completer_finishes_what_a_client_has_left;
    a_program_that_always_panics_uses_up_its_attempts_and_blocks_nothing_else;
    completers_share_the_work;
    a_completer_never_touches_what_is_unknown_or_of_another_name;
    a_shutdown_waits_for_what_runs_and_takes_nothing_new;
}

// R101. The client is gone: its run is dropped with its runtime, amid the call.
async fn a_completer_finishes_what_a_client_has_left<S: Shop>(lab: Lab) {
    let provider = Provider::start();
    provider.silence(&["card"]);
    let world = World::new(provider.address);
    let (address, client) = (lab.address.clone(), world.clone());
    let gone = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let steps = order::<S>(client.clone()).with_lease(Duration::from_secs(1));
        runtime.spawn(async move {
            let shop = S::connect(&address).await;
            steps.run(&shop, &operation("k"), &ORDER).await
        });
        runtime
    });
    let runtime = gone.join().unwrap();
    provider.until_called("card", 1);
    runtime.shutdown_background();
    provider.silence(&[]);
    let shop = S::connect(&lab.address).await;
    let steps = order::<S>(world);
    let completer = Completer::new(shop.clone()).with(&steps);
    let completed = lab.until("SELECT state FROM {steps}", "completed");
    completer.with_poll_max(Duration::from_millis(100)).run_until(completed).await;
    assert_eq!(lab.effects(), "receipt|1\nsaved|1");
    assert_eq!((provider.calls("card"), provider.effects("card")), (2, 1));
    assert_eq!(provider.calls("mail"), 1);
    let replay = steps.run(&shop, &operation("k"), &ORDER).await.unwrap();
    assert!(matches!(&replay, StepsOutcome::Replay(reply) if reply.status == 201), "{replay:?}");
}

/// Panics where the request says so.
fn panicking<S: Shop>() -> Steps<S, bool> {
    Steps::new("panicking", async |mut run: Run<S>, panics: bool| {
        run.step("first", async |mut tx| S::effect(&mut tx, "first").await).await?;
        if panics {
            panic!("the program has a bug");
        }
        run.finish(async |mut tx| {
            S::effect(&mut tx, "done").await?;
            Ok(Reply::new(StatusCode::OK, ""))
        })
        .await
    })
    .with_attempts_max(3)
    .with_retry_pause(Duration::from_millis(1))
}

async fn a_program_that_always_panics_uses_up_its_attempts_and_blocks_nothing_else<S: Shop>(
    lab: Lab,
) {
    let shop = S::connect(&lab.address).await;
    let steps = panicking::<S>();
    let failed = steps.run(&shop, &operation("bad"), &true).await.unwrap_err();
    let StepsError::Failed { error, .. } = failed else { panic!("{failed:?}") };
    assert_eq!(error.to_string(), "the program panicked: the program has a bug");
    // Another one that is left half done, older than the bad one's next attempts.
    let half = Steps::new("panicking", async |mut run: Run<S>, _: bool| {
        run.step("first", async |mut tx| S::effect(&mut tx, "first").await).await?;
        Err(Stopped::failed("it is meant to fail"))
    });
    half.run(&shop, &operation("good"), &false).await.unwrap_err();
    let completer = Completer::new(shop).with(&steps).with_running_max(1);
    let both = "SELECT count(*) FROM {steps} WHERE state IN ('unknown', 'completed')";
    completer.with_poll_max(Duration::ZERO).run_until(lab.until(both, "2")).await;
    let rows =
        lab.sql("SELECT key, state, attempts, coalesce(error, '') FROM {steps} ORDER BY key");
    let bad = "bad|unknown|3|the program panicked: the program has a bug";
    assert_eq!(rows, format!("{bad}\ngood|completed|1|it is meant to fail"));
    assert_eq!(lab.effects(), "done|1\nfirst|2");
}

async fn completers_share_the_work<S: Shop>(lab: Lab) {
    let count = tiered(200).max(40);
    let fails = Arc::new(AtomicUsize::new(count));
    let runs = [const { Mutex::new(Vec::new()) }; 2];
    let runs: Arc<[Mutex<Vec<u32>>; 2]> = Arc::new(runs);
    // Nobody goes on before both have taken something: each has room for two at a time.
    let (started, all_started) = tokio::sync::watch::channel([false; 2]);
    let started = Arc::new(started);
    let program = |completer: usize| {
        let (fails, runs) = (fails.clone(), runs.clone());
        let (started, all_started) = (started.clone(), all_started.clone());
        Steps::new("shared", move |mut run: Run<S>, number: u32| {
            let (fails, runs) = (fails.clone(), runs.clone());
            let (started, mut all_started) = (started.clone(), all_started.clone());
            async move {
                let is_client =
                    fails.try_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
                if is_client.is_ok() {
                    return Err(Stopped::failed("it is left to a completer"));
                }
                runs[completer].lock().unwrap().push(number);
                started.send_modify(|started| started[completer] = true);
                all_started.wait_for(|started| *started == [true; 2]).await.unwrap();
                run.step("work", async |mut tx| S::effect(&mut tx, "work").await).await?;
                run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
            }
        })
        .with_retry_pause(Duration::ZERO)
    };
    let shops = [S::connect(&lab.address).await, S::connect(&lab.address).await];
    for number in 0..count as u32 {
        let left = program(0).run(&shops[0], &operation(&format!("k{number}")), &number).await;
        left.unwrap_err();
    }
    let completer = |number: usize| {
        let steps = program(number);
        Completer::new(shops[number].clone())
            .with(&steps)
            .with_running_max(2)
            .with_poll_max(Duration::ZERO)
            .run_until(lab.until("SELECT count(*) FROM {steps} WHERE state <> 'completed'", "0"))
    };
    tokio::join!(completer(0), completer(1));
    let shares = [0, 1].map(|completer| runs[completer].lock().unwrap().len());
    assert_eq!(shares[0] + shares[1], count, "{shares:?}: each of them was run once");
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    assert_eq!(lab.effects(), format!("work|{count}"));
}

async fn a_completer_never_touches_what_is_unknown_or_of_another_name<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let doubtful = Steps::new("doubtful", async |_: Run<S>, is_in_doubt: bool| match is_in_doubt {
        true => Err(Stopped::in_doubt("who knows")),
        false => Err(Stopped::failed("it is meant to fail")),
    })
    .with_retry_pause(Duration::ZERO);
    let _ = doubtful.run(&shop, &operation("unknown"), &true).await.unwrap();
    let other = Steps::new("other", async |_: Run<S>, _: bool| Err(Stopped::failed("no")));
    other.run(&shop, &operation("other"), &true).await.unwrap_err();
    // The completer has looked when it has tried this one again.
    doubtful.run(&shop, &operation("failing"), &false).await.unwrap_err();
    lab.let_time_pass();
    let completer = Completer::new(shop).with(&doubtful).with_poll_max(Duration::ZERO);
    let tried = "SELECT CASE WHEN attempts > 2 THEN 'often' END FROM {steps} WHERE key = 'failing'";
    completer.run_until(lab.until(tried, "often")).await;
    let rows = "SELECT key, state, attempts FROM {steps} WHERE key <> 'failing' ORDER BY key";
    assert_eq!(lab.sql(rows), "other|waiting|1\nunknown|unknown|1");
}

async fn a_shutdown_waits_for_what_runs_and_takes_nothing_new<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let (arrived, open) =
        (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let first = Arc::new(AtomicUsize::new(0));
    let gate = (arrived.clone(), open.clone());
    let steps = Steps::new("slow", move |run: Run<S>, _: u32| {
        let ((arrived, open), number) = (gate.clone(), first.fetch_add(1, Ordering::SeqCst));
        async move {
            if number < 2 {
                return Err(Stopped::failed("it is left to a completer"));
            }
            arrived.notify_one();
            open.notified().await;
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    })
    .with_retry_pause(Duration::ZERO);
    for key in ["a", "b"] {
        steps.run(&shop, &operation(key), &1).await.unwrap_err();
    }
    let completer = Completer::new(shop.clone()).with(&steps).with_running_max(1);
    let stopping = arrived.clone();
    let completer = tokio::spawn(async move {
        completer.run_until(async move { stopping.notified().await }).await;
    });
    // It has one of them, and is told to stop.
    let released = async {
        lab.until("SELECT count(*) FROM {steps} WHERE state = 'running'", "1").await;
        open.notify_one();
    };
    released.await;
    completer.await.unwrap();
    assert_eq!(lab.sql("SELECT state FROM {steps} ORDER BY state"), "completed\nwaiting");
    let key = lab.sql("SELECT key FROM {steps} WHERE state = 'completed'");
    answered(&steps, &shop, &key, &1).await;
}

/// Its look for what is due stands still at a gate, which a policy of the table puts there, while another process makes the call
/// and commits its point.
// R133
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completer_sees_the_points_that_were_committed_while_it_looked() {
    let lab = Lab::postgres().await;
    lab.sql(
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA onlyonce TO app;
         GRANT ALL ON ALL TABLES IN SCHEMA onlyonce TO app;
         CREATE FUNCTION at_the_gate() RETURNS boolean LANGUAGE sql VOLATILE AS
           'SELECT pg_advisory_lock_shared(7) IS NOT NULL AND pg_advisory_unlock_shared(7)';
         ALTER TABLE onlyonce.steps ENABLE ROW LEVEL SECURITY;
         CREATE POLICY gate ON onlyonce.steps USING (at_the_gate())",
    );
    let [calls, runs] = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    let counted = (calls.clone(), runs.clone());
    let steps = Steps::new("mail", move |mut run: Run<PgDatabase>, _: u32| {
        let (calls, number) = (counted.0.clone(), counted.1.fetch_add(1, Ordering::SeqCst));
        async move {
            if number == 0 {
                return Err(Stopped::failed("it is left to the others"));
            }
            run.call_once("sent", async |_| Ok(calls.fetch_add(1, Ordering::SeqCst))).await?;
            if number == 1 {
                return Err(Stopped::failed("it is left to the completer"));
            }
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    })
    .with_retry_pause(Duration::ZERO);
    let other = PgDatabase::connect(&lab.address).await;
    steps.run(&other, &operation("k"), &1).await.unwrap_err();
    let mut gate = sqlx::PgConnection::connect(&lab.address).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(7)").execute(&mut gate).await.unwrap();
    let app = lab.address.replace("postgres://postgres@", "postgres://app@");
    let completer = Completer::new(PgDatabase::connect(&app).await).with(&steps);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let completer = tokio::spawn(completer.run_until(async { drop(stopped.await) }));
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND usename = 'app'";
    lab.until(waits, "1").await;
    steps.run(&other, &operation("k"), &1).await.unwrap_err();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    gate.close().await.unwrap();
    lab.until("SELECT state FROM {steps}", "completed").await;
    drop(stop);
    completer.await.unwrap();
    assert_eq!((calls.load(Ordering::SeqCst), runs.load(Ordering::SeqCst)), (1, 3));
}

/// Another operation keeps the one connection of the file, amid a step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completer_that_waits_for_the_database_hears_the_shutdown() {
    let lab = Lab::sqlite();
    let shop = SqliteDatabase::connect(&lab.address).await;
    let (arrived, open) =
        (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let gate = (arrived.clone(), open.clone());
    let steps = Steps::new("slow", move |mut run: Run<SqliteDatabase>, _: u32| {
        let (arrived, open) = gate.clone();
        async move {
            run.step("slow", async |_tx| {
                arrived.notify_one();
                open.notified().await;
                Ok(())
            })
            .await?;
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    });
    let (owner, database) = (steps.clone(), shop.clone());
    let owner = tokio::spawn(async move { owner.run(&database, &operation("k"), &1).await });
    arrived.notified().await;
    let completer = Completer::new(shop).with(&steps).run_until(async {});
    let in_time = tokio::time::timeout(Duration::from_secs(10), completer).await;
    assert!(in_time.is_ok(), "it waits for the connection");
    open.notify_one();
    assert!(matches!(owner.await.unwrap().unwrap(), StepsOutcome::Done(_)));
}
