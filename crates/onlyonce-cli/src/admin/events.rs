//! `GET events`: what happens, as it happens, as server-sent events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use onlyonce::record::StateKind;
use onlyonce::store::BoxError;
use onlyonce::{EventKind, Events, Heard, OperationEvent};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use super::answer::{Answer, Problem, streamed};
use super::desk::Desk;
use super::filter::{pairs, state_kind};
use super::{routes, shape};

/// A stream that never ends by itself. What a slow reader misses, and what its rate leaves out, is counted and told.
pub(super) async fn stream(desk: &Desk, query: &str) -> Result<Answer, Problem> {
    let wanted = Wanted::of_query(query)?;
    routes::demand_known(desk, wanted.route.as_deref()).await?;
    let place = desk.listeners.clone().try_acquire_owned();
    let place = place.map_err(|_| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "there are too many listeners")
    })?;
    let events = match wanted.rate {
        Some(_) => desk.once.sampled_events(),
        None => desk.once.events(),
    };
    let listener = Listener {
        operations: Operations::new(events, wanted),
        moving: desk.moving.subscribe(),
        is_new: true,
        _place: place,
    };
    let frames = stream::unfold(listener, |mut listener| async {
        let text = listener.next().await?;
        Some((Ok::<_, BoxError>(Frame::data(text)), listener))
    });
    let body = BodyExt::boxed_unsync(StreamBody::new(frames));
    Ok(streamed("text/event-stream", StatusCode::OK, body))
}

struct Listener {
    operations: Operations,
    moving: watch::Receiver<Arc<str>>,
    is_new: bool,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    /// The next lines; `None` once the engine is gone.
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.is_new) {
            return Some(Bytes::from_static(b": listening\n\n"));
        }
        tokio::select! {
            told = self.operations.next() => told,
            changed = self.moving.changed() => {
                changed.ok()?;
                let moving = self.moving.borrow_and_update().clone();
                Some(lines("counts", &moving).into())
            }
            () = sleep(HEARTBEAT) => Some(Bytes::from_static(b": still here\n\n")),
        }
    }
}

/// What happens to the operations that a listener wants to hear of.
struct Operations {
    events: Events,
    wanted: Wanted,
    /// When to look, for a listener with a rate: one that is woken by each event slows a busy gateway down.
    looks: Interval,
}

impl Operations {
    fn new(events: Events, wanted: Wanted) -> Self {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { events, wanted, looks }
    }

    /// The next lines; `None` once the engine is gone. Nothing is lost if it is dropped.
    async fn next(&mut self) -> Option<Bytes> {
        match self.wanted.rate {
            Some(rate) => self.next_look(rate).await,
            None => self.next_event().await,
        }
    }

    async fn next_event(&mut self) -> Option<Bytes> {
        loop {
            match self.events.next().await? {
                Heard::Event(event) if self.wanted.has(&event) => return Some(told(&event).into()),
                Heard::Event(_) => {}
                Heard::Missed(missed) => return Some(told_missed(missed).into()),
            }
        }
    }

    async fn next_look(&mut self, rate: usize) -> Option<Bytes> {
        loop {
            self.looks.tick().await;
            let told = self.look(rate.div_ceil(LOOKS_A_SECOND));
            if !told.is_empty() {
                return Some(told.into());
            }
        }
    }

    /// The newest events since the last look, `events_max` at most, and how many there were besides.
    fn look(&mut self, events_max: usize) -> String {
        let (mut newest, mut left_out) = (VecDeque::new(), 0);
        for _ in 0..LOOK_EVENTS_MAX {
            match self.events.try_next() {
                Some(Heard::Event(event)) if self.wanted.has(&event) => newest.push_back(event),
                Some(Heard::Event(_)) => {}
                Some(Heard::Missed(missed)) => left_out += missed,
                None => break,
            }
            if newest.len() > events_max {
                newest.pop_front();
                left_out += 1;
            }
        }
        let missed = (left_out > 0).then(|| told_missed(left_out));
        missed.into_iter().chain(newest.iter().map(|event| told(event))).collect()
    }
}

fn told(event: &OperationEvent) -> String {
    lines("operation", &shape::event(event).to_string())
}

fn told_missed(missed: u64) -> String {
    lines("missed", &json!({ "missed": missed }).to_string())
}

/// JSON has no line breaks of its own.
fn lines(event: &str, data: &str) -> String {
    format!("event: {event}\ndata: {data}\n\n")
}

/// Which events a listener wants.
#[derive(Debug, Default)]
struct Wanted {
    states: Vec<StateKind>,
    kinds: Vec<EventKind>,
    route: Option<String>,
    /// So many a second at most; all of them without it.
    rate: Option<usize>,
}

impl Wanted {
    fn of_query(query: &str) -> Result<Self, Problem> {
        let mut wanted = Self::default();
        for (name, value) in pairs(query) {
            match name.as_str() {
                "state" => {
                    for state in value.split(',') {
                        wanted.states.push(state_kind(state)?);
                    }
                }
                "kind" => {
                    for kind in value.split(',') {
                        wanted.kinds.push(event_kind(kind)?);
                    }
                }
                "route" if wanted.route.is_none() && !value.is_empty() => {
                    wanted.route = Some(value)
                }
                "rate" if wanted.rate.is_none() => wanted.rate = Some(rate(&value)?),
                _ => {
                    return Err(Problem::bad_request(
                        "there are state, kind, route and rate, each once",
                    ));
                }
            }
        }
        Ok(wanted)
    }

    fn has(&self, event: &OperationEvent) -> bool {
        let reaches = |kind: &StateKind| reached(event.kind) == Some(*kind);
        (self.states.is_empty() || self.states.iter().any(reaches))
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.route.as_ref().is_none_or(|route| **route == *event.route)
    }
}

/// The state that an operation is in because of this event; none if the event changed nothing.
fn reached(kind: EventKind) -> Option<StateKind> {
    match kind {
        EventKind::Claimed => Some(StateKind::Running),
        EventKind::Executed | EventKind::Reconciled | EventKind::Settled => {
            Some(StateKind::Completed)
        }
        EventKind::Unknown => Some(StateKind::Unknown),
        EventKind::Released => Some(StateKind::Released),
        _ => None,
    }
}

fn event_kind(text: &str) -> Result<EventKind, Problem> {
    let known = EventKind::ALL.into_iter().find(|kind| kind.name() == text);
    known.ok_or_else(|| {
        let names = EventKind::ALL.map(EventKind::name).join(", ");
        Problem::bad_request(format!("\"kind\" must be one of {names}"))
    })
}

fn rate(text: &str) -> Result<usize, Problem> {
    let rate = text.parse().ok().filter(|rate| (1..=RATE_MAX).contains(rate));
    rate.ok_or_else(|| Problem::bad_request(format!("\"rate\" must be from 1 to {RATE_MAX}")))
}

/// Those who may listen at once.
pub(super) const LISTENERS_MAX: usize = 32;
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How often a listener with a rate looks for events.
const LOOKS_A_SECOND: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(1_000 / LOOKS_A_SECOND as u64);
/// Events that one look reads. The engine keeps half as many; what has gone before is one count.
const LOOK_EVENTS_MAX: usize = 8_192;
const RATE_MAX: usize = 1_000;
