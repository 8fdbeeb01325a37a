//! The beat: each node that trusts the server's clock says so every [`BEAT_EVERY`], where all nodes see it.
//!
//! 1. Who sees the clock jump does not beat. It holds the clock for everyone, and then goes on.
//! 2. Who starts and finds the last beat far behind the clock does not trust it for a while: either everyone
//!    has rested, or the clock has jumped and those who saw it are about to say so.
//! 3. An answer whose time has jumped is a reason to look at once, and until then not to trust any other.
//! 4. Whoever trusts the clock again begins a new epoch of the beat. What was seen before it is forgotten.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{FromRedisValue, RedisError};
use tokio::time::{sleep, timeout};

use super::Shared;
use super::epochs::{self, Heard};
use super::script::Invocation;
use crate::clock::StoreTime;

impl Shared {
    /// Whether nothing may expire here, whatever the server says.
    pub(super) fn is_doubtful(&self) -> bool {
        self.beats.time.is_doubtful() || self.answers.time.has_jumped()
    }

    /// Before a connection is used: what its server's clock says.
    pub(super) async fn look(&self, connection: MultiplexedConnection) -> Result<(), RedisError> {
        self.beat_if(false, connection).await
    }

    /// Beats for ever. A beat that fails is followed by the next.
    pub(super) async fn beat_on(&self, connection: MultiplexedConnection) {
        loop {
            let done = self.beat_once(connection.clone()).await;
            let is_urgent = done.is_err() && self.is_doubtful();
            let pause = sleep(if is_urgent { BEAT_PAUSE } else { BEAT_EVERY });
            tokio::select! {
                () = self.answers.time.jumped.notified() => {}
                () = pause => {}
            }
        }
    }

    async fn beat_once(&self, connection: MultiplexedConnection) -> Result<(), RedisError> {
        let jumps = self.answers.time.jumps();
        self.beat_if(!self.is_doubtful(), connection.clone()).await?;
        if self.beats.time.has_jumped() {
            self.hold_for_all(connection).await?;
        } else {
            self.answers.time.acquit(jumps);
        }
        Ok(())
    }

    /// A look that is the first of its epoch cannot tell a jump; the answers of this epoch can.
    fn has_jumped_since(&self, epoch: i64) -> bool {
        let is_first = self.beats.name() != epoch;
        is_first && self.answers.name() == self.beats.name() && self.answers.time.has_jumped()
    }

    /// Unless someone has trusted the clock since the jump was seen.
    async fn hold_for_all(&self, connection: MultiplexedConnection) -> Result<(), RedisError> {
        for ask in self.holds(true, epochs::name(), Some(self.beats.name())) {
            let (_, held, _): (i64, i64, i64) = run(&ask, connection.clone()).await?;
            if held == 0 {
                return self.beat_if(false, connection).await;
            }
        }
        self.beats.time.has_told();
        self.answers.time.has_told();
        Ok(())
    }

    async fn beat_if(
        &self,
        trusts: bool,
        connection: MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let (asked_at, before) = (self.beats.time.boot(), self.beats.name());
        let (now, epoch, ahead_ms) = run(&self.beat(trusts), connection).await?;
        if self.beats.is_new() {
            self.beats.time.starts(ahead_ms);
        }
        let heard = Heard { now: StoreTime::from_ms(now), clock_held: false, epoch };
        self.beats.tell(heard, asked_at);
        if self.has_jumped_since(before) {
            self.beats.time.accuse();
        }
        Ok(())
    }
}

async fn run<T: FromRedisValue>(
    ask: &Invocation,
    mut connection: MultiplexedConnection,
) -> Result<T, RedisError> {
    let answer = timeout(BEAT_WAIT, ask.by_text().query_async(&mut connection)).await;
    answer.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}

/// How often a node beats: some times in the time for which one that starts waits.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// How long one call for it may take.
const BEAT_WAIT: Duration = Duration::from_secs(3);
/// The pause before others are told of a jump again.
const BEAT_PAUSE: Duration = Duration::from_millis(200);
