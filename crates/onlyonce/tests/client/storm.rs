//! A thousand clients through an outage: the budget keeps it from becoming a storm.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use onlyonce::client::{
    Answer, Budget, Client, Environment, Journal, Reach, Retries, SendError, SendOutcome,
    Transport, TransportError,
};
use onlyonce::clock::{Clock, StoreTime};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::tiered;

/// Each client begins an operation so often.
const PERIOD: Duration = Duration::from_secs(10);
const OUTAGE_BEGINS: Duration = Duration::from_secs(30);
const OUTAGE_ENDS: Duration = Duration::from_secs(90);
const END: Duration = Duration::from_secs(180);
const WINDOW: Duration = Duration::from_secs(10);

// R157; threats I4, J5; case CLI-06
#[tokio::test(start_paused = true)]
async fn after_an_outage_the_load_is_at_most_a_tenth_above_the_usual() {
    let seen = simulate(Budget::new()).await;
    println!("with the budget: {:?} per window, usually {}", seen.windows, seen.usual);
    for (n, load) in seen.windows.iter().enumerate() {
        assert!(*load * 10 <= seen.usual * 11, "window {n}: {load} against {}", seen.usual);
    }
    assert!(seen.unknown > 0, "nothing was left to resume");
}

// The same, to show that the test can fail.
#[tokio::test(start_paused = true)]
async fn without_the_budget_the_same_outage_becomes_a_storm() {
    let seen = simulate(Budget::unlimited()).await;
    println!("without it: {:?} per window, usually {}", seen.windows, seen.usual);
    let most = seen.windows.iter().max().unwrap();
    assert!(*most * 10 > seen.usual * 15, "{most} against {}", seen.usual);
}

struct Seen {
    usual: usize,
    /// What arrived after the outage, in windows of ten seconds.
    windows: Vec<usize>,
    unknown: usize,
}

async fn simulate(budget: Budget) -> Seen {
    // In memory where that is possible: each operation is a commit or two.
    let shared = std::path::Path::new("/dev/shm");
    let folder = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
    let folder = folder.unwrap();
    let time = SimTime { start: Instant::now() };
    let service = Service { time: time.clone(), world: Arc::default() };
    let retries = Retries::new().with_environment(time.clone()).with_budget(Arc::new(budget));
    let journal = Journal::open(folder.path().join("journal")).await.unwrap();
    let client = Client::over(service.clone()).with_retries(retries).with_journal(journal.clone());
    let clients = tiered(1000);
    let mut crowd = JoinSet::new();
    for n in 0..clients {
        crowd.spawn(customer(client.clone(), time.clone(), n, clients));
    }
    tokio::time::sleep(OUTAGE_ENDS).await;
    resume_all(&client, &journal).await;
    let ends: Vec<_> = crowd.join_all().await.into_iter().flatten().collect();
    resume_all(&client, &journal).await;

    // Every operation has an end, and was executed once.
    let periods = usize::try_from(END.as_secs() / PERIOD.as_secs()).unwrap();
    assert_eq!(ends.len(), clients * periods);
    let world = service.world.lock().unwrap();
    assert_eq!(world.executions.len(), clients * periods, "some were never executed");
    assert!(world.executions.values().all(|times| *times == 1));
    let unknown = ends.iter().filter(|end| matches!(end, Ok(SendOutcome::Unknown { .. }))).count();
    Seen { usual: clients, windows: world.windows(), unknown }
}

/// Until nothing is open. What never got through is in the journal too.
async fn resume_all(client: &Client<Service>, journal: &Journal) {
    const ROUNDS_MAX: usize = 10_000;
    for _ in 0..ROUNDS_MAX {
        client.resume().await.unwrap();
        if journal.entries().await.unwrap().is_empty() {
            return;
        }
    }
    panic!("some operations never settled");
}

/// Begins operations at its own times, whatever becomes of them.
async fn customer(
    client: Client<Service>,
    time: SimTime,
    n: usize,
    clients: usize,
) -> Vec<Result<SendOutcome, SendError>> {
    let mut sends = JoinSet::new();
    let offset = PERIOD.mul_f64(n as f64 / clients as f64);
    let mut next = time.start + offset;
    while next < time.start + END {
        tokio::time::sleep_until(next).await;
        let request = client.post("http://bank.test/charges");
        sends.spawn(async move { request.send().await });
        next += PERIOD;
    }
    sends.join_all().await
}

/// The paused clock of the runtime, and dice.
#[derive(Clone, Debug)]
struct SimTime {
    start: Instant,
}

impl Clock for SimTime {
    fn wall(&self) -> StoreTime {
        StoreTime::from_ms(1_700_000_000_000).plus(self.boot())
    }

    fn boot(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Environment for SimTime {
    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(wait))
    }

    fn random(&self) -> u64 {
        getrandom::u64().unwrap()
    }
}

/// A service with keys: during the outage it hangs, refuses, or executes and loses the answer.
#[derive(Clone)]
struct Service {
    time: SimTime,
    world: Arc<Mutex<World>>,
}

#[derive(Default)]
struct World {
    executions: HashMap<String, usize>,
    arrivals: Vec<Duration>,
}

impl World {
    fn windows(&self) -> Vec<usize> {
        let count = usize::try_from((END - OUTAGE_ENDS).as_secs() / WINDOW.as_secs()).unwrap();
        let mut windows = vec![0; count];
        for at in self.arrivals.iter().filter(|at| **at >= OUTAGE_ENDS) {
            let n = (at.saturating_sub(OUTAGE_ENDS).as_millis() / WINDOW.as_millis()) as usize;
            if let Some(window) = windows.get_mut(n) {
                *window += 1;
            }
        }
        windows
    }
}

impl Service {
    fn arrive(&self, request: &Request<Bytes>) -> Option<String> {
        self.world.lock().unwrap().arrivals.push(self.time.boot());
        let key = request.headers().get("idempotency-key")?;
        Some(key.to_str().unwrap().to_owned())
    }

    /// Whether it had been executed before.
    fn execute(&self, key: String) -> bool {
        let mut world = self.world.lock().unwrap();
        let times = world.executions.entry(key).or_default();
        let was = *times > 0;
        *times = 1;
        was
    }
}

impl Transport for Service {
    async fn send(&mut self, request: Request<Bytes>, _: usize) -> Result<Answer, TransportError> {
        let Some(key) = self.arrive(&request) else {
            return Ok(Answer::new(StatusCode::NOT_FOUND));
        };
        let now = self.time.boot();
        if (OUTAGE_BEGINS..OUTAGE_ENDS).contains(&now) {
            return match self.time.random() % 4 {
                0 => Err(TransportError::new(Reach::NotSent, "refused")),
                1 => {
                    self.execute(key);
                    Err(TransportError::new(Reach::MaybeSent, "reset"))
                }
                _ => std::future::pending().await,
            };
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut answer = Answer::new(StatusCode::CREATED);
        if self.execute(key) {
            answer.headers.insert("idempotent-replayed", http::HeaderValue::from_static("true"));
        }
        Ok(answer)
    }
}
