//! The client: one key per operation, retried to a known outcome.
//!
//! 1. The key belongs to the request, not to the client, and is made once, before the first byte. Every
//!    attempt sends the same key and the same bytes. A key that the caller gives, in a header too, is never
//!    replaced by another.
//! 2. Retried are: requests that could not connect, timed out or were cut short; 409 in progress, 425, 429,
//!    500, 502, 503, 504; what a problem document's `retry` or `Stripe-Should-Retry` says. Never a refusal,
//!    never a replay.
//! 3. Waits are drawn at random up to a bound that doubles, on top of what `Retry-After` asks for. A budget
//!    that all operations of a client share ends the retries when too many requests fail.
//! 4. Retries end after a number of attempts, at the deadline, and always before the server forgets the key.
//! 5. What became of the operation is one of five [outcomes](SendOutcome), *unknown* among them. Once an attempt
//!    may have been executed, no later refusal or redirect makes the operation definite: only an answer from
//!    the server's record of the key does, or a success.
//!
//! The key protects only where the server honours it: a server that ignores `Idempotency-Key` executes a retry
//! again. Put Onlyonce in front of it, or call a service that follows Stripe's rules.
//!
//! ```no_run
//! # async fn checkout() -> Result<(), Box<dyn std::error::Error>> {
//! use onlyonce::client::{Client, SendOutcome};
//! use onlyonce::key::Key;
//!
//! let once = Client::new();
//! let charge = once
//!     .post("https://pay.example/charges")
//!     .with_key(Key::derive(["merchant", "acme", "order", "4711", "1"]))
//!     .json(&serde_json::json!({ "amount": 7998 }));
//! match charge.send().await? {
//!     SendOutcome::Fresh(answer) | SendOutcome::Replayed(answer) => println!("paid: {}", answer.text()),
//!     SendOutcome::Done { .. } => println!("paid; look up the receipt"),
//!     SendOutcome::Rejected { answer, .. } => println!("refused: {}", answer.status),
//!     SendOutcome::Unknown { doubt, .. } => println!("not known ({doubt}): send it again, same key"),
//! }
//! # Ok(())
//! # }
//! ```

mod answer;
mod budget;
mod connect;
mod decide;
mod diary;
mod environment;
mod event;
mod grpc;
#[cfg(feature = "client-journal")]
pub mod journal;
mod key;
mod operation;
mod outcome;
#[cfg(feature = "client-reqwest")]
mod over_reqwest;
mod pause;
mod perform;
mod reading;
mod redirect;
mod request;
#[cfg(feature = "client-journal")]
mod resume;
mod retries;
mod tower;
mod transport;
mod well_known;
mod wire;

use std::fmt;

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use self::decide::Course;
use self::diary::Diary;
use self::operation::Operation;
use self::perform::Run;

pub use self::answer::Answer;
pub use self::budget::Budget;
pub use self::environment::Environment;
pub use self::event::Event;
#[cfg(feature = "client-journal")]
pub use self::journal::Journal;
pub use self::outcome::{Doubt, SendError, SendOutcome, Stop};
#[cfg(feature = "client-reqwest")]
pub use self::over_reqwest::OnceMiddleware;
pub use self::request::Request;
#[cfg(feature = "client-journal")]
pub use self::resume::Resumed;
pub use self::retries::Retries;
pub use self::tower::{AnswerBody, NoAnswer, OperationLayer, Operations, Told};
pub use self::transport::{Reach, Transport, TransportError};
pub use self::wire::Wire;

/// Sends operations. It holds connections and the settings that its operations share, and no key. Clones share
/// both.
#[derive(Clone)]
pub struct Client<T = Wire> {
    transport: T,
    retries: Retries,
    headers: HeaderMap,
    #[cfg(feature = "client-journal")]
    journal: Option<Journal>,
}

impl Client {
    /// A client with connections of its own.
    pub fn new() -> Self {
        Self::over(Wire::new())
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Transport + Clone> Client<T> {
    /// A client that sends through your own transport.
    pub fn over(transport: T) -> Self {
        Self {
            transport,
            retries: Retries::new(),
            headers: HeaderMap::new(),
            #[cfg(feature = "client-journal")]
            journal: None,
        }
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Sends this header with every request that is made from now on. A key is refused here: it belongs to one
    /// request.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Writes each operation to this journal before it is sent.
    #[cfg(feature = "client-journal")]
    #[must_use]
    pub fn with_journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// A new operation: POST.
    pub fn post(&self, url: &str) -> Request<T> {
        self.request(Method::POST, url)
    }

    /// A new operation: PATCH.
    pub fn patch(&self, url: &str) -> Request<T> {
        self.request(Method::PATCH, url)
    }

    /// A new operation with a key of its own.
    pub fn request(&self, method: Method, url: &str) -> Request<T> {
        Request::new(self.clone(), method, url)
    }

    #[cfg(not(feature = "client-journal"))]
    async fn send(
        &self,
        operation: Operation,
        tell: impl FnOnce(&Result<SendOutcome, SendError>) -> std::io::Result<()>,
    ) -> Result<SendOutcome, SendError> {
        let run = self.run(Diary::default(), false);
        let end = run.perform(&mut self.transport.clone(), operation, self.course()).await;
        drop(tell(&end));
        end
    }

    /// Sends an operation that is in the journal from before its first byte until it is settled and told.
    #[cfg(feature = "client-journal")]
    async fn send(
        &self,
        operation: Operation,
        tell: impl FnOnce(&Result<SendOutcome, SendError>) -> std::io::Result<()>,
    ) -> Result<SendOutcome, SendError> {
        let Some(journal) = &self.journal else {
            let run = self.run(Diary::default(), false);
            let end = run.perform(&mut self.transport.clone(), operation, self.course()).await;
            // Without a journal nothing is left to be kept for later.
            drop(tell(&end));
            return end;
        };
        let taken = match journal.begin(operation, self.course()).await {
            Ok(taken) => taken,
            Err(error) => {
                let end = Err(error.into());
                drop(tell(&end));
                return end;
            }
        };
        // The outcome is known. An entry that cannot be deleted is only asked about again by a resume.
        let (end, _noted) = self.take_up(taken, false, tell).await;
        end
    }

    fn run(&self, diary: Diary, is_resumed: bool) -> Run<'_> {
        Run { retries: &self.retries, diary, asks: true, is_resumed }
    }

    /// The course of an operation that begins now.
    fn course(&self) -> Course {
        let environment = &self.retries.environment;
        let ends_at = environment.boot().saturating_add(self.retries.settings.deadline);
        let window = self.retries.settings.window;
        Course { window, ..Course::new(environment.wall(), ends_at) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Client<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("retries", &self.retries).finish_non_exhaustive()
    }
}
