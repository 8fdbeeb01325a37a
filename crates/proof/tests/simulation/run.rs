//! One run: hosts, faults by the plan, and the checks at its end.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use turmoil::{Builder, Sim};

use crate::flaws::Flaw;
use crate::met::Met;
use crate::plan::{FAULTS_END, Fault, Plan};
use crate::store::ModelStore;
use crate::world::World;
use crate::{check, clients, gateway, service, store};

/// What became of a seed.
pub(crate) struct Ran {
    pub(crate) hash: u64,
    pub(crate) met: Met,
    pub(crate) broken: Option<String>,
    pub(crate) lines: String,
}

pub(crate) fn run(seed: u64, flaw: Flaw, is_verbose: bool) -> Ran {
    let world = World::new(Plan::new(seed, is_verbose), flaw);
    let model = ModelStore::new();
    let mut sim = Builder::new()
        .rng_seed(seed)
        .tick_duration(TICK)
        .simulation_duration(Duration::from_secs(600))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(60))
        .build();
    add_hosts(&mut sim, &world, &model);
    let failed = steps(&mut sim, &world).err().map(|error| format!("the run failed: {error}"));
    let broken = failed.or_else(|| check::broken(&world, &model));
    let mut met = world.told().met;
    world.told().engines.iter().for_each(|once| met.add_counts(&once.counts()));
    met.confirmed_at_the_end = check::confirmed(&world);
    let (hash, lines) = (world.trace_hash(), world.lines());
    Ran { hash, met, broken, lines }
}

fn add_hosts(sim: &mut Sim<'_>, world: &Arc<World>, model: &Arc<ModelStore>) {
    let (w, m) = (world.clone(), model.clone());
    sim.host("store", move || store::serve(w.clone(), m.clone()));
    for (node, name) in ["g0", "g1"].into_iter().enumerate() {
        let (w, m) = (world.clone(), model.clone());
        sim.host(name, move || gateway::serve(w.clone(), m.clone(), node));
    }
    let (w, lives) = (world.clone(), Rc::new(Cell::new(0)));
    sim.host("service", move || {
        lives.set(lives.get() + 1);
        service::serve(w.clone(), lives.get())
    });
    for (number, name) in ["c0", "c1", "c2"].into_iter().enumerate() {
        sim.client(name, clients::client(world.clone(), number as u64));
    }
    sim.client("auditor", clients::audit(world.clone()));
}

/// Steps through the run, and lets the faults come when they are due.
fn steps(sim: &mut Sim<'_>, world: &Arc<World>) -> turmoil::Result {
    let mut due = world.plan.faults.iter().copied().peekable();
    loop {
        let now = sim.elapsed();
        while let Some((at, fault)) = due.next_if(|(at, _)| *at <= now) {
            apply(sim, world, at, fault);
        }
        if now >= FAULTS_END && world.faults_on.swap(false, Ordering::Relaxed) {
            mend(sim);
        }
        if sim.step()? {
            return Ok(());
        }
    }
}

fn apply(sim: &mut Sim<'_>, world: &Arc<World>, at: Duration, fault: Fault) {
    world.trace(|| format!("fault {fault:?}"));
    match fault {
        Fault::Crash(host) => {
            world.count(|met| met.crashes += 1);
            sim.crash(host);
        }
        Fault::Bounce(host) => sim.bounce(host),
        Fault::Partition(a, b) => {
            world.count(|met| met.partitions += 1);
            sim.partition(a, b);
        }
        Fault::Repair(a, b) => sim.repair(a, b),
        Fault::Hold(a, b) => {
            world.count(|met| met.holds += 1);
            sim.hold(a, b);
        }
        Fault::Release(a, b) => sim.release(a, b),
        Fault::StandStill(node, pause) => {
            world.count(|met| met.standstills += 1);
            world.stand_still(node, at, pause);
        }
        // A node that first reads a clock which is wrong by days believes it (docs/limits.md).
        Fault::SetStoreClock(ms) if ms != 0 && !world.all_read_the_clock() => {}
        Fault::SetStoreClock(ms) => {
            world.count(|met| met.clock_jumps += 1);
            world.store_clock_ms.store(ms, Ordering::Relaxed);
        }
    }
}

/// Ends what overlapping faults may have left.
fn mend(sim: &mut Sim<'_>) {
    for host in ["g0", "g1", "service"] {
        if !sim.is_host_running(host) {
            sim.bounce(host);
        }
    }
    for gateway in ["g0", "g1"] {
        for peer in ["store", "service", "c0", "c1", "c2"] {
            sim.release(gateway, peer);
            sim.repair(gateway, peer);
        }
    }
}

const TICK: Duration = Duration::from_millis(10);
