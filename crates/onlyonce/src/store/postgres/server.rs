//! What a server says of itself, and whether it is one that keeps what it commits.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

use super::address::ServerAddress;
use super::error::{PostgresOpenError, SERVER_MIN};

/// What a server said of itself.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) session: Session,
    /// Settings with which a failure may forget keys, for the server's owner.
    pub(super) warnings: Vec<String>,
}

impl Server {
    /// Sets up the session, and asks for the settings that the promise rests on. `Err` if the server does not keep what
    /// it commits.
    pub(super) async fn ask(
        client: &Client,
        address: &ServerAddress,
    ) -> Result<Self, PostgresOpenError> {
        let failed = |error| address.failed(error);
        client.batch_execute(include_str!("sql/session.sql")).await.map_err(failed)?;
        let about = json(client, include_str!("sql/about.sql")).await.map_err(failed)?;
        let (name, settings, version) =
            (&address.name, &about["settings"], about["version"].as_i64().unwrap_or(0));
        if about["is_standby"] != false {
            return Err(PostgresOpenError::Standby(name.clone()));
        }
        if version < SERVER_MIN {
            return Err(PostgresOpenError::TooOld(name.clone(), version));
        }
        if settings["fsync"] != "on" {
            return Err(PostgresOpenError::NotDurable(name.clone()));
        }
        let warnings = [
            (settings["full_page_writes"] != "on", TEARS_PAGES),
            (settings["synchronous_standby_names"] == "" && about["standbys"]["all"] != 0, MAY_LAG),
            (address.is_unverified && about["is_encrypted"] == true, UNVERIFIED),
        ];
        let warnings = warnings.iter().filter(|(is_due, _)| *is_due);
        // The next session must be able to end this one.
        let (Some(pid), Some(since)) = (about["pid"].as_i64(), about["since"].as_str()) else {
            let why = "it does not name its sessions";
            return Err(PostgresOpenError::Server(name.clone(), why.into()));
        };
        Ok(Self {
            session: Session { pid, since: since.to_owned() },
            warnings: warnings.map(|(_, warning)| format!("{name}: {warning}")).collect(),
        })
    }
}

/// A session as the server names it: the id of its process, and since when, because ids come again.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pid: i64,
    since: String,
}

impl Session {
    /// Ends the session, and waits until it is gone. One that waits for a standby is waited for: killing it would
    /// expose a commit that no standby has. A pooler may have given us the very session: then it has ended its work.
    pub(super) async fn end(&self, client: &Client) -> Result<(), Error> {
        let Self { pid, since } = self;
        let end = format!(
            "SELECT CASE WHEN wait_event IS DISTINCT FROM 'SyncRep' THEN pg_terminate_backend(pid) END
               FROM pg_stat_activity WHERE pid = {pid} AND extract(epoch FROM backend_start)::text = '{since}'
                AND pid <> pg_backend_pid()"
        );
        while first_row(&client.simple_query(&end).await?).is_some() {
            sleep(END_PAUSE).await;
        }
        Ok(())
    }
}

/// Whether the statements of `client` run in several sessions: settings, statements and subscriptions are lost in a
/// pooler that hands each transaction to another one. `other` is a second connection.
///
/// A pooler that takes the session that has rested longest shows itself in a few questions; one that takes the last one,
/// when another connection has begun a transaction there.
pub(super) async fn is_pooled(client: &Client, other: &Client) -> Result<bool, Error> {
    let first = session(client).await?;
    let mut is_pooled = false;
    for _ in 0..SESSION_LOOKS {
        is_pooled |= session(client).await? != first;
    }
    other.batch_execute("BEGIN READ ONLY; SELECT 1").await?;
    is_pooled |= match timeout(LOOK_WAIT_MAX, session(client)).await {
        Ok(session) => session? != first,
        // A pooler without another session to give lets us wait.
        Err(_) => true,
    };
    other.batch_execute("ROLLBACK").await?;
    Ok(is_pooled)
}

async fn session(client: &Client) -> Result<Option<String>, Error> {
    let look = "SELECT pg_backend_pid()::text || ' ' || pg_postmaster_start_time()";
    let said = client.simple_query(&apart(look)).await?;
    Ok(first_row(&said).and_then(|row| row.get(0)).map(str::to_owned))
}

/// The statement for a session that is not set up: its user's search path may lead to functions that somebody else has put
/// there. In one message with it, so that it is one transaction, also where a pooler gives each of them to another session.
pub(super) fn apart(statement: &str) -> String {
    format!("SET LOCAL search_path = pg_catalog, pg_temp; {statement}")
}

/// The only value of a statement that answers with JSON; null if there is none.
pub(super) async fn json(client: &Client, sql: &str) -> Result<Value, Error> {
    let answer = client.simple_query(sql).await?;
    let text = first_row(&answer).and_then(|row| row.get(0)).unwrap_or_default();
    Ok(serde_json::from_str(text).unwrap_or_default())
}

fn first_row(answer: &[SimpleQueryMessage]) -> Option<&SimpleQueryRow> {
    answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

const TEARS_PAGES: &str =
    "full_page_writes is off; unless the file system never tears a page, a power cut may lose keys";
const MAY_LAG: &str =
    "its standbys are not synchronous; a failover may forget keys that were answered";
const UNVERIFIED: &str = "nobody checked who answers there; use sslmode=verify-full";
const END_PAUSE: Duration = Duration::from_millis(10);
const SESSION_LOOKS: usize = 4;
const LOOK_WAIT_MAX: Duration = Duration::from_secs(2);
