//! Requests that two readers could divide differently, on raw sockets, and a service that writes down every byte it gets.
//!
//! In each case a second request is hidden, for a path of its own. Either the case is refused, and the service sees no
//! request of it; or it is passed on as one request that can be read in one way only. The hidden request never
//! reaches the service.

mod http1_cases;
mod http2_cases;
mod recorder;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::gateway::Gateway;
use crate::within;
use recorder::Recorder;

/// What must become of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The service sees nothing of it.
    Refused,
    /// The service sees it once.
    Passed,
}

/// One try of one case: its bytes in the pieces in which they are sent.
struct Try {
    name: String,
    path: String,
    pieces: Vec<Vec<u8>>,
    then: Then,
}

// threat G1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_ambiguous_in_http1_is_passed_on() {
    let tries: Vec<_> = http1_cases::CASES.iter().flat_map(http1_tries).collect();
    assert!(http1_cases::CASES.len() >= 60, "{} cases", http1_cases::CASES.len());
    demand_all(tries, "").await;
}

// threat G2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_ambiguous_in_http2_is_passed_on() {
    let cases = http2_cases::cases();
    assert!(cases.len() >= 25, "{} cases", cases.len());
    demand_all(cases, "").await;
}

// threat K31: observing refuses nothing but what no two servers read alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_odd_length_in_http2_is_not_passed_on_where_the_gateway_observes() {
    let cases = http2_cases::cases().into_iter();
    let lengths: Vec<_> = cases.filter(|case| case.name.contains("length")).collect();
    assert!(lengths.len() >= 6, "{} cases", lengths.len());
    demand_all(lengths, "mode = \"observe\"").await;
}

/// With a key and without, in one piece and in two: a body that has no key is passed on while it comes.
fn http1_tries((name, text, then): &(&str, &str, Then)) -> Vec<Try> {
    let ways = [
        ("with a key", true, false),
        ("without a key", false, false),
        ("in two pieces", false, true),
    ];
    let one = |(way, has_key, is_split): (&str, bool, bool)| {
        let name = format!("{name}, {way}");
        let path = format!("/case/{}", name.replace([' ', ','], "-"));
        let key = format!("Host: shop.example\r\nIdempotency-Key: \"{name}\"\r\n");
        let hidden = format!("GET {} HTTP/1.1\r\nHost: shop.example\r\n\r\n", canary(&path)).len();
        let text = text.replace("{case}", &path).replace("{canary}", &canary(&path));
        let text =
            text.replace("{length}", &hidden.to_string()).replace("{size}", &format!("{hidden:x}"));
        let text = if has_key { text.replacen("Host: shop.example\r\n", &key, 1) } else { text };
        let head_end = text.find("\r\n\r\n").map_or(text.len() / 2, |end| end + 4);
        let (head, rest) = text.as_bytes().split_at(head_end);
        let pieces = match is_split {
            true => vec![head.to_vec(), rest.to_vec()],
            false => vec![text.clone().into_bytes()],
        };
        Try { name, path, pieces, then: *then }
    };
    ways.into_iter().map(one).collect()
}

/// The path of the request that is hidden in the case with this path.
fn canary(path: &str) -> String {
    path.replacen("/case/", "/canary/", 1)
}

/// By a gateway with these lines under `[policy]`.
async fn demand_all(tries: Vec<Try>, policy: &str) {
    let (folder, recorder) = (tempfile::tempdir().unwrap(), Recorder::start());
    let gateway = Gateway::with_policy(folder.path(), recorder.address, policy).await;
    let mut running = JoinSet::new();
    let (mut judged, count) = (Vec::new(), tries.len());
    for one in tries {
        if running.len() == AT_ONCE {
            judged.extend(running.join_next().await);
        }
        let address = gateway.address;
        running.spawn(async move {
            let answered = within(&one.name, answer(address, &one.pieces)).await;
            (one, answered)
        });
    }
    while let Some(one) = running.join_next().await {
        judged.push(one);
    }
    // Whatever was hidden has come by the time that this is answered: the connections to the service are few.
    let last = b"GET /last HTTP/1.1\r\nHost: shop.example\r\n\r\n".to_vec();
    assert!(answer(gateway.address, &[last]).await.starts_with(b"HTTP/1.1 20"));
    recorder.demand_unambiguous();
    let wrong: Vec<_> = judged
        .into_iter()
        .map(Result::unwrap)
        .filter_map(|(one, answered)| wrong(&recorder, &one, &answered))
        .collect();
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    println!("{count} tries, {} requests passed on", recorder.count_all());
}

fn wrong(recorder: &Recorder, one: &Try, answered: &[u8]) -> Option<String> {
    let (seen, hidden) = (recorder.count(&one.path), recorder.count(&canary(&one.path)));
    let wanted = usize::from(one.then == Then::Passed);
    (seen != wanted || hidden != 0).then(|| {
        let answer = answered[..answered.len().min(60)].escape_ascii();
        format!("{}: seen {seen} times, hidden {hidden} times, answered {answer}", one.name)
    })
}

/// What the gateway answers, up to the end of the connection or until it is silent.
async fn answer(at: SocketAddr, pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for (number, piece) in pieces.iter().enumerate() {
        if number > 0 {
            tokio::time::sleep(BETWEEN).await;
        }
        // It may have been refused already.
        if stream.write_all(piece).await.is_err() {
            break;
        }
    }
    let (mut answered, mut buffer) = (Vec::new(), [0; 4096]);
    // A request that never ends is never answered, and nothing of it may be passed on as a whole.
    while let Ok(Ok(read @ 1..)) = timeout(SILENCE, stream.read(&mut buffer)).await {
        answered.extend_from_slice(&buffer[..read]);
    }
    answered
}

const AT_ONCE: usize = 16;
const BETWEEN: Duration = Duration::from_millis(20);
const SILENCE: Duration = Duration::from_millis(1500);
