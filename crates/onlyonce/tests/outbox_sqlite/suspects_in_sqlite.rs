//! The tests of `suspects` in a SQLite file.

use onlyonce::outbox::{Relay, RelayCounts, RelayOptions, Sink};

use crate::book::Running;
use crate::lab::Lab;
use crate::suspects::{Place, at_place};

at_place!(async { Lab::new() });

impl Place for Lab {
    fn add_keys(&self, topic: &str, prefix: &str, keys: usize, each: usize, first: &str) {
        self.sql(&format!(
            "WITH RECURSIVE k (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM k WHERE k < {keys}),
                            n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {each} - 1)
             INSERT INTO onlyonce_outbox (id, operation, topic, key, payload, created_at)
               SELECT format('%s-0000-4000-8000-%s', hex(randomblob(4)), hex(randomblob(6))), '', '{topic}',
                      '{prefix}-' || k, CAST(iif(n = 0, '{first}', n) AS BLOB), unixepoch() * 1000
                 FROM k, n ORDER BY k, n"
        ));
    }

    fn messages(&self, condition: &str) -> usize {
        let count = format!("SELECT count(*) FROM onlyonce_outbox WHERE {condition}");
        self.row(&count).parse().unwrap()
    }

    async fn relay<S: Sink>(&self, sink: S, options: RelayOptions) -> (Running, RelayCounts) {
        let relay = Relay::open_sqlite_with(self.path(), sink, options).await.unwrap();
        let counts = relay.counts();
        (Running::start(relay), counts)
    }
}
