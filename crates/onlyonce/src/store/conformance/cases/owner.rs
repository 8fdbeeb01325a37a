//! What an owner writes: its token, and the states that it names.

use crate::clock::StoreTime;
use crate::record::StateKind;
use crate::store::Draft;
use crate::store::conformance::Factory;
use crate::store::conformance::check::Outcome;
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{
    SETTLES_FROM, Write, completed, draft, response, rival, token,
};

// R51, R98, threat D5
pub(super) async fn a_settle_by_another_token_is_stale<F: Factory>(factory: &F) -> Outcome {
    from_each(factory, &SETTLES_FROM, |draft| {
        Write::settle_with(&rival(draft, 99), response("not theirs"))
    })
    .await
}

// R51, threat B2
pub(super) async fn a_release_by_another_token_is_stale<F: Factory>(factory: &F) -> Outcome {
    from_each(factory, &StateKind::ALL, |draft| Write::release(&rival(draft, 99))).await
}

// R51
pub(super) async fn an_unknown_mark_by_another_token_is_stale<F: Factory>(factory: &F) -> Outcome {
    from_each(factory, &StateKind::ALL, |draft| Write::mark_unknown(&rival(draft, 99))).await
}

// R51
pub(super) async fn a_return_by_another_token_is_stale<F: Factory>(factory: &F) -> Outcome {
    from_each(factory, &StateKind::ALL, |draft| Write::vouch(&rival(draft, 99))).await?;
    let moment = StoreTime::from_ms(1);
    from_each(factory, &StateKind::ALL, |draft| {
        Write::return_to_unknown(&rival(draft, 99), moment)
    })
    .await?;
    from_each(factory, &StateKind::ALL, |draft| {
        Write::return_to_released(&rival(draft, 99), moment)
    })
    .await
}

/// Each state that a record has, against each state that the guard names.
pub(super) async fn an_owner_writes_only_from_the_states_it_names<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for (number, named) in (1..).zip(StateKind::ALL) {
        for (ten, found) in (1..).zip(StateKind::ALL) {
            let draft = draft(10 * ten + number);
            lab.put(&draft, found).await?;
            let write = Write::by_owner(&draft, &[named], completed(response("second")));
            if named == found {
                lab.done(&write).await?;
            } else {
                lab.stale(&write).await?;
            }
        }
    }
    Ok(())
}

pub(super) async fn a_completed_record_is_not_settled_otherwise<F: Factory>(
    factory: &F,
) -> Outcome {
    from_each(factory, &[StateKind::Completed], |draft| {
        Write::settle_with(draft, response("second"))
    })
    .await
}

// threat B2
pub(super) async fn a_completed_record_is_not_released<F: Factory>(factory: &F) -> Outcome {
    from_each(factory, &[StateKind::Completed], Write::release).await?;
    from_each(factory, &[StateKind::Completed], Write::vouch).await
}

pub(super) async fn a_released_record_does_not_become_unknown<F: Factory>(factory: &F) -> Outcome {
    let states = [StateKind::Released, StateKind::Completed];
    from_each(factory, &states, Write::mark_unknown).await
}

/// It holds the true answer, as long as nobody took the record from it.
pub(super) async fn an_owner_settles_what_became_unknown_or_released<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let (reaped, freed) = (draft(1), draft(2));
    let running = lab.won(&reaped).await?;
    lab.done(&Write::reap(reaped.id, &running)).await?;
    lab.done(&Write::settle(&reaped)).await?;
    let running = lab.won(&freed).await?;
    let unknown = lab.done(&Write::reap(freed.id, &running)).await?;
    lab.done(&Write::free(freed.id, &unknown)).await?;
    lab.done(&Write::settle(&freed)).await.map(drop)
}

pub(super) async fn no_swap_makes_a_record_that_is_absent<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let draft = draft(1);
    let record = lab.won(&draft).await?;
    lab.gone(&Write::release(&draft)).await?;
    for write in [
        Write::settle(&draft),
        Write::mark_unknown(&draft),
        Write::vouch(&draft),
        Write::reap(draft.id, &record),
        Write::free(draft.id, &record),
        Write::decree(draft.id, &record, token(98)),
        Write::take(&rival(&draft, 99), &record),
    ] {
        lab.stale(&write).await?;
    }
    Ok(())
}

pub(super) async fn a_swap_leaves_other_ids_alone<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let bystander = lab.won(&draft(1)).await?;
    lab.won(&draft(2)).await?;
    lab.done(&Write::settle(&draft(2))).await?;
    lab.won(&draft(3)).await?;
    lab.gone(&Write::release(&draft(3))).await?;
    lab.unchanged(draft(1).id, &bystander).await
}

/// The write is stale on a record in each of these states.
async fn from_each<F: Factory>(
    factory: &F,
    states: &[StateKind],
    write: impl Fn(&Draft) -> Write + Send,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for (number, state) in (1..).zip(states) {
        let draft = draft(number);
        lab.put(&draft, *state).await?;
        lab.stale(&write(&draft)).await?;
    }
    Ok(())
}
