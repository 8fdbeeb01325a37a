//! The same promise for consumers and jobs: without HTTP, with values instead of responses.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::outcome::{Cause, OnceError, Outcome};
use super::{Ask, Ended, Once, Refusal, Verdict, Worked};
use crate::clock::StoreTime;
use crate::fingerprint::{Fingerprint, Subject};
use crate::key::{Key, KeyError, KeyRules};
use crate::policy::{Mode, Policy};
use crate::record::{Kept, KeyText, NotKept, Response};
use crate::scope::{OperationId, Principal, operation_id_of};
use crate::store::BoxError;

impl Once {
    /// Runs `work` at most once for `operation`, and returns its value to every later caller.
    ///
    /// The work runs in a task of its own: dropping this future does not stop it, and an outer timeout
    /// does not bound it. [`Policy::with_upstream_timeout`] of the operation's policy does.
    ///
    /// ```
    /// # #[cfg(feature = "memory")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use onlyonce::{Once, Operation, Outcome, scope::Principal, store::memory::MemoryStore};
    ///
    /// let once = Once::new(MemoryStore::new());
    /// let order = || Operation::new("ship-order", Principal::of("queue", b"orders"), "order-4711");
    /// let first = once.run(order()?, |_| async { Ok("parcel 1".to_owned()) }).await?;
    /// let again = once.run(order()?, |_| async { Ok("parcel 2".to_owned()) }).await?;
    /// assert_eq!(first, Outcome::Fresh("parcel 1".to_owned()));
    /// assert_eq!(again, Outcome::Replayed("parcel 1".to_owned()));
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "memory"))]
    /// # fn main() {}
    /// ```
    ///
    /// Work whose errors are of anyhow, or of any type that becomes a `Box<dyn Error + Send + Sync>`, is a function of its own,
    /// and `?` in the closure makes a [`Failure`] of its error:
    ///
    /// ```
    /// # #[cfg(feature = "memory")]
    /// # fn main() -> anyhow::Result<()> {
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use anyhow::Context;
    /// use onlyonce::{Once, Operation, Outcome, scope::Principal, store::memory::MemoryStore};
    ///
    /// async fn ship(order: &str) -> anyhow::Result<String> {
    ///     let number: u32 = order.parse().context("the number of the order")?;
    ///     Ok(format!("parcel {number}"))
    /// }
    ///
    /// let once = Once::new(MemoryStore::new());
    /// let order = Operation::new("ship-order", Principal::of("queue", b"orders"), "order-4711")?;
    /// let shipped = once.run(order, |_| async { Ok(ship("4711").await?) }).await?;
    /// assert_eq!(shipped, Outcome::Fresh("parcel 4711".to_owned()));
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "memory"))]
    /// # fn main() {}
    /// ```
    pub async fn run<T, F, Fut>(
        &self,
        operation: Operation,
        work: F,
    ) -> Result<Outcome<T>, OnceError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let ask = Arc::new(operation.ask(self));
        let (id, policy) = (ask.id, ask.policy.clone());
        let work = move |number| bounded(work(Attempt { number, id }), policy);
        let ended = match self.inner.cached_for(&ask) {
            Some(refusal) => {
                ask.counters.refused_by(&refusal);
                self.inner.tell_refused(&ask, &refusal);
                Ended::Refused(refusal)
            }
            None => self.inner.answer(ask, None, work).await,
        };
        let now = self.inner.store.time().now().unwrap_or_else(|| self.inner.clock.wall());
        outcome(ended, now)
    }
}

/// One logical intent: the name of its kind, the principal that asks, and the key.
#[derive(Clone, Debug)]
pub struct Operation {
    namespace: Box<str>,
    principal: Principal,
    key: Key,
    payload: Bytes,
    policy: Policy,
}

impl Operation {
    /// The operation of kind `namespace` that `principal` calls `key`, under [`Policy::default`]. The kind is also its route,
    /// by which it is counted: a name such as `ship-order`, not one for each order. What tells two operations of a kind apart
    /// belongs in the key. An engine counts a thousand kinds; all further ones together.
    pub fn new(namespace: &str, principal: Principal, key: &str) -> Result<Self, KeyError> {
        let policy = Policy::default().with_route(namespace);
        let key = Key::from_text(key, policy.key_rules())?;
        Ok(Self { namespace: namespace.into(), principal, key, payload: Bytes::new(), policy })
    }

    /// The data of the operation: the same key with another payload is [`Outcome::Reused`]. Default: no payload, so
    /// that the key alone tells operations apart.
    ///
    /// # Errors
    /// If `payload` cannot be written as JSON.
    pub fn with_payload(self, payload: &impl Serialize) -> Result<Self, OnceError> {
        let payload =
            serde_json::to_vec(payload).map_err(|error| OnceError::Value(error.into()))?;
        Ok(Self { payload: payload.into(), ..self })
    }

