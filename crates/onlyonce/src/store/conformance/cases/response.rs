//! What a retry is answered with is what the first answer was.

use std::sync::Arc;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::record::{Kept, NotKept, Response, SettledBy, State, StateKind};
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, ensure, equal};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{Write, draft, response, token};
use crate::store::{Maintain, Next};

pub(super) async fn a_body_is_kept_byte_for_byte<F: Factory>(factory: &F) -> Outcome {
    let every_byte: Vec<u8> = (0..=u8::MAX).chain((0..=u8::MAX).rev()).collect();
    for body in [every_byte, vec![], vec![0], b"\r\n".to_vec()] {
        let body = Kept::Bytes { body: body.into(), trailers: None };
        kept(factory, HeaderMap::new(), body).await?;
    }
    Ok(())
}

pub(super) async fn a_large_body_is_kept_whole<F: Factory>(factory: &F) -> Outcome {
    let body_bytes_max = Lab::fresh(factory).await.store.limits().body_bytes_max;
    let length = body_bytes_max.min(LARGE_BYTES);
    let body: Bytes = (0..length).map(|index| (index % 251) as u8).collect();
    let trailers = None;
    kept(factory, HeaderMap::new(), Kept::Bytes { body, trailers }).await
}

pub(super) async fn headers_are_kept_with_their_repeats_in_order<F: Factory>(
    factory: &F,
) -> Outcome {
    let body = Kept::Bytes { body: "{}".into(), trailers: None };
    kept(factory, odd_headers(), body).await
}

pub(super) async fn trailers_are_kept<F: Factory>(factory: &F) -> Outcome {
    let mut status = HeaderMap::new();
    status.append("grpc-status", HeaderValue::from_static("13"));
    status.append("grpc-message", HeaderValue::from_static("a"));
    status.append("grpc-message", HeaderValue::from_static("b"));
    for trailers in [None, Some(HeaderMap::new()), Some(status)] {
        let body = Bytes::from_static(b"\0\0\0\0\0");
        kept(factory, HeaderMap::new(), Kept::Bytes { body, trailers }).await?;
    }
    Ok(())
}

pub(super) async fn a_body_that_is_not_kept_keeps_its_reason<F: Factory>(factory: &F) -> Outcome {
    for why in [
        NotKept::TooLarge,
        NotKept::Streamed,
        NotKept::Secret,
        NotKept::Refused,
        NotKept::Erased,
        NotKept::Unopened,
    ] {
        kept(factory, HeaderMap::new(), Kept::No(why)).await?;
    }
    let location = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("/jobs/1"))]);
    kept(factory, location, Kept::No(NotKept::Location)).await
}

pub(super) async fn who_settled_it_is_kept<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for (number, settled_by) in
        (1..).zip([SettledBy::Owner, SettledBy::Policy, SettledBy::Reconcile, SettledBy::Operator])
    {
        let to = Next::Completed { settled_by, response: response("first"), token: None };
        lab.won(&draft(number)).await?;
        let write = Write::by_owner(&draft(number), &[StateKind::Running], to);
        let state = lab.done(&write).await?.state;
        ensure(
            matches!(state, State::Completed { settled_by: by, .. } if by == settled_by),
            "it is settled by whom the write names",
        )?;
    }
    Ok(())
}

pub(super) async fn a_record_that_replaces_another_is_kept_as_it_is<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let other = draft(2);
    lab.won(&other).await?;
    let beside = lab.done(&Write::settle(&other)).await?;
    lab.won(&draft(1)).await?;
    let read = lab.done(&Write::settle(&draft(1))).await?;
    let write = Write::erase(draft(1).id, &read, token(9));
    let Next::Replaced(erased) = write.to.clone() else {
        return ensure(false, "an erasure replaces the record");
    };
    let record = lab.done(&write).await?;
    equal("the record", &record, &*erased)?;
    equal("when it expires", record.expires_at(), read.expires_at())?;
    equal("the key", record.key.as_sent(), None)?;
    lab.unchanged(other.id, &beside).await
}

/// What is settled is what is loaded, and what the next claim is shown.
async fn kept<F: Factory>(factory: &F, headers: HeaderMap, body: Kept) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let status = StatusCode::from_u16(599).expect("599 is a status");
    let response = Arc::new(Response { status, headers, body });
    lab.won(&draft(1)).await?;
    let write = Write::settle_with(&draft(1), response.clone());
    let record = lab.done(&write).await?;
    same(record.response(), &response)?;
    let claimed = lab.claim(&draft(1)).await?.record;
    same(claimed.as_ref().and_then(|record| record.response()), &response)
}

/// Compared part by part: a body is never shown, so that only this tells which part differs.
pub(super) fn same(found: Option<&Arc<Response>>, expected: &Response) -> Outcome {
    let Some(found) = found else {
        return ensure(false, "there is a response");
    };
    equal("the status", found.status, expected.status)?;
    equal("the headers", &found.headers, &expected.headers)?;
    equal("what follows the body", after(found), after(expected))?;
    equal("the body", &found.body, &expected.body)
}

fn after(response: &Response) -> Option<&HeaderMap> {
    match &response.body {
        Kept::Bytes { trailers, .. } => trailers.as_ref(),
        Kept::No(_) | Kept::Sealed(_) => None,
    }
}

/// A response with all that is easily lost.
pub(super) fn with_everything() -> Arc<Response> {
    let body = (0..=u8::MAX).collect();
    let trailers = Some(odd_headers());
    Arc::new(Response {
        status: StatusCode::IM_A_TEAPOT,
        headers: odd_headers(),
        body: Kept::Bytes { body, trailers },
    })
}

fn odd_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in HEADERS {
        let value = HeaderValue::from_bytes(value).expect("these bytes may stand in a header");
        headers.append(name, value);
    }
    headers
}

/// A name that repeats with others between, an empty value, bytes that are no text, a value with commas.
const HEADERS: [(&str, &[u8]); 7] = [
    ("link", b"</2>; rel=next"),
    ("etag", b"\"1\""),
    ("link", b"</1>; rel=prev"),
    ("x-empty", b""),
    ("x-latin", b"caf\xe9\x80"),
    ("link", b"</2>; rel=next"),
    ("vary", b"a, b"),
];

/// A large body, unless the store keeps less.
const LARGE_BYTES: usize = 1 << 20;
