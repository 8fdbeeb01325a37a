//! `/.well-known/idempotency`: what each route promises, for people and programs.

use http::{Method, Uri};
use onlyonce::code::Code;
use onlyonce::policy::{InFlight, KeyNeed, Recovery, Tokens};
use serde_json::{Value, json};

use crate::config::{Config, Route};

/// The document.
pub(super) fn description(config: &Config) -> String {
    let routes = config.routes.iter().chain([&config.fallback]).map(route);
    let problems = Code::ALL.iter().map(|code| (code.text().to_owned(), code.sentence().into()));
    let problems: serde_json::Map<String, Value> = problems.collect();
    let document = json!({ "routes": routes.collect::<Value>(), "problems": problems });
    format!("{document:#}\n")
}

fn route(route: &Route) -> Value {
    let policy = &route.policy;
    let (length_min, length_max) = policy.key_rules().length;
    json!({
        "match": route.matching.to_string(),
        "key": {
            "required": policy.key() == KeyNeed::Required,
            "from": policy.key_from().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "length": [length_min, length_max],
            "format": policy.key_rules().format.to_string(),
        },
        "tokens": match policy.tokens() {
            Tokens::Off => "off",
            Tokens::Optional => "optional",
            Tokens::Required => "required",
        },
        "ttl": policy.ttl().as_secs(),
        "in_flight": match policy.in_flight() {
            InFlight::Reject => "reject",
            InFlight::Wait(_) => "wait",
        },
        "recovery": match policy.recovery() {
            Recovery::Hold => "hold",
            Recovery::Redrive { .. } => "redrive",
            Recovery::Fail => "fail",
            Recovery::Release => "release",
            _ => "reconcile",
        },
    })
}

/// The operation that a look-up, or a request for a token, is about: its method, and its path.
pub(super) fn asked(uri: &Uri) -> Option<(Method, Uri)> {
    let (mut method, mut path) = (None, None);
    for (name, value) in form_urlencoded::parse(uri.query()?.as_bytes()) {
        match name.as_ref() {
            "method" => method = value.parse().ok(),
            "path" => path = value.parse().ok(),
            _ => {}
        }
    }
    method.zip(path.filter(|path: &Uri| path.authority().is_none()))
}

/// Where tokens are issued.
pub(super) const TOKENS: &str = "/idempotency-tokens";
/// What a request for a token must look like.
pub(super) const TOKENS_USAGE: &str =
    "{\"detail\":\"Ask with ?method=POST&path=/charges and the credentials of the operation.\"}\n";
/// What a look-up must look like.
pub(super) const USAGE: &str = "{\"detail\":\"Ask with ?method=POST&path=/charges, the key and the credentials of the operation.\"}\n";
