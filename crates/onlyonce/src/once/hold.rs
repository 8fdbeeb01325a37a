//! What this process holds: claims that are ours, until they are settled, released or unknown.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::Write;
use crate::record::{TakenFrom, Token};
use crate::scope::OperationId;
use crate::store::{Beat, Lease};

/// Every claim of this process.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    table: Mutex<Table>,
    /// A claim was left to the keeper.
    pub(crate) left: Notify,
    /// Nothing is under way any more, or nothing is left to the keeper.
    pub(crate) ended: Notify,
    under_way: AtomicUsize,
    draining: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<Token, Arc<Claimed>>,
    orphans: Vec<Orphan>,
    /// Of these, and of those that the keeper has taken, how many are not ended.
    orphans_open: usize,
}

/// A claim of ours.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) id: OperationId,
    pub(crate) token: Token,
    pub(crate) lease: Lease,
    pub(crate) taken_from: Option<TakenFrom>,
    is_sent: AtomicBool,
    is_lost: AtomicBool,
    /// On this node's clock, from before the claim or the last renewal was sent.
    renewed_at: Mutex<Duration>,
}

/// A claim whose task ended without a word: the keeper ends it.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    pub(crate) id: OperationId,
    pub(crate) write: Write,
}

impl Holds {
    /// Takes charge of a claim that is ours.
    pub(crate) fn hold(
        self: &Arc<Self>,
        id: OperationId,
        token: Token,
        lease: Lease,
        taken_from: Option<TakenFrom>,
        claimed_at: Duration,
    ) -> Hold {
        let claimed = Arc::new(Claimed {
            id,
            token,
            lease,
            taken_from,
            is_sent: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            renewed_at: Mutex::new(claimed_at),
        });
        self.lock().held.insert(token, claimed.clone());
        Hold { holds: self.clone(), claimed, is_ended: false }
    }

    /// One more operation is under way, from before its claim; `None` while draining.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<UnderWay> {
        // Counted first, so that a drain that begins in between sees it and waits.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let under_way = UnderWay(self.clone());
        (!self.is_draining()).then_some(under_way)
    }

    /// From now on nothing is sent that has not been sent.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Whether [`drain`](Self::drain) was called.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Everything that is held.
    pub(crate) fn all(&self) -> Vec<Arc<Claimed>> {
        self.lock().held.values().cloned().collect()
    }

    /// Everything that is held, and how much dead tasks left that the store has not taken.
    pub(crate) fn all_and_orphans(&self) -> (Vec<Arc<Claimed>>, usize) {
        let table = self.lock();
        (table.held.values().cloned().collect(), table.orphans_open)
    }

    /// What dead tasks left.
    pub(crate) fn take_orphans(&self) -> Vec<Orphan> {
        std::mem::take(&mut self.lock().orphans)
    }

    /// The store has taken the end of so many of them.
    pub(crate) fn end_orphans(&self, count: usize) {
        self.lock().orphans_open -= count;
        self.ended.notify_waiters();
    }

    /// What dead tasks left and the store has not taken.
    fn orphans_open(&self) -> usize {
        self.lock().orphans_open
    }

    /// Whether nothing is under way and nothing is left to end.
    pub(crate) fn is_idle(&self) -> bool {
        // In this order: whoever leaves something leaves it before it is no longer under way.
        self.under_way.load(Ordering::SeqCst) == 0 && self.orphans_open() == 0
    }

    /// Waits until nothing is under way and nothing is left to end.
    pub(crate) async fn idle(&self) {
        loop {
            let ended = self.ended.notified();
            if self.is_idle() {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claimed {
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Acquire)
    }

    /// When the next renewal is due: a third of the lease after the last.
    pub(crate) fn renewal_due(&self) -> Duration {
        self.renewed_at() + self.lease.duration() / 3
    }

    /// The result of a renewal that was sent at `sent_at`.
    pub(crate) fn beat(&self, beat: Beat, sent_at: Duration) {
        match beat {
            Beat::Kept => *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner) = sent_at,
            Beat::Lost => self.is_lost.store(true, Ordering::Release),
            Beat::Unsure => {}
        }
    }

    /// What ends this claim if its task never says how: unknown once sent, else given back.
    pub(crate) fn last_word(&self) -> Write {
        if self.is_sent() {
            Write::mark_unknown(self.token)
        } else {
            Write::release(self.token, self.taken_from)
        }
    }

    fn renewed_at(&self) -> Duration {
        *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether enough of the lease is left to begin, at `boot` on this node's clock.
    fn has_margin(&self, boot: Duration) -> bool {
        let lease = self.lease.duration();
        boot.saturating_sub(self.renewed_at()) <= lease - lease / LEASE_MARGIN
    }
}

/// One part in so many of a lease must be left before the first byte is sent.
const LEASE_MARGIN: u32 = 4;

/// The task's hold on its claim. Dropped before [`end`](Self::end), it leaves the claim to the keeper.
#[derive(Debug)]
pub(crate) struct Hold {
    holds: Arc<Holds>,
    claimed: Arc<Claimed>,
    is_ended: bool,
}

impl Hold {
    pub(crate) fn claimed(&self) -> &Claimed {
        &self.claimed
    }

    /// Right before the first byte: true marks the claim as sent; false means that it must be released.
    pub(crate) fn may_send(&self, boot: Duration) -> bool {
        // Sent is set first, so that a drain that begins in between sees it and waits.
        self.claimed.is_sent.store(true, Ordering::SeqCst);
        let may = !self.holds.is_draining()
            && !self.claimed.is_lost.load(Ordering::SeqCst)
            && self.claimed.has_margin(boot);
        if !may {
            self.claimed.is_sent.store(false, Ordering::SeqCst);
        }
        may
    }

    /// The claim is settled, released, unknown or no longer ours: in the store, not only here.
    pub(crate) fn end(mut self) {
        self.is_ended = true;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut table = self.holds.lock();
        table.held.remove(&self.claimed.token);
        if !self.is_ended {
            let (id, write) = (self.claimed.id, self.claimed.last_word());
            table.orphans.push(Orphan { id, write });
            table.orphans_open += 1;
            self.holds.left.notify_one();
        }
    }
}

/// An operation under way, held or not yet; the keeper lives at least as long.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Holds>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}
