//! What operators find, retry and settle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use onlyonce::Failure;
use onlyonce::steps::{
    CallAgain, Completer, PgDatabase, Run, SqliteDatabase, Steps, StepsFilter, StepsOutcome,
    StepsState, Stopped,
};
use onlyonce::transaction::Reply;

use crate::lab::{Lab, Shop, on_both, operation};

on_both! {
    operators_find_operations_by_state_and_see_their_points;
    a_call_in_doubt_is_made_again_only_if_the_operator_says_so;
    a_settled_operation_answers_and_its_owner_commits_nothing_more;
    pages_have_every_operation_once;
}

fn waiting<S: Shop>() -> Steps<S, u32> {
    Steps::new("waiting", async |mut run: Run<S>, _: u32| {
        run.step("first", async |_tx| Ok(("ch_1".to_owned(), 7))).await?;
        Err(Stopped::failed("the provider is away"))
    })
    .with_retry_pause(Duration::from_secs(600))
}

async fn operators_find_operations_by_state_and_see_their_points<S: Shop>(lab: Lab) {
    let (shop, operators) = (S::connect(&lab.address).await, lab.operators().await);
    waiting::<S>().run(&shop, &operation("w"), &1).await.unwrap_err();
    let doubtful = Steps::new("doubtful", async |_: Run<S>, _: u32| Err(Stopped::in_doubt("?")));
    let _ = doubtful.run(&shop, &operation("u"), &1).await.unwrap();
    let done = Steps::new("done", async |run: Run<S>, _: u32| {
        run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
    });
    let _ = done.run(&shop, &operation("d"), &1).await.unwrap();
    let keys = async |filter| {
        let found = operators.list(filter, None).await.unwrap();
        found.into_iter().map(|stored| stored.key).collect::<Vec<_>>().join(" ")
    };
    let of_state = |state| StepsFilter { state: Some(state), ..StepsFilter::default() };
    assert_eq!(keys(StepsFilter::default()).await, "w u");
    assert_eq!(keys(of_state(StepsState::Waiting)).await, "w");
    assert_eq!(keys(of_state(StepsState::Unknown)).await, "u");
    assert_eq!(keys(of_state(StepsState::Completed)).await, "d");
    assert_eq!(keys(of_state(StepsState::Stuck)).await, "");
    assert_eq!(keys(StepsFilter { name: Some("waiting"), ..StepsFilter::default() }).await, "w");
    let found = operators.list(of_state(StepsState::Waiting), None).await.unwrap();
    let (stored, points) = operators.show(&found[0].id).await.unwrap().unwrap();
    assert_eq!(stored, found[0]);
    assert_eq!(stored.error.as_deref(), Some("the provider is away"));
    assert_eq!((stored.point.as_deref(), stored.request.as_str()), (Some("first"), "1"));
    assert_eq!(points.len(), 1);
    assert_eq!((points[0].name.as_str(), points[0].value.as_str()), ("first", r#"["ch_1",7]"#));
    assert_eq!(operators.show("no id").await.unwrap(), None);
    // Retried, it is due at once and has all of its attempts.
    assert!(operators.retry(&stored.id, CallAgain::No, "ann: it is back").await.unwrap());
    let (stored, _) = operators.show(&stored.id).await.unwrap().unwrap();
    assert_eq!((stored.state, stored.attempts), (StepsState::Waiting, 0));
    assert_eq!(stored.note.as_deref(), Some("ann: it is back"));
    waiting::<S>().run(&shop, &operation("w"), &1).await.unwrap_err();
}

// R133
async fn a_call_in_doubt_is_made_again_only_if_the_operator_says_so<S: Shop>(lab: Lab) {
    let (shop, operators) = (S::connect(&lab.address).await, lab.operators().await);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let steps = Steps::new("mail", move |mut run: Run<S>, _: u32| {
        let calls = counted.clone();
        async move {
            run.call_once("sent", async |_| match calls.fetch_add(1, Ordering::SeqCst) {
                0 => Err(Failure::Unknown("no answer".into())),
                _ => Ok(()),
            })
            .await?;
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, "sent"))).await
        }
    });
    let outcome = steps.run(&shop, &operation("k"), &1).await.unwrap();
    let StepsOutcome::Unknown { operation: id, .. } = outcome else { panic!("{outcome:?}") };
    let (stored, _) = operators.show(&id).await.unwrap().unwrap();
    assert_eq!((stored.state, stored.calling.as_deref()), (StepsState::Unknown, Some("sent")));
    let revision = stored.revision;
    let quiet = CallAgain::WhenQuiet { revision };
    // Not before its owner can send it no more, nor for another doubt than the one that was seen.
    let early = [CallAgain::No, quiet, CallAgain::Now { revision: revision - 1 }];
    for again in early {
        assert!(!operators.retry(&id, again, "ann: why not").await.unwrap(), "{again:?}");
    }
    assert_eq!(lab.sql("SELECT state FROM {steps}"), "unknown");
    let quiet_ms = stored.quiet_until.unwrap().since_ms(stored.since);
    assert_eq!(quiet_ms, 330_000, "a lease and the longest attempt");
    let long_ago = match lab.is_postgres() {
        true => "since - quiet - interval '1 ms'",
        false => "since - quiet_ms - 1",
    };
    lab.sql(&format!("UPDATE {{steps}} SET since = {long_ago}"));
    assert!(operators.retry(&id, quiet, "ann: it was not sent").await.unwrap());
    let completer = Completer::new(shop.clone()).with(&steps).with_poll_max(Duration::ZERO);
    completer.run_until(lab.until("SELECT state FROM {steps}", "completed")).await;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    let again =
        CallAgain::Now { revision: lab.sql("SELECT revision FROM {steps}").parse().unwrap() };
    assert!(!operators.retry(&id, again, "ann: once more").await.unwrap(), "it is completed");
}

