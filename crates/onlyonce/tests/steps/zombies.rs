//! Owners that wake up after another has taken over, duplicates, and leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use onlyonce::steps::{PgDatabase, Run, Steps, StepsOutcome, Stopped};
use onlyonce::transaction::Reply;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::lab::{Lab, Shop, on_both, operation, tiered};

on_both! {
    an_owner_that_wakes_up_after_a_takeover_commits_nothing;
    an_owner_that_wakes_up_before_the_new_owner_commits_nothing;
    a_lease_is_renewed_while_a_call_takes_longer;
    duplicates_have_one_effect_and_get_one_answer;
    of_many_who_find_a_lease_over_one_takes_it;
    the_same_key_with_another_request_is_refused;
    an_owner_that_wakes_up_gets_no_answer_to_another_request;
}

/// The first run waits at the gate, the others pass.
#[derive(Clone)]
struct Gate {
    runs: Arc<AtomicUsize>,
    arrived: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Self {
        let closed = || Arc::new(Semaphore::new(0));
        Self { runs: Arc::default(), arrived: closed(), open: closed() }
    }

    async fn pass(&self) {
        if self.runs.fetch_add(1, Ordering::SeqCst) == 0 {
            self.arrived.add_permits(1);
            self.open.acquire().await.unwrap().forget();
        }
    }
}

// R131
async fn an_owner_that_wakes_up_after_a_takeover_commits_nothing<S: Shop>(lab: Lab) {
    let gate = Gate::new();
    let steps = gated::<S>(gate.clone());
    let [first, second] = [S::connect(&lab.address).await, S::connect(&lab.address).await];
    let zombie = steps.clone();
    let zombie = tokio::spawn(async move { zombie.run(&first, &operation("k"), &1).await });
    gate.arrived.acquire().await.unwrap().forget();
    assert_eq!(in_progress(&steps.run(&second, &operation("k"), &1).await.unwrap()), 60);
    lab.let_time_pass();
    let done = steps.run(&second, &operation("k"), &1).await.unwrap();
    assert!(matches!(&done, StepsOutcome::Done(reply) if reply.body == "run 2"), "{done:?}");
    gate.open.add_permits(1);
    // It answers from the row, never with its own result.
    let woken = zombie.await.unwrap().unwrap();
    assert!(matches!(&woken, StepsOutcome::Replay(reply) if reply.body == "run 2"), "{woken:?}");
    assert_eq!(lab.effects(), "after|1\nbefore|1");
    assert_eq!(lab.sql("SELECT value FROM {point} WHERE name = 'called'"), "2");
}

/// The new owner has not committed yet: nothing but the guard keeps the old one from committing first.
// R131
async fn an_owner_that_wakes_up_before_the_new_owner_commits_nothing<S: Shop>(lab: Lab) {
    for is_at_finish in [false, true] {
        let (first, second) = (Gate::new(), Gate::new());
        let steps = paused::<S>([first.clone(), second.clone()], is_at_finish);
        let key = format!("k{is_at_finish}");
        #[expect(clippy::async_yields_async, reason = "the run is awaited after the gate is open")]
        let run = async |gate: &Gate| {
            let (steps, key) = (steps.clone(), key.clone());
            let shop = S::connect(&lab.address).await;
            let run = tokio::spawn(async move { steps.run(&shop, &operation(&key), &1).await });
            gate.arrived.acquire().await.unwrap().forget();
            run
        };
        let zombie = run(&first).await;
        lab.let_time_pass();
        let owner = run(&second).await;
        first.open.add_permits(1);
        in_progress(&zombie.await.unwrap().unwrap());
        let before = if is_at_finish { "before|1\nmiddle|1" } else { "before|1" };
        assert_eq!(lab.effects(), before);
        second.open.add_permits(1);
        assert!(matches!(owner.await.unwrap().unwrap(), StepsOutcome::Done(_)));
        assert_eq!(lab.effects(), "after|1\nbefore|1\nmiddle|1");
        lab.sql("DELETE FROM effect");
    }
}

/// Each run waits at its own gate, before the second step or before the finish.
fn paused<S: Shop>(gates: [Gate; 2], is_at_finish: bool) -> Steps<S, u32> {
    let runs = Arc::new(AtomicUsize::new(0));
    Steps::new("paused", move |mut run: Run<S>, _: u32| {
        let gate = gates[runs.fetch_add(1, Ordering::SeqCst)].clone();
        async move {
            run.step("before", async |mut tx| S::effect(&mut tx, "before").await).await?;
            if !is_at_finish {
                gate.pass().await;
            }
            run.step("middle", async |mut tx| S::effect(&mut tx, "middle").await).await?;
            if is_at_finish {
                gate.pass().await;
            }
            run.finish(async |mut tx| {
                S::effect(&mut tx, "after").await?;
                Ok(Reply::new(StatusCode::OK, ""))
            })
            .await
        }
    })
    .with_lease(Duration::from_secs(60))
}

