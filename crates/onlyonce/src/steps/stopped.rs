//! Why a run stops before it has finished.

use super::StuckError;
use crate::store::BoxError;

/// Why a run stops before it has finished: pass it on with `?`. Any error becomes one: the attempt has failed then, and is
/// made again after a pause.
#[derive(Debug)]
pub struct Stopped(pub(super) Reason);

impl Stopped {
    /// The attempt has failed because of `error`.
    pub fn failed(error: impl Into<BoxError>) -> Self {
        Self(Reason::Failed(error.into()))
    }

    /// What was done is not known, because of `error`: the operation becomes unknown, and is not tried again by itself.
    pub fn in_doubt(error: impl Into<BoxError>) -> Self {
        Self(Reason::InDoubt(error.into()))
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::failed(error)
    }
}

#[derive(Debug)]
pub(super) enum Reason {
    /// It may be tried again.
    Failed(BoxError),
    /// The transaction met another one: it is tried again at once.
    Conflict(BoxError),
    Stuck(StuckError),
    InDoubt(BoxError),
    /// Another owner has it.
    Lost,
}

impl From<StuckError> for Reason {
    fn from(error: StuckError) -> Self {
        Self::Stuck(error)
    }
}
