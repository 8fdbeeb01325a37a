//! Duplicates at the same time, and clients that hang up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use http::StatusCode;
use onlyonce::policy::InFlight;
use onlyonce::testing::twice_with_failure;
use onlyonce::transaction::{Begun, TransactionLayer, Transactions, Tx};
use onlyonce::{Limits, Policy};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::{BODY, Shop, caller, charge, insert, send};
use crate::lab::{self, CHARGE, Lab, created, tiered};

type Runs = State<Arc<AtomicUsize>>;

async fn create(mut tx: Tx, State(runs): Runs) -> impl IntoResponse {
    (StatusCode::CREATED, format!("charge {}", insert(&mut tx, &runs).await))
}

/// Each of two pools stands for a process; neither has a connection to spare for one that waits.
// R127
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_duplicates_in_two_processes_have_one_effect_and_one_answer() {
    let lab = Lab::start().await;
    for in_flight in [InFlight::Wait(Duration::from_secs(60)), InFlight::Reject] {
        let runs = Arc::new(AtomicUsize::new(0));
        let mut apps = Vec::new();
        for _ in 0..2 {
            let policy = Policy::default().with_in_flight(in_flight);
            let layer = Transactions::new().layer(lab.pool(2).await, caller, policy);
            let app = Router::new().route("/charges", post(create)).layer(layer);
            apps.push(app.with_state(runs.clone()));
        }
        lab.sql("TRUNCATE charge");
        for round in 0..tiered(20) {
            let mut callers = JoinSet::new();
            for caller in 0..64 {
                let key = format!("{}-{round}", in_flight == InFlight::Reject);
                callers.spawn(send(apps[caller % 2].clone(), charge(&key, BODY)));
            }
            let answers = callers.join_all().await;
            let body = format!("charge {}", round + 1);
            let done = answers.iter().filter(|answer| answer.status == StatusCode::CREATED);
            assert!(done.clone().all(|answer| answer.body == body), "{answers:?}");
            assert_eq!(done.clone().filter(|answer| !answer.is_replay()).count(), 1);
            let refused = answers.iter().filter(|answer| answer.status == StatusCode::CONFLICT);
            let refused = refused.inspect(|answer| {
                assert_eq!(answer.code(), "idempotency_in_progress");
                assert!(answer.headers.contains_key("retry-after"));
            });
            let (done, refused) = (done.count(), refused.count());
            assert_eq!(done + refused, 64, "{answers:?}");
            if in_flight != InFlight::Reject {
                assert_eq!(refused, 0, "who waits gets the answer");
            }
            assert_eq!(lab.charges(), (round + 1).to_string());
            println!("{in_flight:?}: {done} answers, {refused} refusals");
        }
    }
}

/// A handler that answers once `open` says so.
async fn gated(policy: Policy) -> (Shop, watch::Sender<bool>) {
    gated_with(policy, |layer| layer).await
}

async fn gated_with(
    policy: Policy,
    change: impl FnOnce(TransactionLayer) -> TransactionLayer,
) -> (Shop, watch::Sender<bool>) {
    let (open, opened) = watch::channel(false);
    let handler = async move |mut tx: Tx, State(runs): Runs| {
        let run = insert(&mut tx, &runs).await;
        opened.clone().wait_for(|open| *open).await.unwrap();
        (StatusCode::CREATED, format!("charge {run}"))
    };
    (Shop::open_in(Lab::start().await, policy, handler, change).await, open)
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it came true in time");
}

// R127
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_waits_no_longer_than_the_policy_says() {
    let wait = Duration::from_millis(300);
    let (shop, open) = gated(Policy::default().with_in_flight(InFlight::Wait(wait))).await;
    let first = tokio::spawn(send(shop.app.clone(), charge("k", BODY)));
    until(|| shop.runs() == 1).await;
    let (asked, answer) = (tokio::time::Instant::now(), shop.post("k", BODY).await);
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::CONFLICT, "idempotency_in_progress")
    );
    assert!(asked.elapsed() >= wait && asked.elapsed() < wait * 10, "{:?}", asked.elapsed());
    let waiting = tokio::spawn(send(shop.app.clone(), charge("k", BODY)));
    open.send_replace(true);
    assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
    let answer = waiting.await.unwrap();
    assert_eq!((answer.status, answer.is_replay()), (StatusCode::CREATED, true));
    assert_eq!((shop.lab.charges(), shop.runs()), ("1".to_owned(), 1));
}

// R126
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_changes_nothing() {
    let (shop, open) = gated(Policy::default()).await;
    let hung_up = tokio::spawn(shop.app.clone().oneshot(charge("k", BODY)));
    until(|| shop.runs() == 1).await;
    hung_up.abort();
    assert!(hung_up.await.unwrap_err().is_cancelled());
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CONFLICT, "the work goes on");
    open.send_replace(true);
    until(|| shop.lab.charges() == "1").await;
    let answer = shop.post("k", BODY).await;
    assert_eq!((answer.is_replay(), &answer.body[..]), (true, &b"charge 1"[..]));
    assert_eq!(shop.runs(), 1);
}

