//! What ids are made from, compared with what the store keeps of the last start, and with what a gateway runs by.

mod route_rules;

use onlyonce::key::KeySource;
use onlyonce::policy::Paths;
use onlyonce::scope::ScopePart;
use onlyonce::store::Fault;
use onlyonce::{IdChange, Once, OnceBuilder};

use self::route_rules::{Move, RouteRule, moves, to_text};
use super::StartError;
use crate::config::{Config, PrincipalRule, Route};

/// Refuses a configuration with which every live key would be a new one. Warns where only some requests are concerned.
pub(super) async fn check(builder: &OnceBuilder, config: &Config) -> Result<(), StartError> {
    let (scope, principal) =
        (id_scope(&config.fallback), principal(&config.fallback, config.asks_for_certificates()));
    let routes = to_text(&rules(config));
    let texts = [(SCOPE, &*scope), (PRINCIPAL, &*principal), (ROUTES, &*routes)];
    let changes = builder.id_changes(&texts).await.map_err(no_answer)?;
    let told = of_all(&changes);
    if !told.is_empty() && !config.accept_forgetting {
        return Err(StartError::Forgetting { changes: told.join("; ") });
    }
    told.iter().for_each(|change| warn_of_all(change));
    for change in &changes {
        if told.is_empty() {
            warn_of_routes(change, config);
        }
        if !builder.accept_id_change(change).await.map_err(no_answer)? {
            return Err(StartError::Store(RACED.to_owned()));
        }
    }
    Ok(())
}

/// What would give live keys of a gateway that runs by `before` new ids, in a sentence each.
pub(super) async fn changes(
    once: &Once,
    before: &Config,
    now: &Config,
) -> Result<Vec<String>, Fault> {
    let (scope, principal) =
        (id_scope(&now.fallback), principal(&now.fallback, now.asks_for_certificates()));
    let texts = [(SCOPE, &*scope), (PRINCIPAL, &*principal)];
    let told = of_all(&once.id_changes(&texts).await?);
    match told.is_empty() {
        true => Ok(told_moves(&rules(before), &rules(now), "would match")),
        false => Ok(told),
    }
}

/// The names of everything that is kept.
pub(crate) const NAMES: [&str; 5] =
    [IdChange::SECRET, IdChange::SCOPE_VERSION, SCOPE, PRINCIPAL, ROUTES];

const SCOPE: &str = "scope";
const PRINCIPAL: &str = "principal";
const ROUTES: &str = "routes";

/// The changes that concern every request, in a sentence each.
fn of_all(changes: &[IdChange]) -> Vec<String> {
    changes.iter().filter(|change| change.name != ROUTES).map(sentence).collect()
}

fn sentence(change: &IdChange) -> String {
    let IdChange { name, before, now, .. } = change;
    match (name.as_str(), before.as_str(), now.as_str()) {
        (IdChange::SECRET, IdChange::NO_SECRET, _) => "`secret` was not set and now is".to_owned(),
        (IdChange::SECRET, _, IdChange::NO_SECRET) => "`secret` was set and now is not".to_owned(),
        (IdChange::SECRET, ..) => "`secret` has another value than before".to_owned(),
        (IdChange::SCOPE_VERSION, ..) => {
            format!("the version of the id encoding was {before} and now is {now}")
        }
        _ => format!("`{name}` of [policy] was {before} and now is {now}"),
    }
}

fn warn_of_all(change: &str) {
    tracing::warn!(
        "{change}: every live key gets a new id, accepted by --accept-forgetting; no other node may still run with the old values, because it executes retries that this one executes too"
    );
}

fn warn_of_routes(change: &IdChange, config: &Config) {
    let now = rules(config);
    let before: Vec<_> = RouteRule::read(&change.before).chain(now.last().cloned()).collect();
    for moved in told_moves(&before, &now, "now match") {
        tracing::warn!(
            "{moved}: their live keys get new ids, and a retry of an earlier request is executed again"
        );
    }
}

fn told_moves(before: &[RouteRule], now: &[RouteRule], verb: &str) -> Vec<String> {
    let sentence = |(old, new): Move<'_>| format!("requests of {old} {verb} {new}");
    moves(before, now).take(MOVES_TOLD_MAX).map(sentence).collect()
}

