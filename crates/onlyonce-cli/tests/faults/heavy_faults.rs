//! Kills at named places and at random, pauses with takeover, cuts at the reply to a commit, and servers that die.

use proof::checker::Verdict;
use proof::tier::{is_full, tiered};

use crate::clients::Load;
use crate::lab::Lab;
use crate::nemesis::PAUSES;
use crate::stores::Kind;

/// How often each fault is made, in the full tier; about a tenth in the fast one.
struct Faults {
    /// How often at each place, in both tiers.
    at_each_point: [usize; 2],
    at_random: usize,
    takeovers: usize,
    cuts: usize,
    postgres_kills: usize,
    redis_faults: usize,
}

const CLIENTS: usize = 32;

// R80, R87, R100, R103; threats A1 to A10, B9
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gateway_with_a_file_that_is_killed_at_every_place_executes_nothing_twice() {
    let faults = Faults {
        at_each_point: [1, 3],
        at_random: 40,
        takeovers: 0,
        cuts: 0,
        postgres_kills: 0,
        redis_faults: 0,
    };
    faults.inflict(Kind::Sqlite).await;
}

// R80, R87, R100, R103; threats A1 to A10, B1, B3, B12, C1, C2
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fleet_on_postgres_that_is_killed_paused_and_cut_off_executes_nothing_twice() {
    let faults = Faults {
        at_each_point: [1, 3],
        at_random: 40,
        takeovers: 25,
        cuts: 200,
        postgres_kills: 5,
        redis_faults: 0,
    };
    faults.inflict(Kind::Postgres).await;
}

// R80, R87, R100, R103; threats A1 to A10, B1, B3, C1, C2, D1
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fleet_with_redis_in_front_that_is_killed_paused_and_cut_off_executes_nothing_twice() {
    let faults = Faults {
        at_each_point: [1, 3],
        at_random: 40,
        takeovers: 20,
        cuts: 200,
        postgres_kills: 5,
        redis_faults: 5,
    };
    faults.inflict(Kind::Filtered).await;
}

impl Faults {
    async fn inflict(&self, kind: Kind) -> Verdict {
        let mut lab = Lab::start(kind).await;
        let load = Load::start(&lab.clients, CLIENTS);
        for _ in 0..self.at_each_point() {
            for point in lab.points() {
                lab.kill_at(point).await;
            }
        }
        for _ in 0..tiered(self.at_random) {
            lab.kill_at_random().await;
        }
        for nth in 0..tiered(self.takeovers) {
            lab.pause_at(PAUSES[nth % PAUSES.len()]).await;
        }
        for _ in 0..tiered(self.cuts) {
            lab.cut().await;
        }
        for _ in 0..tiered(self.postgres_kills) {
            lab.kill_postgres().await;
        }
        for _ in 0..tiered(self.redis_faults) {
            lab.flush_redis().await;
            lab.pause_redis().await;
            lab.kill_redis().await;
        }
        load.end().await;
        lab.judge(&self.needs(&lab)).await
    }

    fn at_each_point(&self) -> usize {
        self.at_each_point[usize::from(is_full())]
    }

    /// Too little of anything is a failure.
    fn needs(&self, lab: &Lab) -> Vec<(String, usize)> {
        let each = self.at_each_point();
        let points = lab.points();
        let mut needs: Vec<_> =
            points.iter().map(|point| (format!("fault kill at {}", point.name()), each)).collect();
        let mut need = |what: &str, least: usize| needs.push((what.to_owned(), least));
        need("fault kill at random", tiered(self.at_random));
        need("fault takeover", tiered(self.takeovers));
        need("fault cut", tiered(self.cuts));
        need("fault postgres killed", tiered(self.postgres_kills));
        for what in ["fault redis flushed", "fault redis paused", "fault redis killed"] {
            need(what, tiered(self.redis_faults));
        }
        need("faulted operations", tiered(1_000));
        need("replayed", tiered(2_000));
        for what in ["in_progress", "mismatch", "unknown", "not_executed", "recognised repetitions"]
        {
            need(what, 1);
        }
        needs
    }
}
