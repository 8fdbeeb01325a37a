//! The thread of a store: all connections live on its runtime, and callers reach them by bounded queues.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::PostgresOptions;
use super::error::OpenError;
use super::house::Housekeeper;
use super::inbox::inbox;
use super::job::{Chore, Job, Load, Renewal};
use super::lanes::Lanes;
use super::link::{Line, Link};
use super::news::{self, News};
use super::passes::Passes;
use super::place::Place;
use super::reader::Reader;
use super::renewer::Renewer;
use super::schema::{self, Found, Meta};
use super::shared::Shared;
use super::sql::Sql;
use super::writer::Writer;
use crate::store::time::Time;

/// What callers have of an open store.
pub(super) struct Works {
    pub(super) writers: Vec<mpsc::Sender<Job>>,
    pub(super) lanes: Arc<Lanes>,
    pub(super) loads: mpsc::Sender<Load>,
    pub(super) renewals: mpsc::Sender<Renewal>,
    pub(super) chores: mpsc::Sender<Chore>,
    pub(super) shared: Arc<Shared>,
    pub(super) warnings: Vec<String>,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<()>,
}

impl Works {
    /// Opens the store on a thread of its own, so that no caller's runtime waits for the network.
    pub(super) async fn start(place: Place, options: PostgresOptions) -> Result<Self, OpenError> {
        let (opened, open) = oneshot::channel();
        let (end, ended) = watch::channel(());
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(work(place, options, opened, ended)),
                Err(error) => drop(opened.send(Err(OpenError::Thread(error)))),
            }
            drop(end);
        };
        let thread = thread::Builder::new().name("onlyonce-postgres".to_owned());
        thread.spawn(run).map_err(OpenError::Thread)?;
        let died = || Err(OpenError::Thread(std::io::ErrorKind::Other.into()));
        open.await.unwrap_or_else(|_| died())
    }

    /// Takes nothing more, and waits until what was asked is done.
    pub(super) async fn close(&self) {
        self.stop.send_replace(true);
        let mut ended = self.ended.clone();
        // An error says that the thread dropped its end, which is what is waited for.
        while ended.changed().await.is_ok() {}
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn work(
    mut place: Place,
    options: PostgresOptions,
    opened: oneshot::Sender<Result<Works, OpenError>>,
    ended: watch::Receiver<()>,
) {
    let (alive, mut goodbyes) = mpsc::channel(1);
    place.alive = Some(alive);
    match Opened::open(place, &options).await {
        Ok(open) => open.run(&options, opened, ended).await,
        Err(error) => drop(opened.send(Err(error))),
    }
    // Each connection says goodbye; one that cannot is not waited for.
    let _ = timeout(GOODBYE_WAIT_MAX, goodbyes.recv()).await;
}

/// A schema that is ours, and lines to it.
struct Opened {
    place: Arc<Place>,
    meta: Meta,
    warnings: Vec<String>,
    writers: Vec<Line>,
    others: [Line; 3],
}

impl Opened {
    async fn open(place: Place, options: &PostgresOptions) -> Result<Self, OpenError> {
        let mut link = Link::connect(&place, &[], None).await?;
        demand_session(&link, &place).await?;
        let meta = ensure(&mut link, &place).await?;
        let warnings = warnings(&link, &place).await;
        let place = Arc::new(place);
        let Lines { mut writers, mut others } = Lines::of(&place, options);
        try_join_all(writers.iter_mut().chain(&mut others).map(Line::open)).await?;
        Ok(Self { place, meta, warnings, writers, others })
    }

    async fn run(
        self,
        options: &PostgresOptions,
        opened: oneshot::Sender<Result<Works, OpenError>>,
        ended: watch::Receiver<()>,
    ) {
        let time = Time::new(options.clock.clone(), self.meta.confirmed);
        time.starts(self.meta.ahead_ms);
        let shared = Arc::new(Shared { time, wakers: Default::default(), news: News::new() });
        let queue = options.queue_max;
        let (stop, stopped) = watch::channel(false);
        let mut senders = Vec::new();
        let mut workers = Vec::new();
        let lanes = Lanes::new(self.writers.len(), queue);
        for (lane, line) in self.writers.into_iter().enumerate() {
            let (send, jobs) = inbox(queue, &stopped);
            senders.push(send);
            let (shared, lanes) = (shared.clone(), lanes.clone());
            let writer = Writer::new(line, jobs, shared, lanes, lane);
            workers.push(tokio::spawn(writer.run()));
        }
        let [reader, renewer, house] = self.others;
        let (loads, asked) = inbox(queue, &stopped);
        let reader = Reader { line: reader, loads: asked, shared: shared.clone() };
        let (renewals, asked) = inbox(CHORES_MAX, &stopped);
        let renewer = Renewer { line: renewer, renewals: asked, shared: shared.clone() };
        let (chores, asked) = inbox(CHORES_MAX, &stopped);
        let house = Housekeeper {
            line: house,
            chores: asked,
            shared: shared.clone(),
            schema: self.place.schema.clone(),
            passes: Passes::default(),
            sweeps: VecDeque::new(),
        };
        let channel = format!("onlyonce_{}", self.meta.generation);
        let news = tokio::spawn(news::run(self.place, channel, shared.clone(), stopped.clone()));
        workers.extend([tokio::spawn(reader.run()), tokio::spawn(renewer.run())]);
        workers.extend([tokio::spawn(house.run()), news]);
        let works = Works {
            lanes,
            writers: senders,
            loads,
            renewals,
            chores,
            shared,
            warnings: self.warnings,
            stop,
            ended,
        };
        if opened.send(Ok(works)).is_ok() {
            // A worker ends when nobody can ask it any more.
            join_all(workers).await;
        }
    }
}

/// The lines of a store, each with its statements.
struct Lines {
    writers: Vec<Line>,
    others: [Line; 3],
}

impl Lines {
    fn of(place: &Arc<Place>, options: &PostgresOptions) -> Self {
        let sql = Sql::new(&place.schema);
        let line = |statements: &[&String]| {
            Line::new(place.clone(), statements.iter().copied().cloned().collect())
        };
        let statements = [
            &sql.load,
            &sql.claim,
            &sql.complete,
            &sql.delete,
            &sql.put,
            &sql.claim_and_complete,
            &sql.claim_carefully,
            &sql.claim_and_complete_carefully,
        ];
        let barrier = format!("UPDATE {}.meta SET one = 1 WHERE one = 1", place.schema);
        let writer = || line(&statements).with_barrier(barrier.clone());
        let house = [
            &sql.scan_running,
            &sql.scan_unknown,
            &sql.scan_all,
            &sql.sweep,
            &sql.more,
            &sql.horizon,
            &sql.move_up,
            &sql.beat,
            &sql.hold,
        ];
        Self {
            writers: (0..options.writers).map(|_| writer()).collect(),
            others: [
                line(&[&sql.load]),
                line(&[&sql.renew, &sql.renew_free]),
                line(&house).with_setup(NOT_DURABLE),
            ],
        }
    }
}

/// Makes the schema if need be; `Err` if the schema is not for us.
pub(super) async fn ensure(link: &mut Link, place: &Place) -> Result<Meta, OpenError> {
    let failed = |error| OpenError::from_client(&place.name, &place.schema, error);
    let schema = || place.schema.clone();
    let meta = match schema::ensure(&mut link.client, &place.schema).await.map_err(failed)? {
        Found::Meta(meta) => meta,
        Found::Older(found) => {
            let supported = schema::VERSION;
            return Err(OpenError::Older { schema: schema(), found, supported });
        }
        Found::Nothing | Found::NoRow => {
            return Err(OpenError::Damaged { schema: schema(), what: "its own row is gone" });
        }
    };
    if meta.oldest > schema::VERSION {
        let (found, supported) = (meta.version, schema::VERSION);
        return Err(OpenError::Newer { schema: schema(), found, supported });
    }
    match (&meta.moved_to, &meta.filled_from) {
        (Some(to), _) => Err(OpenError::Moved { schema: schema(), to: to.clone() }),
        (None, Some(from)) => Err(OpenError::Filling { schema: schema(), from: from.clone() }),
        (None, None) => Ok(meta),
    }
}

/// Whether a session is ours for as long as the connection: settings, statements and subscriptions are
/// lost in a pooler that hands each transaction to another one.
///
/// A pooler that takes the session that has rested longest shows itself in a few questions; one that takes
/// the last one, when another connection has begun a transaction there.
async fn demand_session(link: &Link, place: &Place) -> Result<(), OpenError> {
    let failed = |error| OpenError::from_client(&place.name, &place.schema, error);
    let name = crate::hex::encode(crate::record::Token::random().as_bytes());
    let other = Link::connect(place, &[], None).await?;
    let mark = format!("SELECT set_config('onlyonce.mark', '{name}', false)");
    link.client.batch_execute(&mark).await.map_err(failed)?;
    let mut is_ours = true;
    for _ in 0..MARK_LOOKS {
        is_ours &= has_mark(link, &name).await;
    }
    other.client.batch_execute("BEGIN; SELECT 1").await.map_err(failed)?;
    is_ours &= has_mark(link, &name).await;
    other.client.batch_execute("ROLLBACK").await.map_err(failed)?;
    if is_ours { Ok(()) } else { Err(OpenError::Pooled { place: place.name.clone() }) }
}

/// A pooler without another session to give lets us wait.
async fn has_mark(link: &Link, name: &str) -> bool {
    let look = link.client.simple_query("SELECT current_setting('onlyonce.mark', true)");
    let seen = timeout(MARK_WAIT_MAX, look).await;
    seen.is_ok_and(|seen| seen.is_ok_and(|seen| says(&seen, name)))
}

fn says(answer: &[tokio_postgres::SimpleQueryMessage], word: &str) -> bool {
    answer.iter().any(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0) == Some(word),
        _ => false,
    })
}

