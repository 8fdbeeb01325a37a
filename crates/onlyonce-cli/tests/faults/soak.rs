//! Random faults for as long as one likes. `scripts/soak` runs it.

use std::time::Duration;

use proof::history::now_ns;

use crate::clients::Load;
use crate::lab::Lab;
use crate::nemesis::Fault;
use crate::stores::Kind;

/// So that a fault finds many operations under way.
const CLIENTS: usize = 96;
/// The operations that a fault has hit, in ten minutes, for each store.
const FAULTED_IN_TEN_MINUTES: u64 = 3_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "a child of scripts/soak, which says for how long"]
async fn random_faults_break_no_promise_of_any_store() {
    let minutes: f64 = setting("ONLYONCE_SOAK_MINUTES").unwrap_or(10.0);
    let seed: u64 = setting("ONLYONCE_SOAK_SEED").unwrap_or_else(now_ns);
    fastrand::seed(seed);
    println!("seed {seed}, {minutes} minutes");
    let chosen: String = setting("ONLYONCE_SOAK_STORES").unwrap_or_default();
    let is_chosen =
        |kind: &Kind| chosen.is_empty() || chosen.split(' ').any(|name| name == kind.name());
    let stores = [Kind::Sqlite, Kind::Postgres, Kind::Filtered].into_iter().filter(is_chosen);
    let stores: Vec<_> = stores.collect();
    assert!(!stores.is_empty(), "the stores are sqlite, postgres and filtered");
    let share = Duration::from_secs_f64(minutes * 60.0 / stores.len() as f64);
    let least = (FAULTED_IN_TEN_MINUTES as f64 * (minutes / 10.0).min(1.0)) as usize;
    for kind in stores {
        let needs = [("faulted operations".to_owned(), least), ("replayed".to_owned(), 100)];
        let faulted = soak(kind, share, &needs).await;
        println!(
            "{kind:?}: {faulted} faulted operations, 0 violations: fewer than 1 in {:.0} with 95 % confidence",
            faulted as f64 / 3.0
        );
    }
}

async fn soak(kind: Kind, share: Duration, needs: &[(String, usize)]) -> usize {
    let mut lab = Lab::start(kind).await;
    let load = Load::start(&lab.clients, CLIENTS);
    let end = now_ns() + u64::try_from(share.as_nanos()).unwrap();
    while now_ns() < end {
        let fault = Fault::any(&lab);
        lab.inflict(fault).await;
    }
    load.end().await;
    lab.judge(needs).await.faulted
}

impl Kind {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}