async fn a_settled_operation_answers_and_its_owner_commits_nothing_more<S: Shop>(lab: Lab) {
    let [shop, other] = [S::connect(&lab.address).await, S::connect(&lab.address).await];
    let operators = lab.operators().await;
    let (arrived, open) =
        (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let gate = (arrived.clone(), open.clone());
    let steps = Steps::new("slow", move |mut run: Run<S>, _: u32| {
        let (arrived, open) = gate.clone();
        async move {
            run.call("slow", async |_| {
                arrived.notify_one();
                open.notified().await;
                Ok(())
            })
            .await?;
            run.finish(async |mut tx| {
                S::effect(&mut tx, "finished").await?;
                Ok(Reply::new(StatusCode::OK, "by its owner"))
            })
            .await
        }
    })
    .with_lease(Duration::from_secs(60));
    let owner = steps.clone();
    let owner = tokio::spawn(async move { owner.run(&shop, &operation("k"), &1).await });
    arrived.notified().await;
    let id = lab.sql("SELECT id FROM {steps}");
    let reply = Reply::new(StatusCode::CREATED, "by hand")
        .with_header(header::LOCATION, HeaderValue::from_static("/1"));
    assert!(!operators.settle(&id, &reply, "ann").await.unwrap(), "its owner is at it");
    lab.let_time_pass();
    assert!(operators.settle(&id, &reply, "ann: done by phone").await.unwrap());
    open.notify_one();
    for outcome in
        [owner.await.unwrap().unwrap(), steps.run(&other, &operation("k"), &1).await.unwrap()]
    {
        assert_eq!(outcome, StepsOutcome::Replay(reply.clone()));
    }
    assert_eq!(lab.effects(), "");
    assert_eq!(lab.sql("SELECT note FROM {steps}"), "ann: done by phone");
}

async fn pages_have_every_operation_once<S: Shop>(lab: Lab) {
    let (shop, operators) = (S::connect(&lab.address).await, lab.operators().await);
    for number in 0..103 {
        let key = format!("k{number}");
        waiting::<S>().run(&shop, &operation(&key), &1).await.unwrap_err();
    }
    if lab.is_postgres() {
        // All of them in the second half of one millisecond.
        lab.sql("UPDATE {steps} SET since = timestamptz '2026-01-01 00:00:00.0006'");
    }
    let first = operators.list(StepsFilter::default(), None).await.unwrap();
    let second = operators.list(StepsFilter::default(), first.last()).await.unwrap();
    assert_eq!((first.len(), second.len()), (100, 3));
    let ids = first.iter().chain(&second).map(|stored| &stored.id);
    assert_eq!(ids.collect::<std::collections::BTreeSet<_>>().len(), 103);
}

/// The rights and the statements that docs/recovery-points.md names.
#[tokio::test]
async fn a_role_with_few_rights_does_the_steps_and_sweeps() {
    let lab = Lab::postgres().await;
    let page = include_str!("../../../../docs/recovery-points.md");
    let block = |start: &str| {
        let block = page.split("```sql\n").find(|block| block.starts_with(start)).unwrap();
        block.split("```").next().unwrap().to_owned()
    };
    lab.sql("CREATE ROLE app LOGIN; GRANT ALL ON effect TO app");
    lab.sql(&block("GRANT"));
    let shop =
        PgDatabase::connect(&lab.address.replace("postgres://postgres@", "postgres://app@")).await;
    let steps = crate::shop::order::<PgDatabase>(crate::shop::World::new(
        crate::provider::Provider::start().address,
    ));
    crate::lab::answered(&steps, &shop, "k", &crate::shop::ORDER).await;
    assert_eq!(lab.sql("SET ROLE app; SELECT onlyonce.sweep_steps()"), "0");
    assert_eq!(lab.sql(&block("SELECT state")), "");
    lab.sql("UPDATE {steps} SET expires_at = now()");
    assert_eq!(lab.sql("SET ROLE app; SELECT onlyonce.sweep_steps()"), "1");
    assert_eq!(lab.sql("SELECT count(*) FROM {point}"), "0");
}

/// The rows that a sweep reads are those that it deletes, however many are kept.
#[tokio::test]
async fn a_sweep_of_steps_reads_no_rows_that_it_keeps() {
    let lab = Lab::postgres().await;
    lab.sql(
        "INSERT INTO {steps} (id, name, scope, principal, key, fingerprint, ttl, request, begun_at, state, since, revision,
                              attempts, status, headers, body, expires_at)
           SELECT gen_random_uuid(), 'n', 's', 'p', 'k', '', '1 day', '1', now(), 'completed', now(), 1, 0, 200, '{}', '',
                  now() + i * interval '1 h'
             FROM generate_series(-2, 2000) i;
         ANALYZE {steps}",
    );
    let scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'steps'";
    let before = lab.sql(scans);
    let swept = "SELECT onlyonce.sweep_steps(); SELECT pg_stat_force_next_flush()";
    assert_eq!(lab.sql(swept).lines().next(), Some("3"));
    assert_eq!(lab.sql(scans), before, "the table is not read from end to end");
    let read = lab
        .sql("SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'steps_expiry'");
    assert!(read.parse::<u64>().unwrap() < 100, "{read} entries of the index were read");
}

