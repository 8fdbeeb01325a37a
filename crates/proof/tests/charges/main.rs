//! The service of `examples/charges`, killed with SIGKILL at every point of a charge while its client retries.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod line;
mod others;
mod service;
mod trigger;
mod world;

use std::collections::BTreeMap;

use proof::client::{self, Answer};
use proof::tier::tiered;

use self::trigger::Moment;
use self::world::World;

// R103, R125, R126, R130 to R136, R140; threats A1, A7, J9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_killed_at_any_point_charges_mails_and_tells_once() {
    let world = World::start().await;
    let kills = tiered(200).max(2 * MOMENTS.len());
    let mut points = BTreeMap::<String, usize>::new();
    for number in 0..kills {
        let moment = MOMENTS[number % MOMENTS.len()];
        let key = format!("charge-{number:04}-{moment:?}");
        let point = world.kill_at(moment, &key).await;
        *points.entry(point).or_default() += 1;

        let service = world.serve();
        let answer = world.retried(&service, &key).await;
        let again = world.retried(&service, &key).await;
        assert_eq!(answer.status.as_u16(), 201, "{key}: {answer:?}");
        assert_eq!((again.is_replay(), &again.body), (true, &answer.body), "{key}");
        world.heard(&key, &answer).await;
    }
    let service = world.serve();
    world.until_nothing_is_pending().await;
    drop(service);
    world.demand_once_each(kills);
    println!("{kills} kills: {points:#?}");
    let least = if tiered(10) == 10 { 3 } else { 1 };
    for point in POINTS {
        let hits = points.get(point).copied().unwrap_or_default();
        assert!(hits >= least, "{point:?} was hit {hits} times: {points:#?}");
    }
}

// R129: the layer of `POST /refunds`, in the same service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_is_one_transaction_and_is_replayed() {
    let world = World::start().await;
    let service = world.serve();
    let charged = world.retried(&service, "charge-of-the-refund").await;
    let charge: serde_json::Value = serde_json::from_slice(&charged.body).unwrap();
    let refund = format!(r#"{{"charge": {}, "amount": 5000}}"#, charge["charge"]);
    let send = |key| service.post("/refunds", key, &refund);
    let first = send("refund-of-the-charge").await.unwrap();
    let again = send("refund-of-the-charge").await.unwrap();
    assert_eq!((first.status.as_u16(), again.is_replay()), (201, true));
    assert_eq!(first.body, again.body);
    let other = send("another-refund-of-it").await.unwrap();
    assert_eq!(other.status.as_u16(), 409, "2,998 are left: {other:?}");
    assert_eq!(world.sql("SELECT count(*), sum(amount) FROM refund"), "1|5000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_is_refused_and_declined_as_in_every_other_layer() {
    let world = World::start().await;
    let service = world.serve();
    let order = |amount| format!(r#"{{"account": "acct_1", "amount": {amount}}}"#);
    let without =
        client::post_without_key(service.address, "/charges", &order(7998)).await.unwrap();
    let told = |answer: &Answer| (answer.status.as_u16(), answer.problem().unwrap_or_default());
    assert_eq!(told(&without), (400, "idempotency_key_missing".to_owned()));
    let short = service.post("/charges", "short", &order(7998)).await.unwrap();
    assert_eq!(told(&short), (400, "idempotency_key_invalid".to_owned()));
    let key = "a-charge-of-7998-cents";
    let first = service.post("/charges", key, &order(7998)).await.unwrap();
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
    let reused = service.post("/charges", key, &order(1)).await.unwrap();
    assert_eq!(told(&reused), (422, "idempotency_key_reused".to_owned()));
    let again = service.post("/charges", key, &order(7998)).await.unwrap();
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));

    let declined = |key| service.post("/charges", key, DECLINED);
    let first = declined("a-charge-that-is-declined").await.unwrap();
    let again = declined("a-charge-that-is-declined").await.unwrap();
    assert_eq!((first.status.as_u16(), again.is_replay()), (402, true));
    assert_eq!(first.body, again.body);
    assert_eq!(world.sql("SELECT count(*) FROM charge"), "1", "nothing is saved of a declined one");
}

/// An order whose card is declined.
const DECLINED: &str = r#"{"account": "declined", "amount": 7998}"#;

/// When the service is killed: when the database has ended one of its transactions, or while another service has its call.
const MOMENTS: [Moment; 13] = [
    Moment::Reply(1),
    Moment::Reply(2),
    Moment::Reply(3),
    Moment::Reply(4),
    Moment::Reply(5),
    Moment::Reply(6),
    Moment::Reply(7),
    Moment::Reply(8),
    Moment::Reply(9),
    Moment::CardCalled,
    Moment::CardCharged,
    Moment::Mailed,
    Moment::Published,
];

/// Where a charge was when the service was killed; each must be met.
const POINTS: [&str; 11] = [
    "before the claim",
    "after the claim",
    "before \"card charged\"",
    "after \"card charged\"",
    "after \"charge saved\"",
    "before \"receipt mailed\"",
    "after \"receipt mailed\"",
    "after the answer, before the reply",
    "while the card network has its call",
    "while the mail service has its call",
    "after an event was published, before it was marked",
];
