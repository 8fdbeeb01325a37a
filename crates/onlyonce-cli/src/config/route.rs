//! One route: which requests it is for, and what holds for them.

use std::time::Duration;

use http::Method;
use onlyonce::Policy;
use onlyonce::fingerprint::FingerprintMode;
use onlyonce::key::{KeyFormat, KeySource};
use onlyonce::policy::{Absent, InFlight, Recovery, Tokens};
use onlyonce::scope::{ScopePart, TOKEN_LENGTH};
use onlyonce::webhook::Verifier;

use super::address::Upstream;
use super::authorize::AuthorizeRule;
use super::cors::CorsOrigin;
use super::error::Remark;
use super::matching::Match;
use super::peers::TrustedPeers;
use super::principal::PrincipalRule;
use super::reconcile::ReconcileRule;
use super::rules::{Remedy, Rules};
use super::webhook;

/// Which requests a route is for, and what holds for them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Route {
    /// Which requests it is for.
    pub matching: Match,
    /// What is asked of keys, answers and failures. Its methods are those that are guarded.
    pub policy: Policy,
    /// How the gateway tells who asks.
    pub principal: PrincipalRule,
    /// Whose headers name the caller.
    pub trusted_peers: TrustedPeers,
    /// Whether a keyed request of nobody is taken.
    pub anonymous: Anonymous,
    /// What is asked before a caller is answered from a record.
    pub authorize: Option<AuthorizeRule>,
    /// The key that the upstream sees.
    pub forward_key: ForwardKey,
    /// The service for these requests, if it is another one.
    pub upstream: Option<Upstream>,
    /// The origins whose pages may read the gateway's own answers.
    pub cors: Vec<CorsOrigin>,
    /// How long a connection may have been idle that takes a request which is not safe to send twice.
    pub upstream_idle: Duration,
    /// How the upstream is asked; there if and only if the policy's recovery is to reconcile.
    pub reconcile: Option<ReconcileRule>,
    /// Whether it has the preset `payments`: a store that may lose what it said is not for it.
    pub is_payments: bool,
    /// What tells the genuine deliveries of a webhook from forged ones.
    pub webhook: Option<Verifier>,
    /// The file and the line where its table begins, `routes/charges.toml:3`; empty for `[policy]`.
    pub written: String,
}

impl Route {
    /// The route that these rules make, or how they contradict each other; `at` is where the table begins.
    pub(super) fn new(matching: Match, rules: Rules, at: usize) -> Result<Self, Remark> {
        let contradiction = contradiction(&matching, &rules);
        let place = |names: &[&str]| rules.said.anywhere(names).unwrap_or(at);
        if let Some((names, message)) = contradiction {
            return Err(Remark::new(place(names), message));
        }
        let policy = policy(&matching, &rules);
        Ok(Self {
            matching,
            policy,
            principal: rules.principal,
            trusted_peers: rules.trusted_peers,
            anonymous: rules.anonymous,
            // Each delivery of a webhook is signed anew, and has no credentials besides.
            authorize: rules
                .authorize
                .filter(|_| rules.webhook.is_none())
                .map(|question| AuthorizeRule { question, believed_for: rules.authorize_for }),
            forward_key: rules.forward_key,
            cors: rules.cors,
            upstream: rules.upstream,
            upstream_idle: rules.upstream_idle,
            is_payments: rules.is_payments,
            webhook: rules.webhook,
            written: String::new(),
            reconcile: rules.reconcile.filter(|_| rules.remedy == Remedy::Reconcile),
        })
    }

    /// Whether a request with this method is guarded here.
    pub fn guards(&self, method: &Method) -> bool {
        self.policy.methods().contains(method)
    }
}

/// Whether a keyed request of nobody is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// It is; all who are nobody share their keys.
    Allow,
    /// It is answered 401.
    Reject,
}

/// The key that the upstream sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardKey {
    /// As the client sent it.
    Verbatim,
    /// A stable one that differs per principal.
    Derive,
    /// None.
    Strip,
}

