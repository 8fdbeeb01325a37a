//! HTTP/2: streams that are reset, and many requests in one packet.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, SendStream};
use http::{HeaderName, HeaderValue, Request, Version};
use tokio::time::{sleep, timeout};

use super::{Answer, Connector, Fault, Outcome};
use crate::torture::plan::End;
use crate::torture::target::Rendered;

/// An open connection.
struct Open {
    sender: SendRequest<Bytes>,
    pings: PingPong,
    /// Ends the connection with itself.
    driver: tokio::task::JoinHandle<()>,
}

impl Open {
    /// Ends the connection in order, without a word about its streams.
    async fn close(&mut self) {
        self.driver.abort();
        // It was aborted: that is no failure.
        let _ = (&mut self.driver).await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Whether the address speaks HTTP/2: over TLS if it says so, else from the first byte.
pub(crate) async fn is_spoken(connector: &Connector) -> bool {
    timeout(PROBE_TIMEOUT, opened(connector)).await.is_ok_and(|open| open.is_ok())
}

/// Sends one request, and resets its stream where the fault says so.
pub(crate) async fn exchange(
    connector: &Connector,
    method: &str,
    request: &Rendered,
    fault: Fault,
    patience: Duration,
) -> Outcome {
    let work = async {
        let mut open = match opened(connector).await {
            Ok(open) => open,
            Err(error) => return Outcome::NotConnected(error),
        };
        match begun(&open, connector, method, request, 0) {
            Ok((answer, mut body)) => {
                // The body may wait for room in a window; the stream is reset after its last byte.
                let Fault::After(end, time) = fault else { return answered(answer).await };
                let reading = answered(answer);
                tokio::select! {
                    early = reading => early,
                    () = sleep(time) => {
                        match end {
                            End::Reset => body.send_reset(Reason::CANCEL),
                            End::Close => open.close().await,
                        }
                        Outcome::Cut(told(end).to_owned())
                    }
                }
            }
            Err(error) => Outcome::Broken(error),
        }
    };
    timeout(patience, work).await.unwrap_or(Outcome::TimedOut)
}

fn told(end: End) -> &'static str {
    match end {
        End::Reset => "stream reset after its last DATA frame",
        End::Close => "connection closed in order after the last DATA frame",
    }
}

/// All but the last byte of each request on one connection; once those are there, all last bytes at once.
pub(crate) async fn burst(
    connector: &Connector,
    method: &str,
    requests: &[Rendered],
    patience: Duration,
) -> Vec<Outcome> {
    let work = async {
        let mut open = opened(connector).await.map_err(Outcome::NotConnected)?;
        let mut begun_streams = Vec::new();
        for request in requests {
            begun_streams
                .push(begun(&open, connector, method, request, 1).map_err(Outcome::Broken)?);
        }
        // The pong comes after everything before it was read.
        open.pings
            .ping(Ping::opaque())
            .await
            .map_err(|error| Outcome::Broken(error.to_string()))?;
        let mut reading = Vec::new();
        for ((answer, mut body), request) in begun_streams.into_iter().zip(requests) {
            let last =
                Bytes::copy_from_slice(&request.body[request.body.len().saturating_sub(1)..]);
            let sent = body.send_data(last, true);
            sent.map_err(|error| Outcome::Broken(error.to_string()))?;
            reading.push(answered(answer));
        }
        Ok::<_, Outcome>(futures_util::future::join_all(reading).await)
    };
    match timeout(patience, work).await {
        Ok(Ok(outcomes)) => outcomes,
        Ok(Err(failed)) => vec![failed; requests.len()],
        Err(_) => vec![Outcome::TimedOut; requests.len()],
    }
}

async fn opened(connector: &Connector) -> Result<Open, String> {
    let stream = connector.connect().await.map_err(|error| error.to_string())?;
    let (sender, mut connection) =
        h2::client::handshake(stream).await.map_err(|error| error.to_string())?;
    let mut pings = connection.ping_pong().ok_or("no ping")?;
    let driver = tokio::spawn(async move {
        let _ = connection.await;
    });
    let asked = async {
        pings.ping(Ping::opaque()).await.map_err(|error| error.to_string())?;
        sender.ready().await.map_err(|error| error.to_string())
    };
    match asked.await {
        Ok(sender) => Ok(Open { sender, pings, driver }),
        Err(error) => {
            driver.abort();
            Err(error)
        }
    }
}

/// Sends the head and the body without its last `held_back` bytes.
fn begun(
    open: &Open,
    connector: &Connector,
    method: &str,
    rendered: &Rendered,
    held_back: usize,
) -> Result<(ResponseFuture, SendStream<Bytes>), String> {
    let uri = connector.address.url(&rendered.path);
    let mut request = Request::builder().version(Version::HTTP_2).method(method).uri(uri);
    for (name, value) in &rendered.headers {
        if name.eq_ignore_ascii_case("host") {
            continue;
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        let value = HeaderValue::from_bytes(value).map_err(|error| error.to_string())?;
        request = request.header(name, value);
    }
    let request = request.body(()).map_err(|error| error.to_string())?;
    let kept = rendered.body.len().saturating_sub(held_back);
    let mut sender = open.sender.clone();
    let (answer, mut body) =
        sender.send_request(request, false).map_err(|error| error.to_string())?;
    let data = Bytes::copy_from_slice(&rendered.body[..kept]);
    body.send_data(data, held_back == 0).map_err(|error| error.to_string())?;
    Ok((answer, body))
}

async fn answered(answer: ResponseFuture) -> Outcome {
    let response = match answer.await {
        Ok(response) => response,
        Err(error) => return Outcome::Broken(error.to_string()),
    };
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        match data {
            Ok(data) if body.len() + data.len() <= super::ANSWER_BYTES_MAX => {
                // Fails only where the connection is gone, which the next read tells.
                let _ = stream.flow_control().release_capacity(data.len());
                body.extend_from_slice(&data);
            }
            Ok(_) => return Outcome::Broken("the answer is too long".to_owned()),
            Err(error) => return Outcome::Broken(error.to_string()),
        }
    }
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let length = body.len();
    Outcome::Answered(Answer {
        status: head.status.as_u16(),
        headers: headers.collect(),
        body,
        length,
    })
}

/// How long an address may take to say that it speaks HTTP/2.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
