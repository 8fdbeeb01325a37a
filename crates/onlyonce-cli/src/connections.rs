//! The connections of a listener: how many there may be, and which one makes room when there are as many.
//!
//! 1. One on which nothing was asked yet makes room first, the oldest of them: whoever means it has asked long ago.
//! 2. Then one that has asked and is idle, of those that are looked at the one that has been idle for longest.
//! 3. One that is at work, or whose peer has shown who it is, makes room for nobody.
//! 4. Nobody is sent away in the first moment, so that a request which came with its connection is always read.

mod occasional;
mod state;

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

pub(crate) use self::occasional::Occasional;
pub(crate) use self::state::{ConnectionState, IDLE_MAX, InFlight, Unsent};

/// The connections of one listener. A clone is the same.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Who connects, as the metrics say it.
    listener: &'static str,
    max: usize,
    register: Mutex<Register>,
    /// How many peers have shown who they are.
    vouched: AtomicUsize,
    /// That one has ended.
    has_ended: Notify,
    is_full: Occasional,
    made_room: Occasional,
    no_file: Occasional,
}

/// Those that are open, by the order in which they came.
#[derive(Debug, Default)]
struct Register {
    next: u64,
    open: usize,
    /// Of those, how many were told to make room.
    leaving: usize,
    /// Nothing was asked on them when they were last looked at.
    silent: BTreeMap<u64, ConnectionState>,
    /// Something was.
    asking: BTreeMap<u64, ConnectionState>,
    /// The next of `asking` to look at.
    cursor: u64,
}

/// What a listener's connections are, and were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionCounts {
    pub(crate) open: usize,
    pub(crate) max: usize,
    /// New ones that were closed at once, because all others were at work.
    pub(crate) full: u64,
    /// Idle ones that were closed for a new one.
    pub(crate) made_room: u64,
    /// Times that none could be accepted, because the process may open no more files.
    pub(crate) no_file: u64,
}

impl Connections {
    /// At most `max` at once.
    pub(crate) fn new(listener: &'static str, max: usize) -> Self {
        Self(Arc::new(Shared {
            listener,
            max,
            register: Mutex::default(),
            vouched: AtomicUsize::new(0),
            has_ended: Notify::new(),
            is_full: Occasional::default(),
            made_room: Occasional::default(),
            no_file: Occasional::default(),
        }))
    }

    /// A slot for a connection that was just accepted, perhaps that of an older one; nothing if all are at work.
    pub(crate) async fn admit(&self, state: &ConnectionState) -> Option<Slot> {
        let until = Instant::now() + ROOM_WAIT;
        loop {
            let mut ended = pin!(self.0.has_ended.notified());
            ended.as_mut().enable();
            let room = self.register().room(self.0.max, state);
            match room {
                Room::Free(id) => return Some(Slot::new(&self.0, id, state)),
                Room::Made(id) => {
                    self.tell_made_room();
                    return Some(Slot::new(&self.0, id, state));
                }
                Room::Soon if Instant::now() < until => {
                    let _ = timeout_at(until.min(Instant::now() + FIRST_MOMENT), ended).await;
                }
                Room::Soon | Room::None => {
                    self.tell_full();
                    return None;
                }
            }
        }
    }

    /// A connection could not be accepted. If its peer has left, the next one may come at once; else after a pause.
    pub(crate) async fn not_accepted(&self, error: &io::Error) {
        if is_of_peer(error) {
            return;
        }
        let listener = self.0.listener;
        self.0.no_file.note(|times| {
            warn!(listener, times, %error, "no connection can be accepted; this process, or the machine, may have too many files open");
        });
        sleep(ACCEPT_PAUSE).await;
    }

    pub(crate) fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            open: self.register().open,
            max: self.0.max,
            full: self.0.is_full.count(),
            made_room: self.0.made_room.count(),
            no_file: self.0.no_file.count(),
        }
    }

    /// Who connects.
    pub(crate) fn listener(&self) -> &'static str {
        self.0.listener
    }

    fn tell_made_room(&self) {
        let Shared { listener, max, .. } = *self.0;
        self.0.made_room.note(|times| {
            warn!(
                listener,
                max,
                times,
                "there are as many connections as there may be: an idle one made room for a new one"
            );
        });
    }

    fn tell_full(&self) {
        let Shared { listener, max, .. } = *self.0;
        self.0.is_full.note(|times| {
            warn!(listener, max, times, "there are as many connections as there may be, and all are at work: a new one was closed");
        });
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.0.register()
    }
}

