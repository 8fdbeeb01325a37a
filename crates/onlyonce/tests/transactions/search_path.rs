//! Functions, operators, types and tables that a stranger has put where names are looked for.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::StatusCode;
use onlyonce::Policy;
use onlyonce::store::postgres::{PostgresStore, inspect};
use onlyonce::transaction::{Begun, Consumed, Reply, Transactions, Tx};
use servers::Postgres;
use sqlx::PgPool;
use tokio_postgres::{Client, NoTls};

use crate::lab::{charge, created, pool};
use crate::layer::{BODY, caller, charge as request, send};

/// A database in which the schema of the search path that comes first has something hostile of every name.
struct Hostile {
    postgres: Postgres,
    /// For us, whose names lead to `public`.
    url: String,
    /// For the test.
    plain: String,
}

impl Hostile {
    /// Made before our own schema is.
    async fn install() -> Self {
        let postgres = Postgres::start();
        let plain = postgres.database();
        let url = postgres.make_hostile(&plain);
        PostgresStore::open(&url).await.unwrap().close().await;
        postgres.sql(&plain, "CREATE TABLE charge (operation uuid UNIQUE, amount integer)");
        Self { postgres, url, plain }
    }

    fn sql(&self, statements: &str) -> String {
        self.postgres.sql(&self.plain, statements)
    }

    async fn session(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(!self.postgres.has_caught(&self.plain));
        }
    }
}

const CHARGE: &str = "INSERT INTO charge (amount) VALUES (7998)";

async fn charged(pool: &PgPool, key: &str) -> Begun<Reply> {
    match Transactions::new().begin(pool, &charge(key)).await.unwrap() {
        Begun::Mine(mut tx) => {
            sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
            tx.outbox("charges", Some("acct_1"), b"charged").await.unwrap();
            Begun::Mine(tx.complete(created()).await.unwrap())
        }
        Begun::Replay(reply) => Begun::Replay(reply),
        other => panic!("{other:?}"),
    }
}

// threat K19
#[tokio::test]
async fn through_sqlx_nothing_of_the_search_path_is_called() {
    let hostile = Hostile::install().await;
    let (pool, transactions) = (pool(&hostile.url, 2).await, Transactions::new());
    assert!(matches!(charged(&pool, "k").await, Begun::Mine(_)));
    assert!(matches!(charged(&pool, "k").await, Begun::Replay(_)));
    let reused = charge("k").with_payload(&1).unwrap();
    assert!(matches!(transactions.begin(&pool, &reused).await.unwrap(), Begun::Reused));
    // Declined, expired and begun again, at work for another, left without an answer.
    let Begun::Mine(tx) = transactions.begin(&pool, &charge("d")).await.unwrap() else { panic!() };
    tx.decline(created()).await.unwrap();
    hostile.sql("UPDATE onlyonce.transactional SET expires_at = now() WHERE key = 'd'");
    let Begun::Mine(tx) = transactions.begin(&pool, &charge("d")).await.unwrap() else { panic!() };
    let busy = transactions.begin(&pool, &charge("d")).await.unwrap();
    assert!(matches!(busy, Begun::InProgress { .. }));
    drop(tx);
    for is_first in [true, false] {
        let work = async |connection: &mut sqlx::PgConnection| {
            sqlx::query(CHARGE).execute(connection).await.map(drop)
        };
        let consumed = transactions.consume(&pool, "mailer", "m1", work).await.unwrap();
        assert_eq!(consumed == Consumed::Done(()), is_first);
    }
}

// threat K19
#[tokio::test]
async fn through_tokio_postgres_nothing_of_the_search_path_is_called() {
    let hostile = Hostile::install().await;
    let (mut client, transactions) = (hostile.session().await, Transactions::new());
    let Begun::Mine(tx) = transactions.begin_on(&mut client, &charge("k")).await.unwrap() else {
        panic!()
    };
    tx.batch_execute(CHARGE).await.unwrap();
    tx.outbox("charges", None, b"charged").await.unwrap();
    let token = tx.operation_id().to_owned();
    tx.complete(created()).await.unwrap();
    let resolved = transactions.resolve_on(&mut client, &charge("k"), &token).await.unwrap();
    assert_eq!(resolved, Some(created()));
    {
        let replay = transactions.begin_on(&mut client, &charge("k")).await.unwrap();
        assert!(matches!(replay, Begun::Replay(_)));
    }
    let work = async |tx: &tokio_postgres::Transaction<'_>| tx.batch_execute(CHARGE).await;
    let consumed = transactions.consume_on(&mut client, "mailer", "m1", work).await.unwrap();
    assert_eq!(consumed, Consumed::Done(()));
    client
        .batch_execute("SELECT onlyonce.sweep_transactions(), onlyonce.sweep_steps()")
        .await
        .unwrap();
}

