//! The cases of section 8 about velocity, and the limits of live keys.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use servers::{Postgres, Redis};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::client::{Ask, Connection};
use crate::profile::Set;
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::upstream::Upstream;
use crate::{B1, B2, K1, K2, on_both, on_gateway, tiered, within};

on_both! {
    vel_01,
    vel_02,
    vel_03,
    r168_each_card_and_each_caller_has_a_limit_of_its_own,
    r168_nobody_gets_around_a_limit_by_leaving_the_value_out,
    r170_a_burst_of_duplicates_counts_once,
    r171_a_caller_has_so_many_live_keys,
    r171_the_bytes_that_are_kept_for_a_caller_are_limited,
    r171_what_is_not_kept_takes_no_bytes,
    r171_what_was_not_executed_is_no_live_key,
    r171_a_key_that_is_freed_again_and_again_counts_once,
    r171_a_burst_of_duplicates_at_the_limit_is_told_to_wait_for_the_first,
}

on_gateway! {
    r168_two_gateways_on_one_redis_share_a_limit,
    r168_a_redis_that_is_away_leaves_each_gateway_its_own_count,
    r171_an_unknown_outcome_is_recovered_past_the_limit_too,
    r171_a_flood_of_keys_harms_nobody_else,
    a_client_that_makes_a_new_key_for_each_retry_is_named,
}

const CARD: &str = r#"{"card":"4242","amount":1}"#;
const OTHER_CARD: &str = r#"{"card":"5555","amount":1}"#;

fn key(n: usize) -> String {
    format!("velocity-{n:08}")
}

async fn vel_01(on: Kind) {
    let t = on.start(&[Set::Velocity(&["json:/card"], "5/min")]).await;
    for n in 0..5 {
        t.post(&key(n), CARD).await.fresh(201);
    }
    let refused = t.post(&key(5), CARD).await;
    assert_eq!(refused.problem(429, "velocity_exceeded")["retry"], "same-key");
    assert!((1..=12).contains(&refused.retry_after_s()), "{}", refused.retry_after_s());
    assert_eq!(t.n(), 5);
}

