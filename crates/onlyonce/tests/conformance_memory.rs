//! The store in memory passes the suite. It has no disk: what needs one is declared absent, and skipped.

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::store::conformance::{Case, Factory, Fresh, ManualClock, Verdict, cases, exercise};
use onlyonce::store::memory::MemoryStore;

struct Movable;

impl Factory for Movable {
    type Store = MemoryStore;

    async fn fresh(&self) -> Fresh<MemoryStore> {
        let clock = ManualClock::new();
        Fresh::new(MemoryStore::with_clock(clock.clone())).with_clock(clock)
    }
}

/// Whose clock cannot be moved, as with a store that is a server.
struct Real;

impl Factory for Real {
    type Store = MemoryStore;

    async fn fresh(&self) -> Fresh<MemoryStore> {
        Fresh::new(MemoryStore::new())
    }
}

#[tokio::test]
async fn memory_passes_all_that_needs_no_disk() {
    let start = SystemClock.boot();
    let report = exercise(&Movable).await;
    println!("{report}, in {:?}", SystemClock.boot() - start);
    report.assert_passed();
    let skipped: Vec<_> = report.skipped().collect();
    assert_eq!(skipped.len(), 9, "{skipped:?}");
    assert!(skipped.iter().all(|name| needs_a_disk(name)), "{skipped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_passes_on_many_threads() {
    exercise(&Movable).await.assert_passed();
}

#[tokio::test]
async fn memory_passes_on_a_clock_that_nobody_can_move() {
    let start = SystemClock.boot();
    let report = exercise(&Real).await;
    println!("{report}, in {:?}", SystemClock.boot() - start);
    report.assert_passed();
}

#[tokio::test]
async fn a_case_runs_alone_by_its_name() {
    let case = Case::named("a_repeat_of_a_claim_is_mine").unwrap();
    assert_eq!(case.run(&Movable).await, Verdict::Passed);
    assert!(Case::named("no such case").is_none());
}

fn needs_a_disk(name: &str) -> bool {
    name.ends_with("a_crash") || name.contains("a_crash_") || name.contains("damage")
}

#[test]
fn no_two_cases_have_the_same_name() {
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases().len());
}
