//! What a client is told when the database fails, or holds what cannot be read: never that its operation was not executed, if
//! it is begun.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use onlyonce::Policy;
#[cfg(feature = "client")]
use onlyonce::client::{Client, Retries, SendOutcome};
#[cfg(feature = "client")]
use onlyonce::code::Retry;
use onlyonce::code::{Code, Executed};
use onlyonce::http::Body;
#[cfg(feature = "client")]
use onlyonce::key::Key;
use onlyonce::scope::Principal;
use onlyonce::steps::{Completer, HttpSteps, PgDatabase, Run, Steps, Stopped};
use onlyonce::transaction::Reply;
use serde_json::Value;
use tokio::time::timeout;

use crate::cut::{Line, PACKETS_MAX};
use crate::lab::{Lab, Shop, on_both};

on_both! {
    an_operation_that_cannot_be_read_is_not_said_to_be_unexecuted;
    what_is_begun_is_not_said_to_be_unexecuted;
}

/// A charge; one of nothing fails, and waits for its next attempt.
fn charge<S: Shop>() -> Steps<S, u32> {
    Steps::new("charge", async |mut run: Run<S>, amount: u32| {
        run.step("asked", async |_tx| Ok("asked".to_owned())).await?;
        if amount == 0 {
            return Err(Stopped::failed("nothing to charge"));
        }
        run.finish(async |mut tx| {
            S::effect(&mut tx, "charged").await?;
            Ok(Reply::new(StatusCode::CREATED, amount.to_string()))
        })
        .await
    })
}

fn over_http<S: Shop>(steps: &Steps<S, u32>, database: S) -> HttpSteps<S, u32> {
    steps.over_http(database, caller, Policy::payments())
}

fn caller(_: &Parts) -> Principal {
    Principal::of("api-key", b"ann")
}

async fn post<S: Shop>(charges: &HttpSteps<S, u32>, key: &str, amount: u32) -> Told {
    let key = format!("charge-4711-of-the-order-{key}");
    let request = Request::post("/charges").header("idempotency-key", key).body(()).unwrap();
    let (head, ()) = request.into_parts();
    Told::of(charges.answer(&head, &amount).await).await
}

#[derive(Debug)]
struct Told {
    status: u16,
    is_replay: bool,
    /// Of a problem of ours.
    code: Option<Code>,
    original_status: Option<u64>,
}

impl Told {
    async fn of(answer: Response<Body>) -> Self {
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        Self {
            status: head.status.as_u16(),
            is_replay: head.headers.contains_key("idempotent-replayed"),
            code: problem["code"].as_str().map(|code| Code::from_text(code).unwrap()),
            original_status: problem["original_status"].as_u64(),
        }
    }

    fn says_not_executed(&self) -> bool {
        self.code.is_some_and(|code| code.executed() == Executed::No)
    }
}

// threat K23: a reply to the insert that was lost, and every other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_cut_at_any_packet_never_lets_a_begun_operation_be_called_unexecuted() {
    let lab = Lab::postgres().await;
    let direct = PgDatabase::connect(&lab.address).await;
    let steps = charge::<PgDatabase>();
    let (mut cuts, mut begun) = (0, 0);
    for packet in 1..PACKETS_MAX {
        let line = Line::lay(&lab.address, packet).await;
        let Ok(pool) = sqlx::postgres::PgPoolOptions::new().connect(&line.url).await else {
            continue;
        };
        let key = packet.to_string();
        let first = post(&over_http(&steps, PgDatabase::new(pool)), &key, 7998).await;
        let was_cut = line.left.load(Ordering::SeqCst) <= 0;
        // What the server got before the cut, it may be doing still.
        lab.until(WORKING, "0").await;
        let is_begun = lab.sql("SELECT count(*) FROM {steps}") == "1";
        assert!(!(is_begun && first.says_not_executed()), "{packet}: {first:?}");
        begun += usize::from(is_begun && was_cut);
        lab.let_time_pass();
        // The client never comes back, or does.
        if packet % 4 < 2 {
            let completer = Completer::new(direct.clone()).with(&steps);
            let open = "SELECT count(*) FROM {steps} WHERE state <> 'completed'";
            completer.with_poll_max(Duration::ZERO).run_until(lab.until(open, "0")).await;
        }
        let last = post(&over_http(&steps, direct.clone()), &key, 7998).await;
        assert_eq!(last.status, 201, "{packet}: {last:?} after {first:?}");
        assert_eq!(lab.effects(), "charged|1", "{packet}: {first:?}");
        lab.sql("DELETE FROM effect");
        lab.sql("DELETE FROM {steps}");
        if !was_cut {
            println!("{cuts} cuts of {packet} packets; {begun} left an operation begun");
            assert!(cuts > 5 && begun > 2, "{cuts} {begun}");
            return;
        }
        cuts += 1;
    }
    panic!("an operation has more than {PACKETS_MAX} packets");
}

