//! A writer: whatever has queued during the last commit is the next one.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::inbox::Inbox;
use super::job::Job;
use super::lanes::{Lanes, Pin};
use super::link::Line;
use super::nap::Nap;
use super::round::{Fate, Manner, Member, attempt};
use super::shared::Shared;
use super::trouble::Trouble;
use crate::scope::OperationId;

/// Works until its queue is closed and empty.
pub(super) struct Writer {
    line: Line,
    jobs: Inbox<Job>,
    shared: Arc<Shared>,
    lanes: Arc<Lanes>,
    /// Its own.
    lane: usize,
    /// Whether it could not connect.
    is_away: bool,
    /// Others claim the same keys at the same moment: until then it counts on that.
    careful_until: Option<Instant>,
    /// The places of those whose write a session that was left may still do.
    doubtful: Vec<Pin>,
}

impl Writer {
    pub(super) fn new(
        line: Line,
        jobs: Inbox<Job>,
        shared: Arc<Shared>,
        lanes: Arc<Lanes>,
        lane: usize,
    ) -> Self {
        let (is_away, careful_until, doubtful) = (false, None, Vec::new());
        Self { line, jobs, shared, lanes, lane, is_away, careful_until, doubtful }
    }

    pub(super) async fn run(mut self) {
        let mut waiting = VecDeque::new();
        let (nap, mut answered) = (Nap::new(), Answered::nobody());
        while self.fill(&mut waiting).await {
            if let Some(length) = answered.return_wait(waiting.len()) {
                nap.sleep(length).await;
                self.take(&mut waiting);
            }
            let batch = batch(&mut waiting);
            let members = batch.len();
            self.lanes.set_busy(self.lane, true);
            let left = self.round(batch).await;
            self.lanes.set_busy(self.lane, false);
            answered = Answered { members, at: Instant::now() };
            for member in left.into_iter().rev() {
                waiting.push_front(member);
            }
        }
    }

    /// Takes what has queued; waits if there is nothing at all. Whether there is any.
    async fn fill(&mut self, waiting: &mut VecDeque<Member>) -> bool {
        if waiting.is_empty() {
            match self.next().await {
                Some(job) => waiting.push_back(Member::new(job)),
                None => return false,
            }
        }
        self.take(waiting);
        true
    }

    /// The next job. Meanwhile a line that is away is tried again: others do not come by to do so.
    async fn next(&mut self) -> Option<Job> {
        while self.is_away {
            match timeout(AWAY_PAUSE, self.jobs.recv()).await {
                Ok(job) => return job,
                Err(_) => drop(self.ready().await),
            }
        }
        self.jobs.recv().await
    }

    /// Takes what has queued.
    fn take(&mut self, waiting: &mut VecDeque<Member>) {
        while waiting.len() < 2 * BATCH_MAX
            && let Some(job) = self.jobs.try_recv()
        {
            waiting.push_back(Member::new(job));
        }
    }

    /// One commit for the batch, or for its parts if some of it is refused. Returns those who have a step
    /// to go.
    async fn round(&mut self, batch: Vec<Member>) -> Vec<Member> {
        let mut left = Vec::new();
        let mut parts = vec![batch];
        let mut search_end = None;
        while let Some(part) = parts.pop() {
            match self.attempt(&part, search_end.is_some()).await {
                Ok(fates) => self.settle(part, fates, &mut left),
                Err(Trouble::Member(_) | Trouble::Raced(_)) if part.len() > 1 => {
                    parts.extend(halves(part))
                }
                Err(Trouble::Blocked) if part.len() > 1 && is_open(&mut search_end) => {
                    parts.extend(halves(part));
                }
                Err(trouble) => part.into_iter().for_each(|member| self.fail(member, &trouble)),
            }
        }
        left
    }

    /// Who is unsure keeps its place, so that it is with this writer that it tries again.
    fn fail(&mut self, member: Member, trouble: &Trouble) {
        let Job { task, pin } = member.job;
        if matches!(trouble, Trouble::Unsure(_)) {
            self.doubtful.push(pin.idle());
        }
        task.fail(trouble.fault());
    }

    /// The same again where it met others and was undone.
    async fn attempt(&mut self, part: &[Member], hurries: bool) -> Result<Vec<Fate>, Trouble> {
        let mut pause = AGAIN_PAUSE;
        for _ in 0..AGAIN_MAX {
            match self.attempt_once(part, hurries).await {
                Err(Trouble::Again) => tokio::time::sleep(pause).await,
                done => return done,
            }
            pause *= 2;
        }
        self.attempt_once(part, hurries).await
    }

