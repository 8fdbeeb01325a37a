//! Another configuration for a gateway that runs: taken as a whole, or not at all.
//!
//! 1. Everything that may fail is done first: comparing, asking the store, making the services.
//! 2. Then the routes of all threads are replaced at once. A request that is under way goes on by the routes it began
//!    with; the next one, also on the same connection, finds the new ones. There is no moment without routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlyonce::store::{BoxError, Fault};

use super::app::{self, Routes};
use super::current::InForce;
use super::{Gateway, StartError, id_check, store};
use crate::config::{Config, Route};
use crate::tls::Secured;

/// Why a configuration is not taken. The one before stays in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Restart the gateway to change these.
    #[error("{0} cannot change while the gateway runs: restart it")]
    NeedsRestart(String),
    /// Keep the old values. A restart judges in the same way, and takes the new ones with `--accept-forgetting`.
    #[error(
        "keys in use would be forgotten ({0}): a retry of an earlier request would run twice. Give these requests the \
         `scope`, `principal`, `key_from` and `paths` that they had; or, when no such retry can still come, restart the \
         gateway with --accept-forgetting"
    )]
    Forgetting(String),
    /// Try again when the store answers.
    #[error(
        "the store does not say whether keys in use would be forgotten ({}); try again when it answers",
        .0.error()
    )]
    NoAnswer(#[source] Fault),
    /// As at a start.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Gateway {
    /// Serves by `config` from now on, and says what is different.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub async fn reload(&self, config: Config) -> Result<String, ReloadError> {
        let before = self.current.now();
        let fixed = fixed_changes(&before.config, &config);
        if !fixed.is_empty() {
            return Err(ReloadError::NeedsRestart(fixed.join(", ")));
        }
        store::check_payments(&config, &self.about)?;
        #[cfg(feature = "dynamodb")]
        store::check_leases(&config)?;
        let changes = id_check::changes(&self.once, &before.config, &config).await;
        let changes = changes.map_err(ReloadError::NoAnswer)?;
        if !changes.is_empty() {
            return Err(ReloadError::Forgetting(changes.join("; ")));
        }
        let refused = |error: BoxError| StartError::Config(error);
        let secured = Secured::by(&config).map_err(|error| refused(error.into()))?;
        let services = |before| app::services(&config, &secured.upstream, before);
        let asked = services(&[]).map_err(refused)?;
        let services = before.threads.iter().map(|routes| services(&routes.services));
        let services = services.collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let jwt = super::verifier(&config).await.map_err(refused)?;
        // From here on nothing fails.
        self.once.reseal(config.seal.clone());
        self.once.replace_layers();
        let layers = app::layers(&config, &self.once, jwt.as_ref(), &asked);
        let routes = |services| {
            Arc::new(Routes::new(&config, &layers, services, jwt.clone(), &self.outgoing))
        };
        let threads = services.into_iter().map(routes).collect();
        let mut told = differences(&before.config, &config);
        if names_certificates(&config) {
            told += "; certificates were read again";
        }
        self.current.replace(InForce { config, secured, threads });
        Ok(told)
    }
}

fn names_certificates(config: &Config) -> bool {
    let admin = config.admin.as_ref().and_then(|admin| admin.tls.as_ref());
    config.tls.is_some() || admin.is_some() || config.upstream_tls.is_some()
}

/// What was made at the start and is not made again.
fn fixed_changes(before: &Config, now: &Config) -> Vec<&'static str> {
    let secret = |config: &Config| config.secret.as_ref().map(|secret| secret.derive("the reload"));
    let same = [
        ("`listen`", before.listen == now.listen),
        ("`store`", before.store == now.store),
        ("`filter`", before.filter == now.filter),
        ("`secret`", secret(before) == secret(now)),
        ("`sweep`", before.sweep == now.sweep),
        ("`sweep_rows`", before.sweep_rows == now.sweep_rows),
        ("`bodies_bytes_max`", before.bodies_bytes_max == now.bodies_bytes_max),
        ("`executing_max`", before.executing_max == now.executing_max),
        ("[admin]", before.admin == now.admin),
        ("[tls]", before.tls.is_some() == now.tls.is_some()),
        ("[audit]", before.audit == now.audit),
        ("[otlp]", before.otlp == now.otlp),
    ];
    same.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
}

/// In one line, by the names of the routes.
fn differences(before: &Config, now: &Config) -> String {
    let (old, new) = (by_name(before), by_name(now));
    let added = new.keys().filter(|name| !old.contains_key(*name));
    let removed = old.keys().filter(|name| !new.contains_key(*name));
    let is_other =
        |(name, text): &(&String, &String)| old.get(*name).is_some_and(|old| old != *text);
    let changed = new.iter().filter(is_other).map(|(name, _)| name);
    let groups = [
        ("added", added.cloned().collect::<Vec<_>>()),
        ("removed", removed.cloned().collect()),
        ("changed", changed.cloned().collect()),
    ];
    let is_resealed = before.seal != now.seal;
    let groups =
        groups.into_iter().chain(is_resealed.then(|| ("changed", vec!["[seal]".to_owned()])));
    let told = groups.filter(|(_, names)| !names.is_empty());
    let told: Vec<_> = told.map(|(what, names)| format!("{what} {}", names.join(", "))).collect();
    match told.is_empty() {
        true => "no route differs".to_owned(),
        false => told.join("; "),
    }
}

/// Everything that a route says, the upstream of the whole gateway included, wherever it is written.
fn by_name(config: &Config) -> BTreeMap<String, String> {
    let text = |route: &Route| {
        let route = Route { written: String::new(), ..route.clone() };
        format!("{route:?} {:?}", config.upstream_of(&route))
    };
    let routes = config
        .routes
        .iter()
        .map(|route| (format!("{:?}", route.matching.to_string()), text(route)));
    routes.chain([("[policy]".to_owned(), text(&config.fallback))]).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("onlyonce.toml")).unwrap()
    }

    #[test]
    fn differences_are_told_by_route() {
        let before = config("[[route]]\nmatch = \"POST /a\"\n[[route]]\nmatch = \"POST /b\"\n");
        let now = "[[route]]\nmatch = \"POST /b\"\nttl = \"1h\"\n[[route]]\nmatch = \"POST /c\"\n";
        let told = differences(&before, &config(now));
        assert_eq!(told, "added \"POST /c\"; removed \"POST /a\"; changed \"POST /b\"");
        assert_eq!(differences(&before, &before), "no route differs");
        let upstream = config("upstream = \"http://127.0.0.1:1\"\n");
        assert_eq!(differences(&Config::default(), &upstream), "changed [policy]");
    }

    #[test]
    fn what_is_made_once_is_named() {
        let now = config(
            "listen = \"127.0.0.1:1\"\nstore = \"sqlite:other.db\"\nsecret = \"s\"\nsweep = \"1m\"\nsweep_rows = 1\n\
             bodies_bytes_max = \"1MiB\"\nexecuting_max = 1\n[admin]\n",
        );
        let fixed = fixed_changes(&Config::default(), &now).join(" ");
        assert_eq!(
            fixed,
            "`listen` `store` `secret` `sweep` `sweep_rows` `bodies_bytes_max` `executing_max` [admin]"
        );
        assert!(fixed_changes(&now, &now.clone()).is_empty());
    }
}