fn in_progress(outcome: &StepsOutcome) -> u64 {
    match outcome {
        StepsOutcome::InProgress { retry_after } => retry_after.as_secs_f64().ceil() as u64,
        other => panic!("{other:?}"),
    }
}

/// Two effects, and a call between them that returns which run made it.
fn gated<S: Shop>(gate: Gate) -> Steps<S, u32> {
    let numbers = Arc::new(AtomicUsize::new(0));
    Steps::new("gated", move |mut run: Run<S>, _: u32| {
        let (gate, number) = (gate.clone(), numbers.fetch_add(1, Ordering::SeqCst) + 1);
        async move {
            run.step("before", async |mut tx| S::effect(&mut tx, "before").await).await?;
            let called = run
                .call("called", async |_| {
                    gate.pass().await;
                    Ok(number)
                })
                .await?;
            run.finish(async |mut tx| {
                S::effect(&mut tx, "after").await?;
                Ok(Reply::new(StatusCode::OK, format!("run {called}")))
            })
            .await
        }
    })
    .with_lease(Duration::from_secs(60))
}

// R131: the guard is in the transaction of the effect. In SQLite an open transaction keeps every other writer out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_wakes_up_in_a_step_rolls_its_effect_back() {
    let lab = Lab::postgres().await;
    let (gate, second) = (Gate::new(), Gate::new());
    let gates = [gate.clone(), second.clone()];
    let runs = Arc::new(AtomicUsize::new(0));
    let steps = Steps::new("gated", move |mut run: Run<PgDatabase>, _: u32| {
        let gate = gates[runs.fetch_add(1, Ordering::SeqCst)].clone();
        async move {
            run.step("step", async |mut tx| {
                PgDatabase::effect(&mut tx, "step").await?;
                gate.pass().await;
                Ok(())
            })
            .await?;
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    })
    .with_lease(Duration::from_secs(60));
    let shop = PgDatabase::connect(&lab.address).await;
    let (zombie, database) = (steps.clone(), shop.clone());
    let zombie = tokio::spawn(async move { zombie.run(&database, &operation("k"), &1).await });
    gate.arrived.acquire().await.unwrap().forget();
    lab.let_time_pass();
    let owner = tokio::spawn(async move { steps.run(&shop, &operation("k"), &1).await });
    second.arrived.acquire().await.unwrap().forget();
    gate.open.add_permits(1);
    in_progress(&zombie.await.unwrap().unwrap());
    assert_eq!(lab.effects(), "");
    second.open.add_permits(1);
    assert!(matches!(owner.await.unwrap().unwrap(), StepsOutcome::Done(_)));
    assert_eq!(lab.effects(), "step|1");
}

