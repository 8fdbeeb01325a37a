//! What a server says of itself, and whether it is one that keeps what it commits.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::address::ServerAddress;
use super::connection::Connection;
use super::error::{PostgresOpenError, SERVER_MIN};

/// What a server said of itself.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) session: Session,
    /// What its owner should know, and what no promise of ours covers.
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
        let answer = client.simple_query(include_str!("sql/about.sql")).await.map_err(failed)?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |name: &str| row.and_then(|row| row.get(name)).unwrap_or_default().to_owned();
        let (name, found) = (&address.name, text("version").parse().unwrap_or_default());
        if text("in_recovery") != "f" {
            return Err(PostgresOpenError::Standby(name.clone()));
        }
        if found < SERVER_MIN {
            return Err(PostgresOpenError::TooOld { address: name.clone(), found });
        }
        if text("fsync") != "on" {
            return Err(PostgresOpenError::NotDurable { address: name.clone(), setting: "fsync" });
        }
        let is_due =
            |column| text(column) == "t" && (column != UNVERIFIED || address.is_unverified);
        let warnings = WARNINGS.iter().filter(|(column, _)| is_due(column));
        let warnings = warnings.map(|(_, warning)| format!("{name}: {warning}")).collect();
        Ok(Self { session: Session { pid: text("pid"), since: text("since") }, warnings })
    }
}

/// A session as the server names it: the id of its process, and since when, because ids come again.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pid: String,
    since: String,
}

impl Session {
    /// Ends the session, and waits until it is gone. One that waits for a standby is waited for: killing it would
    /// expose a commit that no standby has. A pooler may have given us the very session: then it has ended its work.
    pub(super) async fn end(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let Self { pid, since } = self;
        let end = format!(
            "SELECT CASE WHEN wait_event IS DISTINCT FROM 'SyncRep' THEN pg_terminate_backend(pid) END
               FROM pg_stat_activity WHERE pid = {pid} AND extract(epoch FROM backend_start)::text = '{since}'
                AND pid <> pg_backend_pid()"
        );
        let is_there = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(_));
        while client.simple_query(&end).await?.iter().any(is_there) {
            sleep(END_PAUSE).await;
        }
        Ok(())
    }
}

/// Whether a session is ours for as long as the connection: settings, statements and subscriptions are
/// lost in a pooler that hands each transaction to another one.
///
/// A pooler that takes the session that has rested longest shows itself in a few questions; one that takes
/// the last one, when another connection has begun a transaction there.
pub(super) async fn demand_session(
    connection: &Connection,
    address: &ServerAddress,
) -> Result<(), PostgresOpenError> {
    let failed = |error| address.failed(error);
    let other = Connection::open(address, &[], None).await?;
    let mut is_ours = true;
    for _ in 0..SESSION_LOOKS {
        is_ours &= has_its_session(connection).await;
    }
    other.client.batch_execute("BEGIN; SELECT 1").await.map_err(failed)?;
    is_ours &= has_its_session(connection).await;
    other.client.batch_execute("ROLLBACK").await.map_err(failed)?;
    if is_ours { Ok(()) } else { Err(PostgresOpenError::Pooled(address.name.clone())) }
}

/// A pooler without another session to give lets us wait.
async fn has_its_session(connection: &Connection) -> bool {
    let pid = Some(&*connection.server.session.pid);
    let look = connection.client.simple_query("SELECT pg_backend_pid()");
    let says_so = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0) == pid,
        _ => false,
    };
    matches!(timeout(LOOK_WAIT_MAX, look).await, Ok(Ok(said)) if said.iter().any(says_so))
}

/// Columns of `about.sql`, and what each of them warns of.
const WARNINGS: [(&str, &str); 3] = [
    (
        "tears_pages",
        "full_page_writes is off; unless the file system never tears a page, a power cut may lose keys",
    ),
    ("may_lag", "its standbys are not synchronous; a failover may forget keys that were answered"),
    (UNVERIFIED, "nobody checked who answers there; use sslmode=verify-full"),
];
const UNVERIFIED: &str = "is_encrypted";
const END_PAUSE: Duration = Duration::from_millis(10);
const SESSION_LOOKS: usize = 4;
const LOOK_WAIT_MAX: Duration = Duration::from_secs(2);
