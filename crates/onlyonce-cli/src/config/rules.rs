//! What `[policy]`, a preset and a route say, each over the one before.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderName, StatusCode};
use onlyonce::Policy;
use onlyonce::fingerprint::{FingerprintMode, FingerprintRules, Pointer};
use onlyonce::key::{KeyFormat, KeyRules, KeySource, KeySourceError, KeySyntax};
use onlyonce::policy::{
    Errors, Keep, KeyNeed, Mismatch, Mode, OldKeys, Paths, Statuses, StoreDown, Tokens,
};
use onlyonce::scope::ScopePart;
use onlyonce::store::audit::IDS_MAX;
use onlyonce::webhook::Verifier;

use super::address::Upstream;
use super::authorize::{self, AuthorizeQuestion};
use super::cors::CorsOrigin;
use super::error::{Remark, Remarks};
use super::field::Field;
use super::matching::guarded_method;
use super::peers::TrustedPeers;
use super::principal::PrincipalRule;
use super::reconcile::ReconcileRule;
use super::route::{Anonymous, ForwardKey};
use super::velocity;

/// The rules of a route while they are gathered.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) policy: Policy,
    /// As the file says it. A policy would make it no shorter than its ttl; a file that says so is refused.
    pub(super) hold_max: Duration,
    pub(super) does_wait: bool,
    pub(super) wait: Duration,
    pub(super) remedy: Remedy,
    pub(super) redrive_for: Duration,
    pub(super) reconcile: Option<ReconcileRule>,
    pub(super) principal: PrincipalRule,
    pub(super) trusted_peers: TrustedPeers,
    pub(super) anonymous: Anonymous,
    pub(super) authorize: Option<AuthorizeQuestion>,
    pub(super) authorize_for: Duration,
    pub(super) forward_key: ForwardKey,
    pub(super) upstream: Option<Upstream>,
    pub(super) cors: Vec<CorsOrigin>,
    pub(super) upstream_idle: Duration,
    pub(super) is_payments: bool,
    pub(super) webhook: Option<Verifier>,
    pub(super) said: Said,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            hold_max: Policy::default().hold_max(),
            does_wait: false,
            wait: Duration::from_secs(5),
            remedy: Remedy::Hold,
            redrive_for: Duration::from_secs(23 * 60 * 60),
            reconcile: None,
            principal: PrincipalRule::Auto,
            trusted_peers: TrustedPeers::default(),
            anonymous: Anonymous::Allow,
            authorize: None,
            authorize_for: Duration::from_secs(5),
            forward_key: ForwardKey::Verbatim,
            upstream: None,
            cors: Vec::new(),
            upstream_idle: Duration::from_secs(1),
            is_payments: false,
            webhook: None,
            said: Said::default(),
        }
    }
}

/// What is done about an unknown outcome, before its details are known to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    Hold,
    Redrive,
    Reconcile,
    Fail,
    Release,
}

/// Where each name was said: in this table, and before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    here: BTreeMap<&'static str, usize>,
    before: BTreeMap<&'static str, usize>,
}

impl Said {
    /// Where this table says it.
    pub(super) fn here(&self, name: &str) -> Option<usize> {
        self.here.get(name).copied()
    }

    /// Where the first of these that anybody said was said last.
    pub(super) fn anywhere(&self, names: &[&str]) -> Option<usize> {
        let find =
            |places: &BTreeMap<_, _>| names.iter().find_map(|name| places.get(name).copied());
        find(&self.here).or_else(|| find(&self.before))
    }

    pub(super) fn say(&mut self, name: &'static str, at: usize) {
        self.here.insert(name, at);
    }

    fn inherited(mut self) -> Self {
        self.before.append(&mut self.here);
        self
    }
}

impl Rules {
    /// These rules, as what a route begins with.
    pub(super) fn inherited(&self) -> Self {
        let rules = self.clone();
        Self { said: rules.said.inherited(), ..rules }
    }

