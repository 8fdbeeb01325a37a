//! A worker: the calls that queue during one commit are the next commit. One that is only asked to load is the reader.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::batch::{Answers, commit};
use super::connection::{Reconnecting, bounded};
use super::member::Member;
use super::noted::{OwnChain, with_chain};
use super::notify::Notifier;
use super::sql_error::SqlError;
use super::statement::Statement;
use crate::scope::OperationId;
use crate::store::audit::Chain;

/// Works until its queue is closed and empty.
pub(super) struct Worker {
    pub(super) connection: Reconnecting,
    pub(super) calls: mpsc::Receiver<Member>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) notifier: Arc<Notifier>,
    /// Its chain of the audit trail, if one is kept.
    pub(super) chain: Option<OwnChain>,
    /// Calls that are in no batch yet.
    pub(super) waiting: VecDeque<Member>,
}

impl Worker {
    pub(super) async fn run(mut self) {
        let mut answered = 0;
        while self.fill().await {
            self.gather(answered);
            let batch = self.batch();
            answered = batch.len();
            self.commit(batch).await;
        }
    }

    /// Waits for a call, and takes the calls that have queued. Returns false once the store is closed and its queue is
    /// empty.
    async fn fill(&mut self) -> bool {
        while self.waiting.is_empty() {
            tokio::select! {
                biased;
                _ = self.stop.wait_for(|stop| *stop), if !self.calls.is_closed() => self.calls.close(),
                call = self.calls.recv() => match call {
                    Some(call) => self.waiting.push_back(call),
                    None => return false,
                },
            }
        }
        self.take();
        true
    }

    /// Takes the calls that have queued.
    fn take(&mut self) {
        while self.waiting.len() < WAITING_MAX
            && let Ok(call) = self.calls.try_recv()
        {
            self.waiting.push_back(call);
        }
    }

    /// Waits a moment for the callers that the last commit answered: most of them ask again at once, and a commit costs far
    /// more than its members. Without this the first of them commits alone, and the others wait for that commit: at 16 and
    /// at 64 in flight, a third fewer cycles a second. To take it out, delete this function and its call.
    ///
    /// It blocks the thread, which has nothing but the connections of this store: the runtime's timer counts in whole
    /// milliseconds.
    fn gather(&mut self, answered: usize) {
        // Loads are no commit.
        let is_worth_it = answered >= GATHER_MIN && !self.waiting.iter().all(Member::is_load);
        let end = Instant::now() + GATHER_WAIT_MAX;
        while is_worth_it && self.waiting.len() < answered && Instant::now() < end {
            std::thread::park_timeout(GATHER_STEP);
            self.take();
        }
    }

    /// The next batch: each id once but for loads, and in order, so that the same statements of two batches never wait
    /// for each other in a ring; a ring of different statements is undone by the server and retried. A second write of
    /// an id waits for the next batch.
    fn batch(&mut self) -> Vec<Member> {
        let mut ids: HashSet<OperationId> = HashSet::new();
        let (mut batch, mut later, mut body_bytes) = (Vec::new(), VecDeque::new(), 0);
        for member in self.waiting.drain(..) {
            let is_full = batch.len() >= BATCH_MAX || body_bytes > BATCH_BYTES_MAX;
            if is_full || !(ids.insert(member.id) || member.is_load()) {
                later.push_back(member);
            } else {
                body_bytes += member.body_bytes();
                batch.push(member);
            }
        }
        self.waiting = later;
        batch.sort_unstable_by_key(|member| member.id);
        batch
    }

    /// One commit for the batch, or for its halves if a member of it is refused or locked.
    async fn commit(&mut self, batch: Vec<Member>) {
        let (mut parts, mut search_end) = (vec![batch], None);
        while let Some(mut part) = parts.pop() {
            match self.send(&part, search_end.is_some()).await {
                Ok(answers) => self.answer(part, &answers),
                Err(error) if part.len() > 1 && has_one_cause(&error, &mut search_end) => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Err(error) => part.into_iter().for_each(|member| member.fail(&error)),
            }
        }
    }

    /// Retries after a deadlock or a serialization failure; loads also after a connection that had broken unnoticed.
    async fn send(&mut self, part: &[Member], hurry: bool) -> Result<Answers, SqlError> {
        let mut retries = 0;
        loop {
            let answers = self.try_send(part, hurry).await;
            match self.connection.judge(answers) {
                Err(SqlError::Retry) if retries < RETRIES_MAX => {
                    sleep(RETRY_PAUSE * 2_u32.pow(retries)).await;
                }
                Err(SqlError::Unsure(_)) if retries == 0 && part.iter().all(Member::is_load) => {}
                answers => return answers,
            }
            retries += 1;
        }
    }

    async fn try_send(&mut self, part: &[Member], hurry: bool) -> Result<Answers, SqlError> {
        let connection = self.connection.ready().await?;
        let commit = async |chain: Option<&mut Chain>| {
            let answers = bounded(commit(connection, part, hurry, chain)).await?;
            if answers.keys().any(|statement| *statement != Statement::Load) {
                connection.demand_no_warning()?;
            }
            Ok(answers)
        };
        with_chain(&mut self.chain, connection, commit).await
    }

    /// Members with a step to go are the first of the next batch.
    fn answer(&mut self, part: Vec<Member>, answers: &Answers) {
        let go_on = |member: Member| {
            let answer = answers.get(&member.statement());
            member.go_on(answer.expect("every statement of a batch has an answer"), &self.notifier)
        };
        let next: Vec<_> = part.into_iter().filter_map(go_on).collect();
        next.into_iter().rev().for_each(|member| self.waiting.push_front(member));
    }
}

/// Whether the error is the fault of one member, so that the batch is to be halved until that member is alone: it is
/// refused, or its row is locked or damaged. Locked and damaged rows are searched for until [`SEARCH_WAIT_MAX`] is over.
fn has_one_cause(error: &SqlError, search_end: &mut Option<Instant>) -> bool {
    let now = Instant::now();
    match error {
        SqlError::BadMember(_) => true,
        SqlError::Locked | SqlError::Damaged(_) => {
            now < *search_end.get_or_insert(now + SEARCH_WAIT_MAX)
        }
        _ => false,
    }
}

/// How long a commit waits for the callers that the last one answered, if there were at least so many.
const GATHER_WAIT_MAX: Duration = Duration::from_micros(300);
const GATHER_STEP: Duration = Duration::from_micros(20);
const GATHER_MIN: usize = 4;
/// Members of one commit.
const BATCH_MAX: usize = 512;
/// Calls that are taken from the queue before their batch is sent.
const WAITING_MAX: usize = 2 * BATCH_MAX;
/// A batch with more bytes of bodies than this takes no further member.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How long the locked rows of a batch are searched for; the rest is told that the store is busy.
const SEARCH_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often a batch is retried, and after what pause; the pause doubles.
const RETRIES_MAX: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(4);
