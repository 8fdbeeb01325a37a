//! The key that the upstream sees.

use http::Uri;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use onlyonce::Attempt;
use onlyonce::key::{Key, KeySource, KeySyntax};
use onlyonce::planted::{Planted, planted};
use onlyonce::policy::{IDEMPOTENCY_KEY, Recovery};
use onlyonce::scope::OperationId;

use crate::config::{ForwardKey, Route};

/// How a route passes keys on.
#[derive(Debug)]
pub(super) struct ForwardedKey {
    how: ForwardKey,
    /// Whether the upstream must know the operation by the key: every attempt then carries the same one, in
    /// one spelling, wherever and however the client sent it.
    is_relied_on: bool,
    /// Whether only the gateway knows the key: it was computed from a webhook, or found in its body, and whatever header the
    /// sender calls so is not signed.
    is_told: bool,
    syntax: KeySyntax,
    /// The headers that the route takes keys from.
    fields: Vec<HeaderName>,
}

impl ForwardedKey {
    pub(super) fn of(route: &Route) -> Self {
        let policy = &route.policy;
        let fields = policy.key_from().iter().filter_map(|source| match source {
            KeySource::Header(name) => Some(name.clone()),
            _ => None,
        });
        let fields: Vec<_> = fields.collect();
        Self {
            how: route.forward_key,
            is_told: route.webhook.is_some() && fields.is_empty(),
            is_relied_on: matches!(
                policy.recovery(),
                Recovery::Redrive { .. } | Recovery::Reconcile { .. }
            ),
            syntax: policy.key_rules().syntax,
            fields,
        }
    }

    /// Puts the key of this attempt where the upstream looks for it.
    pub(super) fn rewrite(&self, headers: &mut HeaderMap, key: &Key, attempt: Attempt) {
        match self.how {
            _ if planted(Planted::RedriveWithoutKey) && attempt.number > 1 => {
                drop(headers.remove(IDEMPOTENCY_KEY));
            }
            ForwardKey::Strip => self.fields.iter().for_each(|name| drop(headers.remove(name))),
            ForwardKey::Verbatim if !self.is_relied_on && !self.is_told => {}
            ForwardKey::Verbatim | ForwardKey::Derive => {
                self.set(headers, &self.text(key.as_str(), attempt.id));
            }
        }
    }

    /// A word for how keys reach `upstream`, where it must know operations by them.
    pub(super) fn word(&self, upstream: &Uri) -> String {
        match self.is_relied_on {
            true => format!("{:?},{:?},{:?},{upstream}", self.how, self.syntax, self.fields),
            false => String::new(),
        }
    }

    /// Whether the upstream can know the operation by this text and by nothing else. A key that is quoted may be
    /// known there with its quotes or without them.
    pub(super) fn is_certain(&self, text: &str) -> bool {
        spelled(text, self.syntax) == text
    }

    /// The text by which the upstream knows the operation.
    pub(super) fn text(&self, key: &str, id: OperationId) -> String {
        match self.how {
            ForwardKey::Derive => Attempt { number: 1, id }.derive("forward"),
            ForwardKey::Verbatim | ForwardKey::Strip => key.to_owned(),
        }
    }

    fn set(&self, headers: &mut HeaderMap, text: &str) {
        let Ok(value) = HeaderValue::try_from(spelled(text, self.syntax)) else { return };
        match self.fields.as_slice() {
            [] => drop(headers.insert(IDEMPOTENCY_KEY, value)),
            fields => fields.iter().for_each(|name| drop(headers.insert(name, value.clone()))),
        }
    }
}

/// Bare where that is allowed, as most services expect it; else the string of RFC 9651.
fn spelled(text: &str, syntax: KeySyntax) -> String {
    let is_bare = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b';');
    match syntax {
        KeySyntax::Lenient if text.bytes().all(is_bare) => text.to_owned(),
        KeySyntax::Lenient | KeySyntax::Strict => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
    }
}
