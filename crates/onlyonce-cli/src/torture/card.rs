//! The semantics that were discovered, beside the IETF draft and Stripe.

use std::collections::BTreeMap;
use std::time::Duration;

use super::hunt::Baseline;
use super::observed::{Event, Observed};
use super::plan::{Caller, Kind, Program, Variant};
use super::shim::Misbehaviour;

/// One line of the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// For machines.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) question: &'static str,
    pub(crate) seen: String,
    /// draft-ietf-httpapi-idempotency-key-header-07.
    pub(crate) draft: &'static str,
    pub(crate) stripe: &'static str,
}

/// What was discovered.
pub(crate) fn card(observed: &[Observed], baseline: &Baseline, speaks_http2: bool) -> Vec<Line> {
    let seen = |name: &str| match name {
        "missing_key" => labelled(observed, "no key"),
        "in_flight" => in_flight(observed),
        "on_mismatch" => on_mismatch(observed),
        "replay_marker" => replay_marker(observed),
        "replay_headers" => lost_headers(observed),
        "client_error_kept" => kept(observed, Misbehaviour::Declines),
        "server_error_kept" => kept(observed, Misbehaviour::Fails),
        "key_length" => key_length(observed),
        "key_syntax" => key_syntax(observed),
        "scope" => scope(observed),
        "json_equal" => labelled(observed, "the same JSON with another space"),
        "content_type" => labelled(observed, "another content type"),
        "query" => labelled(observed, "a parameter more in the query"),
        "after_a_cut" => after_a_cut(observed),
        "ttl" => Some("not measured".to_owned()),
        "http2" => Some(if speaks_http2 { "yes" } else { "no" }.to_owned()),
        "service_time" => Some(ms(baseline.time)),
        _ => None,
    };
    let lines = LINES.lines().map(|line| {
        let mut cells = line.split('|').map(str::trim);
        let mut cell = || cells.next().unwrap_or_default();
        let (name, question, draft, stripe) = (cell(), cell(), cell(), cell());
        let seen = seen(name).unwrap_or_else(|| "not seen".to_owned());
        Line { name, question, seen, draft, stripe }
    });
    lines.collect()
}

/// Name, question, what draft-ietf-httpapi-idempotency-key-header-07 says, what Stripe does.
const LINES: &str = "\
missing_key       | no key                         | 400 where a key is required | executed
in_flight         | retry while the first runs     | 409                         | 409
on_mismatch       | another request under the key  | 422                         | 400 idempotency_error
replay_marker     | how a replay is marked         | not said                    | Idempotent-Replayed: true
replay_headers    | headers missing in a replay    | not said                    | not said
client_error_kept | a 4xx is kept                  | the service decides         | yes, once execution began
server_error_kept | a 5xx is kept                  | the service decides         | yes
key_length        | longest key accepted           | the service decides         | 255
key_syntax        | odd keys                       | a string in quotes          | any text
scope             | the same key of another caller | not said                    | per account
json_equal        | same JSON, other spaces        | the service decides         | parameters are compared
content_type      | another content type           | the service decides         | not said
query             | a parameter more in the query  | the service decides         | not said
after_a_cut       | retry after a lost answer      | first answer                | first answer
ttl               | how long a key is kept         | the service publishes it    | 24 h at least
http2             | HTTP/2                         | –                           | yes
service_time      | service time                   | –                           | –";

