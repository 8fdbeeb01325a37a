//! What is allowed in a configuration, but probably not meant.

mod keys;
mod times;

use http::Method;
use onlyonce::policy::Keep;

use super::error::{Remark, Remarks};
use super::read::Draft;
use super::route::ForwardKey;
use super::rules::{Remedy, Rules};
use super::sources::Sources;

/// Remarks on routes that are never reached or for methods that nobody knows, on values without effect, on questions
/// that leave out a part of the path, on answers that are probably secret and kept, on keys that are none, and on keys
/// that are forgotten too early.
pub(super) fn look(drafts: &[Draft], policy: &Rules, sources: &Sources, odd: &mut Remarks) {
    for (count, draft) in drafts.iter().enumerate() {
        let (earlier, _) = drafts.split_at(count);
        odd.0.extend(shadowed(draft, earlier, sources));
        odd.0.extend(unusual(draft));
        odd.0.extend(idle(&draft.rules));
        odd.0.extend(left_out(draft));
        odd.0.extend(of_rules(&format!("{:?}", draft.matching.to_string()), &draft.rules));
        odd.0.extend(kept_secret(draft));
    }
    odd.0.extend(of_rules("[policy]", policy));
}

/// What may be said of a route and of `[policy]`, whose name is `of`.
fn of_rules(of: &str, rules: &Rules) -> impl Iterator<Item = Remark> {
    keys::odd(of, rules).into_iter().chain(times::odd(of, rules))
}

fn shadowed(draft: &Draft, earlier: &[Draft], sources: &Sources) -> Option<Remark> {
    let first = |method: Option<&Method>| {
        earlier.iter().find(|other| other.matching.covers(&draft.matching, method))
    };
    let covering: Option<Vec<_>> = match draft.matching.methods() {
        None => first(None).map(|one| vec![one]),
        Some(methods) => methods.iter().map(|method| first(Some(method))).collect(),
    };
    let other = covering?.first().copied()?;
    let (here, there) = (sources.place(draft.at), sources.place(other.at));
    let place = match here.0 == there.0 {
        true => "above it".to_owned(),
        false => format!("in {}:{}", there.0.display(), there.1),
    };
    let (name, other) = (draft.matching.to_string(), other.matching.to_string());
    let message = format!(
        "{name:?} is never reached: {other:?} {place} takes its requests; move {name:?} before it, or remove it"
    );
    Some(Remark::new(draft.at, message))
}

/// A method that is probably misspelt: the route would guard nothing.
fn unusual(draft: &Draft) -> Option<Remark> {
    let method =
        draft.matching.methods()?.iter().find(|method| !USUAL.contains(&method.as_str()))?;
    let message = format!(
        "{:?} guards {method}, which is none of POST, PUT, PATCH and DELETE, and perhaps nothing; is it spelt right?",
        draft.matching.to_string()
    );
    Some(Remark::new(draft.at, message))
}

/// A place of the path that the question does not name: operations that differ there alone are asked about alike.
fn left_out(draft: &Draft) -> Option<Remark> {
    let rule =
        draft.rules.reconcile.as_ref().filter(|_| draft.rules.remedy == Remedy::Reconcile)?;
    let is_verbatim = draft.rules.forward_key == ForwardKey::Verbatim;
    let name = draft.matching.place_names().find(|name| !rule.ask.names(name))?;
    let message = format!(
        "`ask` does not name {{{name}}}: where one key is used under two values of it, one operation would get the answer of the other; put it into `ask`, or set `forward_key` to \"derive\""
    );
    is_verbatim.then(|| Remark::new(draft.at, message))
}

/// A path that says that its answers are secrets, which are shown once and would be kept for retries.
fn kept_secret(draft: &Draft) -> Option<Remark> {
    let path = draft.matching.to_string().to_ascii_lowercase();
    let is_word = |part: &str| SECRET_WORDS.contains(&part);
    let word = path.split(['/', ' ']).find(|part| is_word(part))?;
    let policy = &draft.rules.policy;
    let says_what_is_kept = draft.rules.said.anywhere(&["keep", "redact"]).is_some();
    let message = format!(
        "the path ends in or has \"{word}\": if its answers hold secrets, they are stored for retries; set `keep` to \"status\", or name the values in `redact` (docs/secrets.md; keep = \"all\" is the end of this remark)"
    );
    let is_kept = policy.keep() == Keep::All && policy.redact().is_empty() && !says_what_is_kept;
    is_kept.then(|| Remark::new(draft.at, message))
}

/// Values that the route itself gives, and that nothing reads.
fn idle(rules: &Rules) -> impl Iterator<Item = Remark> {
    let names = [
        ("wait", rules.does_wait, "`in_flight` is \"wait\""),
        ("redrive_for", rules.remedy == Remedy::Redrive, "`recovery` is \"redrive\""),
        ("reconcile", rules.remedy == Remedy::Reconcile, "`recovery` is \"reconcile\""),
        ("authorize_for", rules.authorize.is_some(), "`authorize` is set"),
    ];
    let remark = |(name, is_read, when)| match is_read {
        true => None,
        false => Some(Remark::new(
            rules.said.here(name)?,
            format!("`{name}` has no effect unless {when}"),
        )),
    };
    names.into_iter().filter_map(remark)
}

/// Parts of paths at which services make credentials.
const SECRET_WORDS: [&str; 14] = [
    "access-tokens",
    "access_tokens",
    "api-keys",
    "api_keys",
    "apikeys",
    "client-secrets",
    "client_secrets",
    "credentials",
    "otp",
    "passwords",
    "secrets",
    "sessions",
    "token",
    "tokens",
];

/// The methods that services use for what must not run twice.
const USUAL: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];