/// The order of the parts means nothing, nor does a repeat.
fn scope(route: &Route) -> String {
    let mut names: Vec<_> = route.policy.scope().iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

/// The same of `[policy]`, and how its paths count.
fn id_scope(route: &Route) -> String {
    match route.policy.paths() {
        Paths::Plain => scope(route),
        Paths::Literal => format!("{} (paths literal)", scope(route)),
    }
}

/// How callers are told apart; where the scope does not ask for that, the rule means nothing.
fn principal(route: &Route, has_certificates: bool) -> String {
    match &route.principal {
        _ if !route.policy.scope().contains(&ScopePart::Principal) => "not in the scope".to_owned(),
        PrincipalRule::Auto if has_certificates => "auto, mtls".to_owned(),
        PrincipalRule::Auto => "auto".to_owned(),
        PrincipalRule::None => "none".to_owned(),
        PrincipalRule::Sources(sources) => {
            sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Where the key is found. A fingerprint as the key is also another one by other rules of the fingerprint.
fn key(route: &Route) -> String {
    let source = |source: &KeySource| match source {
        KeySource::Fingerprint => format!("fingerprint by {:?}", route.policy.fingerprint()),
        source => source.to_string(),
    };
    route.policy.key_from().iter().map(source).collect::<Vec<_>>().join(", ")
}

/// What the ids of each route are made from, in the order of the routes; `[policy]` is the last.
fn rules(config: &Config) -> Vec<RouteRule> {
    let has_certificates = config.asks_for_certificates();
    let rule =
        |route: &Route| RouteRule::new(route.matching.to_string(), rule(route, has_certificates));
    config.routes.iter().chain([&config.fallback]).map(rule).collect()
}

/// What the ids of a route are made from.
pub(super) fn rule(route: &Route, has_certificates: bool) -> String {
    let (scope, key) = (scope(route), key(route));
    let principal = principal(route, has_certificates);
    let paths = match route.policy.paths() {
        Paths::Plain => "",
        Paths::Literal => "; paths literal",
    };
    format!("scope {scope}; principal {principal}; key {key}{paths}")
}

fn no_answer(fault: Fault) -> StartError {
    let error = fault.error();
    let cause =
        std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
    StartError::Store(format!("its check values cannot be read or written: {error}{cause}"))
}

const RACED: &str = "another node changes its check values at this moment; start again";
/// More of them say nothing new.
const MOVES_TOLD_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_rule_has_the_scope_the_principal_and_the_key_of_its_route() {
        let text = "[[route]]\nmatch = \"POST /b\"\nscope = [\"path\", \"host\"]\nkey_from = [\"query:k\"]\n";
        let config = Config::parse(text, Path::new("onlyonce.toml")).unwrap();
        let route = "scope host, path; principal not in the scope; key query:k";
        let policy =
            "scope host, method, path, principal; principal auto; key header:idempotency-key";
        let expected = [("POST /b", route), ("*", policy)];
        let expected = expected.map(|(name, rule)| RouteRule::new(name.into(), rule.into()));
        assert_eq!(rules(&config), expected);
    }

    // threat K14
    #[test]
    fn certificates_of_clients_are_a_part_of_auto() {
        let principal = |text: &str| {
            let config = Config::parse(text, Path::new("onlyonce.toml")).unwrap();
            principal(&config.fallback, config.asks_for_certificates())
        };
        let tls = "[tls]\ncert = \"a\"\nkey = \"b\"\n";
        let with_ca = format!("{tls}client_ca = \"c\"\n");
        assert_eq!(
            (&*principal(""), &*principal(tls), &*principal(&with_ca)),
            ("auto", "auto", "auto, mtls")
        );
        let named = format!("[policy]\nprincipal = \"header:X-Api-Key\"\n{with_ca}");
        assert_eq!(principal(&named), "header:x-api-key");
    }

    #[test]
    fn another_place_of_the_key_or_other_rules_of_a_fingerprint_as_the_key_are_a_move() {
        let rules = |text: &str| rules(&Config::parse(text, Path::new("onlyonce.toml")).unwrap());
        let moved =
            |before: &str, now: &str| told_moves(&rules(before), &rules(now), "would match").len();
        let header = "[policy]\nkey_from = [\"header:X-Request-Id\"]\n";
        let print = "[policy]\nkey_from = [\"fingerprint\"]\n";
        let other = "[policy]\nkey_from = [\"fingerprint\"]\nfingerprint_exclude = [\"/at\"]\n";
        assert_eq!((moved("", header), moved(print, other)), (1, 1));
        assert_eq!((moved(header, header), moved(other, other), moved("", "")), (0, 0, 0));
    }
}
