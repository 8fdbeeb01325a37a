//! What was written, told to the other nodes: best effort, after the commit, many ids in one message.
//!
//! A node that begins to listen says so, and those who hear it answer. A node that has heard of no other
//! tells nothing: alone, this costs nothing. After a gap in what it could hear it wakes everyone.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::link::Link;
use super::place::Place;
use super::shared::Shared;
use crate::hex;
use crate::record::Token;
use crate::scope::OperationId;

/// What is to be told.
pub(super) struct News {
    /// Who we are, in what we tell.
    node: String,
    written: Mutex<HashSet<OperationId>>,
    arrived: Notify,
    has_others: AtomicBool,
    /// Someone else begins to listen: it must learn of us.
    greeted: AtomicBool,
}

impl News {
    pub(super) fn new() -> Self {
        Self {
            node: hex::encode(Token::random().as_bytes()),
            written: Mutex::default(),
            arrived: Notify::new(),
            has_others: AtomicBool::new(false),
            greeted: AtomicBool::new(false),
        }
    }

    /// Tells the others of these writes, soon. More than [`WRITTEN_MAX`] that wait are not told: polling
    /// finds them.
    pub(super) fn spread(&self, ids: Vec<OperationId>) {
        if ids.is_empty() || !self.has_others.load(Ordering::Acquire) {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() < WRITTEN_MAX {
            written.extend(ids);
        }
        drop(written);
        self.arrived.notify_one();
    }

    /// The messages of what waits.
    fn take(&self) -> Vec<String> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let ids: Vec<OperationId> = written.drain().collect();
        drop(written);
        let message = |ids: &[OperationId]| {
            let ids: String = ids.iter().map(ToString::to_string).collect();
            format!("{} {ids}", self.node)
        };
        let mut messages: Vec<_> = ids.chunks(MESSAGE_IDS_MAX).map(message).collect();
        if self.greeted.swap(false, Ordering::AcqRel) {
            messages.push(format!("{} {HERE}", self.node));
        }
        messages
    }
}

/// Listens and tells, until told to stop.
pub(super) async fn run(
    place: Arc<Place>,
    channel: String,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let heard = shared.clone();
        let hear = Box::new(move |message: &str| listen(&heard, message));
        let talk = async {
            let line = Link::connect(&place, &[TELL.to_owned()], Some(hear)).await;
            let Ok(link) = line else { return };
            pause = PAUSE_MIN;
            // Whoever waited during the gap may have missed something.
            converse(link, &channel, &shared).await;
        };
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = talk => {}
        }
        shared.wakers.wake_all();
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Until the connection breaks.
async fn converse(mut link: Link, channel: &str, shared: &Shared) {
    let news = &shared.news;
    let begin = format!("SET synchronous_commit = off; LISTEN {channel}");
    if link.client.batch_execute(&begin).await.is_err() {
        return;
    }
    shared.wakers.wake_all();
    let mut messages = vec![format!("{} {HELLO}", news.node)];
    loop {
        if !messages.is_empty() {
            let told = timeout(TELL_WAIT_MAX, link.query(0, &[&channel, &messages])).await;
            if !matches!(told, Ok(Ok(_))) {
                return link.driver.abort();
            }
            sleep(TELL_PAUSE).await;
        }
        tokio::select! {
            _ = &mut link.driver => return,
            () = news.arrived.notified() => {}
            () = sleep(PING_EVERY) => {
                let ping = link.client.batch_execute("");
                if !matches!(timeout(TELL_WAIT_MAX, ping).await, Ok(Ok(()))) {
                    return link.driver.abort();
                }
            }
        }
        messages = news.take();
    }
}

/// Wakes whom another node's message concerns.
fn listen(shared: &Shared, message: &str) {
    let news = &shared.news;
    let Some((node, what)) = message.split_once(' ') else {
        return shared.wakers.wake_all();
    };
    if node == news.node {
        return;
    }
    news.has_others.store(true, Ordering::Release);
    match what {
        HELLO => {
            news.greeted.store(true, Ordering::Release);
            news.arrived.notify_one();
        }
        HERE => {}
        ids => {
            for at in (0..ids.len()).step_by(ID_TEXT_BYTES) {
                match ids.get(at..at + ID_TEXT_BYTES).map(str::parse) {
                    Some(Ok(id)) => shared.wakers.wake(id),
                    _ => return shared.wakers.wake_all(),
                }
            }
        }
    }
}

const TELL: &str = "SELECT pg_notify($1::text, m) FROM unnest($2::text[]) AS m";
const HELLO: &str = "hello";
const HERE: &str = "here";
/// An id in hexadecimal.
const ID_TEXT_BYTES: usize = 32;
/// A message has less than 8,000 bytes.
const MESSAGE_IDS_MAX: usize = 240;
/// Writes that wait to be told.
const WRITTEN_MAX: usize = 10_000;
/// Between two messages: what is written meanwhile is one.
const TELL_PAUSE: Duration = Duration::from_millis(3);
const TELL_WAIT_MAX: Duration = Duration::from_secs(5);
/// A line that nobody speaks on may be dead.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Between two tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