    /// The operation of one item of a batch, whose operation this is: with a key that is derived from the batch's key and
    /// the item's place in it, and without a payload. A retry of the batch must have its items in the same order; with the
    /// item as its payload, another one in its place is [`Outcome::Reused`].
    ///
    /// ```
    /// # #[cfg(feature = "memory")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use onlyonce::{Failure, Once, Operation, Outcome, scope::Principal, store::memory::MemoryStore};
    /// # use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
    /// let once = Once::new(MemoryStore::new());
    /// let payments = Arc::new(AtomicUsize::new(0));
    /// let mut stock = [true, false, true];
    /// for _try in 0..2 {
    ///     let batch = Operation::new("payout", Principal::of("api-key", b"acct_1"), "payouts-of-may")?;
    ///     for (index, amount) in [10, 20, 30].into_iter().enumerate() {
    ///         let (payments, is_covered) = (payments.clone(), stock[index]);
    ///         let item = batch.item(index).with_payload(&amount)?;
    ///         let paid = once.run(item, move |_| async move {
    ///             if !is_covered {
    ///                 return Err(Failure::not_done("not covered")); // told to the caller, and free to be retried
    ///             }
    ///             payments.fetch_add(1, Ordering::SeqCst);
    ///             Ok(format!("paid {amount}"))
    ///         });
    ///         println!("{index}: {:?}", paid.await); // one line of the answer for each item
    ///     }
    ///     stock[1] = true;
    /// }
    /// assert_eq!(payments.load(Ordering::SeqCst), 3); // the second try paid only what was left
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "memory"))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        let batch = operation_id_of(None, &self.namespace, &self.principal, &self.key);
        let key = Key::from_text(&batch.derive(&format!("item {index}")), &KeyRules::default());
        let key = key.expect("a derived key is a key");
        Self { key, payload: Bytes::new(), ..self.clone() }
    }

    /// The rules of the operation: times, limits and recovery. Default: [`Policy::default`], with the namespace as its
    /// route. Rules about HTTP (methods, where the key is found, statuses, errors, observing) do not apply, nor do limits of
    /// callers (velocity, live keys).
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    fn ask(self, once: &Once) -> Ask {
        let secret = once.inner.secret.as_ref();
        let id = operation_id_of(secret, &self.namespace, &self.principal, &self.key);
        let fingerprint = self.fingerprint().kept(secret);
        // Values have no observe mode: the work of a second caller is never run.
        let policy = self.policy.with_mode(Mode::Enforce);
        let policy = policy.with_live_keys_max(0).with_live_bytes_max(0);
        let (policy, counters) = once.inner.learn_of_run(policy);
        Ask {
            id,
            key: KeyText::new(self.key.as_str()),
            fingerprint,
            principal: self.principal.kept(secret),
            place: None,
            failure: Arc::new(failed(&policy)),
            policy,
            counters,
            asking: None,
            target: Arc::default(),
            ends_at: None,
            if_free: None,
            allowances: Vec::new(),
        }
    }

    /// What its callers must have in common.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let subject = Subject {
            method: "",
            path: &self.namespace,
            query: None,
            headers: &JSON,
            body: &self.payload,
        };
        Fingerprint::of(self.policy.fingerprint(), &subject)
    }

    /// Its parts, as they were given.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
    pub(crate) fn parts(&self) -> (&str, &Principal, &Key, &Policy) {
        (&self.namespace, &self.principal, &self.key, &self.policy)
    }
}

/// One try of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// 1, 2, 3…
    pub number: u32,
    /// The operation.
    pub id: OperationId,
}

impl Attempt {
    /// A key for a further call that this operation makes: the same at every attempt, another for
    /// every `step` and every operation.
    ///
    /// ```
    /// # use onlyonce::{Attempt, scope::OperationId};
    /// # let id = OperationId::from_bytes([7; 16]);
    /// let first = Attempt { number: 1, id };
    /// let second = Attempt { number: 2, id };
    /// assert_eq!(first.derive("receipt"), second.derive("receipt"));
    /// assert_ne!(first.derive("receipt"), first.derive("invoice"));
    /// ```
    pub fn derive(&self, step: &str) -> String {
        self.id.derive(step)
    }
}

/// Why the work did not succeed. An error passed on with `?` is `Unknown`, which is the safe reading: any error type, one of
/// anyhow or a text too.
// It is no `Error` itself: then `From` for every type that becomes a `BoxError` could not be.
#[derive(Debug)]
pub enum Failure {
    /// Nothing happened: the key is free again.
    NotDone(BoxError),
    /// The work may have happened: it is not run again by itself.
    Unknown(BoxError),
}

impl Failure {
    /// Nothing happened, because of `error`.
    pub fn not_done(error: impl Into<BoxError>) -> Self {
        Self::NotDone(error.into())
    }
}

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Unknown(error.into())
    }
}