    /// Takes one value over.
    pub(super) fn set(&mut self, field: Field<'_>) -> Result<(), Remarks> {
        self.said.say(field.name.name, field.named_at);
        let name = field.name.name;
        match name {
            "hold_max" => self.hold_max = field.duration()?,
            "wait" => self.wait = field.duration_above_zero()?,
            "in_flight" => self.does_wait = field.one_of(&[("reject", false), ("wait", true)])?,
            "recovery" => self.remedy = field.one_of(&REMEDIES)?,
            "redrive_for" => self.redrive_for = field.duration_above_zero()?,
            "reconcile" => self.reconcile = ReconcileRule::read(field)?,
            "principal" => self.principal = PrincipalRule::read(field)?,
            "trusted_peers" => self.trusted_peers = TrustedPeers::read(field)?,
            "authorize" => self.authorize = AuthorizeQuestion::read(field)?,
            "authorize_for" => self.authorize_for = authorize::believed_for(field)?,
            "anonymous" => self.anonymous = field.one_of(&ANONYMOUS)?,
            "forward_key" => self.forward_key = field.one_of(&FORWARD_KEY)?,
            "upstream" => self.upstream = upstream(field)?,
            "cors" => self.cors = field.all(Field::parsed)?,
            "upstream_idle" => self.upstream_idle = upstream_idle(field)?,
            _ if name.starts_with("key") => set_key(&mut self.policy, field)?,
            _ => set_policy(&mut self.policy, field)?,
        }
        Ok(())
    }
}

fn set_key(policy: &mut Policy, field: Field<'_>) -> Result<(), Remarks> {
    let before = policy.clone();
    *policy = match field.name.name {
        "key" => before.with_key(field.one_of(&KEY)?),
        "key_from" => before.with_key_from(key_from(field)?),
        "key_syntax" => before.with_key_syntax(field.one_of(&KEY_SYNTAX)?),
        "key_length" => {
            let (least, most) = key_length(field)?;
            before.with_key_length(least, most)
        }
        "key_format" => before.with_key_format(field.one_of(&KEY_FORMAT)?),
        "key_deny" => {
            let rules = before.key_rules().clone();
            before.with_key_rules(KeyRules { denied: key_deny(field)?, ..rules })
        }
        _ => return Err(field.refused().into()),
    };
    Ok(())
}

fn set_policy(policy: &mut Policy, field: Field<'_>) -> Result<(), Remarks> {
    let before = policy.clone();
    *policy = match field.name.name {
        "methods" => before.with_methods(field.all(method)?),
        "scope" => before.with_scope(field.all(scope_part)?),
        "paths" => before.with_paths(field.one_of(&PATHS)?),
        name if name.starts_with("fingerprint") => {
            before.with_fingerprint(fingerprint(policy, field)?)
        }
        "ttl" => before.with_ttl(nonzero(field)?),
        "mismatch" => before.with_mismatch(mismatch(field)?),
        "not_executed" => before.with_not_executed(field.all(statuses)?),
        "lease" => before.with_lease(nonzero(field)?),
        "upstream_timeout" => before.with_upstream_timeout(nonzero(field)?),
        "request_bytes_max" => before.with_request_bytes_max(field.bytes()?),
        "response_bytes_max" => before.with_response_bytes_max(field.bytes()?),
        "store_down" => before.with_store_down(field.one_of(&STORE_DOWN)?),
        "errors" => before.with_errors(field.one_of(&ERRORS)?),
        "mode" => before.with_mode(field.one_of(&MODE)?),
        "audit_ids" => before.with_audit_ids(audit_ids(field)?),
        "messages" => before.with_json_rpc(field.one_of(&[("http", false), ("jsonrpc", true)])?),
        "keep" => before.with_keep(field.one_of(&KEEP)?),
        "redact" => before.with_redact(field.all(Field::parsed)?),
        "tokens" => before.with_tokens(field.one_of(&TOKENS)?),
        "velocity" => before.with_velocity(velocity::read(field)?),
        "live_keys_max" => before.with_live_keys_max(live_keys_max(field)?),
        "live_bytes_max" => before.with_live_bytes_max(field.bytes()? as u64),
        "old_keys" => before.with_old_keys(field.one_of(&OLD_KEYS)?),
        "deadline_from" => before.with_deadline_from(field.all(header_source)?),
        _ => return Err(field.refused().into()),
    };
    Ok(())
}

