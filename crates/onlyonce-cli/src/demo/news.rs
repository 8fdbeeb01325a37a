//! What happens in the demo, told as it happens to every page that is open.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::broadcast;

/// The sender of what happens. Who reads too slowly misses some of it, and loads the state anew.
#[derive(Clone, Debug)]
pub(super) struct News(broadcast::Sender<Arc<str>>);

impl News {
    pub(super) fn new() -> Self {
        Self(broadcast::channel(UNREAD_MAX).0)
    }

    pub(super) fn tell(&self, event: &Value) {
        // Nobody may be looking.
        let _ = self.0.send(event.to_string().into());
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Arc<str>> {
        self.0.subscribe()
    }
}

const UNREAD_MAX: usize = 256;
