//! The configuration: does it ask for the promise at all? What `config check` refuses is not judged again.

use onlyonce::fingerprint::FingerprintMode;
use onlyonce::policy::{KeyNeed, Mode, Recovery, Statuses, StoreDown};
use onlyonce::scope::ScopePart;

use super::report::{Finding, Promise};
use crate::config::{Config, PrincipalRule, Route, StoreUrl};

/// `is_durable` says whether the store keeps what it answered.
pub(super) fn judge(config: &Config, store: &StoreUrl, is_durable: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for route in config.routes.iter().chain([&config.fallback]) {
        findings.extend(judge_route(route));
        if route.is_payments && !is_durable {
            findings.push(payments(route, store));
        }
    }
    if findings.is_empty() {
        let routes = config.routes.len();
        let told = format!("{routes} routes and [policy] guard every request with a key");
        findings.push(Finding::holds(Promise::Guarded, "configuration", told));
    }
    findings.push(judge_secret(config));
    findings.extend(judge_admin(config));
    findings
}

/// What `memory:` means.
pub(super) fn memory() -> Finding {
    Finding::broken(
        Promise::Durable,
        "store",
        "memory: forgets every key when the process ends, and every retry then runs again",
        "use sqlite:FILE or postgres://…",
    )
}

fn payments(route: &Route, store: &StoreUrl) -> Finding {
    Finding::broken(
        Promise::Guarded,
        "preset",
        format!("{}: the preset payments on {store}, which may lose records", name(route)),
        "use sqlite: or postgres://, or set the store up as told above",
    )
}

fn judge_route(route: &Route) -> Vec<Finding> {
    let (policy, name) = (&route.policy, name(route));
    let broken = |setting, why: &str, fix: &str| {
        Finding::broken(Promise::Guarded, setting, format!("{name}: {why}"), fix)
    };
    let risk = |setting, why: &str, fix: &str| {
        Finding::at_risk(Promise::Guarded, setting, format!("{name}: {why}"), fix)
    };
    let mut findings = Vec::new();
    if policy.store_down() == StoreDown::Pass {
        findings.push(broken(
            "store_down",
            "\"pass\": while the store is away, requests are executed unguarded, and retries again",
            "set store_down = \"refuse\"",
        ));
    }
    if policy.mode() == Mode::Observe {
        findings.push(broken(
            "mode",
            "\"observe\": nothing is guarded, it is only counted",
            "set mode = \"enforce\" once the counts are what you expect",
        ));
    }
    match policy.recovery() {
        Recovery::Release if route.is_payments => findings.push(broken(
            "recovery",
            "\"release\" with the preset payments: a request that may have been executed is executed again",
            "set recovery to \"hold\", \"reconcile\" or \"redrive\"",
        )),
        Recovery::Release => findings.push(risk(
            "recovery",
            "\"release\": a request that may have been executed is executed again on a retry",
            "keep it only where the service itself is idempotent",
        )),
        Recovery::Redrive { within } if policy.ttl() < within => findings.push(risk(
            "ttl",
            "it is shorter than redrive_for: a retry that comes after ttl and within redrive_for is a new operation",
            "make ttl at least as long as redrive_for",
        )),
        _ => {}
    }
    findings.extend(judge_keys(route, risk));
    findings
}

fn judge_keys(route: &Route, risk: impl Fn(&'static str, &str, &str) -> Finding) -> Vec<Finding> {
    let (policy, mut findings) = (&route.policy, Vec::new());
    if route.is_payments && policy.key() == KeyNeed::Optional {
        findings.push(risk(
            "key",
            "\"optional\" with the preset payments: a request without a key is not guarded",
            "set key = \"required\"",
        ));
    }
    if policy.fingerprint().mode == FingerprintMode::None {
        findings.push(risk(
            "fingerprint",
            "\"none\": another request under the same key gets the answer of the first",
            "set fingerprint = \"auto\"",
        ));
    }
    let is_per_caller = policy.scope().contains(&ScopePart::Principal);
    if !is_per_caller || route.principal == PrincipalRule::None {
        findings.push(risk(
            "principal",
            "callers share their keys: one who sends the key of another gets that caller's answer",
            "leave \"principal\" in `scope`, and tell callers apart by `principal`",
        ));
    }
    if policy.not_executed().contains(&Statuses::ServerErrors) {
        findings.push(risk(
            "not_executed",
            "\"5xx\": an operation that failed halfway is executed again on a retry",
            "keep it only where the service itself is idempotent",
        ));
    }
    findings
}

fn judge_secret(config: &Config) -> Finding {
    let (promise, setting) = (Promise::Private, "secret");
    match &config.secret {
        Some(_) => Finding::holds(promise, setting, "it is set"),
        None => Finding::at_risk(
            promise,
            setting,
            "it is not set: who reads ids can test guesses of keys, and link two deployments",
            "set `secret` to 32 random bytes before the first start; later it makes every live key new",
        ),
    }
}

fn judge_admin(config: &Config) -> Option<Finding> {
    let admin = config.admin.as_ref()?;
    let (promise, setting) = (Promise::Private, "admin");
    let address = admin.listen;
    Some(match address.ip().is_loopback() {
        true => {
            Finding::holds(promise, setting, format!("{address} is reached from this machine only"))
        }
        false => Finding::at_risk(
            promise,
            setting,
            format!("{address} is reached from other machines, and its token travels unencrypted"),
            "listen on 127.0.0.1, or put what terminates TLS in front of it",
        ),
    })
}

fn name(route: &Route) -> String {
    match route.matching.to_string().as_str() {
        "*" => "[policy]".to_owned(),
        text => text.to_owned(),
    }
}
