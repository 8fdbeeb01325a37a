//! One route: which requests it is for, and what holds for them.

use std::time::Duration;

use http::Method;
use onlyonce::Policy;
use onlyonce::fingerprint::FingerprintMode;
use onlyonce::key::KeySource;
use onlyonce::policy::{InFlight, PolicyError, Recovery};

use super::address::Upstream;
use super::error::Remark;
use super::matching::Match;
use super::principal::PrincipalRule;
use super::reconcile::ReconcileRule;
use super::rules::{Remedy, Rules};

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
    /// Whether a keyed request of nobody is taken.
    pub anonymous: Anonymous,
    /// The key that the upstream sees.
    pub forward_key: ForwardKey,
    /// The service for these requests, if it is another one.
    pub upstream: Option<Upstream>,
    /// How long a connection may have been idle that takes a request which is not safe to send twice.
    pub upstream_idle: Duration,
    /// How the upstream is asked; there if and only if the policy's recovery is to reconcile.
    pub reconcile: Option<ReconcileRule>,
    /// Whether it has the preset `payments`: a store that may lose what it said is not for it.
    pub is_payments: bool,
}

impl Route {
    /// The route that these rules make, or how they contradict each other; `at` is where the table begins.
    pub(super) fn new(matching: Match, rules: Rules, at: usize) -> Result<Self, Remark> {
        let contradiction = contradiction(&rules);
        let place = |names: &[&str]| rules.said.anywhere(names).unwrap_or(at);
        if let Some((names, message)) = contradiction {
            return Err(Remark::new(place(names), message));
        }
        let policy = policy(&matching, &rules);
        if let Err(error) = policy.check() {
            return Err(Remark::new(place(names_of(&error)), sentence(&error, &policy)));
        }
        Ok(Self {
            matching,
            policy,
            principal: rules.principal,
            anonymous: rules.anonymous,
            forward_key: rules.forward_key,
            upstream: rules.upstream,
            upstream_idle: rules.upstream_idle,
            is_payments: rules.is_payments,
            reconcile: rules.reconcile.filter(|_| rules.remedy == Remedy::Reconcile),
        })
    }

    /// Whether a request with this method is guarded here.
    pub fn guards(&self, method: &Method) -> bool {
        self.policy.methods.contains(method)
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
fn contradiction(rules: &Rules) -> Option<(&'static [&'static str], &'static str)> {
    let is_strip = rules.forward_key == ForwardKey::Strip;
    let is_none = rules.policy.fingerprint.mode == FingerprintMode::None;
    let is_nobody = rules.principal == PrincipalRule::None;
    match rules.remedy {
        Remedy::Redrive if is_strip => Some((
            &["forward_key", "recovery"],
            "`forward_key` \"strip\" with `recovery` \"redrive\" would execute twice: the upstream cannot dedup on a key that it never sees",
        )),
        Remedy::Reconcile if rules.reconcile.is_none() => Some((
            &["recovery"],
            "`recovery` \"reconcile\" needs reconcile = { ask = \"GET /…{key}\", found = \"/…\" }",
        )),
        _ if is_none && rules.policy.key_from.contains(&KeySource::Fingerprint) => Some((
            &["key_from", "fingerprint"],
            "`key_from` has the fingerprint as a key, so `fingerprint` cannot be \"none\": all requests would be one",
        )),
        _ if is_nobody && rules.anonymous == Anonymous::Reject => Some((
            &["anonymous", "principal"],
            "`principal` \"none\" makes everybody nobody, and `anonymous` \"reject\" refuses nobody: no keyed request would pass",
        )),
        _ => None,
    }
}

fn policy(matching: &Match, rules: &Rules) -> Policy {
    let mut policy = rules.policy.clone();
    if *matching != Match::EVERYTHING {
        policy.route = matching.to_string().into();
    }
    if let Some(methods) = matching.methods() {
        policy.methods = methods.to_vec();
    }
    if rules.does_wait {
        policy.in_flight = InFlight::Wait(rules.wait);
    }
    policy.recovery = match (rules.remedy, &rules.reconcile) {
        (Remedy::Redrive, _) => Recovery::Redrive { within: rules.redrive_for },
        (Remedy::Reconcile, Some(rule)) => {
            Recovery::Reconcile { absent: rule.absent, quiet: rule.quiet }
        }
        (Remedy::Fail, _) => Recovery::Fail,
        (Remedy::Release, _) => Recovery::Release,
        (Remedy::Hold | Remedy::Reconcile, _) => Recovery::Hold,
    };
    policy
}

fn sentence(error: &PolicyError, policy: &Policy) -> String {
    match error {
        PolicyError::QuietTooShort => {
            let quiet_min = 2 * policy.upstream_timeout + policy.lease;
            format!("{error}; make it {quiet_min:?} or more")
        }
        _ => error.to_string(),
    }
}

/// Where to look for what the policy complains about.
fn names_of(error: &PolicyError) -> &'static [&'static str] {
    match error {
        PolicyError::Zero { name: "lease" } => &["lease"],
        PolicyError::Zero { name: "ttl" } => &["ttl"],
        PolicyError::Zero { .. } => &["upstream_timeout"],
        PolicyError::KeyLength { .. } => &["key_length"],
        PolicyError::HoldShorterThanTtl => &["hold_max", "ttl"],
        PolicyError::NoKeySource => &["key_from"],
        PolicyError::QuietTooShort => &["reconcile", "upstream_timeout", "lease"],
        _ => &[],
    }
}