/// Also in a shell that does not look at foreign keys: a point that stays would answer for work of the next operation.
#[tokio::test]
async fn what_has_expired_in_a_file_is_deleted_by_the_statement_of_the_docs() {
    let page = include_str!("../../../../docs/recovery-points.md");
    let delete = page.split("```sql\n").find(|block| block.starts_with("DELETE")).unwrap();
    let delete = delete.split("```").next().unwrap();
    for foreign_keys in ["ON", "OFF"] {
        let lab = Lab::sqlite();
        let shop = SqliteDatabase::connect(&lab.address).await;
        let steps = Steps::new("done", async |mut run: Run<SqliteDatabase>, _: u32| {
            run.step("first", async |mut tx| SqliteDatabase::effect(&mut tx, "first").await)
                .await?;
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        });
        crate::lab::answered(&steps, &shop, "old", &1).await;
        lab.sql("UPDATE {steps} SET expires_at = 1");
        crate::lab::answered(&steps, &shop, "new", &1).await;
        let shell = rusqlite::Connection::open(lab.address.strip_prefix("sqlite:").unwrap());
        let sweep = format!("PRAGMA foreign_keys = {foreign_keys}; {delete}");
        shell.unwrap().execute_batch(&sweep).unwrap();
        assert_eq!(lab.sql("SELECT key FROM {steps}"), "new", "{foreign_keys}");
        assert_eq!(lab.sql("SELECT count(*) FROM {point}"), "1", "{foreign_keys}");
        crate::lab::answered(&steps, &shop, "old", &1).await;
        assert_eq!(lab.effects(), "first|3", "{foreign_keys}");
    }
}
