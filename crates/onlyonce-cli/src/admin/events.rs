//! `GET events`: what happens, as it happens, as server-sent events.

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
use tokio::time::sleep;

use super::answer::{Answer, Problem, streamed};
use super::desk::Desk;
use super::filter::{pairs, state_kind};
use super::shape;

/// A stream that never ends by itself. What a slow reader misses is counted and told.
pub(super) fn stream(desk: &Desk, query: &str) -> Result<Answer, Problem> {
    let wanted = Wanted::of_query(query)?;
    let place = desk.listeners.clone().try_acquire_owned();
    let place = place.map_err(|_| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "there are too many listeners")
    })?;
    let listener = Listener {
        wanted,
        events: desk.once.events(),
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
    wanted: Wanted,
    events: Events,
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
        loop {
            tokio::select! {
                heard = self.events.next() => match heard? {
                    Heard::Event(event) if self.wanted.has(&event) => {
                        return Some(lines("operation", &shape::event(&event).to_string()));
                    }
                    Heard::Event(_) => {}
                    Heard::Missed(missed) => {
                        return Some(lines("missed", &json!({ "missed": missed }).to_string()));
                    }
                },
                changed = self.moving.changed() => {
                    changed.ok()?;
                    let moving = self.moving.borrow_and_update().clone();
                    return Some(lines("counts", &moving));
                }
                () = sleep(HEARTBEAT) => return Some(Bytes::from_static(b": still here\n\n")),
            }
        }
    }
}

/// JSON has no line breaks of its own.
fn lines(event: &str, data: &str) -> Bytes {
    format!("event: {event}\ndata: {data}\n\n").into()
}

/// Which events a listener wants.
#[derive(Debug, Default)]
struct Wanted {
    states: Vec<StateKind>,
    kinds: Vec<EventKind>,
    route: Option<String>,
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
                _ => {
                    return Err(Problem::bad_request("there are state, kind and route, each once"));
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

/// Those who may listen at once.
pub(super) const LISTENERS_MAX: usize = 32;
const HEARTBEAT: Duration = Duration::from_secs(15);
