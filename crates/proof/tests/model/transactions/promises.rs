//! What must never be, what must be met, and the faults that must be found.

use super::*;

pub(super) fn all(model: &Transactions) -> Vec<Property<Transactions>> {
    let mut all: Vec<Property<Transactions>> = vec![
        Property::always("one effect", |_, world: &World| world.effects <= 1),
        Property::always("the effect and its answer are kept together", |_, world: &World| {
            let is_kept = world.row.is_some_and(|row| row.answer.is_some());
            is_kept == (world.effects > 0) && is_kept == world.row.is_some()
        }),
        Property::always("every answer is the one that is kept", |_, world: &World| {
            let told = (0..CLIENTS).map(|client| (client, world.clients[client]));
            told.into_iter().all(|(client, told)| match told {
                Client::Told(Told::Answer(answer)) => {
                    world.row
                        == Some(Row { fingerprint: fingerprint(client), answer: Some(answer) })
                }
                _ => true,
            })
        }),
        Property::always("nothing is told wrongly", |_, world: &World| world.wrong.is_none()),
    ];
    if model.0.is_none() {
        all.extend(reached());
    }
    all
}

fn is_told(world: &World, told: Told) -> bool {
    world.clients.contains(&Client::Told(told))
}

fn reached() -> Vec<Property<Transactions>> {
    vec![
        Property::sometimes("a replay", |_, world: &World| {
            world.clients[1] == Client::Told(Told::Answer(0))
        }),
        Property::sometimes("in progress", |_, world: &World| is_told(world, Told::InProgress)),
        Property::sometimes("reused", |_, world: &World| is_told(world, Told::Reused)),
        Property::sometimes("not done", |_, world: &World| is_told(world, Told::NotDone)),
        Property::sometimes("a COMMIT without an answer, under way", |_, world: &World| {
            world.clients[0] == Client::Unsure && world.transactions[0].is_commit_sent
        }),
        Property::sometimes("a COMMIT without an answer, done", |_, world: &World| {
            world.clients[0] == Client::Unsure && world.row.is_some()
        }),
        Property::sometimes("a COMMIT without an answer, rolled back", |_, world: &World| {
            world.clients[0] == Client::Unsure
                && world.row.is_none()
                && !world.transactions[0].is_open
        }),
    ]
}

#[test]
fn a_transaction_has_one_effect_and_one_answer() {
    let checker = Transactions(None).checker().spawn_bfs().join();
    println!("transactions: {} distinct states", checker.unique_state_count());
    checker.assert_properties();
    assert!(checker.unique_state_count() >= 5_000, "{}", checker.unique_state_count());
}

#[test]
fn every_fault_of_a_transaction_is_found() {
    use Fault::{CompleteAfterCommit, FingerprintNotCompared, NeitherLockNorUniqueId};
    use Fault::{NoTriggerAtCommit, ResolveDoesNotWait, WorkOnAnotherConnection};
    let before = [NeitherLockNorUniqueId, FingerprintNotCompared, WorkOnAnotherConnection];
    for fault in
        before.into_iter().chain([CompleteAfterCommit, NoTriggerAtCommit, ResolveDoesNotWait])
    {
        let checker = Transactions(Some(fault)).checker().finish_when(HasDiscoveries::AnyFailures);
        let broken = checker.spawn_bfs().join().discoveries().into_keys().next();
        println!("{fault:?}: not so: {broken:?}");
        assert!(broken.is_some(), "{fault:?}");
    }
}
