//! The profiles of the notation, as the gateway's TOML and as the library's policy.

use std::fmt::Write;
use std::time::Duration;

use http::Method;
use onlyonce::Policy;
use onlyonce::fingerprint::{FingerprintMode, FingerprintRules};
use onlyonce::key::{KeyFormat, KeyRules, KeySource, KeySyntax};
use onlyonce::policy::{
    Absent, Errors, InFlight, Keep, KeyNeed, Mismatch, OldKeys, Recovery, Tokens,
};
use onlyonce::scope::ScopePart;
use onlyonce::velocity::{Velocity, VelocityPart};

/// A policy: the default, with these settings changed.
pub(crate) type Profile<'a> = &'a [Set];

/// **D**, the default policy.
pub(crate) const D: Profile<'static> = &[];
/// **I**, keys as the IETF draft has them.
pub(crate) const I: Profile<'static> = &[Set::Strict];
/// **S**, errors as Stripe has them.
pub(crate) const S: Profile<'static> = &[Set::Stripe];

/// One setting that is not the default.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Set {
    Strict,
    Stripe,
    Required,
    KeyFrom(&'static [&'static str]),
    KeyUuid,
    KeyLength(usize, usize),
    KeyDeny(&'static [&'static str]),
    Methods(&'static [&'static str]),
    Scope(&'static [&'static str]),
    Raw,
    NoFingerprint,
    Include(&'static str),
    Exclude(&'static str),
    TtlMs(u64),
    WaitMs(u64),
    Conflict,
    Recovery(&'static str),
    /// The upstream is asked for `/charges`.
    Reconcile,
    LeaseMs(u64),
    UpstreamTimeoutMs(u64),
    UpstreamIdleMs(u64),
    RequestBytesMax(usize),
    ResponseBytesMax(usize),
    ForwardKey(&'static str),
    Principal(&'static str),
    StoreDown(&'static str),
    Keep(&'static str),
    Redact(&'static [&'static str]),
    NoDeadline,
    RefuseOldKeys,
    /// Per these parts, and this limit.
    Velocity(&'static [&'static str], &'static str),
    LiveKeysMax(u32),
    LiveBytesMax(u64),
    Mcp,
    /// Needs `Secret`.
    Tokens(&'static str),
    /// Of the process, not of the policy.
    Store(String),
    Filter(String),
    SweepMs(u64),
    Secret,
    /// These lines of the file, as they are; what follows a `[[route]]` stands last. For the gateway alone.
    Toml(&'static str),
}

/// The lines above `[policy]`, and those below it.
pub(crate) fn toml(profile: Profile<'_>) -> (String, String) {
    let (mut process, mut policy) = (String::new(), String::new());
    for set in profile {
        let lines = match set {
            Set::Store(_) | Set::Filter(_) | Set::SweepMs(_) | Set::Secret => &mut process,
            _ => &mut policy,
        };
        writeln!(lines, "{}", set.toml()).unwrap();
    }
    (process, policy)
}

/// What the library is asked for the same.
pub(crate) fn policy(profile: Profile<'_>) -> Policy {
    profile.iter().fold(Policy::default(), |policy, set| set.change(policy))
}

impl Set {
    fn toml(&self) -> String {
        match self {
            Self::Strict => r#"key_syntax = "strict""#.to_owned(),
            Self::Stripe => r#"errors = "stripe""#.to_owned(),
            Self::Required => r#"key = "required""#.to_owned(),
            Self::KeyFrom(sources) => format!("key_from = {sources:?}"),
            Self::KeyUuid => r#"key_format = "uuid""#.to_owned(),
            Self::KeyLength(min, max) => format!("key_length = [{min}, {max}]"),
            Self::KeyDeny(keys) => format!("key_deny = {keys:?}"),
            Self::Methods(methods) => format!("methods = {methods:?}"),
            Self::Scope(parts) => format!("scope = {parts:?}"),
            Self::Raw => r#"fingerprint = "raw""#.to_owned(),
            Self::NoFingerprint => r#"fingerprint = "none""#.to_owned(),
            Self::Include(pointer) => format!("fingerprint_include = [{pointer:?}]"),
            Self::Exclude(pointer) => format!("fingerprint_exclude = [{pointer:?}]"),
            Self::TtlMs(ms) => format!(r#"ttl = "{ms}ms""#),
            Self::WaitMs(ms) => format!("in_flight = \"wait\"\nwait = \"{ms}ms\""),
            Self::Conflict => "mismatch = 409".to_owned(),
            Self::Recovery(name) => format!("recovery = {name:?}"),
            Self::Reconcile => RECONCILE.to_owned(),
            Self::LeaseMs(ms) => format!(r#"lease = "{ms}ms""#),
            Self::UpstreamTimeoutMs(ms) => format!(r#"upstream_timeout = "{ms}ms""#),
            Self::UpstreamIdleMs(ms) => format!(r#"upstream_idle = "{ms}ms""#),
            Self::RequestBytesMax(bytes) => format!(r#"request_bytes_max = "{bytes}B""#),
            Self::ResponseBytesMax(bytes) => format!(r#"response_bytes_max = "{bytes}B""#),
            Self::ForwardKey(how) => format!("forward_key = {how:?}"),
            Self::Principal(source) => format!("principal = {source:?}"),
            Self::StoreDown(what) => format!("store_down = {what:?}"),
            Self::Keep(what) => format!("keep = {what:?}"),
            Self::Redact(pointers) => format!("redact = {pointers:?}"),
            Self::NoDeadline => "deadline_from = []".to_owned(),
            Self::Mcp => MCP.to_owned(),
            Self::Velocity(per, limit) => {
                format!("velocity = [{{ per = {per:?}, limit = {limit:?} }}]")
            }
            Self::LiveKeysMax(keys) => format!("live_keys_max = {keys}"),
            Self::LiveBytesMax(bytes) => format!("live_bytes_max = \"{bytes}B\""),
            Self::RefuseOldKeys => "old_keys = \"refuse\"".to_owned(),
            Self::Tokens(which) => format!("tokens = {which:?}"),
            Self::Store(url) => format!("store = {url:?}"),
            Self::Filter(url) => format!("filter = {url:?}"),
            Self::SweepMs(ms) => format!(r#"sweep = "{ms}ms""#),
            Self::Secret => r#"secret = "env:ONLYONCE_SECRET""#.to_owned(),
            Self::Toml(lines) => (*lines).to_owned(),
        }
    }

    fn change(&self, policy: Policy) -> Policy {
        let ms = Duration::from_millis;
        let fingerprint = policy.fingerprint().clone();
        match *self {
            Self::Keep("status") => policy.with_keep(Keep::Status),
            Self::Keep("location") => policy.with_keep(Keep::Location),
            Self::Redact(pointers) => policy.with_redact(parsed(pointers)),
            Self::NoDeadline => policy.with_deadline_from([]),
            Self::Mcp => Policy::mcp().with_route("default"),
            Self::Velocity(per, limit) => policy.with_velocity([Velocity::new(
                parsed::<VelocityPart>(per),
                limit.parse().unwrap(),
            )]),
            Self::LiveKeysMax(keys) => policy.with_live_keys_max(keys),
            Self::LiveBytesMax(bytes) => policy.with_live_bytes_max(bytes),
            Self::RefuseOldKeys => policy.with_old_keys(OldKeys::Refuse),
            Self::Tokens("optional") => policy.with_tokens(Tokens::Optional),
            Self::Tokens("required") => policy.with_tokens(Tokens::Required),
            Self::Strict => policy.with_key_syntax(KeySyntax::Strict),
            Self::Stripe => policy.with_errors(Errors::Stripe),
            Self::Required => policy.with_key(KeyNeed::Required),
            Self::KeyFrom(sources) => policy.with_key_from(parsed::<KeySource>(sources)),
            Self::KeyUuid => policy.with_key_format(KeyFormat::Uuid),
            Self::KeyLength(min, max) => policy.with_key_length(min, max),
            Self::KeyDeny(keys) => {
                let denied = keys.iter().copied().map(Into::into).collect();
                let rules = policy.key_rules().clone();
                policy.with_key_rules(KeyRules { denied, ..rules })
            }
            Self::Methods(methods) => policy.with_methods(parsed::<Method>(methods)),
            Self::Scope(parts) => policy.with_scope(parts.iter().map(|part| scope_part(part))),
            Self::Raw => policy
                .with_fingerprint(FingerprintRules { mode: FingerprintMode::Raw, ..fingerprint }),
            Self::NoFingerprint => policy
                .with_fingerprint(FingerprintRules { mode: FingerprintMode::None, ..fingerprint }),
            Self::Include(pointer) => policy
                .with_fingerprint(FingerprintRules { include: parsed(&[pointer]), ..fingerprint }),
            Self::Exclude(pointer) => policy
                .with_fingerprint(FingerprintRules { exclude: parsed(&[pointer]), ..fingerprint }),
            Self::TtlMs(ttl) => policy.with_ttl(ms(ttl)),
            Self::WaitMs(wait) => policy.with_in_flight(InFlight::Wait(ms(wait))),
            Self::Conflict => policy.with_mismatch(Mismatch::Conflict),
            Self::Recovery("fail") => policy.with_recovery(Recovery::Fail),
            Self::Recovery("release") => policy.with_recovery(Recovery::Release),
            Self::LeaseMs(lease) => policy.with_lease(ms(lease)),
            Self::UpstreamTimeoutMs(bound) => policy.with_upstream_timeout(ms(bound)),
            Self::RequestBytesMax(bytes) => policy.with_request_bytes_max(bytes),
            Self::ResponseBytesMax(bytes) => policy.with_response_bytes_max(bytes),
            // The library sweeps by itself and runs one process; keys are its caller's to forward.
            Self::SweepMs(_) | Self::Secret => policy,
            Self::Reconcile => {
                let (absent, quiet) = (Absent::Hold, Duration::from_secs(600));
                policy.with_recovery(Recovery::Reconcile { absent, quiet })
            }
            Self::Recovery(_)
            | Self::ForwardKey(_)
            | Self::Principal(_)
            | Self::StoreDown(_)
            | Self::Tokens(_)
            | Self::Keep(_)
            | Self::Store(_)
            | Self::Filter(_)
            | Self::UpstreamIdleMs(_)
            | Self::Toml(_) => {
                panic!("{self:?} is for the gateway alone")
            }
        }
    }
}

const RECONCILE: &str = r#"
recovery = "reconcile"
reconcile = { ask = "GET /charges?key={key}", found = "/0/id", absent = "hold", quiet = "10m" }
"#;

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn scope_part(name: &str) -> ScopePart {
    match name {
        "principal" => ScopePart::Principal,
        "host" => ScopePart::Host,
        "method" => ScopePart::Method,
        "path" => ScopePart::Path,
        _ => match name.split_once(':') {
            Some(("header", name)) => ScopePart::Header(name.parse().unwrap()),
            Some(("json", pointer)) => ScopePart::Json(pointer.parse().unwrap()),
            _ => panic!("{name} is no part of a scope"),
        },
    }
}

/// What the preset `mcp` sets.
const MCP: &str = r#"key_from = ["json:/params/_meta/idempotencyKey"]
fingerprint_exclude = ["/id", "/params/_meta"]
messages = "jsonrpc""#;