fn ms(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

/// Statuses and how often, such as `409 (12), 425 (1)`.
fn statuses<'a>(events: impl Iterator<Item = &'a Event>) -> Option<String> {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for answer in events.filter_map(Event::answer) {
        *counts.entry(answer.status).or_default() += 1;
    }
    let told: Vec<_> = counts.iter().map(|(status, count)| format!("{status} ({count})")).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// What a second request of a trial with this label got.
fn labelled(observed: &[Observed], label: &str) -> Option<String> {
    let trial = observed.iter().find(|observed| observed.trial.label == label)?;
    let first = trial.events.first()?.answer()?;
    let second = trial.events.last()?.answer()?;
    let told = match (first.is_success(), second.is_success(), trial.count) {
        (false, ..) => format!("refused with {}", first.status),
        (_, false, _) => format!("refused with {}", second.status),
        (true, true, Some(count)) if count > 1 => "executed each time".to_owned(),
        (true, true, _) if first.body == second.body => "first answer".to_owned(),
        (true, true, _) => format!("another answer, {}", second.status),
    };
    Some(told)
}

fn in_flight(observed: &[Observed]) -> Option<String> {
    let programs = [Program::T2, Program::T4, Program::T15];
    let overlapping: Vec<_> =
        observed.iter().filter(|observed| programs.contains(&observed.trial.program)).collect();
    if overlapping.iter().any(|observed| observed.count.is_some_and(|count| count > 1)) {
        return Some("executes again".to_owned());
    }
    let events: Vec<_> = overlapping.iter().flat_map(|observed| &observed.events).collect();
    match statuses(events.iter().filter(|event| event.is_refusal()).copied()) {
        Some(refused) => Some(refused),
        None if events.is_empty() => None,
        None => Some("waits, then the first answer".to_owned()),
    }
}

fn on_mismatch(observed: &[Observed]) -> Option<String> {
    let trials = observed.iter().filter(|observed| observed.trial.kind == Kind::Changed);
    let changed = trials.flat_map(|observed| {
        let variant = observed.events.first().map(|event| event.shot.variant);
        let is_first = move |event: &&Event| Some(event.shot.variant) == variant;
        // Where the changed request came first, the key is its own.
        let done = observed.events.iter().filter(is_first).filter(|event| event.is_success());
        let done_at = done.map(|event| event.until).min();
        observed
            .events
            .iter()
            .filter(move |event| !is_first(event) && done_at.is_some_and(|at| at <= event.from))
    });
    statuses(changed)
}

/// A header that replays have, and first answers have not, or with another value.
fn replay_marker(observed: &[Observed]) -> Option<String> {
    let trial = replayed(observed)?;
    let (first, second) = (trial.events.first()?.answer()?, trial.events.get(1)?.answer()?);
    if !second.is_success() {
        return Some(format!("replays are refused with {}", second.status));
    }
    let new = second.headers.iter().filter(|(name, value)| {
        !VOLATILE.contains(&name.as_str()) && first.header(name) != Some(value)
    });
    let new: Vec<_> = new.map(|(name, value)| format!("{name}: {value}")).collect();
    if new.is_empty() { Some("not marked".to_owned()) } else { Some(new.join(", ")) }
}

fn lost_headers(observed: &[Observed]) -> Option<String> {
    let trial = replayed(observed)?;
    let (first, second) = (trial.events.first()?.answer()?, trial.events.get(1)?.answer()?);
    let lost = first
        .headers
        .iter()
        .filter(|(name, _)| !VOLATILE.contains(&name.as_str()) && second.header(name).is_none());
    let lost: Vec<_> = lost.map(|(name, _)| name.as_str()).collect();
    Some(if lost.is_empty() { "none".to_owned() } else { lost.join(", ") })
}

fn replayed(observed: &[Observed]) -> Option<&Observed> {
    observed.iter().find(|observed| {
        observed.trial.program == Program::T1
            && observed.events.len() > 1
            && observed.events[0].is_success()
    })
}

fn kept(observed: &[Observed], misbehaviour: Misbehaviour) -> Option<String> {
    let failing = observed.iter().filter(|observed| observed.trial.kind == Kind::Failing);
    let mut failing: Vec<_> = failing.collect();
    let behind = failing.iter().find(|observed| observed.trial.misbehaviour == Some(misbehaviour));
    if let Some(trial) = behind {
        let (first, second) = (trial.events.first()?.answer()?, trial.events.get(1)?.answer()?);
        return Some(match (first.status == second.status, second.is_success()) {
            (true, _) => format!("yes ({})", second.status),
            (false, true) => format!("no: {} became {}", first.status, second.status),
            (false, false) => format!("{} became {}", first.status, second.status),
        });
    }
    failing.retain(|observed| observed.trial.misbehaviour.is_none());
    let trial = failing.first()?;
    let error = trial.events.first()?.answer()?;
    let wanted = if misbehaviour == Misbehaviour::Declines { 400..500 } else { 500..600 };
    if !wanted.contains(&error.status) {
        return None;
    }
    let right = trial.events.iter().find(|event| event.shot.variant == Variant::Same)?.answer()?;
    Some(match right.is_success() {
        true => format!("no: after {} the right request got {}", error.status, right.status),
        false => format!("yes: after {} the right request got {}", error.status, right.status),
    })
}

fn key_length(observed: &[Observed]) -> Option<String> {
    let of = |length: usize| {
        let label = format!("key of {length} characters");
        let trial = observed.iter().find(|observed| observed.trial.label == label)?;
        Some((length, trial.events.first()?.answer()?.is_success()))
    };
    let tried: Vec<_> = [64, 128, 255, 256, 8192].into_iter().filter_map(of).collect();
    let longest =
        tried.iter().filter(|(_, accepted)| *accepted).map(|(length, _)| *length).max()?;
    let refused = tried.iter().find(|(length, accepted)| !accepted && *length > longest);
    Some(match refused {
        Some((length, _)) => format!("{longest}, and {length} is refused"),
        None => format!("{longest} and more"),
    })
}

fn key_syntax(observed: &[Observed]) -> Option<String> {
    let odd = observed.iter().filter(|observed| {
        observed.trial.program == Program::T7
            && observed.trial.label != "no key"
            && matches!(observed.trial.kind, Kind::OddKey | Kind::Duplicates)
            && !observed.trial.label.ends_with("characters")
    });
    let told = odd.filter_map(|trial| {
        let told = labelled(std::slice::from_ref(trial), &trial.trial.label)?;
        Some(format!("{}: {told}", trial.trial.label))
    });
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn scope(observed: &[Observed]) -> Option<String> {
    let trial = observed.iter().find(|observed| observed.trial.kind == Kind::Callers)?;
    let second = trial.events.iter().find(|event| event.shot.caller == Caller::B)?.answer()?;
    Some(match (second.is_success(), trial.count) {
        (true, Some(2)) => "its own: executed for each caller".to_owned(),
        (true, Some(_)) => {
            "shared: the second caller got an answer without an execution".to_owned()
        }
        (true, None) => format!("answered {}", second.status),
        (false, _) => format!("shared: the second caller is refused with {}", second.status),
    })
}

fn after_a_cut(observed: &[Observed]) -> Option<String> {
    let cut = observed.iter().filter(|observed| observed.trial.program == Program::T3);
    statuses(cut.filter_map(|observed| observed.events.last()))
}

/// Headers that differ anyway.
const VOLATILE: [&str; 9] = [
    "date",
    "connection",
    "keep-alive",
    "content-length",
    "transfer-encoding",
    "server-timing",
    "x-request-id",
    "x-response-time",
    "set-cookie",
];
