//! A database with the functions and a business table.

use http::StatusCode;
use onlyonce::Operation;
use onlyonce::scope::Principal;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::transaction::Reply;
use servers::Postgres;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

pub(crate) struct Lab {
    pub(crate) postgres: Postgres,
    pub(crate) url: String,
}

impl Lab {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(settings: &[&str]) -> Self {
        let postgres = Postgres::start_with(settings);
        let url = postgres.database();
        PostgresStore::open(&url).await.unwrap().close().await;
        postgres.sql(&url, "CREATE TABLE charge (operation uuid, amount integer NOT NULL)");
        Self { postgres, url }
    }

    pub(crate) fn sql(&self, statements: &str) -> String {
        self.postgres.sql(&self.url, statements)
    }

    pub(crate) fn charges(&self) -> String {
        self.sql("SELECT count(*) FROM charge")
    }

    pub(crate) async fn pool(&self, connections: u32) -> PgPool {
        pool(&self.url, connections).await
    }
}

pub(crate) async fn pool(url: &str, connections: u32) -> PgPool {
    PgPoolOptions::new().max_connections(connections).connect(url).await.unwrap()
}

/// A charge of 7998 with this key.
pub(crate) fn charge(key: &str) -> Operation {
    let account = Principal::of("account", b"acct_1");
    Operation::new("POST /charges", account, key).unwrap().with_payload(&7998).unwrap()
}

pub(crate) fn created() -> Reply {
    Reply::new(StatusCode::CREATED, "charged")
}

pub(crate) const CHARGE: &str = "INSERT INTO charge (amount) VALUES (7998)";

/// The tier's count: all of it, or about a tenth.
pub(crate) fn tiered(full: usize) -> usize {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    if is_full { full } else { full.div_ceil(10) }
}
