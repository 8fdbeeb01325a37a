//! `velocity`: how often operations may be begun.

use onlyonce::velocity::{Rate, Velocity, VelocityPart};

use super::error::Remarks;
use super::field::Field;
use super::names::VELOCITY;

/// The rules of the list.
pub(super) fn read(field: Field<'_>) -> Result<Vec<Velocity>, Remarks> {
    let mut wrong = Remarks::default();
    let members = field.members()?.into_iter();
    let rules = members.filter_map(|member| wrong.gather(rule(member))).collect();
    wrong.none()?;
    Ok(rules)
}

fn rule(field: Field<'_>) -> Result<Velocity, Remarks> {
    let (mut per, mut limit) = (None, None);
    field.each(&VELOCITY, |field| {
        match field.name.name {
            "per" => per = Some(field.all(Field::parsed::<VelocityPart>)?),
            _ => limit = Some(field.parsed::<Rate>()?),
        }
        Ok(())
    })?;
    match (per, limit) {
        (Some(per), Some(limit)) => Ok(Velocity::new(per, limit)),
        _ => Err(field.wrong("a rule has `per` and `limit`").into()),
    }
}
