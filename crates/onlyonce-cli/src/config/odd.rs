//! What is allowed in a configuration, but probably not meant.

use http::Method;

use super::error::{Remark, Remarks};
use super::read::Draft;
use super::rules::{Remedy, Rules};

/// Remarks on routes that are never reached, and on values without effect.
pub(super) fn look(drafts: &[Draft], odd: &mut Remarks) {
    for (count, draft) in drafts.iter().enumerate() {
        let (earlier, _) = drafts.split_at(count);
        odd.0.extend(shadowed(draft, earlier));
        odd.0.extend(idle(&draft.rules));
    }
}

fn shadowed(draft: &Draft, earlier: &[Draft]) -> Option<Remark> {
    let first = |method: Option<&Method>| {
        earlier.iter().find(|other| other.matching.covers(&draft.matching, method))
    };
    let covering: Option<Vec<_>> = match draft.matching.methods() {
        None => first(None).map(|one| vec![one]),
        Some(methods) => methods.iter().map(|method| first(Some(method))).collect(),
    };
    let other = covering?.first().map(|other| other.matching.to_string())?;
    let message = format!("this route is never reached: \"{other}\" above it takes its requests");
    Some(Remark::new(draft.at, message))
}

/// Values that the route itself gives, and that nothing reads.
fn idle(rules: &Rules) -> impl Iterator<Item = Remark> {
    let names = [
        ("wait", rules.does_wait, "`in_flight` is \"wait\""),
        ("redrive_for", rules.remedy == Remedy::Redrive, "`recovery` is \"redrive\""),
        ("reconcile", rules.remedy == Remedy::Reconcile, "`recovery` is \"reconcile\""),
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
