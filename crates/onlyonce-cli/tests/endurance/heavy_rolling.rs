//! A rolling restart of two gateways under load: who asks once more at the other gets an answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proof::client::{Answer, Connection, SendError};
use proof::tier::tiered;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::fleet::Fleet;
use crate::upstream::QUICK;
use crate::{BODY, until};

const CLIENTS: usize = 16;

/// What the clients have seen.
#[derive(Default)]
struct Tally {
    at_once: AtomicUsize,
    with_one_retry: AtomicUsize,
    failed: AtomicUsize,
}

impl Tally {
    fn counts(&self) -> [usize; 3] {
        [&self.at_once, &self.with_one_retry, &self.failed].map(|n| n.load(Ordering::SeqCst))
    }

    fn all(&self) -> usize {
        self.counts().iter().sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_costs_at_most_one_retry() {
    let mut fleet = Fleet::start("").await;
    let tally = Arc::<Tally>::default();
    let (stop, stopped) = watch::channel(false);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(send_until(fleet.addresses(), tally.clone(), stopped.clone()));
    }
    for round in 0..tiered(20) {
        let before = tally.all();
        until("load", || tally.all() > before + 200).await;
        fleet.restart(round % 2).await;
    }
    stop.send_replace(true);
    clients.join_all().await;
    let [at_once, with_one_retry, failed] = tally.counts();
    println!(
        "{} restarts: {at_once} answered at once, {with_one_retry} with one retry, {failed} not",
        tiered(20)
    );
    assert!(with_one_retry > 0, "no request met a restart");
    assert!(failed * 1000 <= tally.all(), "{failed} of {} failed", tally.all());
    for (key, executions) in fleet.upstream.all_executions() {
        assert_eq!(executions.len(), 1, "{key}");
    }
}

async fn send_until(gateways: Vec<SocketAddr>, tally: Arc<Tally>, stopped: watch::Receiver<bool>) {
    let mut open = [None, None];
    while !*stopped.borrow() {
        let key = format!("rolling-{:032x}", fastrand::u128(..));
        let first = fastrand::usize(..2);
        let count = if is_good(post(&mut open[first], gateways[first], &key).await) {
            &tally.at_once
        } else if is_good(post(&mut open[1 - first], gateways[1 - first], &key).await) {
            &tally.with_one_retry
        } else {
            &tally.failed
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

fn is_good(answer: Result<Answer, SendError>) -> bool {
    answer.is_ok_and(|answer| answer.status == 201)
}

/// On the connection that is open, else on a new one.
async fn post(
    open: &mut Option<Connection>,
    address: SocketAddr,
    key: &str,
) -> Result<Answer, SendError> {
    let mut connection = match open.take() {
        Some(connection) => connection,
        None => Connection::open(address).await?,
    };
    let answer = connection.post(QUICK, key, BODY).await?;
    *open = Some(connection);
    Ok(answer)
}
