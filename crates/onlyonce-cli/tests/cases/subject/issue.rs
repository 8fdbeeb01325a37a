//! The library's server issues tokens as the gateway does.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use onlyonce::http::OnceLayer;

/// A token for the operation that the query names.
pub(super) fn issue(layer: &OnceLayer, request: &Request) -> Response {
    let (mut head, ()) = http::Request::new(()).into_parts();
    head.headers = request.headers().clone();
    for (name, value) in form_urlencoded::parse(request.uri().query().unwrap_or("").as_bytes()) {
        match &*name {
            "method" => head.method = value.parse().unwrap(),
            "path" => head.uri = value.parse().unwrap(),
            _ => {}
        }
    }
    layer.issue_token(&head).map(Body::new)
}
