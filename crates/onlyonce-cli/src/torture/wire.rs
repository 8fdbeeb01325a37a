//! HTTP/1.1 on a bare socket, so that a connection can be cut at any byte.

mod answer;
pub(crate) mod h2;
mod stream;

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

pub(crate) use self::answer::Answer;
pub(crate) use self::stream::{Connector, Stream};
use super::plan::End;

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

    /// In a few words.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Answered(answer) => answer.brief(),
            Self::Cut(told) => told.clone(),
            Self::Broken(error) => format!("connection ended by the target: {error}"),
            Self::TimedOut => "no answer in time".to_owned(),
            Self::NotConnected(error) => format!("cannot connect: {error}"),
        }
    }
}

/// Where a connection is cut, in bytes and time, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    RequestByte(End, usize),
    ResponseByte(End, usize),
    After(End, Duration),
    Pieces,
    HalfClosed(Duration),
}

impl Fault {
    fn end(self) -> Option<End> {
        match self {
            Self::RequestByte(end, _) | Self::ResponseByte(end, _) | Self::After(end, _) => {
                Some(end)
            }
            Self::None | Self::Pieces | Self::HalfClosed(_) => None,
        }
    }
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
        if fault.end() == Some(End::Reset) {
            stream.reset_when_dropped();
        }
        let outcome = match sent(&mut stream, request, fault).await {
            Ok(None) => received(&mut stream, fault).await,
            Ok(Some(cut)) => cut,
            Err(error) => Outcome::Broken(format!("while sending: {error}")),
        };
        if let (Some(End::Close), Outcome::Cut(_)) = (fault.end(), &outcome) {
            stream.close().await;
        }
        outcome
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
        Fault::RequestByte(end, bytes) => {
            stream.write_all(&request[..bytes.min(request.len())]).await?;
            stream.flush().await?;
            let told = format!("{end} after {bytes} of {} bytes", request.len());
            return Ok(Some(Outcome::Cut(told)));
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
    if let Fault::HalfClosed(time) = fault {
        stream.until_readable(time).await;
        // Fails where the target has ended the connection, which the next read tells.
        let _ = stream.shutdown().await;
    }
    Ok(None)
}

/// Reads the answer of a request that was sent.
pub(crate) async fn received(stream: &mut Stream, fault: Fault) -> Outcome {
    match fault {
        Fault::After(end, time) => match timeout(time, read_answer(stream, None)).await {
            Ok(early) => early,
            Err(_) => Outcome::Cut(format!("{end} while waiting for the answer")),
        },
        Fault::ResponseByte(end, bytes) => read_answer(stream, Some((end, bytes))).await,
        _ => read_answer(stream, None).await,
    }
}

/// Reads until the answer is whole, or to the byte after which the connection ends.
async fn read_answer(stream: &mut Stream, cut: Option<(End, usize)>) -> Outcome {
    let bytes_max = cut.map_or(usize::MAX, |(_, bytes)| bytes);
    if let Some((end, 0)) = cut {
        return Outcome::Cut(format!("{end} before the first byte of the answer"));
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
        if let Some((end, bytes)) = cut.filter(|(_, bytes)| buffer.len() >= *bytes) {
            return Outcome::Cut(format!("{end} after byte {bytes} of the answer"));
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
