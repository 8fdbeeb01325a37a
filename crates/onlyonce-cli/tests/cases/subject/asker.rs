//! How the library's server asks its upstream what became of an operation: as the gateway's rule says it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use http::StatusCode;
use onlyonce::record::{Kept, Response};
use onlyonce::{Finding, Question, Reconciler};

use super::forward::forward;

/// `GET /charges?key={key}` with the caller's credentials; found is what has an id.
#[derive(Debug)]
pub(super) struct Asker(pub(super) SocketAddr);

impl Reconciler for Asker {
    fn ask<'a>(
        &'a self,
        question: Question<'a>,
    ) -> Pin<Box<dyn Future<Output = Finding> + Send + 'a>> {
        let mut request = Request::get(format!("/charges?key={}", question.key));
        let credential = question.headers.and_then(|headers| headers.get("authorization"));
        if let Some(credential) = credential {
            request = request.header("authorization", credential);
        }
        let request = request.header("host", self.0.to_string()).body(Body::empty());
        Box::pin(self.finding(request.expect("the key is that of a request")))
    }
}

impl Asker {
    async fn finding(&self, request: Request) -> Finding {
        let (head, body) = forward(self.0, request).await.into_parts();
        if head.status == StatusCode::NOT_FOUND {
            return Finding::Absent;
        }
        let Ok(body) = axum::body::to_bytes(body, 1024).await else {
            return Finding::Unclear;
        };
        let charges: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let id = charges.pointer("/0/id").and_then(serde_json::Value::as_str);
        match id.is_some_and(|id| !id.is_empty()) && head.status.is_success() {
            false => Finding::Unclear,
            true => Finding::Found(Arc::new(Response {
                status: head.status,
                headers: head.headers,
                body: Kept::Bytes { body, trailers: None },
            })),
        }
    }
}
