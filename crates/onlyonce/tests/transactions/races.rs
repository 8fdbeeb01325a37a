//! Many duplicates at once, with fewer connections than callers.

use std::time::Duration;

use onlyonce::transaction::{Begun, Transactions};
use tokio::task::JoinSet;

use crate::lab::{CHARGE, Lab, charge, created, tiered};

/// Each of two pools stands for a process; neither has a connection to spare for one that waits.
// R127
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_duplicates_over_two_pools_of_two_connections_have_one_effect() {
    let lab = Lab::start().await;
    let pools = [lab.pool(2).await, lab.pool(2).await];
    for round in 0..tiered(50) {
        let mut callers = JoinSet::new();
        for caller in 0..64 {
            let (pool, key) = (pools[caller % 2].clone(), format!("k{round}"));
            callers.spawn(async move {
                loop {
                    match Transactions::new().begin(&pool, &charge(&key)).await.unwrap() {
                        Begun::Mine(mut tx) => {
                            sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
                            return (true, tx.complete(created()).await.unwrap());
                        }
                        Begun::Replay(reply) => return (false, reply),
                        Begun::InProgress { .. } => {
                            tokio::time::sleep(Duration::from_millis(5)).await
                        }
                        Begun::Reused => panic!("the same payload"),
                    }
                }
            });
        }
        let answers = callers.join_all().await;
        assert!(answers.iter().all(|(_, reply)| *reply == created()));
        assert_eq!(answers.iter().filter(|(is_mine, _)| *is_mine).count(), 1);
        assert_eq!(lab.charges(), (round + 1).to_string());
    }
}