/// What no policy alone can see: the names to look at, and a sentence.
pub(super) type Contradiction = (&'static [&'static str], String);

fn contradiction(matching: &Match, rules: &Rules) -> Option<Contradiction> {
    let found = match rules.remedy {
        Remedy::Redrive => redrive(rules),
        Remedy::Reconcile => reconcile(matching, rules),
        Remedy::Hold | Remedy::Fail | Remedy::Release => None,
    };
    let found = found.or_else(|| tokens(rules)).or_else(|| authorize(rules));
    found.or_else(|| everywhere(matching, rules))
}

/// The question would be asked about nobody, and its answer believed of everybody.
fn authorize(rules: &Rules) -> Option<Contradiction> {
    (rules.authorize.is_some() && rules.principal.needs_mtls()).then(|| {
        (
            &["authorize", "principal"][..],
            "`authorize` asks with the credentials of the caller, and the gateway cannot show the service a client's certificate; remove one of `authorize` and \"mtls\"".into(),
        )
    })
}

fn redrive(rules: &Rules) -> Option<Contradiction> {
    (rules.forward_key == ForwardKey::Strip).then(|| {
        (
            &["forward_key", "recovery"][..],
            "`forward_key` \"strip\" with `recovery` \"redrive\" would execute twice: the upstream cannot dedup on a key that it never sees".into(),
        )
    })
}

/// A question about another operation than the one that was sent would complete it with another's answer, or
/// free a key that was used.
fn reconcile(matching: &Match, rules: &Rules) -> Option<Contradiction> {
    let Some(rule) = &rules.reconcile else {
        let message =
            "`recovery` \"reconcile\" needs reconcile = { ask = \"GET /…{key}\", found = \"/…\" }";
        return Some((&["recovery"], message.into()));
    };
    if let Some(source) = rules.policy.key_from().iter().find(|source| is_made_here(source)) {
        let message = format!(
            "`key_from` \"{source}\" with `recovery` \"reconcile\": the upstream does not know such a key, and could not be asked about it"
        );
        return Some((&["key_from", "recovery"], message));
    }
    let is_per_caller = rules.policy.scope().contains(&ScopePart::Principal)
        && rules.principal != PrincipalRule::None;
    let found: Contradiction = match rules.forward_key {
        ForwardKey::Strip => (
            &["forward_key", "recovery"],
            "`forward_key` \"strip\" with `recovery` \"reconcile\": the upstream cannot be asked about a key that it never sees".into(),
        ),
        ForwardKey::Verbatim if rule.auth.is_some() && is_per_caller => (
            &["reconcile"],
            "`reconcile` with `auth` asks for all callers, whose keys may be equal, so that one would get another's answer; set `forward_key` to \"derive\", or remove `auth`".into(),
        ),
        ForwardKey::Verbatim if is_finer_than_key(rules.policy.scope()) => (
            &["reconcile", "scope"],
            "`reconcile` does not send the headers and values of `scope`, so that one tenant would get another's answer; set `forward_key` to \"derive\"".into(),
        ),
        _ if rule.auth.is_none() && !is_per_caller && rule.absent == Absent::Release => (
            &["reconcile"],
            "`absent` \"release\" without `auth` asks with the credentials of whoever retries, and here callers share their keys: another caller's 404 would execute it twice; set `auth`, or `absent` to \"hold\"".into(),
        ),
        _ if matching.place_names().any(|name| name == "key") => (
            &["reconcile"],
            "`match` has a place called {key}, which stands for the operation's key in `ask`; give it another name".into(),
        ),
        _ => {
            if let Some(name) = rule.ask.unknown_place(matching.place_names()) {
                let message = format!("`ask` has {{{name}}}, which is no place in the path of `match`");
                return Some((&["reconcile"], message));
            }
            return quiet(rules, rule);
        }
    };
    Some(found)
}

