//! The admin listener of a running gateway.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::{Failed, NO_LISTENER, TrustFlags};
use crate::admin::{ADMIN_LISTENER, GATEWAY};

/// Connections to it. A clone shares them.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token: Option<HeaderValue>,
    answer_wait: Duration,
    /// Set once an admin listener of ours has answered there.
    known: Arc<OnceCell<()>>,
}

impl Remote {
    pub(super) fn new(base: &str, token: Option<&str>, trust: &TrustFlags) -> Result<Self, Failed> {
        let wrong = || {
            Failed::usage(&format!("--admin: {base:?} is no address such as http://127.0.0.1:8081"))
        };
        let uri: Uri = base.parse().map_err(|_| wrong())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() {
            return Err(wrong());
        }
        let token =
            token.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))).transpose();
        let token = token.map_err(|_| Failed::usage(&"--token: no header can carry it"))?;
        let is_secured = uri.scheme_str() == Some("https");
        let tls = is_secured.then(|| trust.client()).transpose()?;
        let (client, base) = (client(tls), base.trim_end_matches('/').to_owned());
        Ok(Self { client, base, token, answer_wait: ANSWER_WAIT, known: Arc::default() })
    }

    /// Waits so long for a whole answer.
    pub(super) fn with_answer_wait(self, answer_wait: Duration) -> Self {
        Self { answer_wait, ..self }
    }

    pub(in crate::commands) fn address(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The whole answer.
    pub(super) async fn ask(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Failed> {
        self.demand_known().await?;
        let changes = !request.method().is_safe();
        self.in_time(changes, async {
            let (head, body) = self.request(request).await?.into_parts();
            let read = body.collect().await;
            let read =
                read.map_err(|error| Failed::trouble(&format!("the answer broke off: {error}")))?;
            Ok((head.status, read.to_bytes()))
        })
        .await
    }

    /// An answer whose body is read by the caller.
    pub(in crate::commands) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failed> {
        self.demand_known().await?;
        let changes = !request.method().is_safe();
        self.in_time(changes, self.request(request)).await
    }

    async fn in_time<T>(
        &self,
        changes: bool,
        answer: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let (base, wait) = (&self.base, self.answer_wait);
        let late = |_| {
            let what = if changes { UNDER_WAY } else { NOT_CHANGED };
            Failed::trouble(&format!("no answer from {base} within {} s; {what}", wait.as_secs()))
        };
        timeout(wait, answer).await.map_err(late)?
    }

    async fn request(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failed> {
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        self.sent(request).await
    }

    /// Asks what listens there, without the token: at the port of the service, or of anything else, the token would be given away,
    /// and any answer taken for one.
    async fn demand_known(&self) -> Result<(), Failed> {
        let asking =
            self.known.get_or_try_init(|| self.in_time(false, self.demand_admin_listener()));
        asking.await.map(|_| ())
    }

    async fn demand_admin_listener(&self) -> Result<(), Failed> {
        let request = Request::get(self.address(GATEWAY)).body(Full::default());
        let answer = self.sent(request.map_err(|error| Failed::usage(&error))?).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), GREETING_BYTES_MAX).collect().await;
        let said: Option<Value> =
            body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
        match said.is_some_and(|said| said["service"] == ADMIN_LISTENER) {
            true => Ok(()),
            false => Err(Failed::trouble(&format!(
                "{} is not the admin listener of a gateway of this version (asked what it is, it answered {status}); \
                 the token was not sent there, and nothing was changed. {NO_LISTENER}",
                self.base
            ))),
        }
    }

    async fn sent(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failed> {
        let base = &self.base;
        let sent = self.client.request(request).await;
        sent.map_err(|error| {
            let cause = std::error::Error::source(&error)
                .map(|cause| format!(": {cause}"))
                .unwrap_or_default();
            Failed::trouble(&format!(
                "no answer from {base}{cause}; is a gateway with an admin listener there? {NO_LISTENER}"
            ))
        })
    }
}

/// Without TLS no certificate is looked for: the machine may have none.
fn client(tls: Option<ClientConfig>) -> Client<HttpsConnector<HttpConnector>, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_WAIT));
    let builder = HttpsConnectorBuilder::new();
    let builder = match tls {
        Some(tls) => builder.with_tls_config(tls).https_only(),
        None => builder.with_tls_config(TrustFlags::nobody()).https_or_http(),
    };
    Client::builder(TokioExecutor::new()).build(builder.enable_http1().wrap_connector(connector))
}

const GREETING_BYTES_MAX: usize = 64 << 10;
const UNDER_WAY: &str =
    "the change that was asked for may still be under way, so look before you repeat it";
const NOT_CHANGED: &str = "nothing was changed";
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// For a whole answer. A change of many operations takes a while.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use http::Method;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What is said of a listener that sends these bytes and nothing more.
    async fn told_of(bytes: &'static [u8], method: Method) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let silent = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
            stream.write_all(bytes).await.unwrap();
            std::future::pending::<()>().await;
        });
        let answer_wait = Duration::from_millis(100);
        let remote = Remote {
            answer_wait,
            known: Arc::new(OnceCell::new_with(Some(()))),
            ..Remote::new(&base, None, &TrustFlags::default()).unwrap()
        };
        let request = Request::builder().method(method).uri(remote.address("/api/v1/summary"));
        let request = request.body(Full::default()).unwrap();
        let failed = remote.ask(request).await.unwrap_err();
        silent.abort();
        assert_eq!(failed.code, 3);
        failed.message
    }

    #[tokio::test]
    async fn an_answer_that_does_not_come_or_does_not_end_is_given_up() {
        let half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nha";
        for bytes in [&b""[..], half] {
            for (method, what) in [(Method::POST, UNDER_WAY), (Method::GET, NOT_CHANGED)] {
                let told = told_of(bytes, method).await;
                assert!(told.starts_with("no answer from http://127.0.0.1:"), "{told}");
                assert!(told.ends_with(what), "{told}");
            }
        }
    }
}
