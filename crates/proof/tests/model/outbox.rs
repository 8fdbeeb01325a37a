//! The relay of the outbox, explored on its own: lease, ship, delete; two relays, of which any may die or stand still.
//!
//! It restates SQL (`outbox/sql/lease.sql`, `shipped.sql`, `failed.sql`, `retry.sql`) and `outbox/relay.rs`, each statement as
//! one step. So it shows that the order of the steps is right, not that the SQL says them; crates/onlyonce/tests/outbox asks a
//! real server. A relay ships one message at a time here: more of them are of other lanes.

mod promises;

use proof::tier::is_full;
use stateright::{Checker, HasDiscoveries, Model, Property};

/// Something that is left out, or done in the wrong order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    DeleteBeforeShip,
    LeaseNotCheckedAtDelete,
    LeaseNotCheckedAtFailure,
    LeaseNotWritten,
    AnyOfALane,
    ParkedLetsOthersPass,
    ConsumerForgets,
}

const FAULTS: [Fault; 7] = [
    Fault::DeleteBeforeShip,
    Fault::LeaseNotCheckedAtDelete,
    Fault::LeaseNotCheckedAtFailure,
    Fault::LeaseNotWritten,
    Fault::AnyOfALane,
    Fault::ParkedLetsOthersPass,
    Fault::ConsumerForgets,
];

const RELAYS: usize = 2;
/// The first two are of one lane, in this order; the last has a lane of its own.
const MESSAGES: usize = 3;
/// Steps of time: a lease has two of them.
const LEASE: u8 = 2;
const REFUSALS_MAX: u8 = 2;

fn lane(message: usize) -> usize {
    message / 2
}

/// A row of the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    is_deleted: bool,
    due_at: u8,
    lease: Option<u8>,
    attempts: u8,
    is_parked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Relay {
    #[default]
    Idle,
    Leased(Lease),
    Shipped(Lease),
    Refused(Lease),
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lease {
    message: usize,
    token: u8,
    until: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    now: u8,
    rows: [Row; MESSAGES],
    relays: [Relay; RELAYS],
    /// How often each message came to its consumer, and had its effect.
    delivered: [u8; MESSAGES],
    effects: [u8; MESSAGES],
    leases: u8,
    /// What may still happen, from here on.
    steps: u8,
    crashes: u8,
    refusals: u8,
    retries: u8,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Lease(usize, usize),
    Ship(usize),
    Refuse(usize),
    /// The relay writes down what came of its message.
    Settle(usize),
    Crash(usize),
    /// An operator makes a parked message due again.
    Retry(usize),
    Time,
}

struct Outbox(Option<Fault>);

impl Outbox {
    fn has(&self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }

    /// The first of its lane, if it is due.
    fn may_lease(&self, world: &World, message: usize) -> bool {
        let row = world.rows[message];
        let is_before = |other: usize| {
            let earlier = world.rows[other];
            let passes = earlier.is_parked && self.has(Fault::ParkedLetsOthersPass);
            lane(other) == lane(message) && !earlier.is_deleted && !passes
        };
        let is_first = !(0..message).any(is_before) || self.has(Fault::AnyOfALane);
        !row.is_deleted && !row.is_parked && row.due_at <= world.now && is_first
    }

    fn lease(&self, world: &mut World, relay: usize, message: usize) {
        world.leases += 1;
        let lease = Lease { message, token: world.leases, until: world.now + LEASE };
        let is_held = |held: &Relay| match held {
            Relay::Leased(other) => lane(other.message) == lane(message) && other.until > world.now,
            _ => false,
        };
        if world.relays.iter().any(is_held) {
            world.wrong = Some("two relays ship messages of one lane at once");
        }
        let row = &mut world.rows[message];
        if !self.has(Fault::LeaseNotWritten) {
            (row.lease, row.due_at) = (Some(lease.token), lease.until);
        }
        row.is_deleted |= self.has(Fault::DeleteBeforeShip);
        world.relays[relay] = Relay::Leased(lease);
    }

    fn ship(&self, world: &mut World, relay: usize) {
        let Relay::Leased(lease) = world.relays[relay] else { return };
        let message = lease.message;
        let is_in_order =
            (0..message).all(|other| lane(other) != lane(message) || world.delivered[other] > 0);
        if world.delivered[message] == 0 && !is_in_order {
            world.wrong = Some("a message came before an earlier one of its lane");
        }
        // The consumer remembers the id in the transaction of the effect.
        if world.delivered[message] == 0 || self.has(Fault::ConsumerForgets) {
            world.effects[message] += 1;
        }
        world.delivered[message] = (world.delivered[message] + 1).min(2);
        world.relays[relay] = Relay::Shipped(lease);
    }

    fn settle(&self, world: &mut World, relay: usize) {
        let held = std::mem::take(&mut world.relays[relay]);
        let now = world.now;
        match held {
            Relay::Shipped(lease) => {
                let row = &mut world.rows[lease.message];
                let is_ours =
                    row.lease == Some(lease.token) || self.has(Fault::LeaseNotCheckedAtDelete);
                row.is_deleted |= is_ours || self.has(Fault::LeaseNotWritten);
            }
            Relay::Refused(lease) => {
                let row = &mut world.rows[lease.message];
                if row.lease == Some(lease.token) || self.has(Fault::LeaseNotCheckedAtFailure) {
                    row.attempts += 1;
                    (row.lease, row.due_at, row.is_parked) =
                        (None, now, row.attempts >= REFUSALS_MAX);
                }
            }
            other => world.relays[relay] = other,
        }
    }
}

impl Model for Outbox {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let refusals = if is_full() { 3 } else { 2 };
        let steps = if is_full() { 2 * LEASE } else { LEASE + 1 };
        vec![World { steps, crashes: 1, refusals, retries: 1, ..World::default() }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for relay in 0..RELAYS {
            match world.relays[relay] {
                Relay::Idle => {
                    let due = (0..MESSAGES).filter(|message| self.may_lease(world, *message));
                    actions.extend(due.map(|message| Action::Lease(relay, message)));
                }
                Relay::Leased(_) => {
                    actions.push(Action::Ship(relay));
                    if world.refusals > 0 {
                        actions.push(Action::Refuse(relay));
                    }
                }
                Relay::Shipped(_) | Relay::Refused(_) => actions.push(Action::Settle(relay)),
                Relay::Dead => continue,
            }
            if world.crashes > 0 {
                actions.push(Action::Crash(relay));
            }
        }
        let parked =
            (0..MESSAGES).filter(|message| world.rows[*message].is_parked && world.retries > 0);
        actions.extend(parked.map(Action::Retry));
        if world.steps > 0 {
            actions.push(Action::Time);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Lease(relay, message) => self.lease(&mut world, relay, message),
            Action::Ship(relay) => self.ship(&mut world, relay),
            Action::Refuse(relay) => {
                let Relay::Leased(lease) = world.relays[relay] else { return None };
                world.refusals -= 1;
                world.relays[relay] = Relay::Refused(lease);
            }
            Action::Settle(relay) => self.settle(&mut world, relay),
            Action::Crash(relay) => {
                world.crashes -= 1;
                world.relays[relay] = Relay::Dead;
            }
            Action::Retry(message) => {
                world.retries -= 1;
                let row = &mut world.rows[message];
                (row.is_parked, row.attempts, row.due_at) = (false, 0, world.now);
            }
            Action::Time => {
                world.steps -= 1;
                world.now += 1;
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(self)
    }
}
