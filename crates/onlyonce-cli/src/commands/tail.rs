//! `onlyonce tail`: what happens to operations, as it happens.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use http::{Request, header};
use http_body_util::BodyExt;
use hyper::body::Body;
use serde_json::Value;
use tokio::time::timeout;

use super::access::{self, AccessFlags, Failed, judged, print};
use crate::words::plain;

/// Print what happens to operations, as it happens.
///
/// Events are told by a running gateway, about its own requests: several gateways on one store have an admin listener
/// each.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Tail {
    /// Only events that lead to this state: running, unknown, released or completed
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only of this route
    #[arg(long, value_name = "ROUTE")]
    route: Option<String>,
    /// A line for people, or the JSON of the event
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    access: AccessFlags,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce tail --state unknown --route 'POST /charges'
  onlyonce tail --format json --admin http://127.0.0.1:8081";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Tail {
    /// Prints until the gateway ends.
    pub fn run(self) -> ExitCode {
        access::run(self.follow())
    }

    async fn follow(self) -> Result<ExitCode, Failed> {
        if self.access.names_a_store() {
            return Err(Failed::usage(&"events are told by a running gateway: pass --admin"));
        }
        let remote = self.access.remote()?;
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.state.iter().map(|state| ("state", state)));
        query.extend_pairs(self.route.iter().map(|route| ("route", route)));
        let address = remote.address(&format!("/api/v1/events?{}", query.finish()));
        let request = Request::get(address).header(header::ACCEPT, "text/event-stream");
        let request = request.body(Default::default()).map_err(|error| Failed::usage(&error))?;
        let answer = remote.send(request).await?;
        let (head, mut body) = answer.into_parts();
        if !head.status.is_success() {
            let read = timeout(SILENCE_MAX, body.collect()).await;
            let read = read.map_err(|elapsed| Failed::trouble(&elapsed))?;
            let read = read.map_err(|error| Failed::trouble(&error))?;
            judged(head.status, read.to_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("onlyonce: listening; Ctrl-C ends it");
        let mut lines = Lines::default();
        while let Some(piece) = next_piece(&mut body, SILENCE_MAX).await? {
            for (event, data) in lines.read(&piece)? {
                if !self.print(&event, &data)? {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
        Err(Failed::trouble(&"the gateway has ended"))
    }

    /// Whether somebody still reads what is printed.
    fn print(&self, event: &str, data: &str) -> Result<bool, Failed> {
        let told: Value = serde_json::from_str(data).unwrap_or_default();
        match (event, self.format) {
            ("operation", Format::Json) => return print(&format!("{data}\n")),
            ("operation", Format::Text) => return print(&(line(&told) + "\n")),
            ("missed", _) => eprintln!("onlyonce: {} events were missed", told["missed"]),
            _ => {}
        }
        Ok(true)
    }
}

/// The next piece of the stream; `None` when the gateway has ended it.
async fn next_piece<B>(body: &mut B, silence_max: Duration) -> Result<Option<Bytes>, Failed>
where
    B: Body<Data = Bytes, Error: fmt::Display> + Unpin,
{
    let lost = |_| {
        let silent_s = silence_max.as_secs();
        Failed::trouble(&format!("the connection was lost: nothing came for {silent_s} s"))
    };
    let frame = timeout(silence_max, body.frame()).await.map_err(lost)?.transpose();
    let frame =
        frame.map_err(|error| Failed::trouble(&format!("the stream broke off: {error}")))?;
    Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// One event for people.
pub(super) fn line(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().map(plain);
    let at = text("at").unwrap_or_default();
    let (day, clock) = (at.get(..10).unwrap_or_default(), at.get(11..23).unwrap_or_default());
    let mut line = format!("{day} {clock}  {:<17}", text("kind").unwrap_or_default());
    line +=
        &format!("  {}  {}", text("route").unwrap_or_default(), text("key").unwrap_or_default());
    for name in ["attempt", "status"] {
        if let Some(number) = event[name].as_u64() {
            line += &format!("  {name} {number}");
        }
    }
    if let Some(who) = text("who") {
        line += &format!("  by {who}: {}", text("why").unwrap_or_default());
    }
    line
}

/// Server-sent events, from pieces of any size.
#[derive(Debug, Default)]
struct Lines {
    left: Vec<u8>,
}

impl Lines {
    /// The events that end in this piece: their names and data.
    fn read(&mut self, piece: &[u8]) -> Result<Vec<(String, String)>, Failed> {
        self.left.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = self.left.windows(2).position(|two| two == b"\n\n") {
            let block: Vec<u8> = self.left.drain(..end + 2).collect();
            events.push(event(&String::from_utf8_lossy(&block)));
        }
        match self.left.len() > EVENT_BYTES_MAX {
            true => Err(Failed::trouble(&"an event is too long")),
            false => Ok(events),
        }
    }
}

fn event(block: &str) -> (String, String) {
    let of = |name: &str| {
        let lines = block.lines().filter_map(|line| line.strip_prefix(name));
        lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
    };
    (of("event:"), of("data:"))
}

const EVENT_BYTES_MAX: usize = 1 << 20;
/// A gateway with nothing to tell sends a heartbeat every 15 s: two of them may be late or lost.
const SILENCE_MAX: Duration = Duration::from_secs(40);

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    #[tokio::test]
    async fn a_stream_without_a_heartbeat_is_lost() {
        let heartbeat =
            stream::iter([Ok::<_, String>(Frame::data(Bytes::from_static(b": x\n\n")))]);
        let mut body = StreamBody::new(heartbeat.chain(stream::pending()));
        let wait = Duration::from_millis(50);
        assert_eq!(next_piece(&mut body, wait).await.unwrap().unwrap(), ": x\n\n");
        let failed = next_piece(&mut body, wait).await.unwrap_err();
        assert_eq!(failed.code, 3);
    }

    #[test]
    fn events_are_read_from_pieces_of_any_size() {
        let text = b": hello\n\nevent: operation\ndata: {\"a\":1}\n\nevent: missed\ndata: {}\n\n";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let read = |piece: &[u8]| lines.read(piece).unwrap();
            let events: Vec<_> =
                text.chunks(size).flat_map(read).filter(|(name, _)| !name.is_empty()).collect();
            let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["operation", "missed"], "{size}");
            assert_eq!(events[0].1, "{\"a\":1}");
        }
    }
}
