//! Whether a service may read a request as one for another route, whose guards it would pass by.

use http::Method;
use onlyonce::Policy;
use onlyonce::key::KeyRules;
use onlyonce::policy::{KeyNeed, Mode, OldKeys, Paths, Tokens};

use super::id_check;
use crate::config::{Anonymous, AuthorizeRule, Route};

/// What a route asks of a request, so far as it can be stricter than another route.
#[derive(Debug)]
pub(super) struct Demands {
    needs_key: bool,
    key_rules: KeyRules,
    needs_token: bool,
    has_webhook: bool,
    refuses_nobody: bool,
    refuses_old_keys: bool,
    authorize: Option<AuthorizeRule>,
    velocity: Vec<String>,
    /// What its ids are made from.
    ids: String,
}

impl Demands {
    pub(super) fn of(route: &Route) -> Self {
        let policy = &route.policy;
        Self {
            needs_key: policy.key() == KeyNeed::Required,
            key_rules: policy.key_rules().clone(),
            needs_token: policy.tokens() == Tokens::Required,
            has_webhook: route.webhook.is_some(),
            refuses_nobody: route.anonymous == Anonymous::Reject,
            refuses_old_keys: policy.old_keys() == OldKeys::Refuse,
            authorize: route.authorize.clone(),
            velocity: policy.velocity().iter().map(|rule| format!("{rule:?}")).collect(),
            // Certificates count on every route or on none.
            ids: id_check::rule(route, false),
        }
    }

    /// Whether a request of `other` could fail these demands and not those of `other`.
    fn is_stricter_than(&self, other: &Self) -> bool {
        let asks_more = [
            (self.needs_key, other.needs_key),
            (self.needs_token, other.needs_token),
            (self.refuses_nobody, other.refuses_nobody),
            (self.refuses_old_keys, other.refuses_old_keys),
            // Two webhooks have two senders.
            (self.has_webhook, false),
        ];
        asks_more.iter().any(|(mine, others)| *mine && !others)
            || self.authorize.is_some() && self.authorize != other.authorize
            || self.key_rules != KeyRules::default() && self.key_rules != other.key_rules
            || self.velocity.iter().any(|rule| !other.velocity.contains(rule))
    }
}

/// Whether a request with this method, which goes by the first of two routes, must not be one of the second as well: that
/// one is stricter, or would make it another operation.
pub(super) fn is_passed_by(
    method: &Method,
    (policy, demands): (&Policy, &Demands),
    (other, others): (&Policy, &Demands),
) -> bool {
    let guards =
        |policy: &Policy| policy.methods().contains(method) && policy.mode() == Mode::Enforce;
    let has_other_ids = policy.paths() == Paths::Plain && demands.ids != others.ids;
    guards(other)
        && other.paths() == Paths::Plain
        && (!guards(policy) || others.is_stricter_than(demands) || has_other_ids)
}
