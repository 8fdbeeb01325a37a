//! `GET policy`: what is in force, by the names of the configuration.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use onlyonce::fingerprint::{FingerprintMode, Pointer};
use onlyonce::key::KeySyntax;
use onlyonce::policy::{
    Errors, InFlight, Keep, KeyNeed, Mismatch, Mode, OldKeys, Paths, Recovery, Statuses, StoreDown,
    Tokens,
};
use onlyonce::velocity::Velocity;
use serde_json::{Map, Value, json};

use crate::config::{Anonymous, Config, ForwardKey, PrincipalRule, Route};

/// Every setting of `[policy]`, and of each route what differs from it, and where it is written.
pub(crate) fn in_force(config: &Config) -> Value {
    let policy = settings(config, &config.fallback);
    let routes: Vec<_> =
        config.routes.iter().map(|route| changed(config, route, &policy)).collect();
    json!({ "policy": policy, "routes": routes })
}

fn changed(config: &Config, route: &Route, policy: &Map<String, Value>) -> Value {
    let settings = settings(config, route);
    let names = [("match", route.matching.to_string()), ("written", route.written.clone())];
    let mut changed: Map<_, _> =
        names.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect();
    changed.extend(settings.into_iter().filter(|(name, value)| policy.get(name) != Some(value)));
    changed.into()
}

fn settings(config: &Config, route: &Route) -> Map<String, Value> {
    let mut settings = of_keys(route);
    settings.extend(of_outcomes(route));
    settings.extend(of_gateway(config, route));
    settings
}

fn of_keys(route: &Route) -> Map<String, Value> {
    let policy = &route.policy;
    let rules = policy.key_rules();
    let (fingerprint, pointers) = (policy.fingerprint(), |list: &[Pointer]| texts(list));
    object(json!({
        "methods": texts(policy.methods()),
        "key": match policy.key() { KeyNeed::Optional => "optional", KeyNeed::Required => "required" },
        "key_from": texts(policy.key_from()),
        "key_syntax": match rules.syntax { KeySyntax::Lenient => "lenient", KeySyntax::Strict => "strict" },
        "key_length": [rules.length.0, rules.length.1],
        "key_format": rules.format.to_string(),
        "key_deny": rules.denied,
        "scope": texts(policy.scope()),
        "paths": match policy.paths() { Paths::Plain => "plain", Paths::Literal => "literal" },
        "fingerprint": match fingerprint.mode {
            FingerprintMode::Auto => "auto",
            FingerprintMode::Raw => "raw",
            FingerprintMode::None => "none",
        },
        "fingerprint_include": pointers(&fingerprint.include),
        "fingerprint_exclude": pointers(&fingerprint.exclude),
        "messages": if policy.is_json_rpc() { "jsonrpc" } else { "http" },
        "tokens": match policy.tokens() {
            Tokens::Off => "off",
            Tokens::Optional => "optional",
            Tokens::Required => "required",
        },
    }))
}

fn of_outcomes(route: &Route) -> Map<String, Value> {
    let policy = &route.policy;
    let (in_flight, wait) = match policy.in_flight() {
        InFlight::Reject => ("reject", None),
        InFlight::Wait(wait) => ("wait", Some(duration(wait))),
    };
    let not_executed: Vec<Value> = policy.not_executed().iter().map(status).collect();
    let recovery = match policy.recovery() {
        Recovery::Redrive { .. } => "redrive",
        Recovery::Fail => "fail",
        Recovery::Release => "release",
        Recovery::Reconcile { .. } => "reconcile",
        _ => "hold",
    };
    object(json!({
        "ttl": duration(policy.ttl()),
        "in_flight": in_flight,
        "wait": wait,
        "mismatch": match policy.mismatch() { Mismatch::Unprocessable => 422, Mismatch::Conflict => 409 },
        "not_executed": not_executed,
        "recovery": recovery,
        "lease": duration(policy.lease()),
        "hold_max": duration(policy.hold_max()),
        "request_bytes_max": policy.request_bytes_max(),
        "response_bytes_max": policy.response_bytes_max(),
        "store_down": match policy.store_down() { StoreDown::Refuse => "refuse", StoreDown::Pass => "pass" },
        "deadline_from": texts(policy.deadline_from()),
        "old_keys": match policy.old_keys() { OldKeys::Refuse => "refuse", _ => "run" },
        "velocity": policy.velocity().iter().map(velocity).collect::<Vec<_>>(),
        "live_keys_max": policy.live_keys_max().map_or(0, NonZeroU32::get),
        "live_bytes_max": policy.live_bytes_max().map_or(0, NonZeroU64::get),
        "errors": match policy.errors() { Errors::Problem => "problem", Errors::Stripe => "stripe" },
        "redact": texts(policy.redact()),
        "keep": match policy.keep() {
            Keep::All => "all",
            Keep::Status => "status",
            Keep::Location => "location",
        },
        "mode": match policy.mode() { Mode::Enforce => "enforce", Mode::Observe => "observe" },
    }))
}

fn of_gateway(config: &Config, route: &Route) -> Map<String, Value> {
    let principal = match &route.principal {
        PrincipalRule::Auto => "auto".into(),
        PrincipalRule::None => "none".into(),
        PrincipalRule::Sources(sources) => texts(sources),
    };
    // The credential to ask with is not told.
    let reconcile = route.reconcile.as_ref().map(|rule| rule.ask.to_string());
    object(json!({
        "principal": principal,
        "anonymous": match route.anonymous { Anonymous::Allow => "allow", Anonymous::Reject => "reject" },
        "forward_key": match route.forward_key {
            ForwardKey::Verbatim => "verbatim",
            ForwardKey::Derive => "derive",
            ForwardKey::Strip => "strip",
        },
        "upstream": config.upstream_of(route).map(|upstream| upstream.uri().to_string()),
        "upstream_timeout": duration(route.policy.upstream_timeout()),
        "upstream_idle": duration(route.upstream_idle),
        "reconcile": reconcile,
        "webhook": route.webhook.as_ref().map(|verifier| format!("{:?}", verifier.provider()).to_lowercase()),
    }))
}

fn velocity(rule: &Velocity) -> Value {
    json!({ "per": texts(rule.per()), "limit": rule.limit().to_string() })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn texts<T: ToString>(list: &[T]) -> Value {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().into()
}

fn status(statuses: &Statuses) -> Value {
    match statuses {
        Statuses::One(status) => status.as_u16().into(),
        _ => "5xx".into(),
    }
}

/// In the largest unit that loses nothing.
fn duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or((1, "ms"));
    format!("{}{name}", ms / unit)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_route_tells_what_differs() {
        let text = "upstream = \"http://127.0.0.1:9\"\n[[route]]\nmatch = \"POST /charges\"\nttl = \"48h\"\n";
        let told = in_force(&Config::parse(text, Path::new("onlyonce.toml")).unwrap());
        assert_eq!(told["policy"]["ttl"], "1d");
        assert_eq!(told["routes"][0]["match"], "POST /charges");
        assert_eq!(told["routes"][0]["written"], "onlyonce.toml:2");
        assert_eq!(told["routes"][0]["ttl"], "2d");
        assert!(told["routes"][0].get("lease").is_none());
    }
}