/// A user who does what the client says: the same key while the outcome is not known, a new one after "not executed".
// threat K23: the reply to the insert is lost, and a completer charges.
#[cfg(feature = "client")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_operation_was_begun_without_an_answer_charges_once() {
    let lab = Lab::postgres().await;
    let direct = PgDatabase::connect(&lab.address).await;
    // The statement is sent, described, called, and its answer is lost; or one of these is.
    for packets in 1..=6 {
        let line = Line::lay_counted(&lab.address, packets, "steps_insert").await;
        let steps = charge::<PgDatabase>().with_lease(Duration::from_secs(1));
        let url = serve(over_http(&steps, PgDatabase::connect(&line.url).await)).await;
        let told = timeout(crate::lab::WAIT_MAX, user(&url)).await.unwrap();
        assert!(line.left.load(Ordering::SeqCst) <= 0, "the line was not cut: {told:?}");
        lab.let_time_pass();
        let completer = Completer::new(direct.clone()).with(&steps);
        let open = lab.until("SELECT count(*) FROM {steps} WHERE state <> 'completed'", "0");
        completer.with_poll_max(Duration::ZERO).run_until(open).await;
        assert_eq!(lab.effects(), "charged|1", "{packets}: {told:?}");
        lab.sql("DELETE FROM effect");
    }
}

#[cfg(feature = "client")]
async fn serve(charges: HttpSteps<PgDatabase, u32>) -> String {
    let answer = async move |request: axum::extract::Request| {
        let (head, _) = request.into_parts();
        charges.answer(&head, &7998).await
    };
    let app = axum::Router::new().route("/charges", axum::routing::post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/charges", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, app).await });
    url
}

/// Sends until it is charged. What the user was told.
#[cfg(feature = "client")]
async fn user(url: &str) -> Vec<String> {
    let client = Client::new().with_retries(Retries::new().with_attempts(1));
    let (mut key, mut told) = (Key::random(), Vec::new());
    loop {
        let sent = client.post(url).with_key(key.clone()).json(&7998).send().await;
        told.push(format!("{sent:?}"));
        match sent {
            Ok(end) if end.answer().is_some_and(|answer| answer.status == 201) => return told,
            Ok(SendOutcome::Unknown { .. }) => {}
            Ok(SendOutcome::Rejected { retry: Retry::SameKey, .. }) => {}
            Ok(_) | Err(_) => key = Key::random(),
        }
    }
}

const WORKING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()";

/// What somebody has done to the rows of a completed operation.
const ANSWER_DAMAGE: [&str; 6] = [
    "UPDATE {steps} SET headers = '{\"a b\": \"c\"}'",
    "UPDATE {steps} SET headers = '{\"a\": \"€\"}'",
    "UPDATE {steps} SET headers = NULL",
    "UPDATE {steps} SET body = NULL",
    "UPDATE {steps} SET status = 1000",
    "UPDATE {steps} SET state = 'paused'",
];

/// Also an answer that was given, and cannot be read any more.
// threat K23
async fn an_operation_that_cannot_be_read_is_not_said_to_be_unexecuted<S: Shop>(lab: Lab) {
    lab.drop_checks();
    let charges = over_http(&charge::<S>(), S::connect(&lab.address).await);
    for (number, damage) in ANSWER_DAMAGE.into_iter().enumerate() {
        let key = format!("damaged-{number}");
        assert_eq!(post(&charges, &key, 7998).await.status, 201);
        lab.sql(damage);
        let again = post(&charges, &key, 7998).await;
        assert!(again.code.is_some() && !again.says_not_executed(), "{damage}: {again:?}");
        if damage.contains("headers = '") {
            // What it was is known, and that it was done.
            let told = (again.code, again.original_status);
            assert_eq!(told, (Some(Code::ResponseUnavailable), Some(201)), "{damage}");
        }
        lab.sql("DELETE FROM {steps}");
    }
    assert_eq!(lab.effects(), format!("charged|{}", ANSWER_DAMAGE.len()));
}

/// What somebody has done to the rows of an operation that waits for its next attempt; for SQLite alone, where a text may be
/// any bytes, and for both.
const OPEN_DAMAGE: [(bool, &str); 5] = [
    (false, "UPDATE {steps} SET state = 'paused'"),
    (false, "UPDATE {steps} SET name = 'refund'"),
    (false, "UPDATE {steps} SET request = 'many'"),
    (true, "UPDATE {steps} SET request = CAST(x'ff' AS TEXT)"),
    (true, "UPDATE {point} SET value = CAST(x'22ff22' AS TEXT)"),
];

// threat K23
async fn what_is_begun_is_not_said_to_be_unexecuted<S: Shop>(lab: Lab) {
    lab.drop_checks();
    let charges = over_http(&charge::<S>(), S::connect(&lab.address).await);
    for (number, (is_in_sqlite, damage)) in OPEN_DAMAGE.into_iter().enumerate() {
        if is_in_sqlite && lab.is_postgres() {
            continue;
        }
        let key = format!("open-{number}");
        assert_eq!(post(&charges, &key, 0).await.code, Some(Code::InProgress));
        lab.sql(damage);
        for _ in 0..2 {
            let again = post(&charges, &key, 0).await;
            assert!(again.code.is_some() && !again.says_not_executed(), "{damage}: {again:?}");
            lab.let_time_pass();
        }
    }
    assert_eq!(lab.effects(), "");
}

/// Kept for ever, says whoever has set this.
#[tokio::test]
async fn an_answer_without_an_end_is_replayed() {
    let lab = Lab::postgres().await;
    let charges = over_http(&charge(), PgDatabase::connect(&lab.address).await);
    assert_eq!(post(&charges, "k", 7998).await.status, 201);
    lab.sql("UPDATE {steps} SET expires_at = 'infinity', since = '-infinity'");
    let again = post(&charges, "k", 7998).await;
    assert!(again.is_replay && again.status == 201, "{again:?}");
}
