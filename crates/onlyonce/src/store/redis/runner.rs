//! The thread of a link: makes connections, hands calls to them, and notices when one is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::error::OpenError;
use super::line::{Line, Lost};
use super::link::{Call, Greet, Manners, Trouble};
use crate::clock::{Clock, SystemClock};

pub(super) struct Runner<G> {
    client: Client,
    manners: Manners,
    greet: G,
    queue: mpsc::Receiver<Call>,
    stopped: watch::Receiver<bool>,
    is_up: Arc<AtomicBool>,
    /// Calls that are on a connection.
    in_flight: Arc<Semaphore>,
    /// What the server calls our last connection.
    last: Option<String>,
}

impl<G: Greet> Runner<G> {
    pub(super) fn new(
        client: Client,
        manners: Manners,
        greet: G,
        queue: mpsc::Receiver<Call>,
        stopped: watch::Receiver<bool>,
        is_up: Arc<AtomicBool>,
    ) -> Self {
        let in_flight = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        Self { client, manners, greet, queue, stopped, is_up, in_flight, last: None }
    }

    pub(super) async fn run(mut self, opened: oneshot::Sender<Result<(), OpenError>>) {
        let first = self.connect().await;
        let is_patient = self.manners.is_patient;
        let first = match first {
            Ok(line) => {
                drop(opened.send(Ok(())));
                Ok(line)
            }
            Err(error) if is_patient => return drop(opened.send(Err(error))),
            Err(error) => Err(Arc::new(error)),
        };
        self.serve(first).await;
    }

    /// Until it is stopped: a connection, or the wait for the next one.
    async fn serve(mut self, mut line: Result<Line, Arc<OpenError>>) {
        let mut pause = self.manners.pause_min;
        while !*self.stopped.borrow() {
            match line {
                Ok(line) => {
                    self.is_up.store(true, Ordering::Release);
                    let lived = self.hand_over(line).await;
                    self.is_up.store(false, Ordering::Release);
                    if lived > self.manners.pause_max {
                        pause = self.manners.pause_min;
                    }
                    if !self.manners.is_patient {
                        self.refuse_for(pause, &Lost).await;
                        pause = (pause * 2).min(self.manners.pause_max);
                    }
                }
                Err(error) => {
                    self.refuse_for(pause, &Down(error)).await;
                    pause = (pause * 2).min(self.manners.pause_max);
                }
            }
            line = self.connect().await.map_err(Arc::new);
        }
        self.queue.close();
        while let Ok(call) = self.queue.try_recv() {
            drop(call.reply.send(Err(Trouble::Closed)));
        }
    }

    /// Hands calls to the connection until it is lost, or all of them are done and no more will come; how
    /// long that was.
    async fn hand_over(&mut self, line: Line) -> Duration {
        let start = SystemClock.boot();
        self.hand_over_all(line).await;
        SystemClock.boot() - start
    }

    async fn hand_over_all(&mut self, line: Line) {
        let line = Arc::new(line);
        let beside = self.greet.beside(self.client.clone(), line.connection.clone());
        let mut beside = std::pin::pin!(beside);
        let mut is_ended = false;
        let mut stopped = self.stopped.clone();
        let mut is_closing = *stopped.borrow_and_update();
        loop {
            if is_closing {
                self.queue.close();
            }
            tokio::select! {
                () = line.lost() => return,
                () = &mut beside, if !is_ended => is_ended = true,
                _ = stopped.wait_for(|stopped| *stopped), if !is_closing => is_closing = true,
                call = next(&mut self.queue, &self.in_flight) => match call {
                    Some((call, permit)) => {
                        let (line, within) = (line.clone(), self.manners.answer_within);
                        tokio::spawn(async move {
                            line.answer(call, within).await;
                            drop(permit);
                        });
                    }
                    None => return self.finish().await,
                },
            }
        }
    }

    /// What is on the connection is answered or given up, in bounded time.
    async fn finish(&self) {
        let all = u32::try_from(IN_FLIGHT_MAX).unwrap_or(u32::MAX);
        drop(timeout(self.manners.answer_within, self.in_flight.acquire_many(all)).await);
    }

    /// Refuses calls for so long: none of them was sent.
    async fn refuse_for(
        &mut self,
        pause: Duration,
        why: &(impl Clone + std::error::Error + Send + Sync + 'static),
    ) {
        let pause = sleep(pause);
        let mut pause = std::pin::pin!(pause);
        let mut stopped = self.stopped.clone();
        loop {
            tokio::select! {
                () = &mut pause => return,
                _ = stopped.wait_for(|stopped| *stopped) => return,
                call = self.queue.recv() => match call {
                    Some(call) => refuse(call, why.clone()),
                    None => return,
                },
            }
        }
    }

    /// A connection that is ready for calls. Where nobody waits for it, they are refused meanwhile.
    async fn connect(&mut self) -> Result<Line, OpenError> {
        let last = self.last.clone();
        let making = Line::make(&self.client, &self.greet, last.as_deref());
        let mut making = std::pin::pin!(timeout(CONNECT_WAIT, making));
        let made = loop {
            tokio::select! {
                made = &mut making => break made,
                Some(call) = self.queue.recv(), if !self.manners.is_patient => refuse(call, Lost),
            }
        };
        let line = made.unwrap_or(Err(OpenError::Silent { within: CONNECT_WAIT }))?;
        // Kept for as long as it may be needed: until a later connection has had it dropped.
        self.last = line.address.clone().or_else(|| last.clone());
        Ok(line)
    }
}

/// The next call, once there is room for it on the connection.
async fn next(
    queue: &mut mpsc::Receiver<Call>,
    in_flight: &Arc<Semaphore>,
) -> Option<(Call, OwnedSemaphorePermit)> {
    let permit = in_flight.clone().acquire_owned().await.ok()?;
    let call = queue.recv().await?;
    Some((call, permit))
}

fn refuse(call: Call, why: impl std::error::Error + Send + Sync + 'static) {
    // A caller who no longer listens has dropped the call.
    drop(call.reply.send(Err(Trouble::NotSent(Box::new(why)))));
}

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no connection to Redis: {0}")]
struct Down(Arc<OpenError>);

/// How long a new connection may take until it is ready.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// How many calls may be on the connection.
const IN_FLIGHT_MAX: usize = 1024;