async fn a_lease_is_renewed_while_a_call_takes_longer<S: Shop>(lab: Lab) {
    let gate = Gate::new();
    let steps = gated::<S>(gate.clone()).with_lease(Duration::from_secs(1));
    let shop = S::connect(&lab.address).await;
    let (owner, database) = (steps.clone(), shop.clone());
    let owner = tokio::spawn(async move { owner.run(&database, &operation("k"), &1).await });
    gate.arrived.acquire().await.unwrap().forget();
    let due_at = "SELECT due_at FROM {steps}";
    // Three renewals at least, each seen as a new end of the lease: longer than one lease.
    for _ in 0..4 {
        let before = lab.sql(due_at);
        let renewed = async {
            while lab.sql(due_at) == before {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(crate::lab::WAIT_MAX, renewed).await.unwrap();
        let duplicate = steps.run(&shop, &operation("k"), &1).await.unwrap();
        assert!(matches!(duplicate, StepsOutcome::InProgress { .. }), "{duplicate:?}");
    }
    gate.open.add_permits(1);
    let done = owner.await.unwrap().unwrap();
    assert!(matches!(&done, StepsOutcome::Done(reply) if reply.body == "run 1"), "{done:?}");
}

async fn duplicates_have_one_effect_and_get_one_answer<S: Shop>(lab: Lab) {
    let gate = Gate::new();
    gate.runs.store(1, Ordering::SeqCst);
    let steps = gated::<S>(gate);
    let shops = [S::connect(&lab.address).await, S::connect(&lab.address).await];
    for round in 0..tiered(20) {
        let mut callers = JoinSet::new();
        for caller in 0..32 {
            let (steps, shop, key) =
                (steps.clone(), shops[caller % 2].clone(), format!("k{round}"));
            callers.spawn(async move {
                loop {
                    match steps.run(&shop, &operation(&key), &1).await.unwrap() {
                        StepsOutcome::Done(reply) => return (true, reply),
                        StepsOutcome::Replay(reply) => return (false, reply),
                        StepsOutcome::InProgress { .. } => {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
        let answers = callers.join_all().await;
        assert_eq!(answers.iter().filter(|(is_done, _)| *is_done).count(), 1);
        assert!(answers.iter().all(|(_, reply)| *reply == answers[0].1));
        let count = round + 1;
        assert_eq!(lab.effects(), format!("after|{count}\nbefore|{count}"));
    }
}

async fn of_many_who_find_a_lease_over_one_takes_it<S: Shop>(lab: Lab) {
    let shops = [S::connect(&lab.address).await, S::connect(&lab.address).await];
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let steps = Steps::new("taken", move |run: Run<S>, _: u32| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if number == 0 {
                return Err(Stopped::failed("it is left to the others"));
            }
            // Long enough for all of them to have found it.
            tokio::time::sleep(Duration::from_millis(200)).await;
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    });
    for round in 0..tiered(50) {
        runs.store(0, Ordering::SeqCst);
        let key = format!("k{round}");
        steps.run(&shops[0], &operation(&key), &1).await.unwrap_err();
        lab.let_time_pass();
        let mut callers = JoinSet::new();
        for caller in 0..16 {
            let (steps, shop, key) = (steps.clone(), shops[caller % 2].clone(), key.clone());
            callers.spawn(async move { steps.run(&shop, &operation(&key), &1).await.unwrap() });
        }
        let outcomes = callers.join_all().await;
        let done = outcomes.iter().filter(|outcome| matches!(outcome, StepsOutcome::Done(_)));
        assert_eq!((done.count(), runs.load(Ordering::SeqCst)), (1, 2), "{outcomes:?}");
    }
}

async fn the_same_key_with_another_request_is_refused<S: Shop>(lab: Lab) {
    let gate = Gate::new();
    let steps = gated::<S>(gate.clone());
    let [shop, other] = [S::connect(&lab.address).await, S::connect(&lab.address).await];
    let owner = steps.clone();
    let owner = tokio::spawn(async move { owner.run(&shop, &operation("k"), &1).await });
    gate.arrived.acquire().await.unwrap().forget();
    assert_eq!(steps.run(&other, &operation("k"), &2).await.unwrap(), StepsOutcome::Reused);
    gate.open.add_permits(1);
    assert!(matches!(owner.await.unwrap().unwrap(), StepsOutcome::Done(_)));
    assert_eq!(steps.run(&other, &operation("k"), &2).await.unwrap(), StepsOutcome::Reused);
    // The answer is kept for its time, and the key is free after it.
    let past = if lab.is_postgres() { "clock_timestamp()" } else { "1" };
    lab.sql(&format!("UPDATE {{steps}} SET expires_at = {past}"));
    let anew = steps.run(&other, &operation("k"), &2).await.unwrap();
    assert!(matches!(anew, StepsOutcome::Done(_)), "{anew:?}");
    assert_eq!(lab.effects(), "after|2\nbefore|2");
}

/// Its operation was deleted, and its key used anew.
async fn an_owner_that_wakes_up_gets_no_answer_to_another_request<S: Shop>(lab: Lab) {
    let gate = Gate::new();
    let steps = gated::<S>(gate.clone());
    let [first, second] = [S::connect(&lab.address).await, S::connect(&lab.address).await];
    let zombie = steps.clone();
    let zombie = tokio::spawn(async move { zombie.run(&first, &operation("k"), &1).await });
    gate.arrived.acquire().await.unwrap().forget();
    let revision: i64 = lab.sql("SELECT revision FROM {steps}").parse().unwrap();
    lab.sql("DELETE FROM {point}");
    lab.sql("DELETE FROM {steps}");
    let anew = steps.run(&second, &operation("k"), &2).await.unwrap();
    assert!(matches!(anew, StepsOutcome::Done(_)), "{anew:?}");
    // Nobody who has seen the old row takes the new one for it.
    let again: i64 = lab.sql("SELECT revision FROM {steps}").parse().unwrap();
    assert!(again.abs_diff(revision) > 100, "{revision} and {again}");
    gate.open.add_permits(1);
    assert_eq!(zombie.await.unwrap().unwrap(), StepsOutcome::Reused);
}

/// As in the unit test of SQLite: whoever has seen the row as late does not take it after a renewal.
#[tokio::test]
async fn an_owner_that_renews_its_lease_before_it_is_taken_keeps_it() {
    let lab = Lab::postgres().await;
    let (id, owner) =
        ("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222");
    let insert = format!(
        "SELECT onlyonce.steps_insert('{id}', 'charge', 's', 'p', 'k', '\\x00', 60000, '1', 7, '{owner}', 0, NULL)"
    );
    assert_eq!(lab.sql(&insert), "t");
    let take = format!(
        "SELECT onlyonce.steps_swap('{id}', 7, NULL, 'running', gen_random_uuid(), 60000, 2, NULL, false, 0, NULL)"
    );
    let renew = |lease_ms| format!("SELECT onlyonce.steps_renew('{id}', '{owner}', {lease_ms})");
    assert_eq!((lab.sql(&renew(60_000)), lab.sql(&take)), ("t".to_owned(), "f".to_owned()));
    assert_eq!((lab.sql(&renew(0)), lab.sql(&take)), ("t".to_owned(), "t".to_owned()));
}
