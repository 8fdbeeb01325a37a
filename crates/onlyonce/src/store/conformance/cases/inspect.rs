//! What operators ask.

use crate::record::{State, StateKind};
use crate::scope::OperationId;
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, ensure, equal};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{FIRST, LAST, draft};
use crate::store::{Draft, Inspect};

/// In every state, between neighbours, and with the lowest and the highest id of the prefix.
pub(super) async fn the_records_of_a_prefix_are_found<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let mut expected = Vec::new();
    for (rest, state) in [(0x00, 0), (0x01, 1), (0x7f, 2), (0xff, 3)] {
        let draft = at([9, 9, 9, 9], rest);
        lab.put(&draft, StateKind::ALL[state]).await?;
        expected.push(draft.id);
    }
    for neighbour in [at([9, 9, 9, 8], 0xff), at([9, 9, 9, 10], 0), draft(FIRST), draft(LAST)] {
        lab.won(&neighbour).await?;
    }
    let prefix = expected[0].prefix();
    let mut found = lab.store.with_prefix(prefix, 10).await?;
    found.sort_by_key(|(id, _)| *id);
    equal("the ids", found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), expected)?;
    let kinds: Vec<_> = found.iter().map(|(_, record)| record.state.kind()).collect();
    equal("their states", kinds, StateKind::ALL.to_vec())?;
    equal("a limit", lab.store.with_prefix(prefix, 3).await?.len(), 3)?;
    let none = lab.store.with_prefix(at([9, 9, 9, 11], 0).id.prefix(), 10).await?;
    ensure(none.is_empty(), "nothing begins with another prefix")
}

pub(super) async fn a_census_counts_what_needs_attention<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    equal("an empty store", lab.store.census().await?.unknown, 0)?;
    let (mut running, mut unknown) = (Vec::new(), Vec::new());
    for number in 0..8 {
        let record = lab.put(&draft(number + 1), StateKind::ALL[usize::from(number % 4)]).await?;
        match record.state {
            State::Running { .. } => running.push(record.first_claimed_at),
            State::Unknown { since } => unknown.push(since),
            State::Released { .. } | State::Completed { .. } => {}
        }
    }
    let census = lab.store.census().await?;
    equal("running ones", census.running, 2)?;
    equal("since", census.running_since, running.into_iter().min())?;
    equal("unknown ones", census.unknown, 2)?;
    equal("since", census.unknown_since, unknown.into_iter().min())?;
    ensure(census.records >= 4, "all records are at least those that need attention")
}

/// A claim whose id begins with `prefix`, and whose other bytes are all `rest`.
fn at(prefix: [u8; 4], rest: u8) -> Draft {
    let mut id = [rest; 16];
    id[..4].copy_from_slice(&prefix);
    Draft { id: OperationId::from_bytes(id), ..draft(1) }
}
