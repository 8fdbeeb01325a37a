//! A record that cannot be read. Skipped where nothing can be damaged.

use crate::record::StateKind;
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, ensure, failed};
use crate::store::conformance::lab::{Lab, renew, swap};
use crate::store::conformance::writes::{BRIEF, Write, brief, draft, rival};
use crate::store::{Beat, Fault, Store, StoreError};

// R64, threat J11
pub(super) async fn a_damaged_record_is_an_error_and_never_absent<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.put(&draft(1), StateKind::Completed).await?;
    let lab = lab.damage(factory, draft(1).id).await?;
    unreadable(lab.store.load(draft(1).id).await)?;
    unreadable(lab.store.claim(draft(1)).await)?;
    unreadable(lab.store.claim(rival(&draft(1), 2)).await)?;
    unreadable(swap(&*lab.store, &Write::settle(&draft(1))).await)?;
    unreadable(swap(&*lab.store, &Write::release(&draft(1))).await)?;
    unreadable(lab.store.load(draft(1).id).await)
}

pub(super) async fn a_damaged_record_is_not_renewed<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    let lab = lab.damage(factory, draft(1).id).await?;
    let beats = renew(&*lab.store, &[(draft(1).id, draft(1).token)]).await;
    let is_kept = beats.is_ok_and(|beats| beats.contains(&Beat::Kept));
    ensure(!is_kept, "nobody knows whose it is")?;
    unreadable(lab.store.load(draft(1).id).await)
}

pub(super) async fn damage_to_one_record_is_not_damage_to_another<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.put(&draft(1), StateKind::Completed).await?;
    let whole = lab.put(&draft(2), StateKind::Completed).await?;
    lab.expired(&brief(3), StateKind::Completed).await?;
    let lab = lab.damage(factory, draft(1).id).await?;
    lab.unchanged(draft(2).id, &whole).await?;
    lab.won(&draft(4)).await?;
    lab.pass(BRIEF).await;
    lab.sweep(100).await?;
    lab.absent(brief(3).id).await?;
    unreadable(lab.store.load(draft(1).id).await)
}

fn unreadable<T>(answer: Result<T, Fault>) -> Outcome {
    match answer {
        Err(fault) if matches!(fault.error(), StoreError::Unreadable(_)) => Ok(()),
        Err(fault) => failed(format!("the error is {fault:?}, and not `Unreadable`")),
        Ok(_) => failed("what cannot be read was answered"),
    }
}
