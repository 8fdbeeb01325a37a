//! Callers of one id in one process share a store call that has not been sent yet.
//!
//! 1. While a call for an id is out, the next one is prepared, and callers that arrive join it.
//! 2. A caller never gets an answer that was read before it arrived.
//! 3. However many callers a key has, the store sees one call of it at a time.

use std::collections::HashMap;
use std::future::Future;

use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::{oneshot, watch};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::scope::OperationId;

/// The calls of one kind that are out, by id.
#[derive(Debug)]
pub(crate) struct Flights<T>(Arc<Mutex<HashMap<OperationId, Option<Next<T>>>>>);

/// The call that goes out when the present one has returned.
#[derive(Debug)]
struct Next<T> {
    /// Set to true when this call may go out.
    turn: watch::Sender<bool>,
    /// The answer, once there is one; an error if the caller that made the call was dropped.
    answer: Answer<T>,
}

/// For every caller that has joined. They wake in the order in which they came, so that a simulation can be repeated.
type Answer<T> = Shared<oneshot::Receiver<T>>;

/// An answer, and whether this caller made the call.
#[derive(Debug)]
pub(crate) enum Joined<T> {
    /// This caller made the call.
    Led(T),
    /// Another caller made the call, and this one shares its answer.
    Followed(T),
}

impl<T: Clone + Send + Sync> Flights<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// The answer of `call`, or of the call of the same id that this caller could join.
    pub(crate) async fn join<F>(&self, id: OperationId, call: impl FnOnce() -> F) -> Joined<T>
    where
        F: Future<Output = T>,
    {
        loop {
            let seat = self.seat(id);
            let Seat::Follow(answer) = seat else {
                return Joined::Led(self.lead(id, seat, call).await);
            };
            if let Ok(answer) = answer.await {
                return Joined::Followed(answer);
            }
            // The caller that made the call was dropped before it ended: join another call, or make one.
        }
    }

    fn seat(&self, id: OperationId) -> Seat<T> {
        let mut flights = self.lock();
        let Some(next) = flights.get_mut(&id) else {
            flights.insert(id, None);
            return Seat::Now;
        };
        if let Some(next) = next {
            return Seat::Follow(next.answer.clone());
        }
        let (turn, turned) = watch::channel(false);
        let (answers, answer) = oneshot::channel();
        *next = Some(Next { turn, answer: answer.shared() });
        Seat::Then(turned, answers)
    }

    async fn lead<F>(&self, id: OperationId, seat: Seat<T>, call: impl FnOnce() -> F) -> T
    where
        F: Future<Output = T>,
    {
        let Seat::Then(turned, answers) = seat else {
            let _out = Out { flights: self, id, waits: None };
            return call().await;
        };
        let mut out = Out { flights: self, id, waits: Some(turned) };
        out.turn().await;
        let answer = call().await;
        let _ = answers.send(answer.clone());
        answer
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OperationId, Option<Next<T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Seat<T> {
    Now,
    Then(watch::Receiver<bool>, oneshot::Sender<T>),
    Follow(Answer<T>),
}

/// A call that is out, or waits for its turn. Dropped when the call ends or its caller is dropped.
struct Out<'a, T: Clone + Send + Sync> {
    flights: &'a Flights<T>,
    id: OperationId,
    /// Tells when the call may go out; `None` once it is out.
    waits: Option<watch::Receiver<bool>>,
}

impl<T: Clone + Send + Sync> Out<'_, T> {
    /// Waits until the call may go out. From then on later callers prepare the next call.
    async fn turn(&mut self) {
        if let Some(waits) = &mut self.waits {
            waits
                .wait_for(|turn| *turn)
                .await
                .expect("the sender is in the map until the turn is taken");
        }
        self.waits = None;
        self.flights.lock().insert(self.id, None);
    }
}

impl<T: Clone + Send + Sync> Drop for Out<'_, T> {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        let Some(next) = flights.get_mut(&self.id) else {
            return;
        };
        let had_turn = self.waits.as_ref().map(|waits| *waits.borrow());
        match (had_turn, &next) {
            // This call was out, and the next one waits for it.
            (None, Some(next)) => drop(next.turn.send_replace(true)),
            // This call leaves the queue, and the call that is out goes on.
            (Some(false), _) => *next = None,
            // No call of this id is out any more.
            (None, None) | (Some(true), _) => drop(flights.remove(&self.id)),
        }
    }
}
