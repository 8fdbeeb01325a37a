//! The first view: is somebody needed, does it work, what does it do.

use std::sync::Arc;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::store::Census;
use onlyonce::{Counts, Latencies, Latency, RekeyingCaller};
use serde_json::{Map, Value, json};

use super::audit;
use super::auth::Role;
use super::desk::Desk;
use super::samples::quantile_ms;
use super::shape::{principal, time};

/// The whole view.
pub(super) async fn of(desk: &Desk, role: Role) -> Value {
    let mut summary = moving(desk).await;
    summary["version"] = env!("CARGO_PKG_VERSION").into();
    summary["started_at"] = time(desk.started_at).into();
    summary["writable"] = (role == Role::Operator).into();
    summary["series"] = desk.samples().series();
    summary["audit"] = audit::counted(desk).await;
    summary["listen"] = desk.listen.clone().into();
    summary
}

fn latencies(of: &Latencies) -> Value {
    json!({
        "store": latency(&of.store()),
        "upstream": latency(&of.handler),
        "request": latency(&of.request),
    })
}

/// `null` where nothing was measured yet.
fn latency(of: &Latency) -> Value {
    let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|q| quantile_ms(of, q));
    match of.count() {
        0 => Value::Null,
        count => json!({ "p50": p50, "p95": p95, "p99": p99, "count": count }),
    }
}

/// What changes from second to second.
pub(super) async fn moving(desk: &Desk) -> Value {
    let operations = desk.once.operations();
    let census = desk.census.read(operations.census());
    let (census, is_ready) = tokio::join!(census, desk.once.is_ready());
    let now = SystemClock.wall();
    let counts = desk.once.counts();
    let hot_keys: Vec<_> = desk.recent().hot_keys.top(now.as_ms()).iter().map(hot_key).collect();
    let rekeying = desk.once.rekeying_callers();
    let rekeying: Vec<_> = rekeying.iter().take(REKEYING_MAX).map(rekeying_caller).collect();
    let mut summary = json!({
        "now": time(now),
        "store": store(desk, is_ready),
        "states": states(census.as_ref()),
        "oldest": {
            "running_since": census.and_then(|census| census.running_since).map(time),
            "unknown_since": census.and_then(|census| census.unknown_since).map(time),
        },
        "counts": named(&counts),
        "executing": desk.once.executing(),
        "waiting": desk.once.waiting(),
        "latency_ms": latencies(&desk.once.latencies()),
        "hot_keys": hot_keys,
        "rekeying_callers": rekeying,
        "routes": desk.once.counts_by_route().iter().map(route).collect::<Vec<_>>(),
        "draining": desk.is_draining(),
    });
    let samples = desk.samples();
    let today = |count: fn(&Counts) -> u64| samples.today(&counts, count);
    summary["today"] = json!({
        "executed": today(|counts| counts.executed),
        "replayed": today(|counts| counts.replayed),
        "reused": today(|counts| counts.reused),
        "in_progress": today(|counts| counts.in_progress),
        "unknown": today(|counts| counts.unknown),
    });
    summary["duplicates_prevented"] =
        json!({ "since_start": duplicates(&counts), "today": today(duplicates) });
    summary
}

fn rekeying_caller(caller: &RekeyingCaller) -> Value {
    json!({
        "route": &*caller.route,
        "principal": principal(&caller.principal),
        "count": caller.times,
        "last_at": time(caller.last_at),
    })
}

/// Requests that would have been executed a second time.
fn duplicates(counts: &Counts) -> u64 {
    counts.replayed + counts.in_progress + counts.reused
}

fn store(desk: &Desk, is_ready: bool) -> Value {
    let about = &desk.about;
    let filter = about.filter.as_ref().map(|filter| {
        let counts = filter.counts();
        json!({ "hits": counts.hits, "misses": counts.misses })
    });
    json!({
        "kind": about.kind,
        "ready": is_ready,
        "best_effort": about.is_best_effort,
        "clock_ahead_seconds": desk.once.clock_ahead_by().as_secs(),
        "warnings": about.warnings,
        "filter": filter,
    })
}

/// Nobody knows while the store does not answer.
fn states(census: Option<&Census>) -> Value {
    match census {
        Some(Census { running, unknown, records, .. }) => {
            json!({ "running": running, "unknown": unknown, "records": records })
        }
        None => json!({ "running": null, "unknown": null, "records": null }),
    }
}

fn named(counts: &Counts) -> Map<String, Value> {
    counts.named().map(|(name, count)| (name.to_owned(), count.into())).collect()
}

fn route((name, counts): &(Arc<str>, Counts)) -> Value {
    let named = named(counts);
    let mut route = json!({ "route": &**name });
    for name in ["executed", "replayed", "reused", "in_progress", "unknown", "unkeyed"] {
        route[name] = named.get(name).cloned().unwrap_or_default();
    }
    route
}

fn hot_key(repeats: &super::hot_keys::Repeats) -> Value {
    let event = &repeats.last;
    json!({
        "id": event.id.to_string(), "route": &*event.route, "key": event.key.shown(), "count": repeats.count,
    })
}

/// Callers in the view whose clients seem to make new keys for retries.
const REKEYING_MAX: usize = 20;
