//! What a run must have met, or it has proved nothing.

use onlyonce::policy::Recovery;
use onlyonce::record::State;
use stateright::Property;

use crate::protocol::Protocol;
use crate::request::{From, Request, Told, WITHOUT_BODY};
use crate::world::{End, World};

/// What every run of a route with this recovery must meet.
pub(crate) fn reached(recovery: Recovery) -> Vec<Property<Protocol>> {
    let is_redriven = matches!(recovery, Recovery::Redrive { .. });
    let some: [(bool, &'static str, Met); 4] = [
        (recovery == Recovery::Hold, "an answer after its deadline", is_answered_late),
        (recovery != Recovery::Fail, "an unknown outcome told", |_, world| {
            is_told(world, |told| told == Told::Unknown)
        }),
        (is_redriven, "a redrive", |_, world| {
            is_sent(world, |from| matches!(from, From::Unknown(_)))
        }),
        (!is_redriven, "a wrong release, and the work done twice", |_, world| {
            world.lives.iter().any(|life| life.is_excused && life.effects > 1)
        }),
    ];
    let some = some.into_iter().filter(|(is_its, ..)| *is_its).map(|(_, name, met)| (name, met));
    answers().into_iter().chain(faults()).chain(times()).chain(some).map(property).collect()
}

type Met = fn(&Protocol, &World) -> bool;

fn property((name, met): (&'static str, Met)) -> Property<Protocol> {
    Property::sometimes(name, met)
}

fn answers() -> Vec<(&'static str, Met)> {
    vec![
        ("a replay", |_, world| is_told(world, |told| matches!(told, Told::Replay(_)))),
        ("an answer from memory", |_, world| is_told(world, |told| matches!(told, Told::Copy(_)))),
        ("an answer without its body", |_, world| {
            is_told(world, |told| told == Told::Replay(WITHOUT_BODY))
        }),
        ("a mismatch", |_, world| is_told(world, |told| told == Told::Reused)),
        ("a fenced zombie", |_, world| is_told(world, |told| told == Told::Fenced)),
    ]
}

fn faults() -> Vec<(&'static str, Met)> {
    vec![
        ("a reap while its owner is at work", |protocol, world| {
            let is_in_time = protocol.budget.deadlines == world.budget.deadlines;
            is_unknown(world) && is_in_time && is_sent(world, |_| true)
        }),
        ("a release taken again", |_, world| {
            is_sent(world, |from| matches!(from, From::Released(_)))
        }),
        ("a claim that nobody waits for", |_, world| {
            let is_idle =
                |request: &Request| matches!(request, Request::NotSent | Request::Told(_));
            is_running(world) && world.requests.iter().all(is_idle)
        }),
    ]
}

fn times() -> Vec<(&'static str, Met)> {
    vec![
        ("a sweep", |_, world| world.lives.iter().any(|life| life.end == Some(End::Swept))),
        ("a takeover of an expired record", |_, world| {
            world.lives.iter().any(|life| life.end == Some(End::Taken))
        }),
        ("a record that a set clock calls expired, and nobody else", |_, world| {
            world.record.as_ref().is_some_and(|record| {
                let clocks = &world.clocks;
                record.is_expired(clocks.store()) && !record.is_expired(clocks.trusted())
            })
        }),
    ]
}

fn is_answered_late(protocol: &Protocol, world: &World) -> bool {
    let has_passed = protocol.budget.deadlines > world.budget.deadlines;
    has_passed && is_told(world, |told| matches!(told, Told::Fresh(_)))
}

fn is_told(world: &World, is_it: impl Fn(Told) -> bool) -> bool {
    world.requests.iter().any(|request| matches!(request, Request::Told(told) if is_it(*told)))
}

/// Whether an attempt that was taken from there is being sent.
fn is_sent(world: &World, is_it: impl Fn(From) -> bool) -> bool {
    world
        .requests
        .iter()
        .any(|request| matches!(request, Request::Sending(owner) if is_it(owner.from)))
}

fn is_unknown(world: &World) -> bool {
    world.record.as_ref().is_some_and(|record| matches!(record.state, State::Unknown { .. }))
}

fn is_running(world: &World) -> bool {
    world.record.as_ref().is_some_and(|record| matches!(record.state, State::Running { .. }))
}
