//! The tests of `suspects` in Postgres.

use onlyonce::outbox::{Relay, RelayCounts, RelayOptions, Sink};

use crate::lab::{Lab, Running};
use crate::suspects::{Place, at_place};

at_place!(Lab::start());

impl Place for Lab {
    fn add_keys(&self, topic: &str, prefix: &str, keys: usize, each: usize, first: &str) {
        self.sql(&format!(
            "INSERT INTO onlyonce.outbox (operation, topic, key, payload, created_at)
               SELECT gen_random_uuid(), '{topic}', '{prefix}-' || k,
                      convert_to(CASE n WHEN 0 THEN '{first}' ELSE n::text END, 'UTF8'), clock_timestamp()
                 FROM generate_series(1, {keys}) k, generate_series(0, {each} - 1) n ORDER BY k, n"
        ));
    }

    fn messages(&self, condition: &str) -> usize {
        self.sql(&format!("SELECT count(*) FROM onlyonce.outbox WHERE {condition}"))
            .parse()
            .unwrap()
    }

    async fn relay<S: Sink>(&self, sink: S, options: RelayOptions) -> (Running, RelayCounts) {
        let relay = Relay::open_with(&self.url, sink, options).await.unwrap();
        let counts = relay.counts();
        (Running::start(relay), counts)
    }
}
