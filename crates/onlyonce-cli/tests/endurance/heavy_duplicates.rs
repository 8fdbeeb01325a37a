//! Duplicates across two gateways: one execution each, and equal answers, whatever the filter does.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use proof::client::Connection;
use proof::tier::tiered;
use servers::{Postgres, Redis};
use tokio::sync::Mutex;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::fleet::Fleet;
use crate::upstream::{QUICK, Upstream};
use crate::{BODY, within};

/// How many send each key.
const CALLERS: usize = 100;

// R49, R55; CON-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_across_two_gateways_execute_once_and_are_answered_alike() {
    let fleet = Fleet::start("").await;
    let callers = Callers::connect(&fleet.addresses()).await;
    for n in 0..tiered(200) {
        callers.all_send(&fleet.upstream, &format!("across-{n}")).await;
    }
    callers.report(tiered(200));
}

// R117, R119, R120, R121; threats D1, D7, D9, D10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_that_forgets_hangs_dies_and_comes_back_changes_nothing() {
    let postgres = block_in_place(Postgres::start);
    let redis = block_in_place(|| Redis::start(&[]));
    let database = block_in_place(|| postgres.database());
    let top = format!("store = \"{database}\"\nfilter = \"{}\"", redis.url());
    let fleet = Fleet::on(postgres, &top, "").await;
    let callers = Callers::connect(&fleet.addresses()).await;
    let (is_over, faults) = (Arc::<AtomicBool>::default(), Arc::new(Faults::default()));
    let spoiling = std::thread::spawn({
        let (is_over, faults) = (is_over.clone(), faults.clone());
        move || spoil(redis, &is_over, &faults)
    });
    for n in 0..tiered(200) {
        let key = format!("filtered-{n}");
        callers.all_send(&fleet.upstream, &key).await;
        faults.sent.fetch_add(1, Ordering::SeqCst);
    }
    is_over.store(true, Ordering::SeqCst);
    block_in_place(|| spoiling.join()).unwrap();
    callers.report(tiered(200));
    let [flushes, hangs, kills] = faults.counts();
    println!("{flushes} flushes, {hangs} hangs, {kills} kills of the filter, each among requests");
    assert!(flushes > 0 && hangs > 0 && kills > 0);
}

/// What was done to the filter, and how many keys were sent meanwhile.
#[derive(Default)]
struct Faults {
    done: [AtomicUsize; 3],
    sent: AtomicUsize,
}

impl Faults {
    fn counts(&self) -> [usize; 3] {
        self.done.each_ref().map(|count| count.load(Ordering::SeqCst))
    }

    /// Until keys were sent under the fault at hand, or the end.
    fn among_requests(&self, is_over: &AtomicBool) {
        let before = self.sent.load(Ordering::SeqCst);
        while self.sent.load(Ordering::SeqCst) < before + 2 && !is_over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Flushes, hangs and kills the filter in turn.
fn spoil(mut redis: Redis, is_over: &AtomicBool, faults: &Faults) {
    while !is_over.load(Ordering::SeqCst) {
        redis.command("FLUSHALL");
        faults.among_requests(is_over);
        faults.done[0].fetch_add(1, Ordering::SeqCst);
        redis.pause();
        faults.among_requests(is_over);
        redis.resume();
        faults.done[1].fetch_add(1, Ordering::SeqCst);
        faults.among_requests(is_over);
        redis.kill();
        faults.among_requests(is_over);
        redis.start_again();
        faults.done[2].fetch_add(1, Ordering::SeqCst);
        faults.among_requests(is_over);
    }
}

/// Connections to both gateways in turn.
pub(crate) struct Callers {
    connections: Vec<Arc<Mutex<Connection>>>,
    refusals: AtomicUsize,
    replays: AtomicUsize,
}

impl Callers {
    pub(crate) async fn connect(addresses: &[SocketAddr]) -> Self {
        let mut connections = Vec::new();
        for address in addresses.iter().copied().cycle().take(CALLERS) {
            connections.push(Arc::new(Mutex::new(Connection::open(address).await.unwrap())));
        }
        Self { connections, refusals: AtomicUsize::new(0), replays: AtomicUsize::new(0) }
    }

    /// All of them send the key at once, and again until it is answered.
    pub(crate) async fn all_send(&self, upstream: &Upstream, key: &str) {
        let mut requests = JoinSet::new();
        for connection in &self.connections {
            requests.spawn(send_until_answered(connection.clone(), key.to_owned()));
        }
        let answers = within("all answers", requests.join_all()).await;
        let executions = upstream.executions(key);
        assert_eq!(executions.len(), 1, "{key}");
        let bodies: HashSet<_> = answers.iter().map(|answer| answer.body.clone()).collect();
        assert_eq!(bodies, HashSet::from_iter(executions), "{key}");
        let fresh = answers.iter().filter(|answer| !answer.is_replay).count();
        assert_eq!(fresh, 1, "{key}");
        self.replays.fetch_add(answers.len() - fresh, Ordering::SeqCst);
        let refusals = answers.iter().map(|answer| answer.refusals).sum();
        self.refusals.fetch_add(refusals, Ordering::SeqCst);
    }

    pub(crate) fn report(&self, keys: usize) {
        let [replays, refusals] =
            [&self.replays, &self.refusals].map(|count| count.load(Ordering::SeqCst));
        println!("{keys} keys, {keys} executions, {replays} replays, {refusals} refusals");
        assert!(refusals >= keys && replays >= keys);
    }
}

struct Answered {
    body: Bytes,
    is_replay: bool,
    refusals: usize,
}

async fn send_until_answered(connection: Arc<Mutex<Connection>>, key: String) -> Answered {
    let mut connection = connection.lock().await;
    for refusals in 0.. {
        let answer = connection.post(QUICK, &key, BODY).await.unwrap();
        match (answer.status.as_u16(), answer.problem().as_deref()) {
            (201, None) => {
                let is_replay = answer.is_replay();
                return Answered { body: answer.body, is_replay, refusals };
            }
            (409, Some("idempotency_in_progress")) => sleep(Duration::from_millis(2)).await,
            other => panic!("{key}: {other:?}"),
        }
    }
    unreachable!("there are always more numbers");
}
