//! Serialization failures, deadlocks, lost commits, and the last line of defence.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use onlyonce::Policy;
use onlyonce::transaction::{Reply, TransactionError, Transactions, Tx, is_already_done};
use tokio::task::JoinSet;

use super::{BODY, Shop, caller, charge, insert, send};
use crate::lab::{self, Lab, tiered};
use crate::lost_commit::{CUT_NOTHING, CUT_REPLY, CUT_REQUEST, Line};

type Runs = State<Arc<AtomicUsize>>;

/// Reads and then writes the balance; every error of the database becomes the status that the request asks for.
async fn deposit(mut tx: Tx, State(runs): Runs, body: String) -> Result<Response, Response> {
    runs.fetch_add(1, Ordering::SeqCst);
    let told: serde_json::Value = serde_json::from_str(&body).unwrap();
    let swallowed = |_: sqlx::Error| match told["swallow"].as_u64() {
        Some(0) => panic!("a handler that unwraps"),
        Some(status) => StatusCode::from_u16(status as u16).unwrap().into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let balance: Result<i32, _> =
        sqlx::query_scalar("SELECT balance FROM account").fetch_one(&mut *tx).await;
    let balance = balance.map_err(swallowed)?;
    tokio::task::yield_now().await;
    let write = sqlx::query("UPDATE account SET balance = $1").bind(balance + 1);
    write.execute(&mut *tx).await.map_err(swallowed)?;
    Ok(StatusCode::CREATED.into_response())
}

/// Whatever the handler makes of the error: a 500, a 200 as if nothing had happened, a refusal, a panic.
// R128
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serialization_failure_runs_the_handler_again_even_if_it_hides_the_error() {
    for swallowed in [500, 200, 404, 401, 0] {
        let lab = Lab::start_with(&["default_transaction_isolation=serializable"]).await;
        lab.sql("CREATE TABLE account (balance integer NOT NULL); INSERT INTO account VALUES (0)");
        let shop = Arc::new(Shop::open_in(lab, Policy::default(), deposit, |layer| layer).await);
        let (count, mut calls) = (tiered(120), 0);
        for first in (0..count).step_by(3) {
            let mut deposits = JoinSet::new();
            for number in first..first + 3 {
                let shop = shop.clone();
                let body = format!(r#"{{"swallow":{swallowed}}}"#);
                deposits.spawn(async move {
                    // Out of attempts nothing was done, and the client's own retry does it.
                    for call in 1..=20 {
                        let answer = shop.post(&format!("k{number}"), &body).await;
                        if answer.status == StatusCode::CREATED {
                            return call;
                        }
                    }
                    panic!("k{number} was never done");
                });
            }
            calls += deposits.join_all().await.into_iter().sum::<usize>();
        }
        let count = count.next_multiple_of(3);
        assert_eq!(shop.lab.sql("SELECT balance FROM account"), count.to_string(), "{swallowed}");
        assert!(shop.runs() > calls, "{swallowed}: {} runs in {calls} calls", shop.runs());
        println!("{swallowed}: {count} deposits, {} runs in {calls} calls", shop.runs());
    }
}

// R128
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_runs_the_handler_again() {
    let lab = Lab::start_with(&["deadlock_timeout=50ms"]).await;
    lab.sql("CREATE TABLE pair (id integer PRIMARY KEY, n integer); INSERT INTO pair VALUES (1, 0), (2, 0)");
    let handler = async |mut tx: Tx, State(runs): Runs, body: String| {
        runs.fetch_add(1, Ordering::SeqCst);
        let first = if body == "12" { 1 } else { 2 };
        for id in [first, 3 - first] {
            let write = sqlx::query("UPDATE pair SET n = n + 1 WHERE id = $1").bind(id);
            if write.execute(&mut *tx).await.is_err() {
                return StatusCode::INTERNAL_SERVER_ERROR;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        StatusCode::CREATED
    };
    let shop = Shop::open_in(lab, Policy::default(), handler, |layer| layer).await;
    let rounds = tiered(20);
    for round in 0..rounds {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let (a, b) = tokio::join!(shop.post(&a, "12"), shop.post(&b, "21"));
        assert_eq!((a.status, b.status), (StatusCode::CREATED, StatusCode::CREATED));
    }
    let expected = format!("{}\n{}", 2 * rounds, 2 * rounds);
    assert_eq!(shop.lab.sql("SELECT n FROM pair ORDER BY id"), expected);
    assert!(shop.runs() > 2 * rounds, "no deadlock was met: {} runs", shop.runs());
}

/// Every attempt meets a conflict, and the handler makes an answer of its own from it: one that would be kept is not sent.
// R128
#[tokio::test]
async fn an_answer_that_is_not_kept_is_never_sent_as_if_it_were() {
    let lab = Lab::start_with(&["default_transaction_isolation=serializable"]).await;
    let conflict = "DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$";
    let handler = async move |mut tx: Tx, State(runs): Runs, body: String| {
        insert(&mut tx, &runs).await;
        sqlx::raw_sql(conflict).execute(&mut *tx).await.unwrap_err();
        StatusCode::from_u16(body.parse().unwrap()).unwrap()
    };
    let shop = Shop::open_in(lab, Policy::default(), handler, |layer| layer).await;
    for (status, sent, is_ours) in [
        ("402", 409, true),
        ("404", 409, true),
        ("201", 500, true),
        ("401", 401, false),
        ("500", 500, false),
    ] {
        let before = shop.runs();
        let answer = shop.post(&format!("k{status}"), status).await;
        assert_eq!(answer.status.as_u16(), sent, "{status}: {answer:?}");
        assert_eq!(answer.headers.contains_key("retry-after"), sent == 409, "{status}");
        if is_ours {
            assert_eq!(answer.code(), "idempotency_rolled_back", "{status}");
        }
        assert_eq!((shop.runs() - before, shop.operations()), (6, "0".to_owned()), "{status}");
    }
    assert_eq!(shop.lab.charges(), "0");
}

/// Under READ COMMITTED a fast failure is hardly a conflict: a refusal that comes again is the handler's own, and kept. One that is
/// not kept anyway is not run again.
// R128
#[tokio::test]
async fn a_refusal_that_every_run_ends_with_is_kept() {
    let handler = async |mut tx: Tx, State(runs): Runs, body: String| {
        insert(&mut tx, &runs).await;
        let email = sqlx::query("INSERT INTO customer VALUES ('ann@shop.example')");
        match email.execute(&mut *tx).await {
            Ok(_) => StatusCode::CREATED,
            Err(_) if body == "500" => StatusCode::INTERNAL_SERVER_ERROR,
            Err(_) => StatusCode::CONFLICT,
        }
    };
    let lab = Lab::start().await;
    lab.sql("CREATE TABLE customer (email text PRIMARY KEY); INSERT INTO customer VALUES ('ann@shop.example')");
    let shop = Shop::open_in(lab, Policy::default(), handler, |layer| layer).await;
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CONFLICT);
    let again = shop.post("k", BODY).await;
    assert_eq!((again.status, again.is_replay(), shop.runs()), (StatusCode::CONFLICT, true, 3));
    assert_eq!(shop.post("l", "500").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!((shop.runs(), shop.lab.charges()), (4, "0".to_owned()));
}

/// The row that the handler changes is moved to another partition meanwhile: a serialization failure under READ COMMITTED too.
// R128
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_moved_to_another_partition_is_no_refusal_that_is_kept() {
    let lab = Lab::start().await;
    lab.sql(
        "CREATE TABLE card (id integer, region integer, balance integer) PARTITION BY LIST (region);
         CREATE TABLE card_1 PARTITION OF card FOR VALUES IN (1);
         CREATE TABLE card_2 PARTITION OF card FOR VALUES IN (2);
         INSERT INTO card VALUES (1, 1, 100)",
    );
    let other = lab.pool(1).await;
    let handler = async move |mut tx: Tx, State(runs): Runs| {
        let is_first = runs.fetch_add(1, Ordering::SeqCst) == 0;
        let mut moving = other.begin().await.unwrap();
        if is_first {
            sqlx::query("UPDATE card SET region = 2").execute(&mut *moving).await.unwrap();
        }
        // It waits for the other transaction, which commits as soon as it is seen to wait.
        let commit = async {
            let waits =
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')";
            while is_first
                && !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut *moving).await.unwrap()
            {
            }
            moving.commit().await.unwrap();
        };
        let spend = sqlx::query("UPDATE card SET balance = balance - 1 WHERE id = 1");
        let (spent, ()) = tokio::join!(spend.execute(&mut *tx), commit);
        match spent {
            Ok(_) => StatusCode::CREATED,
            Err(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    };
    let shop = Shop::open_in(lab, Policy::default(), handler, |layer| layer).await;
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    assert_eq!((shop.runs(), shop.lab.sql("SELECT balance FROM card").as_str()), (2, "99"));
}

/// Charges with the operation's id, and hides every error in a 500.
async fn charge_once(mut tx: Tx, State(runs): Runs) -> StatusCode {
    runs.fetch_add(1, Ordering::SeqCst);
    let operation = tx.operation_id().to_owned();
    let charge = sqlx::query("INSERT INTO charge VALUES ($1::uuid, 7998)").bind(operation);
    match charge.execute(&mut *tx).await {
        Ok(_) => StatusCode::CREATED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

// R129
#[tokio::test]
async fn an_operation_whose_record_is_gone_meets_the_last_line_of_defence() {
    let lab = Lab::start().await;
    lab.sql("ALTER TABLE charge ADD UNIQUE (operation)");
    let column = |layer: onlyonce::transaction::TransactionLayer| {
        layer.with_operation_column("public.charge", "operation")
    };
    let shop = Shop::open_in(lab, Policy::default(), charge_once, column).await;
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    shop.lab.sql("DELETE FROM onlyonce.transactional");
    let answer = shop.post("k", BODY).await;
    let told = (answer.status.as_u16(), answer.code());
    assert_eq!(told, (409, "idempotency_response_unavailable".to_owned()));
    assert_eq!((shop.lab.charges(), shop.runs()), ("1".to_owned(), 2));
    assert_eq!(shop.post("other", BODY).await.status, StatusCode::CREATED);
}

// R129
#[tokio::test]
async fn a_violation_of_the_operations_constraint_is_told_from_every_other() {
    let lab = Lab::start().await;
    lab.sql("ALTER TABLE charge ADD UNIQUE (operation), ADD UNIQUE (amount)");
    let pool = lab.pool(1).await;
    let insert = async |operation: &str, amount: i32| {
        let insert =
            sqlx::query("INSERT INTO charge VALUES ($1::uuid, $2)").bind(operation.to_owned());
        insert.bind(amount).execute(&pool).await
    };
    let (one, other) =
        ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002");
    insert(one, 1).await.unwrap();
    let twice = insert(one, 2).await.unwrap_err();
    assert!(
        is_already_done(&twice, "charge_operation_key") && is_already_done(&twice, "operation")
    );
    assert!(!is_already_done(&twice, "charge_amount_key") && !is_already_done(&twice, "amount"));
    let error = TransactionError::of_work(twice, "operation");
    assert!(
        matches!(error, TransactionError::AlreadyDone(_)) && is_already_done(&error, "operation")
    );
    // The text of an error has the values too, which are the client's.
    lab.sql("CREATE TABLE note (text text UNIQUE)");
    for note in ["(operation)=(", "Key (operation)=(1)", "charge_operation_key"] {
        let note = || sqlx::query("INSERT INTO note VALUES ($1)").bind(note).execute(&pool);
        note().await.unwrap();
        let twice = note().await.unwrap_err();
        assert!(!is_already_done(&twice, "operation"), "{twice:?}");
        assert!(is_already_done(&twice, "text") && is_already_done(&twice, "note_text_key"));
    }
    lab.sql(r#"CREATE TABLE odd ("Operation" text UNIQUE, a text, b text, UNIQUE (a, b))"#);
    let odd = "INSERT INTO odd VALUES ('(operation)=(1)', 'a', 'b')";
    sqlx::query(odd).execute(&pool).await.unwrap();
    let twice = sqlx::query(odd).execute(&pool).await.unwrap_err();
    assert!(is_already_done(&twice, "Operation") && !is_already_done(&twice, "operation"));
    let pair = sqlx::query("INSERT INTO odd VALUES ('other', 'a', 'b')").execute(&pool).await;
    assert!(!is_already_done(&pair.unwrap_err(), "a"), "a column of several proves nothing");
    let amount = insert(other, 1).await.unwrap_err();
    assert!(!is_already_done(&amount, "operation"));
    assert!(matches!(TransactionError::of_work(amount, "operation"), TransactionError::NotDone(_)));
}

/// The reply to COMMIT is cut off: the first caller gets the answer of the commit that was made. COMMIT itself is cut off: it
/// was not made, the handler is not run again by itself, and the retry of the client does it.
// R126
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_commit_is_resolved_and_never_run_again() {
    let lab = Lab::start().await;
    let line = Line::lay(lab.postgres.port()).await;
    let (runs, pool) = (Arc::new(AtomicUsize::new(0)), lab::pool(&line.url(&lab.url), 2).await);
    let layer = Transactions::new().layer(pool, caller, Policy::default());
    let app = Router::new().route("/charges", post(charge_once)).layer(layer);
    let app = app.with_state(runs.clone());
    for number in 0..tiered(60) {
        let key = format!("k{number}");
        let cut = if number % 2 == 0 { CUT_REPLY } else { CUT_REQUEST };
        line.cut.store(cut, Ordering::SeqCst);
        let (before, charges) = (runs.load(Ordering::SeqCst), lab.charges());
        let answer = send(app.clone(), charge(&key, BODY)).await;
        assert_eq!(line.cut.load(Ordering::SeqCst), CUT_NOTHING, "the line was cut");
        assert_eq!(runs.load(Ordering::SeqCst), before + 1);
        match cut {
            CUT_REPLY => {
                assert_eq!((answer.status, answer.is_replay()), (StatusCode::CREATED, false))
            }
            _ => {
                assert_eq!(answer.code(), "idempotency_rolled_back", "{answer:?}");
                assert_eq!(lab.charges(), charges);
            }
        }
        let again = send(app.clone(), charge(&key, BODY)).await;
        assert_eq!((again.status, again.is_replay()), (StatusCode::CREATED, cut == CUT_REPLY));
        assert_eq!(lab.charges(), (number + 1).to_string());
    }
}

/// The layer and the library call share the functions, so that they never share a key by accident.
#[tokio::test]
async fn a_key_of_a_request_is_not_the_key_of_an_operation_of_the_library() {
    let shop = Shop::open(Policy::default(), charge_once).await;
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    let begun = Transactions::new().begin(&shop.pool, &lab::charge("k")).await.unwrap();
    let onlyonce::transaction::Begun::Mine(tx) = begun else { panic!() };
    tx.complete(Reply::new(StatusCode::OK, "")).await.unwrap();
}
