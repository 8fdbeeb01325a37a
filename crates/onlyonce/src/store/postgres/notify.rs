//! Wakes the waiters on other nodes: the ids that were written go out by `NOTIFY`, best effort, after the commit, many
//! ids in one message. After a gap in which a node could not listen, it wakes all its own waiters.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::address::ServerAddress;
use super::connection::{Connection, RETRY_PAUSE};
use crate::scope::OperationId;
use crate::store::wake::Wakers;

/// The waiters of this node, and the ids that other nodes are to be told.
#[derive(Default)]
pub(super) struct Notifier {
    pub(super) wakers: Wakers,
    written: Mutex<HashSet<OperationId>>,
    arrived: Notify,
}

impl Notifier {
    /// Wakes those who wait for this record: here at once, on other nodes soon. Beyond [`WRITTEN_MAX`] other nodes are
    /// not told: their waiters poll.
    pub(super) fn wrote(&self, id: OperationId) {
        self.wakers.wake(id);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() < WRITTEN_MAX {
            written.insert(id);
        }
        drop(written);
        self.arrived.notify_one();
    }

    /// The messages that are due.
    fn take(&self) -> Vec<String> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let ids: Vec<String> = written.drain().map(|id| id.to_string()).collect();
        ids.chunks(MESSAGE_IDS_MAX).map(<[String]>::concat).collect()
    }

    /// Wakes the waiters that a message is about; it may be our own.
    fn listen(&self, message: &str) {
        for at in (0..message.len()).step_by(ID_TEXT_BYTES) {
            match message.get(at..at + ID_TEXT_BYTES).map(str::parse) {
                Some(Ok(id)) => self.wakers.wake(id),
                _ => return self.wakers.wake_all(),
            }
        }
    }
}

/// Listens and tells, until told to stop.
pub(super) async fn run(
    address: Arc<ServerAddress>,
    channel: String,
    notifier: Arc<Notifier>,
    mut stop: watch::Receiver<bool>,
) {
    let converse = async {
        loop {
            let heard = notifier.clone();
            let listener = Box::new(move |message: &str| heard.listen(message));
            if let Ok(connection) = Connection::open(&address, &[], Some(listener)).await {
                converse(connection, &channel, &notifier).await;
            }
            notifier.wakers.wake_all();
            sleep(RETRY_PAUSE).await;
        }
    };
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        () = converse => {}
    }
}

/// Until the connection breaks.
async fn converse(mut connection: Connection, channel: &str, notifier: &Notifier) {
    let begin = format!("SET synchronous_commit = off; LISTEN {channel}");
    if connection.client.batch_execute(&begin).await.is_err() {
        return;
    }
    let Ok(tell) = connection.client.prepare(TELL).await else { return };
    // A waiter may have missed something during the gap.
    notifier.wakers.wake_all();
    loop {
        tokio::select! {
            _ = connection.driver.join_next() => return,
            () = notifier.arrived.notified() => {}
            () = sleep(PING_EVERY) => {}
        }
        // With no message due, this only asks whether the connection is alive.
        let messages = notifier.take();
        let tell = async { connection.client.execute(&tell, &[&channel, &messages]).await };
        if !matches!(timeout(TELL_WAIT_MAX, tell).await, Ok(Ok(_))) {
            return;
        }
        sleep(TELL_PAUSE).await;
    }
}

const TELL: &str = "SELECT pg_notify($1::text, m) FROM unnest($2::text[]) AS m";
/// An id in hexadecimal.
const ID_TEXT_BYTES: usize = 32;
/// A message has less than 8,000 bytes.
const MESSAGE_IDS_MAX: usize = 240;
/// Ids that wait to be sent.
const WRITTEN_MAX: usize = 10_000;
/// Between two messages: the ids that are written meanwhile are one message.
const TELL_PAUSE: Duration = Duration::from_millis(3);
const TELL_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a silent connection is checked: it may be dead.
const PING_EVERY: Duration = Duration::from_secs(5);
