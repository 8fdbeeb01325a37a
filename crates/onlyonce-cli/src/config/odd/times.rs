//! Keys that are forgotten while their clients still retry.

use std::time::Duration;

use onlyonce::client::Retries;

use super::super::error::Remark;
use super::super::rules::{Remedy, Rules};

/// Remarks on the times that the table itself says.
pub(super) fn odd(of: &str, rules: &Rules) -> impl Iterator<Item = Remark> {
    [short_ttl(of, rules), long_redrive(of, rules), past_hold(of, rules)].into_iter().flatten()
}

/// A retry that comes after the record has expired is a new operation.
fn short_ttl(of: &str, rules: &Rules) -> Option<Remark> {
    let (at, ttl) = (rules.said.here("ttl")?, rules.policy.ttl());
    let message = format!(
        "{of} keeps answers for {ttl:?}, and clients retry for longer (the one of onlyonce for {RETRIES:?}): a late retry would be executed again; make `ttl` \"{}s\" or more",
        RETRIES.as_secs()
    );
    (ttl < RETRIES).then(|| Remark::new(at, message))
}

/// Whoever expects retries for so long expects them of completed operations, too.
fn long_redrive(of: &str, rules: &Rules) -> Option<Remark> {
    let at = rules.said.here("redrive_for").or_else(|| rules.said.here("ttl"))?;
    let (again, ttl) = (rules.redrive_for, rules.policy.ttl());
    let is_said = rules.said.anywhere(&["redrive_for"]).is_some();
    let message = format!(
        "{of} expects retries for {again:?} (`redrive_for`), and keeps answers for {ttl:?} (`ttl`): a retry that comes in between would be executed again; make `ttl` as long as `redrive_for`"
    );
    (rules.remedy == Remedy::Redrive && is_said && again > ttl).then(|| Remark::new(at, message))
}

/// What is held no longer is not sent again.
fn past_hold(of: &str, rules: &Rules) -> Option<Remark> {
    let at = rules.said.here("redrive_for").or_else(|| rules.said.here("hold_max"))?;
    let (again, held) = (rules.redrive_for, rules.hold_max);
    let message = format!(
        "{of} would send an unknown outcome again for {again:?} (`redrive_for`), and makes it a final 502 after {held:?} (`hold_max`); make `hold_max` longer, or `redrive_for` shorter"
    );
    (rules.remedy == Remedy::Redrive && again > held).then(|| Remark::new(at, message))
}

/// How long the client of this library retries, unless it is told otherwise.
const RETRIES: Duration = Retries::DEADLINE;
