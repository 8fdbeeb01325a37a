//! What a run must have met, or it has proved nothing.

use onlyonce::policy::Recovery;
use onlyonce::record::State;
use stateright::Property;

use crate::protocol::Protocol;
use crate::request::{From, Request, Told, WITHOUT_BODY};
use crate::world::{End, World};

/// What a run must have met, or it has proved nothing.
pub(crate) fn reached(recovery: Recovery) -> Vec<Property<Protocol>> {
    let mut all: Vec<Property<Protocol>> = vec![
        Property::sometimes("a replay", |_: &Protocol, world: &World| {
            told(world, |told| matches!(told, Told::Replay(_)))
        }),
        Property::sometimes("a mismatch", |_: &Protocol, world: &World| {
            told(world, |told| told == Told::Reused)
        }),
        Property::sometimes("a fenced zombie", |_: &Protocol, world: &World| {
            told(world, |told| told == Told::Fenced)
        }),
        Property::sometimes(
            "a reap while its owner is at work",
            |protocol: &Protocol, world: &World| {
                is_unknown(world)
                    && protocol.budget.deadlines == world.budget.deadlines
                    && world.requests.iter().any(|request| matches!(request, Request::Sending(_)))
            },
        ),
        Property::sometimes("a release taken again", |_: &Protocol, world: &World| {
            world
                .requests
                .iter()
                .any(|request| matches!(request, Request::Sending(owner) if owner.attempt > 1))
        }),
        Property::sometimes("a sweep", |_: &Protocol, world: &World| {
            world.lives.iter().any(|life| life.end == Some(End::Swept))
        }),
        Property::sometimes("a takeover of an expired record", |_: &Protocol, world: &World| {
            world.lives.iter().any(|life| life.end == Some(End::Taken))
        }),
        Property::sometimes("a claim that nobody waits for", |_: &Protocol, world: &World| {
            world
                .record
                .as_ref()
                .is_some_and(|record| matches!(record.state, State::Running { .. }))
                && world
                    .requests
                    .iter()
                    .all(|request| matches!(request, Request::NotSent | Request::Told(_)))
        }),
        Property::sometimes(
            "a record that a set clock calls expired, and nobody else",
            |_: &Protocol, world: &World| {
                world.record.as_ref().is_some_and(|record| {
                    record.is_expired(world.clocks.store())
                        && !record.is_expired(world.clocks.trusted())
                })
            },
        ),
    ];
    all.extend(rarely());
    if recovery == Recovery::Hold {
        all.push(Property::sometimes(
            "an answer after its deadline",
            |protocol: &Protocol, world: &World| {
                protocol.budget.deadlines > world.budget.deadlines
                    && told(world, |told| matches!(told, Told::Fresh(_)))
            },
        ));
    }
    if !matches!(recovery, Recovery::Fail) {
        all.push(Property::sometimes("an unknown outcome told", |_: &Protocol, world: &World| {
            told(world, |told| told == Told::Unknown)
        }));
    }
    if matches!(recovery, Recovery::Redrive { .. }) {
        all.push(Property::sometimes("a redrive", |_: &Protocol, world: &World| {
            let mut requests = world.requests.iter();
            requests.any(|request| matches!(request, Request::Sending(owner) if matches!(owner.from, From::Unknown(_))))
        }));
    }
    all
}

fn told(world: &World, is_it: impl Fn(Told) -> bool) -> bool {
    world.requests.iter().any(|request| matches!(request, Request::Told(told) if is_it(*told)))
}

fn is_unknown(world: &World) -> bool {
    world.record.as_ref().is_some_and(|record| matches!(record.state, State::Unknown { .. }))
}

/// What the newer parts of the model are for.
fn rarely() -> Vec<Property<Protocol>> {
    vec![
        Property::sometimes("an answer from memory", |_: &Protocol, world: &World| {
            told(world, |told| matches!(told, Told::Copy(_)))
        }),
        Property::sometimes("an answer without its body", |_: &Protocol, world: &World| {
            told(world, |told| told == Told::Replay(WITHOUT_BODY))
        }),
        Property::sometimes(
            "a key that was wrongly released, and done twice",
            |_: &Protocol, world: &World| {
                world.lives.iter().any(|life| life.is_excused && life.effects > 1)
            },
        ),
    ]
}