fn live_keys_max(field: Field<'_>) -> Result<u32, Remark> {
    u32::try_from(field.number()?).map_err(|_| field.refused())
}

fn fingerprint(policy: &Policy, field: Field<'_>) -> Result<FingerprintRules, Remarks> {
    let mut rules = policy.fingerprint().clone();
    match field.name.name {
        "fingerprint" => rules.mode = field.one_of(&FINGERPRINT)?,
        "fingerprint_include" => rules.include = field.all(Field::parsed)?,
        "fingerprint_exclude" => rules.exclude = field.all(Field::parsed)?,
        _ => return Err(field.refused().into()),
    }
    Ok(rules)
}

fn audit_ids(field: Field<'_>) -> Result<Vec<Pointer>, Remarks> {
    let pointers = field.all(Field::parsed)?;
    match pointers.len() > IDS_MAX {
        true => Err(field.refused().into()),
        false => Ok(pointers),
    }
}

fn nonzero(field: Field<'_>) -> Result<Duration, Remark> {
    match field.duration()? {
        Duration::ZERO => {
            Err(Remark::new(field.named_at, format!("{} must not be zero", field.name.name)))
        }
        duration => Ok(duration),
    }
}

fn key_from(field: Field<'_>) -> Result<Vec<KeySource>, Remarks> {
    let sources = field.all(key_source)?;
    match sources.is_empty() {
        true => Err(Remark::new(field.named_at, "key_from names no place to find the key").into()),
        false => Ok(sources),
    }
}

/// A name without its place is probably that of a header.
fn key_source(field: Field<'_>) -> Result<KeySource, Remark> {
    let text = field.text()?;
    match text.parse::<KeySource>() {
        Err(KeySourceError::Place) if text.parse::<HeaderName>().is_ok() => {
            Err(field
                .wrong(&format!("a key source says where it is: did you mean \"header:{text}\"?")))
        }
        _ => field.parsed(),
    }
}

fn method(field: Field<'_>) -> Result<http::Method, Remark> {
    guarded_method(field.text()?).map_err(|error| field.because(&error))
}

fn scope_part(field: Field<'_>) -> Result<ScopePart, Remark> {
    match field.text()?.split_once(':') {
        Some(("header", name)) => name.parse().map(ScopePart::Header).map_err(|_| {
            field.wrong("header: is followed by the name of a header, such as header:X-Tenant")
        }),
        Some(("json", pointer)) => pointer.parse().map(ScopePart::Json).map_err(|_| {
            field.wrong("json: is followed by a JSON pointer, such as json:/operationName")
        }),
        _ => field.one_of(&SCOPE).cloned(),
    }
}

fn header_source(field: Field<'_>) -> Result<HeaderName, Remark> {
    let name = field.text()?.strip_prefix("header:").and_then(|name| name.parse().ok());
    name.ok_or_else(|| field.refused())
}

fn key_length(field: Field<'_>) -> Result<(usize, usize), Remarks> {
    match field.all(Field::number)?.as_slice() {
        [_, most] if *most > KEY_LENGTH_MAX => {
            Err(field.wrong("a key has at most 255 characters").into())
        }
        [least, most] if *least == 0 || least > most => {
            let message = format!("key_length [{least}, {most}] admits no key");
            Err(Remark::new(field.named_at, message).into())
        }
        [least, most] => Ok((*least, *most)),
        _ => Err(field.refused().into()),
    }
}

const KEY_LENGTH_MAX: usize = 255;

fn key_deny(field: Field<'_>) -> Result<Vec<Box<str>>, Remarks> {
    let denied = field.all(|field| field.text().map(Into::into))?;
    match denied.len() > KEY_DENY_MAX {
        true => Err(field.refused().into()),
        false => Ok(denied),
    }
}

