//! HTTP/1.1 on a bare socket, so that a connection can be cut at any byte.

mod answer;
pub(crate) mod h2;
mod stream;

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::answer::Answer;
pub(crate) use self::stream::{Connector, Stream};

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A whole answer.
    Answered(Answer),
    /// We cut the connection, as planned.
    Cut(String),
    /// The other side ended the connection before the answer was whole.
    Broken(String),
    /// No whole answer in time.
    TimedOut,
    /// There was no connection.
    NotConnected(String),
}

impl Outcome {
    pub(crate) fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answered(answer) => Some(answer),
            _ => None,
        }
    }
}

/// Where a connection is cut, in bytes and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    RequestByte(usize),
    ResponseByte(usize),
    After(Duration),
    Pieces,
    HalfClosed,
}

/// Sends the request on a connection of its own, and reads its answer.
pub(crate) async fn exchange(
    connector: &Connector,
    request: &[u8],
    fault: Fault,
    patience: Duration,
) -> Outcome {
    let work = async {
        let mut stream = match connector.connect().await {
            Ok(stream) => stream,
            Err(error) => return Outcome::NotConnected(error.to_string()),
        };
        // A reset, not an orderly end: what a crash or a lost network looks like.
        if matches!(fault, Fault::RequestByte(_) | Fault::ResponseByte(_) | Fault::After(_)) {
            stream.reset_when_dropped();
        }
        match sent(&mut stream, request, fault).await {
            Ok(None) => received(&mut stream, fault).await,
            Ok(Some(cut)) => cut,
            Err(error) => Outcome::Broken(format!("while sending: {error}")),
        }
    };
    timeout(patience, work).await.unwrap_or(Outcome::TimedOut)
}

/// Writes the request; with an outcome where the plan ends here.
async fn sent(
    stream: &mut Stream,
    request: &[u8],
    fault: Fault,
) -> std::io::Result<Option<Outcome>> {
    match fault {
        Fault::RequestByte(bytes) => {
            stream.write_all(&request[..bytes.min(request.len())]).await?;
            stream.flush().await?;
            return Ok(Some(Outcome::Cut(format!(
                "reset after {bytes} of {} bytes",
                request.len()
            ))));
        }
        Fault::Pieces => {
            for piece in request.chunks(request.len().div_ceil(PIECES)) {
                stream.write_all(piece).await?;
                stream.flush().await?;
                sleep(PIECE_PAUSE).await;
            }
        }
        _ => stream.write_all(request).await?,
    }
    stream.flush().await?;
    if fault == Fault::HalfClosed {
        stream.shutdown().await?;
    }
    Ok(None)
}

/// Reads the answer of a request that was sent.
pub(crate) async fn received(stream: &mut Stream, fault: Fault) -> Outcome {
    let cut_at = match fault {
        Fault::After(time) => Some(Instant::now() + time),
        _ => None,
    };
    let bytes_max = match fault {
        Fault::ResponseByte(bytes) => bytes,
        _ => usize::MAX,
    };
    let reading = read_answer(stream, bytes_max);
    match cut_at {
        None => reading.await,
        Some(at) => match tokio::time::timeout_at(at, reading).await {
            Ok(early) => early,
            Err(_) => Outcome::Cut("reset while waiting for the answer".to_owned()),
        },
    }
}

async fn read_answer(stream: &mut Stream, bytes_max: usize) -> Outcome {
    if bytes_max == 0 {
        return Outcome::Cut("reset before the first byte of the answer".to_owned());
    }
    let mut buffer = Vec::with_capacity(1024);
    let mut chunk = vec![0; 4096];
    loop {
        let room = chunk.len().min(bytes_max - buffer.len());
        let read = match stream.read(&mut chunk[..room]).await {
            Ok(read) => read,
            Err(error) if buffer.is_empty() => return Outcome::Broken(error.to_string()),
            Err(error) => return Outcome::Broken(format!("after {} bytes: {error}", buffer.len())),
        };
        buffer.extend_from_slice(&chunk[..read]);
        if let Some(answer) = Answer::parse(&buffer, read == 0) {
            return Outcome::Answered(answer);
        }
        if read == 0 {
            return Outcome::Broken(format!("it ended after {} bytes", buffer.len()));
        }
        if buffer.len() >= bytes_max {
            return Outcome::Cut(format!("reset after byte {bytes_max} of the answer"));
        }
        if buffer.len() > ANSWER_BYTES_MAX {
            return Outcome::Broken(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes"));
        }
    }
}

/// How many pieces a request comes in.
const PIECES: usize = 8;
/// Between two of them.
const PIECE_PAUSE: Duration = Duration::from_millis(5);
/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;