/// There is room for one that waits. It gives its place back when it hangs up.
// R127
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_are_limited_and_leave_with_their_clients() {
    let policy = Policy::default().with_in_flight(InFlight::Wait(Duration::from_secs(60)));
    let limits = Limits::default().with_executing_max(3);
    for limits in
        [limits.with_waiters(1, 9, 9), limits.with_waiters(9, 1, 9), limits.with_waiters(9, 9, 1)]
    {
        let (shop, open) = gated_with(policy.clone(), |layer| layer.with_limits(limits)).await;
        let first = tokio::spawn(send(shop.app.clone(), charge("k", BODY)));
        until(|| shop.runs() == 1).await;
        for _ in 0..3 {
            let mut duplicates = JoinSet::new();
            for _ in 0..2 {
                duplicates.spawn(send(shop.app.clone(), charge("k", BODY)));
            }
            let refused = tokio::time::timeout(Duration::from_secs(20), duplicates.join_next());
            let refused = refused.await.expect("there is room for one").unwrap().unwrap();
            assert_eq!(refused.code(), "idempotency_in_progress");
            assert!(duplicates.try_join_next().is_none(), "the other one waits");
            duplicates.shutdown().await;
        }
        let waiting = tokio::spawn(send(shop.app.clone(), charge("k", BODY)));
        open.send_replace(true);
        assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
        assert!(waiting.await.unwrap().is_replay());
        assert_eq!((shop.lab.charges(), shop.runs()), ("1".to_owned(), 1));
    }
}

/// Duplicates in sequence and at once, clients that hang up at every poll, and a handler that fails half-way.
// R125 to R128
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_of_the_layer_passes_our_own_test_of_services() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let handler = async move |mut tx: Tx, State(runs): Runs| {
        let run = insert(&mut tx, &runs).await;
        match failing.swap(false, Ordering::SeqCst) {
            true => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            false => (StatusCode::CREATED, format!("charge {run}")).into_response(),
        }
    };
    let shop = Shop::open(Policy::default(), handler).await;
    let effects = async || {
        let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM charge");
        count.fetch_one(&shop.pool).await.unwrap() as u64
    };
    let request = |key: &str| charge(key, BODY).map(|_| BODY);
    let fail = async || fails.store(true, Ordering::SeqCst);
    let report = twice_with_failure(shop.app.clone(), request, effects, fail).await;
    println!("{report}");
    report.assert_once();
    assert!(report.operations > 7, "{report}");
}

// R127
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_of_the_library_waits_without_a_connection() {
    let lab = Lab::start().await;
    // One connection for the first, and one for all that wait.
    let (first, pool) = (lab.pool(1).await, lab.pool(1).await);
    let transactions = Transactions::new();
    let Begun::Mine(mut tx) = transactions.begin(&first, &lab::charge("k")).await.unwrap() else {
        panic!()
    };
    let short =
        transactions.begin_within(&pool, &lab::charge("k"), Duration::from_millis(50)).await;
    assert!(matches!(short.unwrap(), Begun::InProgress { .. }));
    let mut waiters = JoinSet::new();
    for _ in 0..16 {
        let (transactions, pool) = (transactions.clone(), pool.clone());
        waiters.spawn(async move {
            let wait = Duration::from_secs(60);
            transactions.begin_within(&pool, &lab::charge("k"), wait).await.unwrap()
        });
    }
    sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
    // The pool has its connection for others while they wait.
    for _ in 0..20 {
        sqlx::query("SELECT 1").execute(&pool).await.unwrap();
    }
    assert_eq!(waiters.len(), 16);
    assert!(waiters.try_join_next().is_none(), "none has an answer yet");
    tx.complete(created()).await.unwrap();
    for begun in waiters.join_all().await {
        assert!(matches!(begun, Begun::Replay(reply) if reply == created()));
    }
    assert_eq!(lab.charges(), "1");
    let reused = lab::charge("k").with_payload(&1).unwrap();
    let reused = transactions.begin_within(&pool, &reused, Duration::from_secs(60)).await.unwrap();
    assert!(matches!(reused, Begun::Reused), "at once");
}

// R127, R126
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_does_the_work_if_the_first_was_rolled_back() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(2).await, Transactions::new());
    let Begun::Mine(tx) = transactions.begin(&pool, &lab::charge("k")).await.unwrap() else {
        panic!()
    };
    let waiting = {
        let (transactions, pool) = (transactions.clone(), pool.clone());
        let wait = Duration::from_secs(60);
        tokio::spawn(async move { transactions.begin_within(&pool, &lab::charge("k"), wait).await })
    };
    // It has asked, and has given its connection back.
    let asked =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'idle' AND query = 'ROLLBACK'";
    until(|| lab.sql(asked) == "t").await;
    drop(tx);
    let Begun::Mine(tx) = waiting.await.unwrap().unwrap() else { panic!() };
    tx.complete(created()).await.unwrap();
}