const KEY_DENY_MAX: usize = 64;

fn mismatch(field: Field<'_>) -> Result<Mismatch, Remark> {
    match field.number()? {
        422 => Ok(Mismatch::Unprocessable),
        409 => Ok(Mismatch::Conflict),
        _ => Err(field.refused()),
    }
}

/// A success or a redirect that freed its key would be executed again.
fn statuses(field: Field<'_>) -> Result<Statuses, Remark> {
    if let Ok("5xx") = field.text() {
        return Ok(Statuses::ServerErrors);
    }
    let number = u16::try_from(field.number()?).ok();
    let status = number.and_then(|number| StatusCode::from_u16(number).ok());
    status
        .filter(|status| status.is_client_error() || status.is_server_error())
        .map(Statuses::One)
        .ok_or_else(|| field.refused())
}

fn upstream(field: Field<'_>) -> Result<Option<Upstream>, Remark> {
    match field.text()? {
        "" => Ok(None),
        _ => field.parsed().map(Some),
    }
}

fn upstream_idle(field: Field<'_>) -> Result<Duration, Remark> {
    match field.duration()? {
        idle if idle > UPSTREAM_IDLE_MAX => {
            Err(field.wrong("an idle connection is closed after 30s; make it \"30s\" or less"))
        }
        idle => Ok(idle),
    }
}

const UPSTREAM_IDLE_MAX: Duration = Duration::from_secs(30);

const REMEDIES: [(&str, Remedy); 5] = [
    ("hold", Remedy::Hold),
    ("redrive", Remedy::Redrive),
    ("reconcile", Remedy::Reconcile),
    ("fail", Remedy::Fail),
    ("release", Remedy::Release),
];
const ANONYMOUS: [(&str, Anonymous); 2] =
    [("allow", Anonymous::Allow), ("reject", Anonymous::Reject)];
const FORWARD_KEY: [(&str, ForwardKey); 3] = [
    ("verbatim", ForwardKey::Verbatim),
    ("derive", ForwardKey::Derive),
    ("strip", ForwardKey::Strip),
];
const KEY: [(&str, KeyNeed); 2] =
    [("optional", KeyNeed::Optional), ("required", KeyNeed::Required)];
const KEY_SYNTAX: [(&str, KeySyntax); 2] =
    [("lenient", KeySyntax::Lenient), ("strict", KeySyntax::Strict)];
const KEY_FORMAT: [(&str, KeyFormat); 2] = [("any", KeyFormat::Any), ("uuid", KeyFormat::Uuid)];
const SCOPE: [(&str, &ScopePart); 4] = [
    ("principal", &ScopePart::Principal),
    ("host", &ScopePart::Host),
    ("method", &ScopePart::Method),
    ("path", &ScopePart::Path),
];
const PATHS: [(&str, Paths); 2] = [("plain", Paths::Plain), ("literal", Paths::Literal)];
const FINGERPRINT: [(&str, FingerprintMode); 3] = [
    ("auto", FingerprintMode::Auto),
    ("raw", FingerprintMode::Raw),
    ("none", FingerprintMode::None),
];
const STORE_DOWN: [(&str, StoreDown); 2] =
    [("refuse", StoreDown::Refuse), ("pass", StoreDown::Pass)];
const OLD_KEYS: [(&str, OldKeys); 2] = [("run", OldKeys::Run), ("refuse", OldKeys::Refuse)];
const KEEP: [(&str, Keep); 3] =
    [("all", Keep::All), ("status", Keep::Status), ("location", Keep::Location)];
const TOKENS: [(&str, Tokens); 3] =
    [("off", Tokens::Off), ("optional", Tokens::Optional), ("required", Tokens::Required)];
const ERRORS: [(&str, Errors); 2] = [("problem", Errors::Problem), ("stripe", Errors::Stripe)];
const MODE: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("observe", Mode::Observe)];
