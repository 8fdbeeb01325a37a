//! The client over reqwest, and as a layer of `reqwest-middleware`.
//!
//! Build your `reqwest::Client` with `redirect(Policy::none())` and `retry(reqwest::retry::never())`: then
//! redirects and retries are this client's alone. TLS and proxies are as you chose them there.
//!
//! ```no_run
//! # fn client() -> Result<(), Box<dyn std::error::Error>> {
//! use onlyonce::client::{OnceMiddleware, Retries};
//!
//! let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
//! let http = reqwest_middleware::ClientBuilder::new(http)
//!     .with(OnceMiddleware::new(Retries::new()))
//!     .build();
//! let charge = http.post("https://pay.example/charges").body("amount=1"); // has its key when it is sent
//! # let _ = charge;
//! # Ok(())
//! # }
//! ```

use std::pin::Pin;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Extensions, Method, Request, StatusCode, Version};
use reqwest_middleware::{Middleware, Next};

use super::answer::Answer;
use super::operation::Operation;
use super::retries::Retries;
use super::tower::{answered, key, perform};
use super::transport::{Reach, Transport, TransportError};
use super::wire::collected;
use crate::key::Key;

impl Transport for reqwest::Client {
    async fn send(
        &mut self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> Result<Answer, TransportError> {
        let has_body = request.method() != Method::HEAD;
        let response = self.execute(of_http(request)?).await.map_err(failed)?;
        whole(response, has_body, answer_bytes_max).await
    }
}

/// Makes one operation of each POST and PATCH, and of each request that carries a key: its key is the one in its
/// header, else the [`Key`] among its extensions, else a new one; two that differ are an error. A request whose body
/// streams is sent once, because it cannot be repeated. The response has a [`Told`](super::Told) among its extensions.
#[derive(Clone, Debug)]
pub struct OnceMiddleware {
    retries: Retries,
}

impl OnceMiddleware {
    /// With this retry policy.
    pub fn new(retries: Retries) -> Self {
        Self { retries }
    }

    async fn operation(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let made = extensions.get::<Key>().cloned();
        let found = key(request.method(), request.headers(), made, &self.retries);
        let found = found.map_err(reqwest_middleware::Error::middleware)?;
        let is_whole = request.body().is_none_or(|body| body.as_bytes().is_some());
        let (Some(key), true) = (found, is_whole) else {
            return next.run(request, extensions).await;
        };
        let operation = operation(request, key.clone())?;
        let mut chain = Chain { next, extensions };
        let end = perform(&self.retries, &mut chain, operation).await;
        let (answer, told) = answered(key, end).map_err(reqwest_middleware::Error::middleware)?;
        let mut response = http::Response::new(reqwest::Body::from(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response.extensions_mut().insert(told);
        Ok(response.into())
    }
}

/// Written without `async_trait`, which would be one more dependency.
impl Middleware for OnceMiddleware {
    fn handle<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        request: reqwest::Request,
        extensions: &'life1 mut Extensions,
        next: Next<'life2>,
    ) -> Pin<
        Box<
            dyn Future<Output = reqwest_middleware::Result<reqwest::Response>>
                + Send
                + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(self.operation(request, extensions, next))
    }
}

fn operation(request: reqwest::Request, key: Key) -> reqwest_middleware::Result<Operation> {
    let body = request.body().and_then(|body| body.as_bytes()).map(Bytes::copy_from_slice);
    let uri = request.url().as_str().parse();
    Ok(Operation {
        key: Some(key),
        method: request.method().clone(),
        uri: uri.map_err(reqwest_middleware::Error::middleware::<http::uri::InvalidUri>)?,
        headers: request.headers().clone(),
        body: body.unwrap_or_default(),
    })
}

/// The rest of the chain as a transport.
struct Chain<'a, 'b> {
    next: Next<'a>,
    extensions: &'b mut Extensions,
}

impl Transport for Chain<'_, '_> {
    async fn send(
        &mut self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> Result<Answer, TransportError> {
        let has_body = request.method() != Method::HEAD;
        let request = of_http(request)?;
        let response = self.next.clone().run(request, self.extensions).await;
        let response = response.map_err(|error| match error {
            reqwest_middleware::Error::Reqwest(error) => failed(error),
            error => TransportError::new(Reach::MaybeSent, error),
        })?;
        whole(response, has_body, answer_bytes_max).await
    }
}

fn of_http(request: Request<Bytes>) -> Result<reqwest::Request, TransportError> {
    request.try_into().map_err(|error: reqwest::Error| TransportError::new(Reach::Unusable, error))
}

fn failed(error: reqwest::Error) -> TransportError {
    let reach = match () {
        () if error.is_builder() => Reach::Unusable,
        () if error.is_connect() => Reach::NotSent,
        () => Reach::MaybeSent,
    };
    TransportError::new(reach, error)
}

async fn whole(
    response: reqwest::Response,
    has_body: bool,
    bytes_max: usize,
) -> Result<Answer, TransportError> {
    let (head, body) = http::Response::<reqwest::Body>::from(response).into_parts();
    let is_http2 = head.version == Version::HTTP_2;
    let answer = collected(head, body, bytes_max).await?;
    // hyper takes a stream that was reset with NO_ERROR for one that ended. reqwest does not show the reset, but missing
    // bytes do.
    if is_http2 && has_body && is_short(&answer) {
        return Err(TransportError::new(Reach::MaybeSent, "the answer was reset before its end"));
    }
    Ok(answer)
}

/// Whether the body is shorter than its `Content-Length`. A 304 states the length of another answer.
fn is_short(answer: &Answer) -> bool {
    let told = answer.header(&CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    answer.status != StatusCode::NOT_MODIFIED && told.is_some_and(|told| answer.body.len() < told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_over_http_2_that_is_shorter_than_it_says_is_no_answer() {
        let read = async |length: &str| {
            let answer = http::Response::builder().version(Version::HTTP_2);
            let answer = answer.header(CONTENT_LENGTH, length).body("half of ");
            whole(answer.unwrap().into(), true, 1024).await
        };
        assert_eq!(read("100").await.unwrap_err().reach, Reach::MaybeSent);
        assert_eq!(read("8").await.unwrap().text(), "half of ");
    }
}
