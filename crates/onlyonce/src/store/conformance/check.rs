//! How a case says what it found.

use std::any::Any;
use std::error::Error;
use std::fmt::Debug;

use crate::clock::StoreTime;
use crate::store::Fault;

/// What a case ends with.
pub(super) type Outcome = Result<(), Stop>;

/// Why a case went no further.
#[derive(Debug)]
pub(super) enum Stop {
    /// The promise was broken, in this way.
    Failed(String),
    /// The store is declared not to have this.
    Skipped(&'static str),
}

/// A store under test has no reason to give no answer.
impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        let cause = fault.error();
        let below = cause.source().map_or(String::new(), |e| format!(": {e}"));
        Self::Failed(format!("the store gave no answer: {fault}: {cause}{below}"))
    }
}

pub(super) fn failed<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(why.into()))
}

pub(super) fn panicked(panic: &(dyn Any + Send)) -> Outcome {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    failed(format!("panicked: {}", text.unwrap_or("without a word")))
}

pub(super) fn ensure(is_so: bool, what: &str) -> Outcome {
    if is_so {
        return Ok(());
    }
    failed(format!("not so: {what}"))
}

pub(super) fn equal<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    failed(format!("{what} is {found:?} instead of {expected:?}"))
}

/// A time that the store took between two of its own answers.
pub(super) fn between(
    what: &str,
    earliest: StoreTime,
    found: StoreTime,
    latest: StoreTime,
) -> Outcome {
    if earliest <= found && found <= latest {
        return Ok(());
    }
    failed(format!("{what} is {found:?}, not in {earliest:?}..={latest:?}"))
}
