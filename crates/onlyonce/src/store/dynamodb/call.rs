//! One call of DynamoDB: sent once, and judged by its answer.
//!
//! 1. The SDK's own retries are off. It would repeat a write whose answer was lost and then report the repetition: a
//!    write that was done would look like one whose condition failed. Repeating is for the engine, with the same token.
//! 2. [`NotDone`](Fault::NotDone) is what was never sent, and an error of DynamoDB that says so: its code is one of a
//!    list. Throttling is *busy*. Everything else, a 500 and an answer that does not read included, is
//!    [`Unsure`](Fault::Unsure).
//! 3. Each answer tells the server's time.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::{BoxError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::batch_get_item::BatchGetItemError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::operation::get_item::GetItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::query::QueryError;
use aws_sdk_dynamodb::operation::scan::ScanError;
use aws_sdk_dynamodb::operation::transact_get_items::TransactGetItemsError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::CancellationReason;

use super::item::Item;
use super::server_time::ServerTime;
use crate::clock::{Clock, SystemClock, as_ms};
use crate::store::{Fault, StoreError};

/// Why a call did not do what it was to do.
#[derive(Debug)]
pub(super) enum Failed {
    /// Its condition does not hold; this is the item that is there.
    Condition(Option<Item>),
    /// It met another write, or what it was to follow has moved on. Nothing was done.
    Conflict,
    Fault(Fault),
}

impl Failed {
    /// The fault of a call without a condition.
    pub(super) fn fault(self) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::Conflict => Fault::NotDone(StoreError::Busy),
            Self::Condition(_) => unsure("a condition failed that nobody made"),
        }
    }
}

/// Sends a call, with a trace that it must be given to, and judges the answer.
pub(super) async fn call<T, E: Judged, F>(
    time: &ServerTime,
    send: impl FnOnce(Trace) -> F,
) -> Result<T, Failed>
where
    F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
{
    let trace = Trace::default();
    let answer = send(trace.clone()).await;
    trace.tell(time);
    answer.map_err(|error| judge(error, trace.is_sent()))
}

fn judge<E: Judged>(error: SdkError<E, HttpResponse>, is_sent: bool) -> Failed {
    let (status, answered) = match &error {
        SdkError::ServiceError(answer) => match answer.err().not_met() {
            Some(failed) => return failed,
            None => (answer.raw().status().as_u16(), Answered::of(answer.err())),
        },
        _ if !is_sent || is_unconnected(&error) => {
            return Failed::Fault(Fault::NotDone(unavailable(error)));
        }
        _ => return Failed::Fault(Fault::Unsure(unavailable(error))),
    };
    let code = answered.code.as_str();
    Failed::Fault(match () {
        () if THROTTLED.contains(&code) => Fault::NotDone(StoreError::Busy),
        () if !(400..500).contains(&status) => Fault::Unsure(unavailable(answered)),
        () if code == VALIDATION && answered.message.contains("size") => {
            Fault::NotDone(StoreError::Refused(answered.into()))
        }
        () if code == VALIDATION || REFUSED.contains(&code) => {
            Fault::NotDone(unavailable(answered))
        }
        () => Fault::Unsure(unavailable(answered)),
    })
}

/// Whether there was no connection that a call could have been sent on.
fn is_unconnected(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let client = error.downcast_ref::<hyper_util::client::legacy::Error>();
        if client.is_some_and(hyper_util::client::legacy::Error::is_connect) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What DynamoDB said.
#[derive(Debug, thiserror::Error)]
#[error("DynamoDB answered {code}: {message}")]
struct Answered {
    code: String,
    message: String,
}

impl Answered {
    fn of(error: &impl ProvideErrorMetadata) -> Self {
        let text = |text: Option<&str>| text.unwrap_or("(nothing)").to_owned();
        Self { code: text(error.code()), message: text(error.message()) }
    }
}

fn unavailable(error: impl Into<crate::store::BoxError>) -> StoreError {
    StoreError::Unavailable(error.into())
}

pub(super) fn unsure(why: &'static str) -> Fault {
    Fault::Unsure(unavailable(why))
}

/// The errors of the calls that the store makes.
pub(super) trait Judged: ProvideErrorMetadata + Error + Send + Sync + 'static {
    /// What it means, if the error says that a condition does not hold.
    fn not_met(&self) -> Option<Failed> {
        None
    }
}

macro_rules! conditional {
    ($($error:ident)+) => {$(
        impl Judged for $error {
            fn not_met(&self) -> Option<Failed> {
                match self {
                    Self::ConditionalCheckFailedException(failed) => {
                        Some(Failed::Condition(failed.item().cloned()))
                    }
                    _ => None,
                }
            }
        }
    )+};
}

conditional!(PutItemError UpdateItemError DeleteItemError);

/// The first write of a transaction is that of the record, where one changes.
impl Judged for TransactWriteItemsError {
    fn not_met(&self) -> Option<Failed> {
        let Self::TransactionCanceledException(canceled) = self else {
            return None;
        };
        let reasons = canceled.cancellation_reasons();
        let is_unmet =
            |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
        let is_conflict = |reason: &CancellationReason| {
            is_unmet(reason) || reason.code() == Some("TransactionConflict")
        };
        let refused = reasons.iter().find(|reason| reason.code() == Some("ValidationError"));
        match (refused, reasons.first().filter(|first| is_unmet(first))) {
            (Some(refused), _) => {
                let why = refused.message().unwrap_or("a write of a transaction is refused");
                Some(Failed::Fault(Fault::NotDone(StoreError::Refused(why.into()))))
            }
            (None, Some(first)) => Some(Failed::Condition(first.item().cloned())),
            (None, None) => reasons.iter().any(is_conflict).then_some(Failed::Conflict),
        }
    }
}

/// A read met a transaction.
impl Judged for TransactGetItemsError {
    fn not_met(&self) -> Option<Failed> {
        self.is_transaction_canceled_exception().then_some(Failed::Conflict)
    }
}

impl Judged for BatchGetItemError {}
impl Judged for DescribeTableError {}
impl Judged for GetItemError {}
impl Judged for QueryError {}
impl Judged for ScanError {}

/// When a call was sent and answered. The SDK tells it as the call goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace(Arc<Mutex<Times>>);

#[derive(Debug, Default)]
struct Times {
    sent: Option<Duration>,
    /// The `Date` of the answer, and when it was received.
    date: Option<(i64, Duration)>,
}

impl Trace {
    /// Whether a byte of the call may have been sent.
    fn is_sent(&self) -> bool {
        self.with(|times| times.sent.is_some())
    }

    fn tell(&self, time: &ServerTime) {
        if let Some((date_ms, sent, received)) = self.with(|times| {
            let (date_ms, received) = times.date?;
            Some((date_ms, times.sent?, received))
        }) {
            time.heard(date_ms, sent, received);
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Times) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Intercept for Trace {
    fn name(&self) -> &'static str {
        "onlyonce trace"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.with(|times| times.sent = Some(SystemClock.boot()));
        Ok(())
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let since = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        self.with(|times| times.date = since.map(|since| (as_ms(since), SystemClock.boot())));
        Ok(())
    }
}

/// Not done, and there is no room for it now.
const THROTTLED: [&str; 5] = [
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "TransactionCanceledException",
    "TransactionConflictException",
];
/// Not done: refused before anything was looked at.
const REFUSED: [&str; 12] = [
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "ItemCollectionSizeLimitExceededException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "ResourceNotFoundException",
    "SerializationException",
    "UnknownOperationException",
    "UnrecognizedClientException",
];
/// Not done: the call itself is wrong, or an item too large.
const VALIDATION: &str = "ValidationException";
