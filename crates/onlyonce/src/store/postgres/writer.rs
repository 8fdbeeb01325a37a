//! A writer: the calls that queue during one commit are the next commit.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::batch::{Member, Outcome, attempt};
use super::call::WriteCall;
use super::connection::Reconnecting;
use super::notify::Notifier;
use super::queue::Queue;
use super::sql_error::SqlError;
use crate::scope::OperationId;

/// Works until its queue is closed and empty.
pub(super) struct Writer {
    pub(super) connection: Reconnecting,
    pub(super) calls: Queue<WriteCall>,
    pub(super) notifier: Arc<Notifier>,
}

impl Writer {
    pub(super) async fn run(mut self) {
        let (mut waiting, mut answered) = (VecDeque::new(), 0);
        while self.fill(&mut waiting).await {
            self.gather(&mut waiting, answered).await;
            let batch = batch(&mut waiting);
            answered = batch.len();
            for member in self.commit(batch).await.into_iter().rev() {
                waiting.push_front(member);
            }
        }
    }

    /// Takes the calls that have queued; waits if there is none. Whether there is any.
    async fn fill(&mut self, waiting: &mut VecDeque<Member>) -> bool {
        if waiting.is_empty() {
            match self.calls.recv().await {
                Some(call) => waiting.push_back(Member::new(call)),
                None => return false,
            }
        }
        self.take(waiting);
        true
    }

    fn take(&mut self, waiting: &mut VecDeque<Member>) {
        while waiting.len() < 2 * BATCH_MAX
            && let Some(call) = self.calls.try_recv()
        {
            waiting.push_back(Member::new(call));
        }
    }

    /// Waits a moment for the callers that the last commit answered: most of them ask again at once, and a commit costs
    /// far more than its members. Without this, the first of them commits alone while the others wait for that commit.
    async fn gather(&mut self, waiting: &mut VecDeque<Member>, answered: usize) {
        if answered >= GATHER_MIN && waiting.len() < answered {
            // On another thread, because the runtime's own timer counts in milliseconds.
            let _ = tokio::task::spawn_blocking(|| std::thread::park_timeout(GATHER_WAIT)).await;
            self.take(waiting);
        }
    }

    /// One commit for the batch, or for its halves if a member of it is refused or locked. Returns the members that
    /// have a step to go.
    async fn commit(&mut self, batch: Vec<Member>) -> Vec<Member> {
        let (mut left, mut parts) = (Vec::new(), vec![batch]);
        let mut search_end = None;
        while let Some(part) = parts.pop() {
            match self.attempt(&part, search_end.is_some()).await {
                Ok(outcomes) => self.answer(part, outcomes, &mut left),
                Err(SqlError::BadMember(_)) if part.len() > 1 => parts.extend(halves(part)),
                Err(SqlError::Locked) if part.len() > 1 && is_open(&mut search_end) => {
                    parts.extend(halves(part));
                }
                Err(error) => part.into_iter().for_each(|member| member.call.fail(error.fault())),
            }
        }
        left
    }

    /// Retries after a deadlock or a serialization failure.
    async fn attempt(&mut self, part: &[Member], hurry: bool) -> Result<Vec<Outcome>, SqlError> {
        let mut pause = RETRY_PAUSE;
        for _ in 0..RETRIES_MAX {
            match self.attempt_once(part, hurry).await {
                Err(SqlError::Retry) => sleep(pause).await,
                done => return done,
            }
            pause *= 2;
        }
        self.attempt_once(part, hurry).await
    }

    async fn attempt_once(
        &mut self,
        part: &[Member],
        hurry: bool,
    ) -> Result<Vec<Outcome>, SqlError> {
        let connection = self.connection.ready().await?;
        let done = attempt(connection, part, hurry).await;
        self.connection.judge(done)
    }

    fn answer(&self, part: Vec<Member>, outcomes: Vec<Outcome>, left: &mut Vec<Member>) {
        let mut written = Vec::new();
        for (member, outcome) in part.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Next(step) => left.push(member.at(step)),
                outcome => {
                    let (id, is_swap) = (member.id(), matches!(outcome, Outcome::Swapped(_)));
                    if member.answer(outcome) {
                        self.notifier.wakers.wake(id);
                        written.extend(is_swap.then_some(id));
                    }
                }
            }
        }
        self.notifier.tell(written);
    }
}

/// The second half first: the parts are taken from the end.
fn halves(mut part: Vec<Member>) -> [Vec<Member>; 2] {
    let second = part.split_off(part.len() / 2);
    [second, part]
}

/// Whether there is still time to find the locked row; the time begins with the first batch that met it.
fn is_open(search_end: &mut Option<Instant>) -> bool {
    let now = Instant::now();
    now < *search_end.get_or_insert(now + SEARCH_WAIT_MAX)
}

/// The next batch: each id once, in order, so that the same statements of two batches never wait for each other in a
/// ring; a ring of different statements is undone by the server and retried. A second write of an id waits for the next
/// batch.
fn batch(waiting: &mut VecDeque<Member>) -> Vec<Member> {
    let mut ids: HashSet<OperationId> = HashSet::new();
    let (mut batch, mut later, mut body_bytes) = (Vec::new(), VecDeque::new(), 0);
    for member in waiting.drain(..) {
        let is_full = batch.len() >= BATCH_MAX || body_bytes > BATCH_BYTES_MAX;
        if !ids.insert(member.id()) || is_full {
            later.push_back(member);
        } else {
            body_bytes += member.call.body_bytes();
            batch.push(member);
        }
    }
    *waiting = later;
    batch.sort_unstable_by_key(Member::id);
    batch
}

/// Members of one commit.
const BATCH_MAX: usize = 512;
/// How long a commit waits for the callers that the last one answered, if there were at least so many.
const GATHER_WAIT: Duration = Duration::from_micros(100);
const GATHER_MIN: usize = 4;
/// A batch with more bytes of bodies than this takes no further member.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How long the locked rows of a batch are searched for; the rest is told that the store is busy.
const SEARCH_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often a batch is retried, and after what pause; the pause doubles.
const RETRIES_MAX: usize = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(4);
