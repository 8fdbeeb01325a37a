//! The model store: a host on the network that loses, delays, doubles and refuses calls, and whose clock someone sets.
//!
//! A call travels as a datagram with its number; its content waits in a table, because the calls of a store are values and
//! no bytes. So partitions and held links are the network's, and a copy of a call may come long after its sender has died.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use onlyonce::clock::StoreTime;
use onlyonce::record::{Record, Token};
use onlyonce::scope::OperationId;
use onlyonce::store::cas::{self, Effect};
use onlyonce::store::{
    Beat, Cursor, Draft, Fault, Guard, Lease, Next, Page, Scan, Seen, StoreError, Swap, Swept,
};
use tokio::sync::Notify;
use tokio::time::sleep;
use turmoil::net::UdpSocket;

use crate::flaws::Flaw;
use crate::world::{ANY, World};

/// The records, and the calls and replies that are on their way.
pub(crate) struct ModelStore {
    tables: Mutex<Tables>,
    /// Tells waiters of each write, in the order in which they came. (`watch` wakes them in an order of its own, which no seed
    /// decides.)
    pub(crate) writes: Arc<Notify>,
}

#[derive(Default)]
struct Tables {
    records: BTreeMap<OperationId, Record>,
    calls: BTreeMap<u64, Call>,
    replies: BTreeMap<u64, Result<Reply, Fault>>,
    numbers: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Call {
    Claim(Box<Draft>),
    Load(OperationId),
    Swap(OperationId, Guard, Box<Next>),
    Renew(Vec<(OperationId, Token)>, Lease),
    Scan(Scan),
    Sweep(StoreTime, usize),
}

#[derive(Debug)]
pub(crate) enum Reply {
    Seen(Box<Seen>),
    Swap(Swap),
    Beats(Vec<Beat>),
    Page(Page),
    Swept(Swept),
}

impl ModelStore {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { tables: Mutex::default(), writes: Arc::default() })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers a call that is about to be sent.
    pub(crate) fn send(&self, call: Call) -> u64 {
        let mut tables = self.tables();
        tables.numbers += 1;
        let number = tables.numbers;
        tables.calls.insert(number, call);
        number
    }

    pub(crate) fn take_reply(&self, number: u64) -> Option<Result<Reply, Fault>> {
        self.tables().replies.remove(&number)
    }

    fn answer(&self, reply: Result<Reply, Fault>) -> u64 {
        let mut tables = self.tables();
        tables.numbers += 1;
        let number = tables.numbers;
        tables.replies.insert(number, reply);
        number
    }

    pub(crate) fn records(&self) -> Vec<(OperationId, Record)> {
        self.tables().records.iter().map(|(id, record)| (*id, record.clone())).collect()
    }

    /// Does the call, at one moment.
    fn perform(&self, call: Call, world: &World, rng: &mut Rng) -> Reply {
        let now = world.store_now();
        let is_write = matches!(call, Call::Claim(_) | Call::Swap(..));
        let mut tables = self.tables();
        let reply = match call {
            Call::Claim(draft) => tables.claim(&draft, now, world.flaw),
            Call::Load(id) => tables.seen(id, false, now),
            Call::Swap(id, guard, to) => {
                let is_done = world.flaw != Flaw::AnswersUndone || rng.u8(..4) > 0;
                tables.swap(id, &guard, &to, now, world.flaw, is_done)
            }
            Call::Renew(held, lease) => tables.renew(&held, lease, now),
            Call::Scan(query) => tables.scan(&query, now),
            Call::Sweep(until, limit) => tables.sweep(until, limit, world.flaw),
        };
        drop(tables);
        if is_write {
            self.writes.notify_waiters();
        }
        reply
    }
}

impl Tables {
    fn seen(&self, id: OperationId, mine: bool, now: StoreTime) -> Reply {
        Reply::Seen(Box::new(Seen { record: self.records.get(&id).cloned(), mine, now }))
    }

    fn claim(&mut self, draft: &Draft, now: StoreTime, flaw: Flaw) -> Reply {
        let current = match flaw {
            Flaw::GivesClaimsTwice => None,
            _ => self.records.get(&draft.id),
        };
        if let Some(record) = cas::claim(current, draft, now) {
            self.records.insert(draft.id, record);
        }
        let mine = cas::is_mine(self.records.get(&draft.id), draft);
        self.seen(draft.id, mine, now)
    }

