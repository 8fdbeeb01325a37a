//! The client's own transport: hyper with rustls, and the certificates that this machine trusts.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::answer::Answer;
use super::connect::{self, AttemptTime, Bounded, CONNECT_WAIT};
use super::transport::{Reach, Transport, TransportError};
use crate::store::BoxError;

/// Connections of its own: HTTP/1.1, and HTTP/2 where TLS negotiates it.
#[derive(Clone, Debug)]
pub struct Wire(Client<Bounded<HttpsConnector<HttpConnector>>, Full<Bytes>>);

impl Wire {
    /// Trusts the certificates that this machine trusts; without any, `https` fails and `http` works.
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        // The addresses of a host share this timeout, so that an address that does not answer leaves time for the next.
        connector.set_connect_timeout(Some(CONNECT_WAIT));
        connector.set_nodelay(true);
        let tls = hyper_rustls::HttpsConnectorBuilder::new();
        let provider = rustls::crypto::ring::default_provider();
        let https = match tls.with_provider_and_native_roots(provider) {
            Ok(tls) => tls.https_or_http().enable_all_versions().wrap_connector(connector),
            Err(_) => {
                let tls =
                    hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(trusts_nobody());
                tls.https_or_http().enable_all_versions().wrap_connector(connector)
            }
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_WAIT)
            .build(Bounded(https));
        Self(client)
    }

    /// Sends the request once, and returns the head of the answer with its body still to be read.
    pub(crate) async fn respond(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<Incoming>, TransportError> {
        if request.uri().scheme().is_none() || request.uri().host().is_none() {
            return Err(TransportError::new(
                Reach::Unusable,
                "the URL must be http://… or https://…",
            ));
        }
        let attempt = request.extensions().get::<AttemptTime>().copied();
        let sending = self.0.request(request.map(Full::new));
        connect::within(attempt.as_ref(), sending).await.map_err(|error| {
            let is_unsent = error.is_connect() || is_refused(&error);
            TransportError::new(if is_unsent { Reach::NotSent } else { Reach::MaybeSent }, error)
        })
    }
}

impl Default for Wire {
    fn default() -> Self {
        Self::new()
    }
}

fn trusts_nobody() -> rustls::ClientConfig {
    let provider = rustls::crypto::ring::default_provider();
    rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

impl Transport for Wire {
    async fn send(
        &mut self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> Result<Answer, TransportError> {
        whole(self.respond(request).await?, answer_bytes_max).await
    }
}

/// The whole answer, or why there is none.
async fn whole(response: Response<Incoming>, bytes_max: usize) -> Result<Answer, TransportError> {
    let (head, body) = response.into_parts();
    let is_http2 = head.version == Version::HTTP_2;
    let mut body = std::pin::pin!(body);
    let answer = collected(head, body.as_mut(), bytes_max).await?;
    // hyper takes a stream that was reset with NO_ERROR for one that ended.
    if is_http2 && !body.is_end_stream() {
        return Err(TransportError::new(Reach::MaybeSent, "the answer was reset before its end"));
    }
    Ok(answer)
}

/// Reads a body of any type to its end.
pub(crate) async fn collected<B>(
    head: http::response::Parts,
    body: B,
    bytes_max: usize,
) -> Result<Answer, TransportError>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let body = Limited::new(body, bytes_max).collect().await.map_err(|error| {
        let reach = match error.is::<LengthLimitError>() {
            true => Reach::TooLarge(head.status),
            false => Reach::MaybeSent,
        };
        TransportError::new(reach, error)
    })?;
    let trailers = body.trailers().cloned();
    Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
}

/// Whether the server said, as HTTP/2 can, that it did not begin with the request.
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let reason = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason);
    reason == Some(h2::Reason::REFUSED_STREAM) || error.source().is_some_and(is_refused)
}

const IDLE_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of an answer to a request that is too large to be sent at once, with these pieces of body,
    /// whose stream is then reset with NO_ERROR.
    async fn reset_after(
        status: u16,
        pieces: &'static [&'static str],
        is_ended: bool,
    ) -> Result<Answer, TransportError> {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let (read_head, head_is_read) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(server).await.unwrap();
            let (request, mut respond) = connection.accept().await.unwrap().unwrap();
            tokio::spawn(async move { while connection.accept().await.is_some() {} });
            let head = Response::builder().status(status).body(()).unwrap();
            let mut body = respond.send_response(head, is_ended && pieces.is_empty()).unwrap();
            for (n, piece) in pieces.iter().enumerate() {
                let is_last = is_ended && n + 1 == pieces.len();
                body.send_data(Bytes::from(*piece), is_last).unwrap();
            }
            head_is_read.await.unwrap();
            body.send_reset(h2::Reason::NO_ERROR);
            drop(request);
        });
        let io = hyper_util::rt::TokioIo::new(client);
        let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
        let (mut sender, connection) = connected.unwrap();
        tokio::spawn(connection);
        let request = Request::new(Full::new(Bytes::from(vec![0; 1024 * 1024])));
        let response = sender.send_request(request).await.unwrap();
        read_head.send(()).unwrap();
        // The reset arrives before the body is read.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        whole(response, 1024).await
    }

    // As Envoy does when its upstream breaks off.
    #[tokio::test]
    async fn half_an_answer_is_no_answer() {
        for pieces in [&["half of "][..], &[]] {
            let failure = reset_after(200, pieces, false).await.unwrap_err();
            assert_eq!(failure.reach, Reach::MaybeSent);
        }
    }

    // RFC 9113, section 8.1: a server that does not want the rest of the request answers, and resets.
    #[tokio::test]
    async fn a_whole_answer_before_the_end_of_the_request_is_an_answer() {
        for (status, pieces) in [(413, &["too ", "large"][..]), (413, &["too large"]), (401, &[])] {
            let answer = reset_after(status, pieces, true).await.unwrap();
            assert_eq!((answer.status.as_u16(), answer.text()), (status, pieces.concat()));
        }
    }
}
