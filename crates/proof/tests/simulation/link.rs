//! A gateway's connection to the model store: the library's store traits over the network.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlyonce::clock::StoreTime;
use onlyonce::record::Token;
use onlyonce::scope::OperationId;
use onlyonce::store::{
    Beat, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen, Store, StoreError,
    StoreLimits, Swap, Swept, Watch,
};
use tokio::sync::{mpsc, oneshot};
use turmoil::net::UdpSocket;

use crate::store::{Call, ModelStore, PORT, Reply};
use crate::world::{ANY, World};

pub(crate) struct Link {
    world: Arc<World>,
    store: Arc<ModelStore>,
    node: usize,
    outbox: mpsc::Sender<(u64, oneshot::Sender<Result<Reply, Fault>>)>,
}

impl Link {
    pub(crate) async fn open(
        world: Arc<World>,
        store: Arc<ModelStore>,
        node: usize,
    ) -> turmoil::Result<Self> {
        let socket = UdpSocket::bind((ANY, PORT)).await?;
        let (outbox, calls) = mpsc::channel(CALLS_MAX);
        tokio::task::spawn_local(carry(world.clone(), store.clone(), node, socket, calls));
        Ok(Self { world, store, node, outbox })
    }

    /// Sends the call and waits for its reply; the library bounds the wait.
    async fn call(&self, call: Call) -> Result<Reply, Fault> {
        self.world.runs(self.node).await;
        let number = self.store.send(call);
        let (heard, hears) = oneshot::channel();
        let gone = || Fault::Unsure(StoreError::Unavailable("the link is gone".into()));
        self.outbox.send((number, heard)).await.map_err(|_| gone())?;
        let reply = hears.await.map_err(|_| gone())?;
        self.world.runs(self.node).await;
        if let Ok(Reply::Seen(_) | Reply::Page(_)) = reply {
            self.world.read_the_clock(self.node);
        }
        reply
    }
}

/// Carries calls to the store and replies back, until the gateway dies.
async fn carry(
    world: Arc<World>,
    store: Arc<ModelStore>,
    node: usize,
    socket: UdpSocket,
    mut calls: mpsc::Receiver<(u64, oneshot::Sender<Result<Reply, Fault>>)>,
) {
    let mut waiting = BTreeMap::new();
    let mut bytes = [0; 16];
    loop {
        tokio::select! {
            biased;
            call = calls.recv() => {
                let Some((number, heard)) = call else { return };
                waiting.insert(number, heard);
                let _ = socket.send_to(&u64::to_be_bytes(number), ("store", PORT)).await;
            }
            received = socket.recv_from(&mut bytes) => {
                if received.is_err() {
                    return;
                }
                let [number, reply] = [0, 8].map(|at| {
                    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
                });
                if let Some(reply) = store.take_reply(reply)
                    && let Some(heard) = waiting.remove(&number)
                {
                    world.runs(node).await;
                    let _ = heard.send(reply);
                }
            }
        }
    }
}

impl Store for Link {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        match self.call(Call::Claim(Box::new(draft))).await? {
            Reply::Seen(seen) => Ok(*seen),
            _ => unreachable!("a claim is answered with what was seen"),
        }
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        match self.call(Call::Load(id)).await? {
            Reply::Seen(seen) => Ok(*seen),
            _ => unreachable!("a load is answered with what was seen"),
        }
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        match self.call(Call::Swap(id, guard, Box::new(to))).await? {
            Reply::Swap(swap) => Ok(swap),
            _ => unreachable!("a swap is answered as a swap"),
        }
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        match self.call(Call::Renew(held.to_vec(), lease)).await? {
            Reply::Beats(beats) => Ok(beats),
            _ => unreachable!("a renewal is answered with beats"),
        }
    }
}

impl Watch for Link {
    fn changed(&self, _: OperationId) -> impl Future<Output = ()> + Send + 'static {
        let written = self.store.writes.clone().notified_owned();
        let wakes = self.world.plan.wakes;
        async move {
            match wakes {
                true => written.await,
                false => std::future::pending().await,
            }
        }
    }
}

impl Maintain for Link {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        match self.call(Call::Scan(query)).await? {
            Reply::Page(page) => Ok(page),
            _ => unreachable!("a scan is answered with a page"),
        }
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        match self.call(Call::Sweep(until, limit)).await? {
            Reply::Swept(swept) => Ok(swept),
            _ => unreachable!("a sweep is answered as a sweep"),
        }
    }

    async fn check_value(
        &self,
        _: &str,
        _: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        Ok(to.map(str::to_owned))
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { body_bytes_max: usize::MAX, embedded: false, expires_by_itself: false }
    }
}

impl Inspect for Link {}

const CALLS_MAX: usize = 1_000;