    fn swap(
        &mut self,
        id: OperationId,
        guard: &Guard,
        to: &Next,
        now: StoreTime,
        flaw: Flaw,
        is_done: bool,
    ) -> Reply {
        let current = self.records.get(&id);
        let guard = match (flaw, current) {
            (Flaw::IgnoresGuards, Some(record)) => Guard::Unchanged(record.revision()),
            _ => *guard,
        };
        let revision = match cas::swap(current, &guard, to, now) {
            Effect::Stale => {
                let record = current.cloned();
                return Reply::Swap(Swap::Stale(Box::new(Seen { record, mine: false, now })));
            }
            Effect::Already(revision) => revision,
            Effect::Delete(revision) => {
                if is_done {
                    self.records.remove(&id);
                }
                revision
            }
            Effect::Write(record) => {
                let revision = record.revision();
                if is_done {
                    self.records.insert(id, *record);
                }
                revision
            }
        };
        Reply::Swap(Swap::Done(revision))
    }

    fn renew(&mut self, held: &[(OperationId, Token)], lease: Lease, now: StoreTime) -> Reply {
        let renewed = held.iter().map(|(id, token)| {
            match cas::renew(self.records.get(id), *token, lease, now) {
                None => Beat::Lost,
                Some(record) => {
                    self.records.insert(*id, record);
                    Beat::Kept
                }
            }
        });
        Reply::Beats(renewed.collect())
    }

    fn scan(&self, query: &Scan, now: StoreTime) -> Reply {
        let place = |id: &OperationId| u128::from_be_bytes(*id.as_bytes());
        let matching = self.records.iter().filter(|(id, record)| {
            query.after.is_none_or(|after| place(id) > after.0)
                && query.states.contains(record.state.kind())
        });
        let records: Vec<_> = matching.take(query.limit).map(|(id, r)| (*id, r.clone())).collect();
        let last = records.last().filter(|_| records.len() == query.limit);
        Reply::Page(Page { next: last.map(|(id, _)| Cursor(place(id))), records, now })
    }

    fn sweep(&mut self, until: StoreTime, limit: usize, flaw: Flaw) -> Reply {
        let is_swept = |record: &Record| {
            record.is_expired(until)
                || (flaw == Flaw::SweepsAnyState && record.response().is_none())
        };
        let expired = self.records.iter().filter(|(_, record)| is_swept(record));
        let ids: Vec<_> = expired.map(|(id, _)| *id).collect();
        for id in ids.iter().take(limit) {
            self.records.remove(id);
        }
        Reply::Swept(Swept { deleted: ids.len().min(limit), more: ids.len() > limit })
    }
}

/// The store's host: takes calls off the network, and does to them what networks do.
pub(crate) async fn serve(world: Arc<World>, store: Arc<ModelStore>) -> turmoil::Result {
    let socket = Rc::new(UdpSocket::bind((ANY, PORT)).await?);
    let rng = Rc::new(RefCell::new(world.plan.rng(1)));
    let mut bytes = [0; 8];
    loop {
        let (_, from) = socket.recv_from(&mut bytes).await?;
        let number = u64::from_be_bytes(bytes);
        let Some(call) = store.tables().calls.get(&number).cloned() else { continue };
        let mishap = Mishap::choose(&world, &mut rng.borrow_mut());
        let (world, store, socket, rng) =
            (world.clone(), store.clone(), socket.clone(), rng.clone());
        tokio::task::spawn_local(async move {
            let node = from.ip().to_string();
            let reply = befall(mishap, &call, &node, &world, &store, &rng).await;
            let Some(reply) = reply else { return };
            let reply = store.answer(reply);
            let mut datagram = [0; 16];
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            datagram[8..].copy_from_slice(&reply.to_be_bytes());
            // A gateway that is gone does not hear it.
            let _ = socket.send_to(&datagram, from).await;
        });
    }
}

/// What befalls a call.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    None,
    /// It is not done, and its caller is told so.
    Refused,
    /// It never arrives.
    Lost,
    /// It is done, and the reply is lost.
    ReplyLost,
    /// It is done, or not, and its caller is told at once that nobody knows.
    Unsure {
        is_done: bool,
    },
    /// It is done late.
    Late(Duration),
    /// It is done and answered, and a copy of it comes later.
    Doubled(Duration),
}

