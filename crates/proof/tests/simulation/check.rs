//! What must be true at the end of every run.

use std::time::Duration;

use onlyonce::record::State;

use crate::gateway::CHARGES;
use crate::store::ModelStore;
use crate::world::{Answer, Execution, World};

/// The first promise that this run has broken, in words.
pub(crate) fn broken(world: &World, store: &ModelStore) -> Option<String> {
    let told = world.told();
    let ttl = world.plan.ttl();
    executed_twice(&told.executions, ttl)
        .or_else(|| told.answers.iter().find_map(|answer| wrong(answer, &told.executions)))
        .or_else(|| told.answers.iter().find_map(|answer| lost(answer, &told.answers, ttl)))
        .or_else(|| still_running(store))
        .or_else(|| {
            told.engines
                .iter()
                .any(|once| once.waiting() > 0)
                .then(|| "someone still waits".to_owned())
        })
}

/// At most one effect for each key of a caller, for as long as its answer lives.
fn executed_twice(executions: &[Execution], ttl: Duration) -> Option<String> {
    executions.iter().enumerate().find_map(|(place, first)| {
        let again = executions[place + 1..].iter().find(|later| {
            let (a, b) = (&first.request, &later.request);
            (a.path, &a.principal, &a.key) == (b.path, &b.principal, &b.key)
                && later.at < first.at + ttl
        })?;
        Some(format!("executed twice: {first:?} and {again:?}"))
    })
}

/// An answer that says "done" is the answer of an effect of this very request.
fn wrong(answer: &Answer, executions: &[Execution]) -> Option<String> {
    if !(200..300).contains(&answer.status) {
        return None;
    }
    let is_right = executions.iter().any(|done| {
        let asked = &done.request;
        let right =
            format!("{} {} {} {} #{}", asked.path, asked.principal, asked.key, asked.body, done.n);
        *asked == answer.asked && right == answer.body
    });
    (!is_right).then(|| format!("not the answer of this request: {answer:?}"))
}

/// What was told once is told again: nobody hears anything else about it while it lives.
fn lost(answer: &Answer, answers: &[Answer], ttl: Duration) -> Option<String> {
    if !(200..300).contains(&answer.status) || answer.is_final {
        return None;
    }
    let mut later = answers.iter().filter(|later| {
        // An effect comes before its answer, so the record lives at least a ttl from there less the time that it took.
        let lives_until = answer.at.saturating_sub(WORK_MAX) + ttl;
        later.is_final && later.asked == answer.asked && later.at < lives_until
    });
    let other = later.find(|later| (later.status, &later.body) != (answer.status, &answer.body))?;
    Some(format!("told {answer:?}, and at the end {other:?}"))
}

/// Nothing is left running once the faults have stopped.
fn still_running(store: &ModelStore) -> Option<String> {
    let mut records = store.records().into_iter();
    let (id, record) = records.find(|(_, record)| matches!(record.state, State::Running { .. }))?;
    Some(format!("still running: {id} {} {}", record.route, record.key.shown()))
}

/// How many answers were there at the end.
pub(crate) fn confirmed(world: &World) -> u64 {
    let told = world.told();
    let confirmed = told.answers.iter().filter(|answer| answer.is_final && answer.status == 201);
    confirmed.filter(|answer| answer.asked.path == CHARGES).count() as u64
}

/// The longest from an effect to its answer at a client.
const WORK_MAX: Duration = Duration::from_secs(20);
