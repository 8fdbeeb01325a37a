//! A worker's end of a bounded queue, which closing the store closes.

use tokio::sync::{mpsc, watch};

pub(super) struct Inbox<T> {
    items: mpsc::Receiver<T>,
    stop: watch::Receiver<bool>,
    closed: bool,
}

/// A queue of at most `max`.
pub(super) fn inbox<T>(max: usize, stop: &watch::Receiver<bool>) -> (mpsc::Sender<T>, Inbox<T>) {
    let (send, items) = mpsc::channel(max);
    (send, Inbox { items, stop: stop.clone(), closed: false })
}

impl<T> Inbox<T> {
    /// The next; `None` when there will be no more. What was taken before the store was closed still comes.
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
