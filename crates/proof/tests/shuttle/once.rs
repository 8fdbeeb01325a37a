//! The library's `once` module, as far as its maps need it.

#[path = "../../../onlyonce/src/once/flight.rs"]
mod flight;
#[path = "../../../onlyonce/src/once/waiters.rs"]
mod waiters;

/// Shuttle's locks in the place of the standard ones.
mod sync {
    pub(super) use shuttle::sync::{Arc, Mutex, MutexGuard, PoisonError};
}

pub(crate) use onlyonce::Limits;

mod flights {
    //! Callers of one id share a call that has not been sent yet.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use shuttle::future;
    use shuttle::sync::Arc;

    use super::flight::{Flights, Joined};
    use crate::explore;
    use crate::scope::OperationId;

    const ID: OperationId = OperationId::from_bytes([7; 16]);

    /// A store that counts: each call is answered with the number of writes that were done before it was sent.
    #[derive(Default)]
    struct Store {
        writes: AtomicUsize,
        out: AtomicUsize,
        calls: AtomicUsize,
    }

    async fn ask(flights: &Flights<usize>, store: &Store) -> Joined<usize> {
        flights
            .join(ID, || async {
                assert_eq!(
                    store.out.fetch_add(1, Ordering::SeqCst),
                    0,
                    "one call of an id at a time"
                );
                store.calls.fetch_add(1, Ordering::SeqCst);
                let seen = store.writes.load(Ordering::SeqCst);
                future::yield_now().await;
                store.out.fetch_sub(1, Ordering::SeqCst);
                seen
            })
            .await
    }

    fn answer(joined: &Joined<usize>) -> usize {
        let (Joined::Led(seen) | Joined::Followed(seen)) = joined;
        *seen
    }

    #[test]
    fn nobody_gets_an_answer_that_was_read_before_it_asked() {
        explore(|| {
            let (flights, store) = (Arc::new(Flights::new()), Arc::new(Store::default()));
            let tasks: Vec<_> = (0..CALLERS)
                .map(|_| {
                    let (flights, store) = (flights.clone(), store.clone());
                    future::spawn(async move {
                        let written = store.writes.fetch_add(1, Ordering::SeqCst) + 1;
                        let joined = ask(&flights, &store).await;
                        assert!(answer(&joined) >= written, "its own write is in its answer");
                    })
                })
                .collect();
            future::block_on(async {
                for task in tasks {
                    task.await.unwrap();
                }
            });
            assert!(store.calls.load(Ordering::SeqCst) <= CALLERS);
            future::block_on(async { ask(&flights, &store).await });
        });
    }

    #[test]
    fn a_caller_that_is_dropped_leaves_nobody_waiting() {
        explore(|| {
            let (flights, store) = (Arc::new(Flights::new()), Arc::new(Store::default()));
            let tasks: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let (flights, store) = (flights.clone(), store.clone());
                    let polls = if caller % 2 == 0 { POLLS_MAX } else { caller };
                    future::spawn(async move {
                        let asking = ask_dropped(&flights, &store);
                        polled(asking, polls).await
                    })
                })
                .collect();
            future::block_on(async {
                for (caller, task) in tasks.into_iter().enumerate() {
                    let answered = task.await.unwrap();
                    assert!(answered || caller % 2 == 1, "who was not dropped has its answer");
                }
            });
            // The map is as good as new.
            let joined = future::block_on(async { ask_dropped(&flights, &store).await });
            assert!(matches!(joined, Joined::Led(_)));
        });
    }

    /// As [`ask`], for callers that may be dropped while their call is out.
    async fn ask_dropped(flights: &Flights<usize>, store: &Store) -> Joined<usize> {
        flights
            .join(ID, || async {
                future::yield_now().await;
                store.writes.load(Ordering::SeqCst)
            })
            .await
    }

    /// Polls at most so often, then drops it; whether it ended.
    async fn polled(asking: impl Future<Output = Joined<usize>>, polls: usize) -> bool {
        let mut asking = Box::pin(asking);
        let mut left = polls;
        std::future::poll_fn(move |cx| {
            if asking.as_mut().poll(cx).is_ready() {
                return std::task::Poll::Ready(true);
            }
            left -= 1;
            if left == 0 {
                return std::task::Poll::Ready(false);
            }
            std::task::Poll::Pending
        })
        .await
    }

    const CALLERS: usize = 4;
    /// More polls than any schedule needs.
    const POLLS_MAX: usize = 1_000;
}

mod waiting {
    //! The places of waiters.

    use shuttle::sync::Arc;
    use shuttle::thread;

    use super::Limits;
    use super::waiters::Waiters;
    use crate::explore;
    use crate::scope::{OperationId, Principal};

    #[test]
    fn the_limits_hold_and_every_place_is_given_back() {
        explore(|| {
            let limits = Limits::default().with_waiters(3, 2, 2);
            let waiters = Arc::new(Waiters::new(limits));
            let threads: Vec<_> = (0..4_u8)
                .map(|caller| {
                    let waiters = waiters.clone();
                    thread::spawn(move || {
                        let id = OperationId::from_bytes([caller % 2; 16]);
                        let principal = Principal::of("name", &[caller / 2]);
                        let place = waiters.enter(id, principal);
                        assert!(waiters.len() <= 3, "the limit in all holds");
                        let again = waiters.enter(id, principal);
                        assert!(waiters.len() <= 3, "the limit in all holds");
                        drop((place, again));
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(waiters.len(), 0);
            // Every count is back at nothing: as many as at first find a place.
            let (id, principal) = (OperationId::from_bytes([0; 16]), Principal::of("name", &[0]));
            let places: Vec<_> = (0..3).map(|_| waiters.enter(id, principal)).collect();
            assert_eq!(places.iter().flatten().count(), 2, "two for one key");
        });
    }
}