// threat K19
#[tokio::test]
async fn in_axum_nothing_of_the_search_path_is_called() {
    let hostile = Hostile::install().await;
    let pool = pool(&hostile.url, 2).await;
    let handler = async |mut tx: Tx, body: String| {
        let operation = tx.operation_id().to_owned();
        let insert = format!("INSERT INTO charge VALUES ('{operation}', 7998)");
        for _ in 0..body.len().min(2) {
            // The second one is refused: it is there already.
            if sqlx::raw_sql(sqlx::AssertSqlSafe(&*insert)).execute(&mut *tx).await.is_err() {
                return StatusCode::INTERNAL_SERVER_ERROR;
            }
        }
        StatusCode::CREATED
    };
    let policy = Policy::default().with_upstream_timeout(Duration::from_secs(20));
    let layer = Transactions::new().layer(pool, caller, policy);
    let layer = layer.with_operation_column("charge", "operation");
    let app = Router::new().route("/charges", post(handler)).layer(layer);
    for (key, body, status) in [("once", "1", 201), ("once", "1", 201), ("twice", BODY, 500)] {
        let answer = send(app.clone(), request(key, body)).await;
        assert_eq!(answer.status, status, "{key}: {answer:?}");
    }
    hostile.sql("DELETE FROM onlyonce.transactional");
    let answer = send(app, request("once", "1")).await;
    assert_eq!(answer.code(), "idempotency_response_unavailable");
}

// threat K19
#[tokio::test]
async fn doctor_calls_nothing_of_the_search_path() {
    let hostile = Hostile::install().await;
    let facts = inspect(&hostile.url).await.unwrap();
    assert!(!facts.is_pooled && facts.version > 0, "{facts:?}");
}

/// What no session can see to, because it is the caller's: each function looks where it says.
// threat K19
#[tokio::test]
async fn every_function_of_ours_says_where_names_are_looked_for() {
    let hostile = Hostile::install().await;
    let open = "SELECT string_agg(p.oid::regprocedure::text, ', ') FROM pg_proc p
                 WHERE p.pronamespace = 'onlyonce'::regnamespace AND p.prosqlbody IS NULL
                   AND NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(p.proconfig, '{}'))";
    assert_eq!(hostile.sql(open), "");
    assert_ne!(
        hostile.sql("SELECT count(*) FROM pg_proc WHERE pronamespace = 'onlyonce'::regnamespace"),
        "0"
    );
}

/// On a server as it comes: a role that may create functions in `public`, as everybody might before Postgres 15, and another one
/// whose key is replayed, or who installs the schema.
// threat K19
#[tokio::test]
async fn a_role_gains_nothing_by_the_calls_of_another() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let take_over = |signature: &str, returns: &str| {
        format!(
            "CREATE FUNCTION public.{signature} RETURNS {returns} LANGUAGE plpgsql AS
               'BEGIN ALTER ROLE mallory SUPERUSER; RETURN NULL; END';"
        )
    };
    postgres.sql(&url, "CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory");
    let mallorys = url.replace("//postgres@", "//mallory@");
    postgres.sql(
        &mallorys,
        &[
            take_over("num_nulls(integer, jsonb, bytea, timestamptz)", "integer"),
            take_over("num_nonnulls(integer, jsonb, bytea, timestamptz)", "integer"),
            take_over("json_build_array(text, text)", "json"),
        ]
        .concat(),
    );
    PostgresStore::open(&url).await.unwrap().close().await;
    let begin = r"onlyonce.begin('s', 'p', 'k', '\x01')";
    postgres
        .sql(&url, &format!("BEGIN; SELECT onlyonce.complete(token, 201) FROM {begin}; COMMIT"));
    assert_eq!(postgres.sql(&url, &format!("SELECT outcome FROM {begin}")), "replay");
    let is_super = "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'";
    assert_eq!(postgres.sql(&url, is_super), "f");
}
