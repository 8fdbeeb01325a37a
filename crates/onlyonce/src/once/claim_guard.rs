//! The claims that this process owns, and the guard that each task has on its claim.
//!
//! A claim is live from the moment the store has taken it until the store has taken its end: settled, released or
//! unknown. A task that dies without an end leaves its claim to the background thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::Write;
use crate::planted::{Planted, planted};
use crate::record::{TakenFrom, Token};
use crate::scope::OperationId;
use crate::store::audit::About;
use crate::store::{Beat, Lease};

/// Every live claim of this process.
#[derive(Debug, Default)]
pub(crate) struct LiveClaims {
    table: Mutex<Table>,
    /// Notified when a dead task left its claim to the background thread.
    pub(crate) left: Notify,
    /// Notified when the last operation ended, and when the background thread ended claims of dead tasks.
    pub(crate) ended: Notify,
    under_way: AtomicUsize,
    draining: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    claims: HashMap<Token, Arc<LiveClaim>>,
    orphans: Vec<Orphan>,
    /// How many claims of dead tasks the store has not ended yet: `orphans`, and those that the background thread
    /// has taken from there.
    orphans_open: usize,
}

/// One live claim of this process.
#[derive(Debug)]
pub(crate) struct LiveClaim {
    pub(crate) id: OperationId,
    pub(crate) token: Token,
    pub(crate) lease: Lease,
    pub(crate) taken_from: Option<TakenFrom>,
    /// What the audit trail is told of it, where one is kept.
    pub(crate) about: Option<Arc<About>>,
    is_sent: AtomicBool,
    /// How many renewals found that the record is no longer this owner's.
    losses: AtomicUsize,
    /// When the claim or its last renewal was sent, on this node's clock: read before sending, so that the lease
    /// is never thought to be longer than it is.
    renewed_at: Mutex<Duration>,
}

/// A claim whose task died. The background thread makes this write to end it.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    pub(crate) id: OperationId,
    pub(crate) write: Write,
}

impl LiveClaims {
    /// Guards a claim that the store has taken.
    pub(crate) fn guard(
        self: &Arc<Self>,
        id: OperationId,
        token: Token,
        lease: Lease,
        taken_from: Option<TakenFrom>,
        about: Option<Arc<About>>,
        claimed_at: Duration,
    ) -> ClaimGuard {
        let claim = Arc::new(LiveClaim {
            id,
            token,
            lease,
            taken_from,
            about,
            is_sent: AtomicBool::new(false),
            losses: AtomicUsize::new(0),
            renewed_at: Mutex::new(claimed_at),
        });
        self.lock().claims.insert(token, claim.clone());
        ClaimGuard { live_claims: self.clone(), claim, is_ended: false }
    }

    /// Counts an operation as under way, from before its claim; `None` while the process drains.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<UnderWay> {
        // Counted first, so that a drain that begins in between sees it and waits.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let under_way = UnderWay(self.clone());
        (!self.is_draining()).then_some(under_way)
    }

    /// From now on no claimed operation is sent to its handler. What was sent goes on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Whether [`drain`](Self::drain) was called.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Every live claim.
    pub(crate) fn all(&self) -> Vec<Arc<LiveClaim>> {
        self.lock().claims.values().cloned().collect()
    }

    /// Every live claim, and how many claims of dead tasks the store has not ended yet. Read under one lock: a task
    /// that dies in between moves its claim from the one to the other.
    pub(crate) fn all_and_orphans(&self) -> (Vec<Arc<LiveClaim>>, usize) {
        let table = self.lock();
        (table.claims.values().cloned().collect(), table.orphans_open)
    }

    /// The claims of dead tasks, to be ended by the caller.
    pub(crate) fn take_orphans(&self) -> Vec<Orphan> {
        std::mem::take(&mut self.lock().orphans)
    }

    /// The store has ended `count` claims of dead tasks.
    pub(crate) fn end_orphans(&self, count: usize) {
        self.lock().orphans_open -= count;
        self.ended.notify_waiters();
    }

    /// How many claims of dead tasks the store has not ended yet.
    fn orphans_open(&self) -> usize {
        self.lock().orphans_open
    }

    /// Whether no operation is under way and no claim of a dead task is open.
    pub(crate) fn is_idle(&self) -> bool {
        // In this order: a dying task adds its orphan before it stops counting as under way.
        self.under_way.load(Ordering::SeqCst) == 0 && self.orphans_open() == 0
    }

    /// Waits until [`is_idle`](Self::is_idle).
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

impl LiveClaim {
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Acquire)
    }

    /// When the next renewal is due: a third of the lease after the last.
    pub(crate) fn renewal_due(&self) -> Duration {
        self.renewed_at() + self.lease.duration() / 3
    }

    /// The result of a renewal that was sent at `sent_at`. True if this makes it certain that the lease was lost: a
    /// first loss may be a renewal that crossed the settling of its own operation.
    pub(crate) fn beat(&self, beat: Beat, sent_at: Duration) -> bool {
        match beat {
            Beat::Kept => *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner) = sent_at,
            Beat::Lost => return self.losses.fetch_add(1, Ordering::SeqCst) == 1,
            Beat::Unsure => {}
        }
        false
    }

    /// The write that ends this claim if its task dies: unknown if the operation was sent, else a release.
    pub(crate) fn last_word(&self) -> Write {
        let write = if self.is_sent() && !planted(Planted::DrainingReleases) {
            Write::mark_unknown(self.token)
        } else {
            Write::release(self.token, self.taken_from)
        };
        write.with_about(self.about.clone())
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

/// A quarter of the lease must be left before the first byte is sent.
const LEASE_MARGIN: u32 = 4;

/// A task's guard on its claim. A guard that is dropped before [`end`](Self::end) leaves the claim to the background
/// thread.
#[derive(Debug)]
pub(crate) struct ClaimGuard {
    live_claims: Arc<LiveClaims>,
    claim: Arc<LiveClaim>,
    is_ended: bool,
}

impl ClaimGuard {
    pub(crate) fn claim(&self) -> &LiveClaim {
        &self.claim
    }

    /// Asked right before the first byte. `true` marks the claim as sent; after `false` it must be released.
    pub(crate) fn may_send(&self, boot: Duration) -> bool {
        // Marked as sent first, so that a drain that begins in between sees it and waits.
        self.claim.is_sent.store(true, Ordering::SeqCst);
        let may = !self.live_claims.is_draining()
            && self.claim.losses.load(Ordering::SeqCst) == 0
            && self.claim.has_margin(boot);
        if !may {
            self.claim.is_sent.store(false, Ordering::SeqCst);
        }
        may
    }

    /// The store has the end of the claim: settled, released, unknown, or taken by another owner.
    pub(crate) fn end(mut self) {
        self.is_ended = true;
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let mut table = self.live_claims.lock();
        table.claims.remove(&self.claim.token);
        if !self.is_ended {
            let (id, write) = (self.claim.id, self.claim.last_word());
            table.orphans.push(Orphan { id, write });
            table.orphans_open += 1;
            self.live_claims.left.notify_one();
        }
    }
}

/// An operation under way, with a claim or before it. The background thread runs at least until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<LiveClaims>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}
