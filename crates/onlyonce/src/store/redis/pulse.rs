//! The beat: each node that trusts the server's clock says so every [`BEAT_EVERY`], where all nodes see it.
//!
//! 1. Who sees the clock jump does not beat. It holds the clock for everyone, and then goes on.
//! 2. Who starts and finds the last beat far behind the clock does not trust it for a while: either everyone
//!    has rested, or the clock has jumped and those who saw it are about to say so.
//! 3. Whoever trusts the clock again begins a new epoch of the beat. What was seen before it is forgotten.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::RedisError;
use ::redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::floor;
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::store::time::{Time, Told};

pub(super) struct Pulse {
    time: Time,
    epoch: Mutex<Option<Epoch>>,
}

/// The epoch of the beat.
#[derive(Clone, Copy)]
struct Epoch {
    name: i64,
    /// How many this node has seen before it.
    number: i64,
}

/// What a look at the beat told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) now: StoreTime,
    pub(super) epoch: i64,
    /// How far the clock is ahead of the last beat.
    pub(super) ahead_ms: i64,
}

impl Pulse {
    pub(super) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        Self { time: Time::new(clock, 0), epoch: Mutex::new(None) }
    }

    /// Whether nothing may expire here, whatever the server says.
    pub(super) fn is_doubtful(&self) -> bool {
        self.time.is_doubtful()
    }

    /// The latest time that can be true now.
    pub(super) fn plausible(&self) -> i64 {
        self.time.plausible()
    }

    /// The epoch of the beat that this node knows.
    pub(super) fn epoch(&self) -> i64 {
        let epoch = *self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        epoch.map_or(0, |epoch| epoch.name)
    }

    fn boot(&self) -> Duration {
        self.time.boot()
    }

    /// Takes note of a look that was asked for at `asked_at`.
    pub(super) fn tell(&self, looked: Looked, asked_at: Duration) {
        let mut epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        if epoch.is_none() {
            self.time.starts(looked.ahead_ms);
        }
        let name = looked.epoch;
        let number = epoch.map_or(0, |last| last.number + i64::from(last.name != name));
        *epoch = Some(Epoch { name, number });
        let told = Told { now: looked.now, clock_held: false, confirmed: number };
        self.time.tell(told, asked_at);
    }

    /// The clock was trusted again, here and now.
    pub(super) fn trust(&self, epoch: i64, now: StoreTime) {
        self.tell(Looked { now, epoch, ahead_ms: 0 }, self.boot());
    }
}

impl Shared {
    /// Before a connection is used: what its server's clock says.
    pub(super) async fn look(&self, connection: MultiplexedConnection) -> Result<(), RedisError> {
        self.beat_if(false, connection).await
    }

    /// Beats for ever. A beat that fails is followed by the next.
    pub(super) async fn beat_on(&self, connection: MultiplexedConnection) {
        loop {
            drop(timeout(BEAT_WAIT, self.beat_once(connection.clone())).await);
            let has_jumped = self.pulse.time.has_jumped();
            sleep(if has_jumped { BEAT_PAUSE } else { BEAT_EVERY }).await;
        }
    }

    async fn beat_once(&self, connection: MultiplexedConnection) -> Result<(), RedisError> {
        let trusts = !self.pulse.is_doubtful();
        self.beat_if(trusts, connection.clone()).await?;
        if self.pulse.time.has_jumped() {
            self.hold_for_all(connection).await?;
        }
        Ok(())
    }

    /// Unless someone has trusted the clock since the jump was seen.
    async fn hold_for_all(&self, mut connection: MultiplexedConnection) -> Result<(), RedisError> {
        for ask in self.holds(true, floor::epoch(), Some(self.pulse.epoch())) {
            let told = ask.by_text().query_async::<(i64, i64, i64)>(&mut connection).await?;
            if told.1 == 0 {
                return Ok(());
            }
        }
        self.pulse.time.has_told();
        Ok(())
    }

    async fn beat_if(
        &self,
        trusts: bool,
        mut connection: MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let asked_at = self.pulse.boot();
        let answer = self.beat(trusts).by_text().query_async(&mut connection).await?;
        let (now, epoch, ahead_ms) = answer;
        let now = StoreTime::from_ms(now);
        self.pulse.tell(Looked { now, epoch, ahead_ms }, asked_at);
        Ok(())
    }
}

/// How often a node beats: some times in the time for which one that starts waits.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// After so long a beat has failed.
const BEAT_WAIT: Duration = Duration::from_secs(3);
/// The pause before others are told of a jump again.
const BEAT_PAUSE: Duration = Duration::from_millis(200);