impl Mishap {
    fn choose(world: &World, rng: &mut Rng) -> Self {
        let roll = rng.u8(..100);
        let late = Duration::from_millis(rng.u64(1..LATE_MS_MAX));
        let soon = Duration::from_millis(rng.u64(1..2_000));
        if !world.has_faults() {
            return Self::None;
        }
        match roll {
            0..2 => Self::Refused,
            2..4 => Self::Lost,
            4..6 => Self::ReplyLost,
            6..10 => Self::Unsure { is_done: roll < 8 },
            10..14 => Self::Late(soon),
            14..16 => Self::Late(late),
            16..22 => Self::Doubled(late),
            _ => Self::None,
        }
    }
}

async fn befall(
    mishap: Mishap,
    call: &Call,
    node: &str,
    world: &Arc<World>,
    store: &Arc<ModelStore>,
    rng: &Rc<RefCell<Rng>>,
) -> Option<Result<Reply, Fault>> {
    let perform = |how: &str| {
        let reply = store.perform(call.clone(), world, &mut rng.borrow_mut());
        world.trace(|| format!("store {how} {node} {} -> {}", told(call), told_reply(&reply)));
        reply
    };
    let cut = || StoreError::Unavailable("the connection was cut".into());
    match mishap {
        Mishap::None => Some(Ok(perform("does"))),
        Mishap::Refused => {
            world.count(|met| met.refused += 1);
            Some(Err(Fault::NotDone(StoreError::Busy)))
        }
        Mishap::Lost => {
            world.count(|met| met.lost_calls += 1);
            None
        }
        Mishap::ReplyLost => {
            perform("does, and loses the reply to,");
            world.count(|met| met.lost_replies += 1);
            None
        }
        Mishap::Unsure { is_done } => {
            if is_done {
                perform("does, and is cut off from,");
            }
            world.count(|met| met.lost_replies += 1);
            Some(Err(Fault::Unsure(cut())))
        }
        Mishap::Late(late) => {
            world.count(|met| met.late += 1);
            sleep(late).await;
            Some(Ok(perform("does late")))
        }
        Mishap::Doubled(late) => {
            world.count(|met| met.doubled += 1);
            let (world, store, rng, call, node) =
                (world.clone(), store.clone(), rng.clone(), call.clone(), node.to_owned());
            let reply = Ok(perform("does"));
            tokio::task::spawn_local(async move {
                sleep(late).await;
                let reply = store.perform(call.clone(), &world, &mut rng.borrow_mut());
                world.trace(|| {
                    format!("store does again {node} {} -> {}", told(&call), told_reply(&reply))
                });
            });
            Some(reply)
        }
    }
}

/// A call in the trace: without tokens, which are random.
fn told(call: &Call) -> String {
    match call {
        Call::Claim(draft) => format!("claim {}", draft.id),
        Call::Load(id) => format!("load {id}"),
        Call::Swap(id, guard, to) => {
            let guard = match guard {
                Guard::Owner { .. } => "owner",
                Guard::Unchanged(_) => "unchanged",
            };
            let to = match **to {
                Next::Absent => "absent",
                Next::Running(_) => "running",
                Next::Unknown { .. } => "unknown",
                Next::Released { .. } => "released",
                Next::Completed { .. } => "completed",
                Next::Replaced(_) => "replaced",
            };
            format!("swap {id} {guard} {to}")
        }
        Call::Renew(held, _) => format!("renew {}", held.len()),
        Call::Scan(_) => "scan".to_owned(),
        Call::Sweep(..) => "sweep".to_owned(),
    }
}

fn told_reply(reply: &Reply) -> String {
    let state = |seen: &Seen| seen.record.as_ref().map(|record| record.state.kind());
    match reply {
        Reply::Seen(seen) => format!("{:?} mine {}", state(seen), seen.mine),
        Reply::Swap(Swap::Done(revision)) => format!("done {}", revision.count),
        Reply::Swap(Swap::Stale(seen)) => format!("stale {:?}", state(seen)),
        Reply::Beats(beats) => {
            format!("{} kept", beats.iter().filter(|beat| **beat == Beat::Kept).count())
        }
        Reply::Page(page) => format!("{} records", page.records.len()),
        Reply::Swept(swept) => format!("{} deleted", swept.deleted),
    }
}

pub(crate) const PORT: u16 = 5432;
/// How late a copy may come: later than a claim's `not_after`.
const LATE_MS_MAX: u64 = 14_000;