impl Shared {
    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What there is for a new connection.
enum Room {
    Free(u64),
    /// Another connection was told to leave.
    Made(u64),
    /// Another one leaves, or may be told to, in a moment.
    Soon,
    None,
}

impl Register {
    fn room(&mut self, max: usize, state: &ConnectionState) -> Room {
        // One that was told to leave is open for a little longer: until its thread looks at it.
        if self.open >= max + (max / 8).max(LEAVING_MIN) {
            return Room::Soon;
        }
        if self.open - self.leaving < max {
            return Room::Free(self.enter(state));
        }
        match self.dismissible() {
            Dismissible::Now(leaver) => {
                leaver.leave();
                self.leaving += 1;
                Room::Made(self.enter(state))
            }
            Dismissible::Soon => Room::Soon,
            Dismissible::None => Room::None,
        }
    }

    fn enter(&mut self, state: &ConnectionState) -> u64 {
        let id = self.next;
        self.next += 1;
        self.open += 1;
        self.silent.insert(id, state.clone());
        id
    }

    fn exit(&mut self, id: u64) {
        self.open -= 1;
        if self.silent.remove(&id).or_else(|| self.asking.remove(&id)).is_none() {
            self.leaving -= 1;
        }
    }

    fn dismissible(&mut self) -> Dismissible {
        while let Some((id, state)) = self.silent.pop_first() {
            match state.has_asked() {
                true => drop(self.asking.insert(id, state)),
                false if state.age() >= FIRST_MOMENT => return Dismissible::Now(state),
                false => {
                    // All that came after it are younger.
                    self.silent.insert(id, state);
                    return Dismissible::Soon;
                }
            }
        }
        self.longest_idle()
    }

    /// Of some that have asked, the one that has been idle for longest.
    fn longest_idle(&mut self) -> Dismissible {
        let cursor = self.cursor;
        let around = self.asking.range(cursor..).chain(self.asking.range(..cursor));
        let (mut longest, mut is_any_idle, mut last) = (None, false, cursor);
        for (id, state) in around.take(LOOKED_AT_MAX) {
            last = *id;
            let Some(idle_for) = state.dismissible_for() else { continue };
            is_any_idle = true;
            if idle_for >= FIRST_MOMENT && longest.is_none_or(|(most, _)| idle_for > most) {
                longest = Some((idle_for, *id));
            }
        }
        self.cursor = last + 1;
        match longest.and_then(|(_, id)| self.asking.remove(&id)) {
            Some(state) => Dismissible::Now(state),
            None if is_any_idle => Dismissible::Soon,
            None => Dismissible::None,
        }
    }
}

/// Who can be told to leave.
enum Dismissible {
    Now(ConnectionState),
    Soon,
    None,
}

/// The slot of one connection among those of its listener, for as long as it is open.
#[derive(Debug)]
pub(crate) struct Slot {
    shared: Arc<Shared>,
    id: u64,
    state: ConnectionState,
}

impl Slot {
    fn new(shared: &Arc<Shared>, id: u64, state: &ConnectionState) -> Self {
        Self { shared: shared.clone(), id, state: state.clone() }
    }

    /// What is known of its connection.
    pub(crate) fn state(&self) -> &ConnectionState {
        &self.state
    }

    /// The peer has shown who it is. False if so many have that the rest of the slots is for those who have not: one of
    /// them may be the probe that asks whether this process lives.
    pub(crate) fn vouch(&self) -> bool {
        if self.state.is_vouched() {
            return true;
        }
        let vouched_max = self.shared.max - (self.shared.max / 16).max(1);
        let more = |vouched| (vouched < vouched_max).then_some(vouched + 1);
        let order = Ordering::Relaxed;
        let has_room = self.shared.vouched.fetch_update(order, order, more).is_ok();
        if has_room {
            self.state.vouch();
        }
        has_room
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.state.is_vouched() {
            self.shared.vouched.fetch_sub(1, Ordering::Relaxed);
        }
        self.shared.register().exit(self.id);
        self.shared.has_ended.notify_one();
    }
}

/// Whether the connection that was to be accepted failed before it was, and nothing else is wrong.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, Interrupted, NetworkDown, NetworkUnreachable,
    };
    let kinds = [ConnectionAborted, ConnectionReset, Interrupted, NetworkDown, NetworkUnreachable];
    kinds.contains(&error.kind()) || error.kind() == io::ErrorKind::HostUnreachable
}

/// After a connection that could not be accepted: what is missing is not there at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Nobody is sent away before. Longer, and a crowd that comes again and again would keep others waiting.
const FIRST_MOMENT: Duration = Duration::from_millis(20);
/// How long a new connection waits for the room of another.
const ROOM_WAIT: Duration = Duration::from_millis(500);
/// How many that were told to leave may still be open, at least.
const LEAVING_MIN: usize = 16;
/// How many that have asked are looked at for one that is idle.
const LOOKED_AT_MAX: usize = 256;

#[cfg(test)]
mod tests;
