//! An answer, and what the notation says of it.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

/// An answer that arrived whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
    /// The 1xx statuses that came before.
    pub(crate) early: Vec<u16>,
}

impl Answer {
    /// FRESH: the upstream's own.
    #[track_caller]
    pub(crate) fn fresh(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.all("idempotent-replayed"), [""; 0], "{self:?}");
        assert_eq!(self.all("idempotency-store"), [""; 0], "{self:?}");
        self
    }

    /// REPLAY: `first` once more.
    #[track_caller]
    pub(crate) fn replays(self, first: &Self) -> Self {
        assert_eq!(self.all("idempotent-replayed"), ["true"], "{self:?}");
        assert_eq!(self.status, first.status, "{self:?}");
        assert_eq!(self.body, first.body);
        for name in ["location", "etag", "content-type"] {
            assert_eq!(self.all(name), first.all(name), "{name}");
        }
        self
    }

    /// PJ(code), with everything that a problem document must have.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let problem = self.json();
        assert_eq!((self.status, &problem["code"]), (status, &code.into()), "{self:?}");
        assert_eq!(self.all("content-type"), ["application/problem+json"]);
        assert_eq!(self.all("link"), ["</.well-known/idempotency>; rel=\"describedby\""]);
        assert_eq!(self.all("cache-control"), ["no-store"]);
        assert_eq!(problem["status"], status);
        let kind = problem["type"].as_str().expect("a type");
        assert!(kind.ends_with(&format!("/.well-known/idempotency#{code}")), "{kind}");
        for member in ["title", "detail"] {
            assert!(
                problem[member].as_str().is_some_and(|text| !text.is_empty()),
                "{member} of {problem}"
            );
        }
        let retry = problem["retry"].as_str().expect("advice");
        assert!(["same-key", "new-key", "never"].contains(&retry), "{retry}");
        problem
    }

    /// An error as Stripe's API has them.
    #[track_caller]
    pub(crate) fn stripe(&self, status: u16, kind: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.all("content-type"), ["application/json"]);
        let error = self.json()["error"].clone();
        assert_eq!(error["type"], kind, "{error}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        error
    }

    /// The whole seconds of `Retry-After`.
    #[track_caller]
    pub(crate) fn retry_after_s(&self) -> u64 {
        let [seconds] = self.all("retry-after")[..] else {
            panic!("no Retry-After in {self:?}");
        };
        seconds.parse().expect("seconds")
    }

    /// Every line of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let values = self.headers.get_all(name).iter();
        values.map(|value| value.to_str().expect("ASCII")).collect()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON in {self:?}"))
    }
}