/// Before the last possible send plus this time, "never heard of it" proves nothing.
fn quiet(rules: &Rules, rule: &ReconcileRule) -> Option<Contradiction> {
    let (timeout, lease) = (rules.policy.upstream_timeout(), rules.policy.lease());
    let quiet_min = timeout.saturating_mul(2).saturating_add(lease);
    (rule.quiet < quiet_min).then(|| {
        (
            &["reconcile", "upstream_timeout", "lease"][..],
            format!("quiet is shorter than twice upstream_timeout and a lease; make it {quiet_min:?} or more"),
        )
    })
}

/// Whether no client has sent such a key.
fn is_made_here(source: &KeySource) -> bool {
    matches!(source, KeySource::Fingerprint | KeySource::Body { .. } | KeySource::CloudEvent)
}

fn is_finer_than_key(scope: &[ScopePart]) -> bool {
    scope.iter().any(|part| matches!(part, ScopePart::Header(_) | ScopePart::Json(_)))
}

fn tokens(rules: &Rules) -> Option<Contradiction> {
    let (keys, sources) = (rules.policy.key_rules(), rules.policy.key_from());
    let (least, most) = keys.length;
    let message = match rules.policy.tokens() {
        Tokens::Off => return None,
        _ if keys.format == KeyFormat::Uuid => {
            "`key_format` \"uuid\" refuses every token; remove it, or set `tokens` to \"off\"".into()
        }
        _ if !(least..=most).contains(&TOKEN_LENGTH) => format!(
            "`key_length` [{least}, {most}] refuses every token: a token has {TOKEN_LENGTH} characters"
        ),
        _ if sources.contains(&KeySource::Fingerprint) => {
            "`key_from` \"fingerprint\" with `tokens`: such a key is made from the request, so that no token is ever asked for; remove one of them".into()
        }
        _ => return None,
    };
    Some((&["tokens"], message))
}

fn everywhere(matching: &Match, rules: &Rules) -> Option<Contradiction> {
    let is_none = rules.policy.fingerprint().mode == FingerprintMode::None;
    let is_nobody = rules.principal == PrincipalRule::None;
    if is_none && rules.policy.key_from().contains(&KeySource::Fingerprint) {
        let message = "`key_from` has the fingerprint as a key, so `fingerprint` cannot be \"none\": all requests would be one";
        return Some((&["key_from", "fingerprint"], message.into()));
    }
    if is_nobody && rules.anonymous == Anonymous::Reject {
        let message = "`principal` \"none\" makes every caller anonymous, and `anonymous` \"reject\" refuses them: no keyed request would pass";
        return Some((&["anonymous", "principal"], message.into()));
    }
    if let Some(contradiction) = webhook::contradiction(matching, rules) {
        return Some(contradiction);
    }
    if rules.hold_max < rules.policy.ttl() {
        return Some((&["hold_max", "ttl"], "hold_max is shorter than ttl".into()));
    }
    None
}

pub(super) fn policy(matching: &Match, rules: &Rules) -> Policy {
    let mut policy = rules.policy.clone().with_hold_max(rules.hold_max);
    if *matching != Match::EVERYTHING {
        policy = policy.with_route(&matching.to_string());
    }
    if let Some(methods) = matching.methods() {
        policy = policy.with_methods(methods.to_vec());
    }
    if rules.does_wait {
        policy = policy.with_in_flight(InFlight::Wait(rules.wait));
    }
    policy.with_recovery(match (rules.remedy, &rules.reconcile) {
        (Remedy::Redrive, _) => Recovery::Redrive { within: rules.redrive_for },
        (Remedy::Reconcile, Some(rule)) => {
            Recovery::Reconcile { absent: rule.absent, quiet: rule.quiet }
        }
        (Remedy::Fail, _) => Recovery::Fail,
        (Remedy::Release, _) => Recovery::Release,
        (Remedy::Hold | Remedy::Reconcile, _) => Recovery::Hold,
    })
}