/// What its owner should know, and what no promise of ours covers.
async fn warnings(link: &Link, place: &Place) -> Vec<String> {
    let standbys = "SELECT EXISTS (SELECT FROM pg_stat_replication)";
    let has_standbys = link.client.query_one_scalar(standbys, &[]).await.unwrap_or(false);
    let name = &place.name;
    let mut warnings = Vec::new();
    if !link.server.full_page_writes {
        warnings.push(format!(
            "{name}: full_page_writes is off; unless the file system never tears a page, a power cut may lose keys"
        ));
    }
    if has_standbys && !link.server.synchronous_standbys {
        warnings.push(format!(
            "{name}: its standbys are not synchronous; a failover may forget keys that were answered"
        ));
    }
    let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    if place.is_unverified && link.client.query_one_scalar(encrypted, &[]).await.unwrap_or(false) {
        warnings.push(format!("{name}: nobody checked who answers there; use sslmode=verify-full"));
    }
    warnings
}

/// The housekeeper's session: what it writes is made again if it is lost.
pub(super) const NOT_DURABLE: &str = "SET synchronous_commit = off";
/// Renewals, and chores, that may wait.
const CHORES_MAX: usize = 64;
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(1);
const MARK_LOOKS: usize = 4;
const MARK_WAIT_MAX: Duration = Duration::from_secs(2);
