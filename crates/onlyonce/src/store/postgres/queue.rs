//! A worker's end of a bounded queue, which ends when the store is closed.

use tokio::sync::{mpsc, watch};

pub(super) struct Queue<T> {
    items: mpsc::Receiver<T>,
    stop: watch::Receiver<bool>,
    closed: bool,
}

/// A queue of at most `max`.
pub(super) fn queue<T>(max: usize, stop: &watch::Receiver<bool>) -> (mpsc::Sender<T>, Queue<T>) {
    let (send, items) = mpsc::channel(max);
    (send, Queue { items, stop: stop.clone(), closed: false })
}

impl<T> Queue<T> {
    /// The next call; `None` when there will be no more. Calls that were queued before the store was closed still come.
    pub(super) async fn recv(&mut self) -> Option<T> {
        if !self.closed {
            tokio::select! {
                biased;
                _ = self.stop.wait_for(|stop| *stop) => {}
                item = self.items.recv() => return item,
            }
            self.closed = true;
            self.items.close();
        }
        self.items.recv().await
    }

    pub(super) fn try_recv(&mut self) -> Option<T> {
        self.items.try_recv().ok()
    }
}
