//! A sink that does what a test says and notes what it took, and relays at work.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::outbox::{Message, Relay, RelayOptions, Sink, SinkError};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// A relay at work. Dropped, it goes on.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    pub(crate) task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start<S: Sink>(relay: Relay<S>) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(relay.run_until(async { drop(stopped.await) }));
        Self { stop, task }
    }

    pub(crate) async fn shut_down(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(WAIT_MAX, self.task).await.expect("it stops").unwrap();
    }

    /// As if its process were killed.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// What the sink does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Take,
    /// Takes it, and does not answer.
    TakeSilently,
    /// Takes it when the test says so.
    TakeAtGate,
    Refuse,
    BeAway,
    Panic,
}

/// A sink and its log; clones share the log.
#[derive(Clone)]
pub(crate) struct Book {
    pub(crate) taken: Arc<Mutex<Vec<Taken>>>,
    decide: Arc<dyn Fn(&Message) -> Does + Send + Sync>,
    /// Told when a message arrives at the gate.
    pub(crate) arrived: Arc<Notify>,
    pub(crate) gate: Arc<Notify>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) payload: String,
}

impl Book {
    pub(crate) fn new(decide: impl Fn(&Message) -> Does + Send + Sync + 'static) -> Self {
        Self {
            taken: Arc::default(),
            decide: Arc::new(decide),
            arrived: Arc::default(),
            gate: Arc::default(),
        }
    }

    pub(crate) fn taking() -> Self {
        Self::new(|_| Does::Take)
    }

    /// The same log with another sink.
    pub(crate) fn and(&self, decide: impl Fn(&Message) -> Does + Send + Sync + 'static) -> Self {
        Self { taken: self.taken.clone(), ..Self::new(decide) }
    }

    pub(crate) fn payloads(&self) -> Vec<String> {
        self.taken.lock().unwrap().iter().map(|taken| taken.payload.clone()).collect()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.taken.lock().unwrap().iter().map(|taken| taken.id.clone()).collect()
    }

    /// The payloads of each key, which must be numbers.
    pub(crate) fn numbers_by_key(&self) -> BTreeMap<Option<String>, Vec<usize>> {
        let mut of_key: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for taken in &*self.taken.lock().unwrap() {
            of_key.entry(taken.key.clone()).or_default().push(taken.payload.parse().unwrap());
        }
        of_key
    }

    /// Waits until so many deliveries were taken.
    pub(crate) async fn until_taken(&self, count: usize) {
        let wait = async {
            while self.payloads().len() < count {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        let in_time = tokio::time::timeout(WAIT_MAX, wait).await;
        assert!(in_time.is_ok(), "{:?} instead of {count}", self.payloads());
    }

    fn take(&self, message: &Message) {
        self.taken.lock().unwrap().push(Taken {
            id: message.id.clone(),
            key: message.key.clone(),
            payload: String::from_utf8(message.payload.to_vec()).unwrap(),
        });
    }
}

impl Sink for Book {
    async fn send(&self, message: &Message) -> Result<(), SinkError> {
        match (self.decide)(message) {
            Does::Take => self.take(message),
            Does::TakeSilently => {
                self.take(message);
                self.arrived.notify_one();
                std::future::pending().await
            }
            Does::TakeAtGate => {
                self.arrived.notify_one();
                self.gate.notified().await;
                self.take(message);
            }
            Does::Refuse => return Err(SinkError::refused("I do not like it")),
            Does::BeAway => return Err(SinkError::unavailable("nobody is there")),
            Does::Panic => panic!("the sink has a bug"),
        }
        Ok(())
    }
}

/// Takes its time, refuses every eleventh message, and sees when two of one key are sent at the same time.
#[derive(Clone)]
pub(crate) struct Slow {
    book: Book,
    sent: Arc<AtomicUsize>,
    sending: Arc<Mutex<HashSet<String>>>,
    pub(crate) overlaps: Arc<AtomicUsize>,
}

impl Slow {
    pub(crate) fn new(book: &Book) -> Self {
        Self {
            book: book.clone(),
            sent: Arc::default(),
            sending: Arc::default(),
            overlaps: Arc::default(),
        }
    }
}

impl Sink for Slow {
    async fn send(&self, message: &Message) -> Result<(), SinkError> {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        if let Some(key) = &message.key
            && !self.sending.lock().unwrap().insert(key.clone())
        {
            self.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(number as u64 % 7)).await;
        let sent = match number % 11 {
            10 => Err(SinkError::refused("not now")),
            _ => self.book.send(message).await,
        };
        if let Some(key) = &message.key {
            self.sending.lock().unwrap().remove(key);
        }
        sent
    }
}

/// A short lease and short pauses.
pub(crate) fn quick() -> RelayOptions {
    RelayOptions::new()
        .with_lease(Duration::from_secs(1))
        .with_retry_pause(Duration::from_millis(1))
        .with_poll_max(Duration::from_millis(50))
}

/// A test's condition comes true within this, or never.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(10);
