//! The transactional mode, explored on its own: `begin`, the work, `complete`, COMMIT, and `resolve` after a COMMIT that was not
//! answered.
//!
//! All of it restates SQL (`store/postgres/sql/transactions.sql`) and what Postgres promises about a transaction: its locks
//! and rows go with it, and a COMMIT whose answer is lost is done or not. So it shows that the order of the steps is right,
//! not that the SQL says them; crates/onlyonce/tests/transactions asks a real server. Expiry is left out.

mod promises;
mod world;

use stateright::{Checker, HasDiscoveries, Model, Property};
use world::{Client, Row, Told, Tx, World};

const CLIENTS: usize = 3;

/// The first two send the same request, the last another one with their key.
fn fingerprint(client: usize) -> bool {
    client == CLIENTS - 1
}

/// Something that is left out, or done in the wrong order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    NeitherLockNorUniqueId,
    CompleteAfterCommit,
    NoTriggerAtCommit,
    ResolveDoesNotWait,
    WorkOnAnotherConnection,
    FingerprintNotCompared,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    /// The next step of a client; `true`: it forgets `complete`.
    Step(usize, bool),
    /// The server does a COMMIT, or rolls back; the client hears of it or not.
    End {
        client: usize,
        is_done: bool,
        is_heard: bool,
    },
    /// The client loses its connection while it waits for COMMIT.
    Lose(usize),
    Resolve(usize),
    Crash(usize),
    Retry(usize),
}

struct Transactions(Option<Fault>);

impl Transactions {
    fn is_locked(&self, world: &World) -> bool {
        world.transactions.iter().any(|tx| tx.is_open)
    }

    fn step(&self, world: &mut World, index: usize, forgets: bool) {
        let tx = &mut world.transactions[index];
        world.clients[index] = match world.clients[index] {
            Client::Mine { .. } if !tx.is_open => Client::Told(Told::NotDone),
            Client::Idle => world.row.map_or(Client::Looked, |row| self.seen(row, index)),
            Client::Looked => self.lock(world, index),
            Client::Mine { is_worked: false, .. } => {
                tx.has_effect = true;
                if self.0 == Some(Fault::WorkOnAnotherConnection) {
                    world.effects += 1;
                }
                Client::Mine { is_worked: true, is_completed: false }
            }
            Client::Mine { is_completed: false, .. } if !forgets && !self.completes_late() => {
                tx.answer = Some(answer(index));
                Client::Mine { is_worked: true, is_completed: true }
            }
            Client::Mine { .. } => {
                tx.is_commit_sent = true;
                Client::Committing
            }
            Client::Late => {
                world.row = world.row.map(|row| Row { answer: Some(answer(index)), ..row });
                Client::Told(Told::Answer(answer(index)))
            }
            other => other,
        };
    }

    /// The second half of `begin`: the lock, then the row.
    fn lock(&self, world: &mut World, index: usize) -> Client {
        let has_lock = self.0 != Some(Fault::NeitherLockNorUniqueId);
        match world.row {
            _ if has_lock && self.is_locked(world) => Client::Told(Told::InProgress),
            Some(row) if has_lock => self.seen(row, index),
            _ => {
                world.transactions[index] = Tx { is_open: true, ..Tx::default() };
                Client::Mine { is_worked: false, is_completed: false }
            }
        }
    }

    fn seen(&self, row: Row, index: usize) -> Client {
        let is_same = row.fingerprint == fingerprint(index);
        match row.answer {
            Some(_) if !is_same && self.0 != Some(Fault::FingerprintNotCompared) => {
                Client::Told(Told::Reused)
            }
            Some(answer) => Client::Told(Told::Answer(answer)),
            // OO006: a person must look.
            None => Client::Dead,
        }
    }

    fn end(&self, world: &mut World, index: usize, is_done: bool, is_heard: bool) {
        let tx = std::mem::take(&mut world.transactions[index]);
        let has_trigger =
            !matches!(self.0, Some(Fault::NoTriggerAtCommit | Fault::CompleteAfterCommit));
        let is_committed = is_done && (tx.answer.is_some() || !has_trigger);
        if is_committed {
            world.row = Some(Row { fingerprint: fingerprint(index), answer: tx.answer });
            let is_inside = self.0 != Some(Fault::WorkOnAnotherConnection);
            world.effects += u8::from(tx.has_effect && is_inside);
        }
        if world.clients[index] != Client::Committing {
            return;
        }
        world.clients[index] = match (is_heard, is_committed) {
            (false, _) => Client::Unsure,
            (true, true) if self.completes_late() => Client::Late,
            (true, true) => Client::Told(Told::Answer(answer(index))),
            (true, false) => Client::Told(Told::NotDone),
        };
    }

    fn resolve(&self, world: &mut World, index: usize) {
        let row = world.row.filter(|row| row.fingerprint == fingerprint(index));
        let told = row.and_then(|row| row.answer).map_or(Told::NotDone, Told::Answer);
        if told == Told::NotDone && world.transactions[index].is_commit_sent {
            world.wrong = Some("told that it was not done, and it may still be");
        }
        world.clients[index] = Client::Told(told);
    }

    fn completes_late(&self) -> bool {
        self.0 == Some(Fault::CompleteAfterCommit)
    }
}

fn answer(client: usize) -> u8 {
    u8::try_from(client).expect("few clients")
}

impl Model for Transactions {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World { retries: 2, ..World::default() }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for client in 0..CLIENTS {
            let tx = world.transactions[client];
            match world.clients[client] {
                Client::Idle | Client::Looked | Client::Mine { .. } | Client::Late => {
                    actions.extend([
                        Action::Step(client, false),
                        Action::Step(client, true),
                        Action::Crash(client),
                    ]);
                }
                Client::Committing => {
                    actions.push(Action::End { client, is_done: true, is_heard: true });
                    actions.extend([Action::Lose(client), Action::Crash(client)]);
                }
                // It waits for the lock of the transaction.
                Client::Unsure
                    if !self.is_locked(world) || self.0 == Some(Fault::ResolveDoesNotWait) =>
                {
                    actions.push(Action::Resolve(client));
                }
                Client::Told(_) | Client::Dead if world.retries > 0 && !tx.is_open => {
                    actions.push(Action::Retry(client))
                }
                _ => {}
            }
            // The connection is lost: the server does what was sent, or rolls back.
            if tx.is_open {
                actions.push(Action::End { client, is_done: false, is_heard: false });
            }
            if tx.is_commit_sent {
                actions.push(Action::End { client, is_done: true, is_heard: false });
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Step(client, forgets) => self.step(&mut world, client, forgets),
            Action::End { client, is_done, is_heard } => {
                self.end(&mut world, client, is_done, is_heard)
            }
            Action::Lose(client) => world.clients[client] = Client::Unsure,
            Action::Resolve(client) => self.resolve(&mut world, client),
            Action::Crash(client) => world.clients[client] = Client::Dead,
            Action::Retry(client) => {
                world.retries -= 1;
                world.clients[client] = Client::Idle;
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(self)
    }
}
