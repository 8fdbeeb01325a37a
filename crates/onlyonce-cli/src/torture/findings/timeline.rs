//! Who sent what when, drawn with a lane for each request.

use std::time::Duration;

use crate::torture::Hunt;
use crate::torture::observed::{Event, Observed};
use crate::torture::oracle::Oracle;
use crate::torture::plan::{Caller, Over};
use crate::torture::wire::Outcome;

/// The drawing.
pub(super) fn drawn(observed: &Observed, hunt: &Hunt) -> String {
    let mut moments = Vec::new();
    for (lane, event) in observed.events.iter().enumerate().take(LANES) {
        moments.push(Moment {
            at: event.from,
            order: 0,
            lane: Some(lane),
            told: begun(event, hunt.target.nodes.len()),
        });
        moments.push(Moment { at: event.until, order: 2, lane: Some(lane), told: ended(event) });
    }
    for (at, told) in &observed.notes {
        moments.push(Moment { at: *at, order: 1, lane: None, told: told.clone() });
    }
    moments.extend(arrivals(observed, hunt));
    moments.sort_by_key(|moment| (moment.at, moment.order));
    let lanes = observed.events.len().min(LANES);
    let start = moments.first().map(|moment| moment.at).unwrap_or_default();
    let mut open = vec![false; lanes];
    let mut drawing = String::new();
    for moment in &moments {
        let at = moment.at.saturating_sub(start).as_secs_f64() * 1000.0;
        drawing += &format!("{at:9.1} ms  {}  {}\n", row(moment, &mut open), moment.told);
    }
    if observed.events.len() > LANES {
        let more = observed.events.len() - LANES;
        drawing += &format!("{:12}  … and {more} requests more of the same kind\n", "");
    }
    if let Some(count) = observed.count {
        drawing += &format!("{:12}  executions counted: {count}\n", "");
    }
    drawing
}

struct Moment {
    at: Duration,
    /// Of things at the same time.
    order: u8,
    lane: Option<usize>,
    told: String,
}

/// A letter for each lane: `●` sends, `◀` gets, `│` waits.
fn row(moment: &Moment, open: &mut [bool]) -> String {
    let mut row = String::new();
    for (lane, is_open) in open.iter_mut().enumerate() {
        let glyph = match moment.lane == Some(lane) {
            true if moment.order == 0 => {
                *is_open = true;
                '●'
            }
            true => {
                *is_open = false;
                '◀'
            }
            false if moment.lane.is_none() && *is_open => '┆',
            false if *is_open => '│',
            false => ' ',
        };
        row.push(glyph);
        row.push(' ');
    }
    row
}

fn begun(event: &Event, nodes: usize) -> String {
    let shot = &event.shot;
    let what = shot.variant;
    let who = if shot.caller == Caller::B { "caller B " } else { "" };
    let over = if shot.over == Over::Http2 { " over HTTP/2" } else { "" };
    let keys: Vec<_> =
        shot.keys.iter().map(|key| shortened(&String::from_utf8_lossy(key))).collect();
    let node =
        if nodes > 1 { format!(" to node {}", shot.node % nodes + 1) } else { String::new() };
    format!("{who}sends {what}{over}{node}, key {}", keys.join(" and "))
}

fn ended(event: &Event) -> String {
    match &event.outcome {
        Outcome::Answered(answer) => format!("gets {}", answer.brief()),
        Outcome::Cut(how) => format!("connection cut by torture: {how}"),
        other => other.brief(),
    }
}

fn arrivals(observed: &Observed, hunt: &Hunt) -> Vec<Moment> {
    let (Oracle::Shim(shim) | Oracle::Webhook(shim)) = &hunt.oracle else { return Vec::new() };
    let ahead = hunt.epoch.saturating_duration_since(shim.epoch());
    let arrivals = observed.arrivals.iter().take(LANES).enumerate();
    let told = arrivals.map(|(number, arrival)| {
        let did = if arrival.is_executed { "EXECUTED" } else { "arrived, not executed" };
        let told = format!("{did} behind the target ({})", number + 1);
        Moment { at: arrival.at.saturating_sub(ahead), order: 1, lane: None, told }
    });
    told.collect()
}

pub(super) fn shortened(text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    if shown.len() < text.len() { format!("{shown}… ({} bytes)", text.len()) } else { shown }
}

/// Requests that are drawn.
const LANES: usize = 10;
