//! Scanning.

use crate::record::{Record, StateKind, StateSet};
use crate::scope::OperationId;
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, Stop, ensure, equal, failed};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{FIRST, LAST, Write, draft};
use crate::store::{Cursor, Maintain, Scan};

/// The first and the last id included, with pages of every size.
pub(super) async fn pages_have_no_gaps_and_no_doubles<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let mut expected = Vec::new();
    for number in [FIRST, 1, 2, 3, 4, 5, LAST] {
        expected.push((draft(number).id, lab.won(&draft(number)).await?));
    }
    expected.sort_by_key(|(id, _)| *id);
    for limit in 1..=8 {
        let mut found = scanned(&lab, &StateKind::ALL, limit).await?;
        found.sort_by_key(|(id, _)| *id);
        equal("what the pages list", ids(&found), ids(&expected))?;
        ensure(found == expected, "each record is as it was claimed")?;
    }
    Ok(())
}

pub(super) async fn a_scan_lists_only_the_states_it_asks_for<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for number in 0..8 {
        lab.put(&draft(number + 1), StateKind::ALL[usize::from(number % 4)]).await?;
    }
    for wanted in [
        &[StateKind::Running][..],
        &[StateKind::Unknown],
        &[StateKind::Released],
        &[StateKind::Completed],
        &[StateKind::Running, StateKind::Unknown],
        &StateKind::ALL,
        &[],
    ] {
        let found = scanned(&lab, wanted, 3).await?;
        equal("the number of records", found.len(), 2 * wanted.len())?;
        let asked_for = |(_, record): &(_, Record)| wanted.contains(&record.state.kind());
        ensure(found.iter().all(asked_for), "each is in a state asked for")?;
    }
    Ok(())
}

pub(super) async fn a_scan_of_nothing_ends_at_once<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let found = scanned(&lab, &StateKind::ALL, 10).await?;
    ensure(found.is_empty(), "an empty store has no records")
}

/// Others come, change state and go between the pages.
pub(super) async fn a_scan_sees_what_was_there_throughout<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for number in 1..=12 {
        lab.won(&draft(number)).await?;
    }
    let (mut found, mut after) = (Vec::new(), None);
    for step in 0..SCAN_PAGES_MAX {
        let page = lab.store.scan(running(after)).await?;
        found.extend(page.records.into_iter().map(|(id, _)| id));
        after = page.next;
        if after.is_none() {
            return each_once(&found, (1..=6).map(|number| draft(number).id));
        }
        disturb(&lab, step).await?;
    }
    failed("the pages have no end")
}

/// Operations 1 to 6 are left alone.
async fn disturb<S: Maintain>(lab: &Lab<S>, step: u8) -> Outcome {
    match step {
        0 => lab.done(&Write::settle(&draft(7))).await.map(drop),
        1 => lab.gone(&Write::release(&draft(8))).await,
        2 => lab.done(&Write::mark_unknown(&draft(9))).await.map(drop),
        3 => lab.won(&draft(20)).await.map(drop),
        _ => Ok(()),
    }
}

fn each_once(found: &[OperationId], mut wanted: impl Iterator<Item = OperationId>) -> Outcome {
    let once = |id| found.iter().filter(|found| **found == id).count() == 1;
    ensure(wanted.all(once), "what was running throughout is listed once")
}

fn ids(records: &[(OperationId, Record)]) -> Vec<OperationId> {
    records.iter().map(|(id, _)| *id).collect()
}

/// All pages of a scan.
pub(super) async fn scanned<S: Maintain>(
    lab: &Lab<S>,
    states: &[StateKind],
    limit: usize,
) -> Result<Vec<(OperationId, Record)>, Stop> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..SCAN_PAGES_MAX {
        let states = StateSet::of(states);
        let query = Scan { states, after, limit };
        let page = lab.store.scan(query).await?;
        ensure(page.records.len() <= limit, "a page keeps to its limit")?;
        found.extend(page.records);
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
    failed("the pages have no end")
}

fn running(after: Option<Cursor>) -> Scan {
    Scan { states: StateSet::of(&[StateKind::Running]), after, limit: 2 }
}

/// More pages than any of these scans may need.
const SCAN_PAGES_MAX: u8 = 40;
