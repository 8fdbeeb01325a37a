//! What must never be, what must be met, and the faults that must be found.

use super::*;

pub(super) fn all(model: &Outbox) -> Vec<Property<Outbox>> {
    let mut all: Vec<Property<Outbox>> = vec![
        Property::always("what is deleted was delivered", |_, world: &World| {
            (0..MESSAGES)
                .all(|message| !world.rows[message].is_deleted || world.delivered[message] > 0)
        }),
        Property::always("one effect", |_, world: &World| {
            world.effects.iter().all(|effects| *effects <= 1)
        }),
        Property::always("nothing goes wrong", |_, world: &World| world.wrong.is_none()),
    ];
    if model.0.is_none() {
        all.extend(reached());
    }
    all
}

fn reached() -> Vec<Property<Outbox>> {
    vec![
        Property::sometimes("all are shipped", |_, world: &World| {
            world.rows.iter().all(|row| row.is_deleted)
        }),
        Property::sometimes("a second delivery", |_, world: &World| world.delivered.contains(&2)),
        Property::sometimes("a parked message", |_, world: &World| {
            world.rows.iter().any(|row| row.is_parked)
        }),
        Property::sometimes("a relay that ships after its lease", |_, world: &World| {
            let is_late =
                |relay: &Relay| matches!(relay, Relay::Shipped(lease) if lease.until < world.now);
            world.relays.iter().any(is_late)
        }),
        Property::sometimes(
            "all are shipped after a crash between shipping and deleting",
            |_, world: &World| {
                world.crashes == 0
                    && world.delivered[0] == 2
                    && world.rows.iter().all(|row| row.is_deleted)
            },
        ),
    ]
}

#[test]
fn a_message_is_never_lost_and_never_passes_an_earlier_one_of_its_lane() {
    let checker = Outbox(None).checker().threads(crate::THREADS).spawn_bfs().join();
    println!("outbox: {} distinct states", checker.unique_state_count());
    checker.assert_properties();
    assert!(checker.unique_state_count() >= 10_000, "{}", checker.unique_state_count());
}

#[test]
fn every_fault_of_a_relay_is_found() {
    for fault in FAULTS {
        let checker = Outbox(Some(fault)).checker().finish_when(HasDiscoveries::AnyFailures);
        let broken = checker.spawn_bfs().join().discoveries().into_keys().next();
        println!("{fault:?}: not so: {broken:?}");
        assert!(broken.is_some(), "{fault:?}");
    }
}
