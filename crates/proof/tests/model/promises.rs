//! What must never have happened, and what must be possible in the end. None of it asks the table.

use onlyonce::engine::table::RecordEvent;
use onlyonce::record::{Record, State, TakenFrom, Token};

use crate::clocks::{LEASE_MS, LONG_MS, REDRIVE_MS, SHORT_MS};
use crate::protocol::{Action, Fate, Pace, Protocol, Served};
use crate::request::{From, Request, token};
use crate::world::{End, REQUESTS, World, Wrong};

/// Judges a change of the record that was made by `event`.
pub(crate) fn of_change(world: &mut World, before: Option<&Record>, event: RecordEvent) {
    let (Some(before), after) = (before, world.record.clone()) else { return };
    let wrong = match &before.state {
        State::Completed { .. } | State::Released { .. }
            if is_forgotten(before, after.as_deref()) =>
        {
            world.end_life(how_it_ended(before, after.as_deref(), event));
            None
        }
        State::Completed { .. } => Some(Wrong::CompletedReplaced),
        State::Released { .. } => after.as_deref().and_then(|after| of_released(before, after)),
        State::Unknown { .. } => after.as_deref().and_then(|after| of_unknown(before, after)),
        State::Running { .. } => of_running(world, event),
    };
    wrong.into_iter().for_each(|wrong| world.go_wrong(wrong));
    note_times(world, event);
    // What was released counts as never sent: its age begins with the attempt that takes it.
    if matches!(before.state, State::Released { .. }) && is_running(world) {
        world.lives[world.life].begun_at = world.clocks.boot_ms;
    }
    if event == RecordEvent::ReleaseFor && may_be_sent(world) {
        world.lives[world.life].is_excused = true;
    }
    if world.record.is_none() && world.lives[world.life].effects > 0 {
        world.go_wrong(Wrong::DoneAndForgotten);
    }
}

/// Whether the key has been forgotten: there is no record, or that of the first attempt of another.
fn is_forgotten(before: &Record, after: Option<&Record>) -> bool {
    after.is_none_or(|after| {
        let is_first = after.attempt == 1 && after.taken_from.is_none();
        is_first && after.token != before.token && matches!(after.state, State::Running { .. })
    })
}

fn how_it_ended(before: &Record, after: Option<&Record>, event: RecordEvent) -> End {
    match (&before.state, event) {
        (State::Completed { .. }, RecordEvent::Forget) => End::Forgotten,
        _ if after.is_some() => End::Taken,
        _ => End::Swept,
    }
}

/// A released key is free: a new attempt may take it. Its owner may still have the true answer.
fn of_released(before: &Record, after: &Record) -> Option<Wrong> {
    let State::Released { expires_at } = before.state else { return None };
    match after.state {
        State::Running { .. } if after.token == before.token => Some(Wrong::ReleasedHeld),
        State::Running { .. } => {
            let is_remembered = after.taken_from == Some(TakenFrom::Released { expires_at });
            (!is_remembered).then_some(Wrong::TakenFromForgotten)
        }
        State::Completed { .. } if after.token == before.token => None,
        State::Released { .. } => None,
        State::Completed { .. } | State::Unknown { .. } => Some(Wrong::ReleasedHeld),
    }
}

/// An unknown outcome stays unknown until it is settled, released or attempted again.
fn of_unknown(before: &Record, after: &Record) -> Option<Wrong> {
    let State::Unknown { since } = before.state else { return None };
    match after.state {
        State::Running { .. } if after.token == before.token => Some(Wrong::UnknownRevived),
        State::Running { .. } if after.taken_from != Some(TakenFrom::Unknown { since }) => {
            Some(Wrong::TakenFromForgotten)
        }
        // A new attempt that was not sent returns to the moment that it has found.
        State::Unknown { since: now } => {
            let is_known =
                now == since || before.taken_from == Some(TakenFrom::Unknown { since: now });
            (!is_known).then_some(Wrong::UnknownSinceMoved)
        }
        State::Running { .. } | State::Released { .. } | State::Completed { .. } => None,
    }
}

/// Only its owner changes a running record, unless the owner was silent for a whole lease, on a clock that nobody sets.
fn of_running(world: &World, event: RecordEvent) -> Option<Wrong> {
    use RecordEvent::{MarkUnknown, Release, Renew, Settle};
    let is_owner = matches!(event, Settle | Release | MarkUnknown | Renew);
    let is_silent = world.clocks.boot_ms - world.beat_at >= LEASE_MS;
    (!is_owner && !is_silent).then_some(Wrong::TakenFromTheLiving)
}

/// Whether somebody may still do the work, or has done it: then whoever releases the key vouches wrongly.
fn may_be_sent(world: &World) -> bool {
    let owner = world.record.as_ref().map(|record| record.token);
    let is_its = |number: u8| Some(token(number)) == owner;
    let may_send = |request: &Request| match request {
        Request::Claimed(held) | Request::Sending(held) => is_its(held.token),
        Request::Claiming { token, .. } | Request::Taking { token, .. } => is_its(*token),
        _ => false,
    };
    world.lives[world.life].effects > 0 || world.requests.iter().any(may_send)
}

