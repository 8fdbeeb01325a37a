//! A route that takes webhooks: who sends them, and how a genuine delivery is told from a forged one.

use std::time::Duration;

use onlyonce::policy::{KeyNeed, Mode};
use onlyonce::webhook::{Provider, Verifier};

use super::error::{Remark, Remarks};
use super::field::Field;
use super::matching::Match;
use super::names::WEBHOOK;
use super::principal::PrincipalRule;
use super::route::{Anonymous, Contradiction};
use super::rules::Rules;

/// The verifier that the table describes.
pub(super) fn read(field: Field<'_>) -> Result<Verifier, Remarks> {
    let mut draft = Draft::default();
    field.each(&WEBHOOK, |field| draft.set(field))?;
    let Some(provider) = draft.provider else {
        return Err(field.wrong("it needs `provider`, such as \"standard\"").into());
    };
    draft.demand_form(provider)?;
    let verifier = match (provider, draft.url) {
        (Provider::Twilio, Some(url)) => Verifier::twilio(&url, draft.secrets),
        (_, Some(_)) => return Err(field.wrong("`url` is for \"twilio\" alone; remove it").into()),
        (_, None) => Verifier::new(provider, draft.secrets),
    };
    let verifier = verifier.map_err(|error| field.because(&error))?;
    Ok(match draft.tolerance {
        Some(tolerance) => verifier.with_tolerance(tolerance),
        None => verifier,
    })
}

#[derive(Default)]
struct Draft<'a> {
    provider: Option<Provider>,
    secrets: Vec<String>,
    /// Those that are written in the configuration itself.
    written_here: Vec<Field<'a>>,
    tolerance: Option<Duration>,
    url: Option<String>,
}

impl<'a> Draft<'a> {
    fn set(&mut self, field: Field<'a>) -> Result<(), Remarks> {
        match field.name.name {
            "provider" => self.provider = Some(field.one_of(&Provider::ALL)?),
            "secrets" => {
                self.secrets = field.all(Field::confidential)?;
                let here = field.members()?.into_iter();
                self.written_here =
                    here.filter(|field| field.is_elsewhere() == Ok(false)).collect();
            }
            "url" => self.url = Some(field.text()?.to_owned()),
            _ => self.tolerance = Some(tolerance(field)?),
        }
        Ok(())
    }
}

impl Draft<'_> {
    /// A secret that stands in the configuration must look like one of its provider: else it may be the name of a variable or of
    /// a file, and everybody who guesses that name could sign.
    fn demand_form(&self, provider: Provider) -> Result<(), Remark> {
        let mut written = self.written_here.iter();
        match written.find(|field| field.text().is_ok_and(|text| !is_written_so(provider, text))) {
            Some(field) => Err(field.wrong(&no_form(provider))),
            None => Ok(()),
        }
    }
}

fn is_written_so(provider: Provider, secret: &str) -> bool {
    // Those of Standard Webhooks may lack their prefix, and are judged whole by the verifier. Nothing else is a secret there.
    provider == Provider::Standard
        || prefix(provider).is_some_and(|prefix| secret.starts_with(prefix))
}

/// How all secrets of the provider begin. Those of the others may be any text.
fn prefix(provider: Provider) -> Option<&'static str> {
    match provider {
        Provider::Standard | Provider::Stripe => Some("whsec_"),
        Provider::Linear => Some("lin_wh_"),
        _ => None,
    }
}

fn no_form(provider: Provider) -> String {
    let elsewhere =
        "write \"env:NAME\" for what a variable holds, or \"file:PATH\" for what a file holds";
    match prefix(provider) {
        Some(prefix) => {
            format!("it is no secret of this provider, which begins with {prefix}; {elsewhere}")
        }
        None => format!(
            "a secret of this provider may be any text, so that a name would be taken for one; {elsewhere}"
        ),
    }
}

fn tolerance(field: Field<'_>) -> Result<Duration, Remark> {
    match field.duration_above_zero()? {
        tolerance if tolerance > TOLERANCE_MAX => Err(field.refused()),
        tolerance => Ok(tolerance),
    }
}

/// A longer one is no protection.
const TOLERANCE_MAX: Duration = Duration::from_secs(60 * 60);

/// Takes the provider's values over, like those of a preset: what the route says itself stands over them.
pub(super) fn apply(verifier: Verifier, rules: &mut Rules, at: usize) {
    let provider = verifier.provider();
    rules.policy = rules.policy.clone().for_provider(provider);
    // A sender of webhooks has no credentials but its signature.
    (rules.principal, rules.anonymous) = (PrincipalRule::None, Anonymous::Allow);
    rules.webhook = Some(verifier);
    for name in ["webhook", "key", "key_from", "scope", "principal", "anonymous"] {
        rules.said.say(name, at);
    }
}

/// Why the rules of the route do not go with its webhook.
pub(super) fn contradiction(matching: &Match, rules: &Rules) -> Option<Contradiction> {
    let verifier = rules.webhook.as_ref()?;
    if rules.policy.key() == KeyNeed::Optional {
        let message = "`key` \"optional\" with `webhook`: a delivery without an id would be neither verified nor guarded; remove `key`";
        return Some((&["key", "webhook"], message.into()));
    }
    if rules.policy.mode() == Mode::Observe {
        let message = "`mode` \"observe\" with `webhook`: each delivery of an event would be executed; set `mode` to \"enforce\", or remove `webhook`";
        return Some((&["mode"], message.into()));
    }
    if let Some(valid) = verifier.valid_for().filter(|valid| rules.policy.ttl() < *valid) {
        let message = format!(
            "`ttl` is shorter than the time for which a signature is valid, so that a recorded delivery could be run again; make it {valid:?} or more, or `tolerance` shorter"
        );
        return Some((&["ttl", "webhook"], message));
    }
    // Twilio signs the URL, and nothing of a CloudEvent is signed anyway.
    let is_path_open = !matches!(verifier.provider(), Provider::Twilio | Provider::CloudEvents);
    if is_path_open && has_several_paths(matching, rules) {
        let message = "`match` has places, and this provider does not sign the path: a recorded delivery could be run again under another path; write a route for each path, or set `scope` yourself";
        return Some((&["webhook"], message.into()));
    }
    None
}

/// Whether the route is for several paths, each with keys of its own, and its table does not say that it shall be so.
fn has_several_paths(matching: &Match, rules: &Rules) -> bool {
    // What the provider has set was said where `webhook` was.
    let is_own = rules.said.here("scope") != rules.said.here("webhook");
    matching.place_names().next().is_some() && !is_own
}
