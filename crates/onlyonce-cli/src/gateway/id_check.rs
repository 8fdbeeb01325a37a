//! What ids are made from, compared with what the store keeps of the last start, and with what a gateway runs by.
//!
//! A start and a reload judge alike, in [`judge`]. A change is overruled at a start alone (`--accept-forgetting`): what is
//! under way in a gateway that runs may be claimed a moment later, by the rules of before.

mod route_rules;

use onlyonce::key::KeySource;
use onlyonce::policy::Paths;
use onlyonce::scope::ScopePart;
use onlyonce::store::Fault;
use onlyonce::{IdChange, Once, OnceBuilder};

use self::route_rules::{Move, RouteRule, is_cut, kept, moves, to_text};
use super::StartError;
use crate::config::{Config, PrincipalRule, Route, StoreUrl};

/// Refuses a configuration with which keys in use would be forgotten, unless somebody has said that they may be.
pub(super) async fn check(builder: &OnceBuilder, config: &Config) -> Result<(), StartError> {
    let texts = texts(config);
    let changes = builder.id_changes(&texts.named()).await.map_err(no_answer)?;
    let forgotten = judge(Before::kept(&changes, config), config);
    if !forgotten.is_empty() && !config.accept_forgetting {
        if may_have_keys(builder, config).await.map_err(no_answer)? {
            return Err(StartError::Forgetting { changes: forgotten.join("; ") });
        }
        forgotten.iter().for_each(|change| warn_of_nothing(change));
    } else {
        forgotten.iter().for_each(|change| warn_of_others(change));
    }
    for change in &changes {
        if !builder.accept_id_change(change).await.map_err(no_answer)? {
            return Err(StartError::Store(RACED.to_owned()));
        }
    }
    Ok(())
}

/// What a gateway that runs by `before` would forget with `now`, in a sentence each.
pub(super) async fn changes(
    once: &Once,
    before: &Config,
    now: &Config,
) -> Result<Vec<String>, Fault> {
    // First by what is in force, so that a store which has lost its texts takes none that are refused.
    let forgotten = judge(Before::in_force(before, now), now);
    match forgotten.is_empty() {
        true => {
            let changes = once.id_changes(&texts(now).named()).await?;
            Ok(judge(Before::kept(&changes, now), now))
        }
        false => Ok(forgotten),
    }
}

/// What `now` makes of the ids of keys, in a sentence for each that are not what they were.
fn judge(before: Before, now: &Config) -> Vec<String> {
    if !before.of_all.is_empty() {
        return before.of_all;
    }
    let mut told = told_moves(&before.routes, &rules(now));
    if told.is_empty() && before.is_cut {
        told.push(TOO_MANY.to_owned());
    }
    told
}

/// What ids were made from.
struct Before {
    /// What has changed for every request, in a sentence each.
    of_all: Vec<String>,
    /// The rules of the routes; none if they are the same.
    routes: Vec<RouteRule>,
    /// Whether there were more of them than can be compared.
    is_cut: bool,
}

impl Before {
    /// By what differs from the texts that the store keeps.
    fn kept(changes: &[IdChange], now: &Config) -> Self {
        let of_all = changes.iter().filter(|change| change.name != ROUTES);
        let of_all = of_all.map(|change| sentence(&change.name, &change.before, &change.now));
        let routes = changes.iter().find(|change| change.name == ROUTES);
        Self {
            of_all: of_all.collect(),
            routes: routes.map_or_else(Vec::new, |change| kept(&change.before, &rules(now))),
            is_cut: routes.is_some_and(|change| is_cut(&change.before)),
        }
    }

    /// By a configuration that is in force.
    fn in_force(before: &Config, now: &Config) -> Self {
        let (old, new) = (texts(before), texts(now));
        let of_all = [(SCOPE, &old.scope, &new.scope), (PRINCIPAL, &old.principal, &new.principal)];
        let changed = of_all.into_iter().filter(|(_, old, new)| old != new);
        let of_all = changed.map(|(name, old, new)| sentence(name, old, new)).collect();
        Self { of_all, routes: rules(before), is_cut: false }
    }
}

/// Whether there may be a key that a retry could still come with. Nobody but this process writes to a file of SQLite, and
/// it does not yet; elsewhere another node may make one at this moment, by the rules of before.
async fn may_have_keys(builder: &OnceBuilder, config: &Config) -> Result<bool, Fault> {
    match config.store {
        StoreUrl::Sqlite(_) => builder.may_have_live_keys().await,
        _ => Ok(true),
    }
}

/// What the store keeps of a configuration.
struct Texts {
    scope: String,
    principal: String,
    routes: String,
}

impl Texts {
    fn named(&self) -> [(&str, &str); 3] {
        [(SCOPE, &self.scope), (PRINCIPAL, &self.principal), (ROUTES, &self.routes)]
    }
}

fn texts(config: &Config) -> Texts {
    Texts {
        scope: id_scope(&config.fallback),
        principal: principal(&config.fallback, config.asks_for_certificates()),
        routes: to_text(&rules(config)),
    }
}

/// The names of everything that is kept.
pub(crate) const NAMES: [&str; 5] =
    [IdChange::SECRET, IdChange::SCOPE_VERSION, SCOPE, PRINCIPAL, ROUTES];

const SCOPE: &str = "scope";
const PRINCIPAL: &str = "principal";
const ROUTES: &str = "routes";

fn sentence(name: &str, before: &str, now: &str) -> String {
    match (name, before, now) {
        (IdChange::SECRET, IdChange::NO_SECRET, _) => "`secret` was not set and now is".to_owned(),
        (IdChange::SECRET, _, IdChange::NO_SECRET) => "`secret` was set and now is not".to_owned(),
        (IdChange::SECRET, ..) => "`secret` has another value than before".to_owned(),
        (IdChange::SCOPE_VERSION, ..) => {
            format!("the version of the id encoding was {before} and now is {now}")
        }
        _ => format!("`{name}` of [policy] was {before} and now is {now}"),
    }
}

fn warn_of_others(change: &str) {
    tracing::warn!(
        "{change}: keys in use are forgotten, accepted by --accept-forgetting; no other node may still run with the old values, because it executes retries that this one executes too"
    );
}

fn warn_of_nothing(change: &str) {
    tracing::warn!("{change}: the store holds no key in use, so that none is forgotten");
}

fn told_moves(before: &[RouteRule], now: &[RouteRule]) -> Vec<String> {
    let sentence = |(old, new): Move<'_>| format!("requests of {old} would match {new}");
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

const TOO_MANY: &str =
    "routes have changed, and more of them have rules of their own than can be compared";
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
        let moved = |before: &str, now: &str| told_moves(&rules(before), &rules(now)).len();
        let header = "[policy]\nkey_from = [\"header:X-Request-Id\"]\n";
        let print = "[policy]\nkey_from = [\"fingerprint\"]\n";
        let other = "[policy]\nkey_from = [\"fingerprint\"]\nfingerprint_exclude = [\"/at\"]\n";
        assert_eq!((moved("", header), moved(print, other)), (1, 1));
        assert_eq!((moved(header, header), moved(other, other), moved("", "")), (0, 0, 0));
    }
}