fn note_times(world: &mut World, event: RecordEvent) {
    let now = world.clocks.boot_ms;
    match world.record.as_ref().map(|record| &record.state) {
        Some(State::Running { .. }) => world.beat_at = now,
        Some(State::Completed { .. }) => world.ended_at = Some(now),
        // An attempt that was not sent returns to the time to live that it has found.
        Some(State::Released { .. }) if event == RecordEvent::ReleaseFor => {
            world.ended_at = Some(now)
        }
        _ => {}
    }
}

/// A request has decided to send an unknown outcome again. Ages go by the store's times: once someone has set its clock, in
/// either direction, they are wrong (docs/limits.md).
pub(crate) fn of_redrive(protocol: &Protocol, world: &mut World) {
    let was_set = world.budget.jumps < protocol.budget.jumps;
    let age = world.clocks.boot_ms - world.lives[world.life].begun_at;
    if age >= REDRIVE_MS && !was_set {
        world.go_wrong(Wrong::RedrivenLate);
    }
}

/// A late copy has reached the store: what it has claimed is somebody's, unless a process has died or a clock was set.
pub(crate) fn of_late_claim(protocol: &Protocol, world: &mut World) {
    let has_died = world.budget.crashes < protocol.budget.crashes;
    let Some(record) = &world.record else { return };
    let is_held = world.requests.iter().any(|request| request.claim() == Some(record.token));
    if is_running(world) && !is_held && !has_died && protocol.budget.jumps == 0 {
        world.go_wrong(Wrong::ClaimOfNobody);
    }
}

/// The store has answered the last write of an owner: while the record has its token, that write counts.
pub(crate) fn last_word(world: &mut World, token: Token, from: From, event: RecordEvent) {
    let Some(record) = world.record.as_ref().filter(|record| record.token == token) else { return };
    let wrong = match (event, &record.state) {
        (RecordEvent::Settle, State::Completed { .. }) => return,
        (RecordEvent::Settle, _) => Wrong::AnswerLost,
        (RecordEvent::Release, State::Running { .. }) => Wrong::NotGivenBack,
        (RecordEvent::Release, State::Unknown { .. }) if !matches!(from, From::Unknown(_)) => {
            Wrong::NotGivenBack
        }
        (RecordEvent::MarkUnknown, State::Running { .. }) => Wrong::LeftRunning,
        _ => return,
    };
    world.go_wrong(wrong);
}

/// If nothing fails from here on, no record is left running after two leases, an operator can end what is unknown and
/// forget what is completed, and what has expired is deleted. Judged where no time is left to pass.
pub(crate) fn ends_well(protocol: &Protocol, world: &World) -> bool {
    let is_at_rest = world.late.is_empty() && world.requests.iter().all(Request::is_at_rest);
    let is_running = is_running(world);
    if world.budget.short > 0 || world.wrong.is_some() || !(is_at_rest || is_running) {
        return true;
    }
    let mut world = world.clone();
    if is_running {
        finish(protocol, &mut world);
        wait_for_reaper(protocol, &mut world);
    }
    !self::is_running(&world) && operators_can_end(protocol, &world) && time_ends(protocol, &world)
}

fn is_running(world: &World) -> bool {
    world.record.as_ref().is_some_and(|record| matches!(record.state, State::Running { .. }))
}

/// Every request goes on without a fault.
fn finish(protocol: &Protocol, world: &mut World) {
    for _ in 0..STEPS_MAX {
        let mut actions = Vec::new();
        for index in 0..REQUESTS {
            protocol.of_request(world, index, &mut actions);
        }
        let forward = actions.into_iter().find(|action| {
            use Action::{Call, Judge, Serve};
            matches!(action, Call(_, Fate::Answered) | Judge(_) | Serve(_, Served::Answered))
        });
        let Some(action) = forward else { return };
        protocol.act(world, action);
    }
}

fn wait_for_reaper(protocol: &Protocol, world: &mut World) {
    for _ in 0..3 {
        if protocol.allows(world, RecordEvent::Reap) {
            protocol.act(world, Action::Reap(Pace::AtOnce));
        }
        world.clocks.move_by(2 * SHORT_MS, 0);
    }
}

fn operators_can_end(protocol: &Protocol, world: &World) -> bool {
    use RecordEvent::{Forget, ReleaseFor, SettleFor};
    let now = world.clocks.trusted();
    let record = world.record.as_ref().filter(|record| !record.is_expired(now));
    match record.map(|record| &record.state) {
        Some(State::Unknown { .. }) => {
            [SettleFor, ReleaseFor].iter().all(|event| protocol.allows(world, *event))
        }
        Some(State::Completed { .. }) => protocol.allows(world, Forget),
        _ => true,
    }
}

fn time_ends(protocol: &Protocol, world: &World) -> bool {
    let expires = world.record.as_ref().is_some_and(|record| record.expires_at().is_some());
    let mut world = world.clone();
    // Longer than a time to live and any jump back together.
    world.clocks.move_by(4 * LONG_MS, 0);
    !expires || protocol.allows(&world, RecordEvent::Sweep)
}

/// More steps than three requests have.
const STEPS_MAX: usize = 30;