async fn vel_02(on: Kind) {
    let t = on.start(&[Set::Velocity(&["json:/card"], "5/min")]).await;
    let first = t.post(K1, CARD).await.fresh(201);
    for _ in 0..20 {
        t.post(K1, CARD).await.replays(&first);
    }
    // R170: a mismatch costs nothing either.
    t.post(K1, r#"{"card":"4242","amount":2}"#).await.problem(422, "idempotency_key_reused");
    for n in 0..4 {
        t.post(&key(n), CARD).await.fresh(201);
    }
    t.post(&key(5), CARD).await.problem(429, "velocity_exceeded");
    // R173: what is known is answered, however much was used.
    t.post(K1, CARD).await.replays(&first);
    assert_eq!(t.n(), 5);
}

// R169
async fn vel_03(on: Kind) {
    let t = on.start(&[Set::Velocity(&["json:/card"], "2/2s")]).await;
    t.post(&key(0), CARD).await.fresh(201);
    t.post(&key(1), CARD).await.fresh(201);
    t.post(K1, CARD).await.problem(429, "velocity_exceeded");
    let first = within("the limit to come back", async {
        loop {
            let answer = t.post(K1, CARD).await;
            if answer.status != 429 {
                return answer.fresh(201);
            }
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    t.post(K1, CARD).await.replays(&first);
    assert_eq!(t.n(), 3);
}

async fn r168_each_card_and_each_caller_has_a_limit_of_its_own(on: Kind) {
    let t = on.start(&[Set::Velocity(&["principal", "json:/card"], "1/min")]).await;
    t.post(&key(0), CARD).await.fresh(201);
    t.post(&key(1), OTHER_CARD).await.fresh(201);
    t.send(&Ask::post(CARD).key(key(2)).tenant("B")).await.fresh(201);
    t.post(&key(3), CARD).await.problem(429, "velocity_exceeded");
    t.post(&key(4), OTHER_CARD).await.problem(429, "velocity_exceeded");
    let refused = t.send(&Ask::post(CARD).key(key(5)).tenant("B")).await;
    refused.problem(429, "velocity_exceeded");
    assert_eq!(t.n(), 3);
}

async fn r168_nobody_gets_around_a_limit_by_leaving_the_value_out(on: Kind) {
    let t = on.start(&[Set::Velocity(&["json:/card"], "1/min")]).await;
    t.post(&key(0), r#"{"amount":1}"#).await.fresh(201);
    for (n, body) in
        [r#"{"amount":2}"#, "no JSON", r#"{"card":"4242","card":"5555"}"#, r#"{"cards":["4242"]}"#]
            .into_iter()
            .enumerate()
    {
        t.post(&key(1 + n), body).await.problem(429, "velocity_exceeded");
    }
    // A number is the same however it is written.
    t.post(&key(6), r#"{"card":4242}"#).await.fresh(201);
    t.post(&key(7), r#"{"card":4242.0}"#).await.problem(429, "velocity_exceeded");
    assert_eq!(t.n(), 2);
}

async fn r170_a_burst_of_duplicates_counts_once(on: Kind) {
    let t = Arc::new(on.start(&[Set::Velocity(&[], "2/min")]).await);
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let mut duplicates = JoinSet::new();
    for _ in 0..50 {
        let t = t.clone();
        duplicates.spawn(async move { t.post(K1, CARD).await.status });
    }
    for _ in 0..49 {
        let status = within("a refusal", duplicates.join_next()).await.unwrap().unwrap();
        assert_eq!(status, 409);
    }
    gate.open();
    assert_eq!(within("the answer", duplicates.join_next()).await.unwrap().unwrap(), 201);
    t.post(K2, CARD).await.fresh(201);
    t.post(&key(0), CARD).await.problem(429, "velocity_exceeded");
    assert_eq!(t.n(), 2);
}

// threat I5
async fn r171_a_caller_has_so_many_live_keys(on: Kind) {
    let t = on.start(&[Set::LiveKeysMax(3), Set::TtlMs(2_400)]).await;
    let first = t.post(K1, B1).await.fresh(201);
    for n in 0..2 {
        t.post(&key(n), B1).await.fresh(201);
    }
    let refused = t.post(K2, B1).await;
    refused.problem(429, "velocity_exceeded");
    assert!((1..=3).contains(&refused.retry_after_s()), "{}", refused.retry_after_s());
    t.post(K1, B1).await.replays(&first);
    t.post(K1, B2).await.problem(422, "idempotency_key_reused");
    t.send(&Ask::post(B1).key(K2).tenant("B")).await.fresh(201);
    within("some keys to expire", async {
        while t.post(K2, B1).await.status == 429 {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(t.n(), 5);
}

async fn r171_the_bytes_that_are_kept_for_a_caller_are_limited(on: Kind) {
    let t = on.start(&[Set::LiveBytesMax(100_000)]).await;
    t.u.plan("/t", [Reply::created().body(vec![b'x'; 200_000])]);
    let first = t.post(K1, B1).await.fresh(201);
    t.post(K2, B1).await.problem(429, "velocity_exceeded");
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1);
}

async fn r171_what_is_not_kept_takes_no_bytes(on: Kind) {
    let t = on.start(&[Set::LiveBytesMax(100_000), Set::Keep("status")]).await;
    t.u.plan("/t", [Reply::created().body(vec![b'x'; 200_000])]);
    t.post(K1, B1).await.fresh(201);
    t.post(K2, B1).await.fresh(201);
    assert_eq!(t.n(), 2);
}

async fn r171_what_was_not_executed_is_no_live_key(on: Kind) {
    let t = on.start(&[Set::LiveKeysMax(2)]).await;
    t.u.plan("/t", vec![Reply::status(401); 5].into_iter().chain([Reply::created()]));
    for n in 0..5 {
        assert_eq!(t.post(&key(n), B1).await.status, 401);
    }
    t.post(K1, B1).await.fresh(201);
    t.post(K2, B1).await.fresh(201);
    t.post(&key(9), B1).await.problem(429, "velocity_exceeded");
}

/// Its attempts are one key, and a caller at its limit may end what it has begun.
async fn r171_an_unknown_outcome_is_recovered_past_the_limit_too(on: Kind) {
    let t = on.start(&[Set::LiveKeysMax(2), Set::Recovery("redrive")]).await;
    t.u.plan("/t", vec![Reply::reset(); 3].into_iter().chain([Reply::created()]));
    for _ in 0..3 {
        t.post(K1, B1).await.problem(502, "idempotency_outcome_unknown");
    }
    t.post(K2, B1).await.fresh(201);
    t.post(&key(0), B1).await.problem(429, "velocity_exceeded");
    t.post(K1, B1).await.fresh(201);
    assert_eq!(t.n(), 5);
}

async fn r171_a_key_that_is_freed_again_and_again_counts_once(on: Kind) {
    let t = on.start(&[Set::LiveKeysMax(2), Set::Recovery("release")]).await;
    t.u.plan("/t", vec![Reply::reset(); 3].into_iter().chain([Reply::created()]));
    for _ in 0..3 {
        t.post(K1, B1).await.problem(502, "idempotency_outcome_unknown");
    }
    t.post(K1, B1).await.fresh(201);
    t.post(K2, B1).await.fresh(201);
    t.post(&key(0), B1).await.problem(429, "velocity_exceeded");
}

async fn r171_a_burst_of_duplicates_at_the_limit_is_told_to_wait_for_the_first(on: Kind) {
    let t = on.start(&[Set::LiveKeysMax(2)]).await;
    t.post(K2, B1).await.fresh(201);
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let mut duplicates = JoinSet::new();
    for _ in 0..30 {
        duplicates.spawn(status_of(t.address(), Ask::post(B1).key(K1)));
    }
    for _ in 0..29 {
        let status = within("a refusal", duplicates.join_next()).await.unwrap().unwrap();
        assert_eq!(status, 409);
    }
    gate.open();
    assert_eq!(within("the answer", duplicates.join_next()).await.unwrap().unwrap(), 201);
}

/// Two gateways with one upstream, which the first has.
async fn two(on: Kind, profile: &[Set]) -> (Subject, Subject) {
    let one = on.start(profile).await;
    let url = format!("http://{}", one.u.address);
    let two = on.start_at(&url, Upstream::start().await, profile).await;
    (one, two)
}

/// How many of `count` fresh keys, sent at once to both gateways in turn, were executed.
async fn executed_of(count: usize, gateways: [&Subject; 2], name: &str) -> usize {
    let mut requests = JoinSet::new();
    for n in 0..count {
        let (address, key) = (gateways[n % 2].address(), format!("{name}-{n:08}"));
        requests.spawn(status_of(address, Ask::post(CARD).key(key)));
    }
    let statuses = within("the answers", requests.join_all()).await;
    assert!(statuses.iter().all(|status| matches!(status, 201 | 429)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 201).count()
}

async fn status_of(address: SocketAddr, ask: Ask) -> u16 {
    Connection::open(address).await.send(&ask).await.expect("a whole answer").status
}

async fn r168_two_gateways_on_one_redis_share_a_limit(on: Kind) {
    let redis = block_in_place(|| Redis::start(&[]));
    let rules = Set::Velocity(&["json:/card"], "20/d");
    let (one, two) = two(on, &[Set::Store(redis.url()), rules]).await;
    let executed = executed_of(100, [&one, &two], "shared").await;
    assert_eq!((executed, one.n()), (20, 20));
    let alone = [&one, &two].map(|t| t.metric("onlyonce_velocity_alone"));
    assert_eq!(futures_util::future::join_all(alone).await, [0, 0]);
}

async fn r168_a_redis_that_is_away_leaves_each_gateway_its_own_count(on: Kind) {
    let (_postgres, store) = block_in_place(|| {
        let postgres = Postgres::start();
        let store = Set::Store(postgres.database());
        (postgres, store)
    });
    let mut redis = block_in_place(|| Redis::start(&[]));
    let filter = Set::Filter(redis.url());
    let profile = [store, filter, Set::Velocity(&["json:/card"], "10/d")];
    let (one, two) = two(on, &profile).await;
    within("both to reach Redis", async {
        while one.metric("onlyonce_filter_up").await + two.metric("onlyonce_filter_up").await < 2 {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    block_in_place(|| redis.kill());
    let executed = executed_of(100, [&one, &two], "alone").await;
    assert_eq!(executed, 20, "each gateway lets its own ten through");
    assert_eq!(one.metric("onlyonce_velocity_alone").await, 1);
    block_in_place(|| redis.start_again());
    within("Redis to count again", async {
        let mut n = 0;
        while one.metric("onlyonce_velocity_alone").await == 1 {
            n += 1;
            one.post(&format!("again-{n:08}"), OTHER_CARD).await;
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let log = one.end_and_read_logs().await;
    assert!(log.contains("each node goes by its own count"), "{log}");
    assert!(log.contains("Redis counts for the velocity limits of all nodes again"), "{log}");
}

async fn r171_a_flood_of_keys_harms_nobody_else(on: Kind) {
    let t = Arc::new(on.start(&[Set::LiveKeysMax(1_000)]).await);
    let flood = tiered(100_000);
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let t = t.clone();
        senders.spawn(async move {
            let mut line = t.connect().await;
            let mut statuses = Vec::new();
            for n in (sender..flood).step_by(SENDERS) {
                let ask = Ask::post(B1).key(key(n)).tenant("flood");
                statuses.push(line.send(&ask).await.expect("a whole answer").status);
            }
            statuses
        });
    }
    let mut line = t.connect().await;
    for n in 0..OTHERS {
        let ask = Ask::post(B1).key(key(n)).tenant("B");
        line.send(&ask).await.expect("a whole answer").fresh(201);
    }
    let statuses: Vec<u16> = senders.join_all().await.into_iter().flatten().collect();
    let taken = statuses.iter().filter(|status| **status == 201).count();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    println!(
        "of {flood} keys {taken} were taken and {refused} refused; {OTHERS} of another caller were taken"
    );
    assert_eq!((taken, refused), (1_000, flood - 1_000));
    let executed = t.metric("onlyonce_executed_total{route=\"default\"}").await;
    assert_eq!(executed, 1_000 + OTHERS, "the store is within its cap");
}

const SENDERS: usize = 16;
const OTHERS: usize = 100;

async fn a_client_that_makes_a_new_key_for_each_retry_is_named(on: Kind) {
    for mode in ["enforce", "observe"] {
        let mode = match mode {
            "observe" => &[Set::Toml("mode = \"observe\"")][..],
            _ => &[],
        };
        let t = on.start(mode).await;
        for n in 0..4 {
            t.post(&key(n), CARD).await.fresh(201);
        }
        t.post(&key(8), OTHER_CARD).await.fresh(201);
        t.send(&Ask::post(CARD).key(key(9)).tenant("B")).await.fresh(201);
        // Observe mode counts in the background.
        within("the count", async {
            while t.metric("onlyonce_rekeyed_total{route=\"default\"}").await < 3 {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert_eq!(t.metric("onlyonce_rekeyed_total{route=\"default\"}").await, 3);
        assert_eq!(t.n(), 6, "nothing is refused for it");
        let log = t.end_and_read_logs().await;
        assert_eq!(log.matches("make a new key for each retry").count(), 1, "{log}");
    }
}
