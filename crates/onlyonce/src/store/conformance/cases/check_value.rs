//! The check values.

use super::scan::scanned;
use crate::record::StateKind;
use crate::store::Maintain;
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, ensure, equal};
use crate::store::conformance::lab::Lab;

pub(super) async fn the_first_check_value_of_a_name_is_kept<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    is_kept(&lab, "secret", None, None, None).await?;
    is_kept(&lab, "secret", None, Some("one"), Some("one")).await?;
    is_kept(&lab, "secret", None, Some("one"), Some("one")).await?;
    is_kept(&lab, "secret", None, Some("two"), Some("one")).await?;
    is_kept(&lab, "scope", None, None, None).await?;
    is_kept(&lab, "scope", None, Some("two"), Some("two")).await?;
    is_kept(&lab, "secret", None, None, Some("one")).await
}

pub(super) async fn a_check_value_is_replaced_by_who_names_it<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    is_kept(&lab, "secret", Some("one"), Some("two"), None).await?;
    is_kept(&lab, "secret", None, Some("one"), Some("one")).await?;
    is_kept(&lab, "secret", Some("other"), Some("two"), Some("one")).await?;
    is_kept(&lab, "secret", Some("one"), Some("two"), Some("two")).await?;
    is_kept(&lab, "secret", Some("one"), Some("two"), Some("two")).await?;
    is_kept(&lab, "secret", Some("two"), None, Some("two")).await
}

pub(super) async fn a_check_value_is_no_record<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let long = "a text of some length, \u{e9} and \"quoted\"; ".repeat(100);
    is_kept(&lab, "routes", None, Some(&long), Some(&long)).await?;
    ensure(scanned(&lab, &StateKind::ALL, 10).await?.is_empty(), "no record is listed")?;
    lab.sweep(100).await?;
    is_kept(&lab, "routes", None, None, Some(&long)).await
}

pub(super) async fn of_many_first_check_values_one_is_kept<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for round in 0..factory.rounds() {
        let kept = lab
            .race(RACERS, |store, racer| {
                let (name, mine) = (format!("round {round}"), format!("of {racer}"));
                async move { store.check_value(&name, None, Some(&mine)).await }
            })
            .await?;
        let there = lab.store.check_value(&format!("round {round}"), None, None).await?;
        ensure(there.is_some(), "one of them is kept")?;
        ensure(kept.iter().all(|told| *told == there), "every racer is told the one that is kept")?;
    }
    Ok(())
}

pub(super) async fn a_check_value_survives_a_crash<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    is_kept(&lab, "secret", None, Some("one"), Some("one")).await?;
    is_kept(&lab, "secret", Some("one"), Some("two"), Some("two")).await?;
    let lab = lab.crash(factory).await?;
    is_kept(&lab, "secret", None, Some("three"), Some("two")).await
}

async fn is_kept<S: Maintain>(
    lab: &Lab<S>,
    name: &str,
    from: Option<&str>,
    to: Option<&str>,
    expected: Option<&str>,
) -> Outcome {
    let kept = lab.store.check_value(name, from, to).await?;
    equal("the text that is kept", kept.as_deref(), expected)
}

const RACERS: u8 = 8;