    /// After a race, carefully: each one that undoes a batch is an error in the server's log.
    async fn attempt_once(&mut self, part: &[Member], hurries: bool) -> Result<Vec<Fate>, Trouble> {
        let now = Instant::now();
        if self.careful_until.is_none_or(|until| until <= now) {
            match self.attempt_as(part, Manner { hurries, is_bold: true }).await {
                Err(Trouble::Raced(_)) => self.careful_until = Some(now + CAREFUL_FOR),
                done => return done,
            }
        }
        self.attempt_as(part, Manner { hurries, is_bold: false }).await
    }

    async fn attempt_as(&mut self, part: &[Member], manner: Manner) -> Result<Vec<Fate>, Trouble> {
        self.ready().await?;
        let link = self.line.ready().await?;
        let done = attempt(link, &self.shared.time, part, manner).await;
        if let Err(trouble) = &done {
            self.line.after(trouble);
        }
        done
    }

    /// Sees to it that there is a connection, and tells who may be sent here.
    async fn ready(&mut self) -> Result<(), Trouble> {
        let ready = self.line.ready().await.map(drop);
        if ready.is_ok() {
            // It is the only session of this line.
            self.doubtful.clear();
        }
        if ready.is_err() != self.is_away {
            self.is_away = !self.is_away;
            self.lanes.set_away(self.lane, self.is_away);
        }
        ready
    }

    fn settle(&self, part: Vec<Member>, fates: Vec<Fate>, left: &mut Vec<Member>) {
        let mut written = Vec::new();
        for (member, fate) in part.into_iter().zip(fates) {
            match fate {
                Fate::Next(step) => left.push(member.at(step)),
                fate => {
                    let is_news = matches!(fate, Fate::Swapped(_));
                    let id = member.id();
                    if member.answer(fate) {
                        self.shared.wakers.wake(id);
                        written.extend(is_news.then_some(id));
                    }
                }
            }
        }
        self.shared.news.spread(written);
    }
}

/// The last batch.
struct Answered {
    members: usize,
    at: Instant,
}

impl Answered {
    fn nobody() -> Self {
        Self { members: 0, at: Instant::now() }
    }

    /// How long to wait for those who were just answered, because they are about to ask again: a commit costs
    /// much more than its members do.
    fn return_wait(&self, waiting: usize) -> Option<Duration> {
        if self.members < COMPANY || waiting >= self.members {
            return None;
        }
        RETURN_WAIT_MAX.checked_sub(self.at.elapsed())
    }
}

/// The second half first: the parts are taken from the end.
fn halves(mut part: Vec<Member>) -> [Vec<Member>; 2] {
    let second = part.split_off(part.len() / 2);
    [second, part]
}

/// Whether there is still time to find who is blocked; it begins with the first one.
fn is_open(search_end: &mut Option<Instant>) -> bool {
    let now = Instant::now();
    now < *search_end.get_or_insert(now + SEARCH_WAIT_MAX)
}

/// The next batch: each id once, in order, so that no two batches wait for each other in a ring. A second
/// write of an id waits for the next batch.
fn batch(waiting: &mut VecDeque<Member>) -> Vec<Member> {
    let mut ids: HashSet<OperationId> = HashSet::new();
    let (mut batch, mut later, mut body_bytes) = (Vec::new(), VecDeque::new(), 0);
    for member in waiting.drain(..) {
        let is_full = batch.len() >= BATCH_MAX || body_bytes > BATCH_BYTES_MAX;
        if !ids.insert(member.id()) || is_full {
            later.push_back(member);
        } else {
            body_bytes += member.job.task.body_bytes();
            batch.push(member);
        }
    }
    *waiting = later;
    batch.sort_unstable_by_key(Member::id);
    batch
}

/// How long a writer counts on races after one.
const CAREFUL_FOR: Duration = Duration::from_secs(60);
/// How often a line that is away is tried while nobody asks for it.
const AWAY_PAUSE: Duration = Duration::from_millis(200);
/// Members of a batch who are waited for.
const COMPANY: usize = 4;
/// How long after their answer.
const RETURN_WAIT_MAX: Duration = Duration::from_micros(100);
/// Members of one commit.
pub(super) const BATCH_MAX: usize = 512;
/// A batch with more bytes of bodies than this takes no further member.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How long is searched for those of a batch who wait for someone else's lock; the rest is told to try again.
const SEARCH_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often a batch that met others is tried again, and after what pause; it doubles.
const AGAIN_MAX: usize = 5;
const AGAIN_PAUSE: Duration = Duration::from_millis(4);