/// The result of the work, for the caller whose work it was.
enum Ran<T> {
    Done(T),
    NotDone(BoxError),
    Unknown(BoxError),
    /// Done, and its value cannot be written.
    Unwritable(BoxError),
}

/// Runs the work within its timeout, and catches a panic.
async fn bounded<T, Fut>(work: Fut, policy: Arc<Policy>) -> Worked<Ran<T>>
where
    T: Serialize,
    Fut: Future<Output = Result<T, Failure>>,
{
    let caught = timeout(policy.upstream_timeout(), AssertUnwindSafe(work).catch_unwind()).await;
    match caught {
        Ok(Ok(Ok(value))) => done(value, &policy),
        Ok(Ok(Err(Failure::NotDone(error)))) => not_done(error),
        Ok(Ok(Err(Failure::Unknown(error)))) => unknown(error, &policy),
        Ok(Err(_)) => unknown("the work panicked".into(), &policy),
        Err(elapsed) => unknown(elapsed.into(), &policy),
    }
}

fn done<T: Serialize>(value: T, policy: &Policy) -> Worked<Ran<T>> {
    let json = match serde_json::to_vec(&value) {
        Ok(json) => json,
        // The work is done, even if its value cannot be kept.
        Err(error) => {
            let verdict = Verdict::Store(Arc::new(ran(Kept::No(NotKept::Refused))));
            return Worked::new(verdict, Ran::Unwritable(error.into()));
        }
    };
    let body = if json.len() > policy.response_bytes_max() {
        Kept::No(NotKept::TooLarge)
    } else {
        Kept::Bytes { body: json.into(), trailers: None }
    };
    Worked::new(Verdict::Store(Arc::new(ran(body))), Ran::Done(value))
}

fn not_done<T>(error: BoxError) -> Worked<Ran<T>> {
    Worked::new(Verdict::NotSent, Ran::NotDone(error))
}

fn unknown<T>(error: BoxError, policy: &Policy) -> Worked<Ran<T>> {
    let verdict = Verdict::Unknown(Arc::new(failed(policy)));
    Worked::new(verdict, Ran::Unknown(error))
}

fn ran(body: Kept) -> Response {
    Response { status: StatusCode::OK, headers: HeaderMap::new(), body }
}

fn failed(policy: &Policy) -> Response {
    crate::problem::failed(policy)
}

/// What `run` returns; `now` is the store's time.
fn outcome<T: DeserializeOwned>(
    ended: Ended<Ran<T>>,
    now: StoreTime,
) -> Result<Outcome<T>, OnceError> {
    let unknown = |error| Ok(Outcome::Unknown { since: now, cause: Some(Cause::new(error)) });
    match ended {
        Ended::Fresh(ran) | Ended::Unclear(ran) => match ran {
            Ran::Done(value) => Ok(Outcome::Fresh(value)),
            Ran::NotDone(error) => Err(OnceError::NotDone(error)),
            Ran::Unwritable(error) => Err(OnceError::Value(error)),
            Ran::Unknown(error) => unknown(error),
        },
        // Values have no deadline.
        Ended::Overdue | Ended::Unsettled => unknown("the store did not take the outcome".into()),
        Ended::Refused(Refusal::Replay(response)) => replayed(&response),
        Ended::Refused(Refusal::Reused | Refusal::Respelled) => Ok(Outcome::Reused),
        Ended::Refused(Refusal::InProgress) => Ok(Outcome::InProgress { retry_after: RETRY_AFTER }),
        Ended::Refused(Refusal::Unknown { since }) => Ok(Outcome::Unknown { since, cause: None }),
        Ended::Refused(Refusal::Unreadable) => unknown("its record cannot be read".into()),
        Ended::Refused(Refusal::StoreDown { .. }) => Err(OnceError::StoreDown),
        Ended::Refused(
            Refusal::Overloaded
            | Refusal::DeadlineExceeded
            | Refusal::KeyExpired
            | Refusal::TokenExpired
            | Refusal::VelocityExceeded { .. }
            | Refusal::TooManyKeys { .. }
            | Refusal::Unauthorized(_)
            | Refusal::AuthorizationUnknown,
        ) => Err(OnceError::Overloaded),
    }
}

fn replayed<T: DeserializeOwned>(response: &Response) -> Result<Outcome<T>, OnceError> {
    match &response.body {
        _ if response.status != StatusCode::OK => Err(OnceError::GivenUp),
        Kept::No(_) | Kept::Sealed(_) => Err(OnceError::NotKept),
        Kept::Bytes { body, .. } => {
            let value = serde_json::from_slice(body);
            value.map(Outcome::Replayed).map_err(|error| OnceError::Value(error.into()))
        }
    }
}

/// Payloads are compared as JSON.
static JSON: LazyLock<HeaderMap> = LazyLock::new(|| {
    let json = HeaderValue::from_static("application/json");
    HeaderMap::from_iter([(header::CONTENT_TYPE, json)])
});
const RETRY_AFTER: Duration = Duration::from_secs(1);
