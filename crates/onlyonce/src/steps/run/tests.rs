use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::database::{Chosen, Due, InsertError, Journal, Lent};
use super::super::held::{Draft, Guard, Held, Next};
use super::super::owned::Start;
use super::super::rules::Rules;
use super::*;
use crate::clock::{Clock, SystemClock};
use crate::record::Token;
use crate::steps::StepsError;

/// A database that writes what its owner marks, and then gives the operation to another one.
#[derive(Clone, Default)]
struct Taken {
    swaps: Arc<AtomicUsize>,
}

struct NoTx;

impl From<(String, Lent<()>)> for NoTx {
    fn from(_: (String, Lent<()>)) -> Self {
        Self
    }
}

impl Database for Taken {
    type Tx = NoTx;
}

impl Journal for Taken {
    type Work = ();

    async fn works_on_snapshots(&self) -> Result<bool, StepsError> {
        Ok(false)
    }

    async fn load(&self, _: &str) -> Result<Option<Held>, StepsError> {
        Ok(None)
    }

    async fn insert(
        &self,
        _: &Draft,
        _: Token,
        _: i64,
        _: Option<i64>,
    ) -> Result<bool, InsertError> {
        Ok(false)
    }

    async fn swap(&self, _: &str, _: Guard, _: &Next) -> Result<bool, StepsError> {
        Ok(self.swaps.fetch_add(1, Ordering::SeqCst) == 0)
    }

    async fn renew(&self, _: &str, _: Token, _: i64) -> Result<bool, StepsError> {
        Ok(false)
    }

    async fn take_due(
        &self,
        _: &[String],
        _: Vec<String>,
        _: usize,
        _: impl Fn(&Held) -> Option<Chosen> + Send,
    ) -> Result<Due, StepsError> {
        Ok(Due::default())
    }

    async fn begin(&self, _: &str, _: usize) -> Result<(), Reason> {
        Ok(())
    }

    async fn commit(
        &self,
        _: &str,
        _: Guard,
        _: &Change,
        _: Option<()>,
    ) -> Result<(), CommitError> {
        Err(CommitError::Stale)
    }

    async fn has_ended(&self, _: ()) -> bool {
        false
    }

    fn is_conflict(_: &BoxError) -> bool {
        false
    }
}

/// It was paused for longer than its lease, and another one may have been told to call.
#[tokio::test]
async fn an_owner_that_has_lost_its_lease_while_it_marked_a_call_does_not_make_it() {
    let rules = Rules { lease: Duration::ZERO, ..Rules::DEFAULT };
    let id = "11111111-1111-1111-1111-111111111111".to_owned();
    let (database, token, now) = (Taken::default(), Token::random(), SystemClock.boot());
    let owned = Owned::new(database, id, token, rules, Start::default(), now);
    let mut run = Run::new(Arc::new(owned));
    let mut calls = 0;
    let call = async |_| {
        calls += 1;
        Ok(())
    };
    let called = run.call_once("mail sent", call).await;
    assert!(matches!(called, Err(Stopped(Reason::Lost))), "{called:?}");
    assert_eq!(calls, 0);
}
