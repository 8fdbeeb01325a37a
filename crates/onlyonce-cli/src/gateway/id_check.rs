//! What ids are made from, compared with what the store keeps of the last start.

use std::collections::BTreeMap;

use onlyonce::scope::ScopePart;
use onlyonce::store::Fault;
use onlyonce::{IdChange, OnceBuilder};

use super::StartError;
use crate::config::{Config, PrincipalRule, Route};

/// Refuses a configuration with which every live key would be a new one. Says which routes are concerned where
/// only some are.
pub(super) async fn check(builder: &OnceBuilder, config: &Config) -> Result<(), StartError> {
    let (scope, principal) = (scope(&config.fallback), principal(&config.fallback));
    let routes = routes(config);
    let texts = [(SCOPE, &*scope), (PRINCIPAL, &*principal), (ROUTES, &*routes)];
    let changes = builder.id_changes(&texts).await.map_err(no_answer)?;
    let of_all = |change: &&IdChange| change.name != ROUTES;
    let told: Vec<_> = changes.iter().filter(of_all).map(sentence).collect();
    if !told.is_empty() && !config.accept_forgetting {
        return Err(StartError::Forgetting { changes: told.join("; ") });
    }
    for change in &changes {
        warn(change);
        if !builder.accept_id_change(change).await.map_err(no_answer)? {
            return Err(StartError::Store(RACED.to_owned()));
        }
    }
    Ok(())
}

/// The names of everything that is kept.
pub(crate) const NAMES: [&str; 5] =
    [IdChange::SECRET, IdChange::SCOPE_VERSION, SCOPE, PRINCIPAL, ROUTES];

const SCOPE: &str = "scope";
const PRINCIPAL: &str = "principal";
const ROUTES: &str = "routes";

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

fn warn(change: &IdChange) {
    if change.name != ROUTES {
        let change = sentence(change);
        return eprintln!(
            "onlyonce: {change}: every live key gets a new id, accepted by --accept-forgetting; no other node may still run with the old values, because it executes retries that this one executes too"
        );
    }
    for route in changed_routes(&change.before, &change.now) {
        eprintln!(
            "onlyonce: warning: the route {route:?} has another scope or principal than before: its live keys get new ids, and a retry of an earlier request is executed again"
        );
    }
}

/// The order of the parts means nothing, nor does a repeat.
fn scope(route: &Route) -> String {
    let mut names: Vec<_> = route.policy.scope().iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

/// How callers are told apart; where the scope does not ask for that, the rule means nothing.
fn principal(route: &Route) -> String {
    match &route.principal {
        _ if !route.policy.scope().contains(&ScopePart::Principal) => "not in the scope".to_owned(),
        PrincipalRule::Auto => "auto".to_owned(),
        PrincipalRule::None => "none".to_owned(),
        PrincipalRule::Sources(sources) => {
            sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }
    }
}

/// A line for each route that differs from `[policy]`.
fn routes(config: &Config) -> String {
    let rule = |route: &Route| format!("scope {}; principal {}", scope(route), principal(route));
    let of_policy = rule(&config.fallback);
    let own = config.routes.iter().map(|route| (route.matching.to_string(), rule(route)));
    let mut text = String::new();
    for (name, rule) in own.filter(|(_, rule)| *rule != of_policy) {
        let line = format!("{name}{NAMED}{rule}\n");
        if text.len() + line.len() <= ROUTES_BYTES_MAX {
            text += &line;
        }
    }
    text
}

/// The routes whose line is new, gone or another.
fn changed_routes<'a>(before: &'a str, now: &'a str) -> Vec<&'a str> {
    let [before, now]: [BTreeMap<_, _>; 2] =
        [before, now].map(|text| text.lines().filter_map(|line| line.split_once(NAMED)).collect());
    let differs = |name: &&str| before.get(name) != now.get(name);
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    now.keys().chain(gone).copied().filter(differs).collect()
}

fn no_answer(fault: Fault) -> StartError {
    let error = fault.error();
    let cause =
        std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
    StartError::Store(format!("its check values cannot be read or written: {error}{cause}"))
}

const RACED: &str = "another node changes its check values at this moment; start again";
/// Between the name of a route and its rule. No name has it: a path has no space.
const NAMED: &str = ": ";
/// Routes beyond so many bytes are not watched.
const ROUTES_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("onlyonce.toml")).unwrap()
    }

    #[test]
    fn only_routes_that_differ_from_the_policy_are_kept() {
        let same = "[[route]]\nmatch = \"POST /a\"\nttl = \"1h\"\n";
        let other = "[[route]]\nmatch = \"POST /b\"\nscope = [\"path\", \"host\"]\n";
        let kept = routes(&config(&format!("{same}{other}")));
        assert_eq!(kept, "POST /b: scope host, path; principal not in the scope\n");
    }

    #[test]
    fn a_route_that_is_new_gone_or_another_has_changed() {
        let before = "POST /a: one\nPOST /b: one\nPOST /c: one\n";
        let now = "POST /b: one\nPOST /c: two\nPOST /d: one\n";
        assert_eq!(changed_routes(before, now), ["POST /c", "POST /d", "POST /a"]);
    }

    #[test]
    fn what_is_kept_of_the_routes_is_bounded() {
        let route = |n: usize| format!("[[route]]\nmatch = \"POST /{n}\"\nscope = [\"path\"]\n");
        let many: String = (0..2_000).map(route).collect();
        assert!(routes(&config(&many)).len() <= ROUTES_BYTES_MAX);
    }
}
