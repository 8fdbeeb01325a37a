//! `GET policy`: what is in force, by the names of the configuration. All of them: a test walks the list of names.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use onlyonce::fingerprint::{FingerprintMode, Pointer};
use onlyonce::key::KeySyntax;
use onlyonce::policy::{
    Absent, Errors, InFlight, Keep, KeyNeed, Mismatch, Mode, OldKeys, Paths, Recovery, Statuses,
    StoreDown, Tokens,
};
use onlyonce::velocity::Velocity;
use onlyonce::webhook::Verifier;
use serde_json::{Map, Value, json};

use crate::config::{Anonymous, Config, ForwardKey, PrincipalRule, ReconcileRule, Route};

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
    let (recovery, redrive_for) = match policy.recovery() {
        Recovery::Redrive { within } => ("redrive", Some(duration(within))),
        Recovery::Fail => ("fail", None),
        Recovery::Release => ("release", None),
        Recovery::Reconcile { .. } => ("reconcile", None),
        _ => ("hold", None),
    };
    object(json!({
        "ttl": duration(policy.ttl()),
        "in_flight": in_flight,
        "wait": wait,
        "mismatch": match policy.mismatch() { Mismatch::Unprocessable => 422, Mismatch::Conflict => 409 },
        "not_executed": not_executed,
        "recovery": recovery,
        "redrive_for": redrive_for,
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
        "audit_ids": texts(policy.audit_ids()),
        "keep": match policy.keep() {
            Keep::All => "all",
            Keep::Status => "status",
            Keep::Location => "location",
        },
        "mode": match policy.mode() { Mode::Enforce => "enforce", Mode::Observe => "observe" },
    }))
}

/// What no policy has. A setting of a route that is forgotten here does not compile.
fn of_gateway(config: &Config, route: &Route) -> Map<String, Value> {
    let Route {
        matching: _,
        policy,
        principal,
        trusted_peers,
        anonymous,
        authorize,
        forward_key,
        upstream: _,
        cors,
        upstream_idle,
        reconcile,
        is_payments: _,
        webhook,
        written: _,
    } = route;
    let principal = match principal {
        PrincipalRule::Auto => "auto".into(),
        PrincipalRule::None => "none".into(),
        PrincipalRule::Sources(sources) => texts(sources),
    };
    object(json!({
        "principal": principal,
        "trusted_peers": texts(trusted_peers.named()),
        "anonymous": match anonymous { Anonymous::Allow => "allow", Anonymous::Reject => "reject" },
        "authorize": authorize.as_ref().map(|rule| rule.question.to_string()),
        "authorize_for": authorize.as_ref().map(|rule| duration(rule.believed_for)),
        "forward_key": match forward_key {
            ForwardKey::Verbatim => "verbatim",
            ForwardKey::Derive => "derive",
            ForwardKey::Strip => "strip",
        },
        "cors": texts(cors),
        "upstream": config.upstream_of(route).map(|upstream| upstream.uri().to_string()),
        "upstream_timeout": duration(policy.upstream_timeout()),
        "upstream_idle": duration(*upstream_idle),
        "reconcile": reconcile.as_ref().map(reconciling),
        "webhook": webhook.as_ref().map(verifying),
    }))
}

/// The credential to ask with is not told.
fn reconciling(rule: &ReconcileRule) -> Value {
    let ReconcileRule { ask, found, absent, quiet, auth } = rule;
    json!({
        "ask": ask.to_string(),
        "found": found.to_string(),
        "absent": match absent { Absent::Hold => "hold", Absent::Release => "release" },
        "quiet": duration(*quiet),
        "auth": auth.is_some(),
    })
}

/// Of the secrets it is told how many there are.
fn verifying(verifier: &Verifier) -> Value {
    let url = verifier.url();
    json!({
        "provider": format!("{:?}", verifier.provider()).to_lowercase(),
        "secrets": verifier.secrets(),
        "tolerance": duration(verifier.tolerance()),
        "url": (!url.is_empty()).then_some(url),
    })
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
    use crate::config::{POLICY, RECONCILE, ROUTE, Section, WEBHOOK};

    fn told(text: &str) -> Value {
        in_force(&Config::parse(text, Path::new("onlyonce.toml")).unwrap())
    }

    fn names(section: &'static Section) -> impl Iterator<Item = &'static str> {
        section.names().map(|name| name.name)
    }

    // A preset is a name for other settings; what it sets is told under their names.
    #[test]
    fn every_name_of_the_configuration_is_told() {
        let told = told(
            "upstream = \"http://127.0.0.1:9\"\n[[route]]\nmatch = \"POST /hooks\"\nrecovery = \"reconcile\"\n\
             reconcile = { ask = \"GET /hooks?key={key}\", found = \"/0/id\" }\n\
             webhook = { provider = \"twilio\", secrets = [\"file:Cargo.toml\"], url = \"https://hooks.example\" }\n",
        );
        let (policy, route) = (&told["policy"], &told["routes"][0]);
        let forgotten = |table: &Value, section| -> Vec<_> {
            names(section).filter(|name| table.get(*name).is_none()).collect()
        };
        assert_eq!(forgotten(policy, &POLICY), [""; 0]);
        let of_route = |name: &&str| *name != "preset" && policy.get(*name).is_none();
        let of_route = names(&ROUTE).filter(of_route).filter(|name| route.get(*name).is_none());
        assert_eq!(of_route.collect::<Vec<_>>(), [""; 0]);
        assert_eq!(forgotten(&route["reconcile"], &RECONCILE), [""; 0]);
        assert_eq!(forgotten(&route["webhook"], &WEBHOOK), [""; 0]);
        assert!(!told.to_string().contains("a secret"), "{told}");
    }

    #[test]
    fn what_a_route_sets_is_told_as_it_sets_it() {
        let told = told(
            "upstream = \"http://127.0.0.1:9\"\n[[route]]\nmatch = \"POST /charges\"\nrecovery = \"redrive\"\n\
             redrive_for = \"2h\"\nauthorize = \"GET /whoami\"\nauthorize_for = \"7s\"\n\
             cors = [\"https://shop.example\"]\naudit_ids = [\"/id\"]\nprincipal = \"header:X-User\"\n\
             trusted_peers = [\"10.0.0.0/8\"]\n",
        );
        let route = &told["routes"][0];
        assert_eq!(route["redrive_for"], "2h");
        assert_eq!(
            (&route["authorize"], &route["authorize_for"]),
            (&json!("GET /whoami"), &json!("7s"))
        );
        assert_eq!(
            (&route["cors"], &route["audit_ids"]),
            (&json!(["https://shop.example"]), &json!(["/id"]))
        );
        assert_eq!(route["trusted_peers"], json!(["10.0.0.0/8"]));
    }

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
