//! Which writer a job goes to.
//!
//! Whatever may still be written to an id is on one line: its jobs keep their order, and no late statement of
//! one session meets a later one of another. So an id stays with its writer while any job of it is there, and
//! until a session that may still do what it was asked is gone. Other than that one writer is enough until
//! there is a crowd, because a commit of sixteen records costs little more than one of four; or until it is late,
//! because someone else has locked what it needs; or while it is away, because it cannot connect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::scope::OperationId;

/// The writers of a store, and who is with them.
pub(super) struct Lanes {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    writers: Vec<State>,
    ids: HashMap<OperationId, Place>,
    queue_max: usize,
    is_crowded: bool,
}

/// What a writer has to do, and since when it is doing it.
#[derive(Clone, Copy, Default)]
struct State {
    jobs: usize,
    busy_since: Option<Instant>,
    is_away: bool,
}

impl State {
    fn is_of_use(&self) -> bool {
        let is_late = self.busy_since.is_some_and(|since| since.elapsed() > LATE);
        !is_late && !self.is_away
    }
}

struct Place {
    lane: usize,
    jobs: usize,
}

impl Lanes {
    /// So many writers, each with a queue of `queue_max`.
    pub(super) fn new(count: usize, queue_max: usize) -> Arc<Self> {
        let writers = vec![State::default(); count];
        let held = Held { writers, queue_max, ..Held::default() };
        Arc::new(Self { held: Mutex::new(held) })
    }

    /// A place for a job of `id`.
    pub(super) fn pin(self: &Arc<Self>, id: OperationId) -> Pin {
        let mut held = self.held();
        let known = held.ids.get(&id).map(|place| place.lane);
        let lane = known.unwrap_or_else(|| held.lane());
        held.writers[lane].jobs += 1;
        held.ids.entry(id).or_insert(Place { lane, jobs: 0 }).jobs += 1;
        drop(held);
        Pin { lanes: self.clone(), id, lane, is_idle: false }
    }

    /// This writer cannot connect, or can again.
    pub(super) fn set_away(&self, lane: usize, is_away: bool) {
        self.held().writers[lane].is_away = is_away;
    }

    /// This writer begins with something, or is through with it.
    pub(super) fn set_busy(&self, lane: usize, is_busy: bool) {
        self.held().writers[lane].busy_since = is_busy.then(Instant::now);
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The first one while few are there, and then the one with the fewest jobs; those of no use last.
    fn lane(&mut self) -> usize {
        let jobs: usize = self.writers.iter().map(|writer| writer.jobs).sum();
        let crowd = if self.is_crowded { CROWD_LEFT } else { CROWD };
        self.is_crowded = jobs >= crowd.min(self.queue_max / 2);
        let is_crowded = self.is_crowded;
        let burden = |it: &State| (!it.is_of_use(), if is_crowded { it.jobs } else { 0 });
        let lightest = self.writers.iter().enumerate().min_by_key(|(_, writer)| burden(writer));
        lightest.map_or(0, |(lane, _)| lane)
    }
}

/// The place of one job, held until it is dropped.
pub(super) struct Pin {
    lanes: Arc<Lanes>,
    id: OperationId,
    pub(super) lane: usize,
    /// The job is over, as far as the writer is concerned.
    is_idle: bool,
}

impl Pin {
    /// Keeps the place, though there is nothing to do.
    pub(super) fn idle(mut self) -> Self {
        self.lanes.held().writers[self.lane].jobs -= 1;
        self.is_idle = true;
        self
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut held = self.lanes.held();
        held.writers[self.lane].jobs -= usize::from(!self.is_idle);
        let place = held.ids.get_mut(&self.id);
        let is_last = place.is_some_and(|place| {
            place.jobs -= 1;
            place.jobs == 0
        });
        if is_last {
            held.ids.remove(&self.id);
        }
    }
}

/// Jobs, under way and waiting, from which on all writers are used; and under which they no longer are. Callers
/// who were just answered are about to come back, so the second is much lower.
const CROWD: usize = 96;
const CROWD_LEFT: usize = 36;
/// How long a commit may take before others take another way.
const LATE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> OperationId {
        OperationId::from_bytes([number; 16])
    }

    const QUEUE: usize = 1_000;

    fn many(lanes: &Arc<Lanes>, numbers: std::ops::Range<u8>) -> Vec<Pin> {
        numbers.map(|number| lanes.pin(id(number))).collect()
    }

    #[test]
    fn one_writer_is_enough_until_there_is_a_crowd() {
        let lanes = Lanes::new(2, QUEUE);
        let mut pins = many(&lanes, 0..192);
        let first = pins.iter().filter(|pin| pin.lane == 0).count();
        assert_eq!((first, pins[CROWD - 1].lane, pins[CROWD].lane), (CROWD, 0, 1));
        pins.truncate(CROWD_LEFT);
        assert_eq!(lanes.pin(id(255)).lane, 1, "a crowd that comes and goes is one");
        pins.truncate(CROWD_LEFT - 1);
        assert_eq!(lanes.pin(id(255)).lane, 0);
    }

    #[test]
    fn an_id_stays_with_its_writer_while_a_job_of_it_is_there() {
        let lanes = Lanes::new(2, QUEUE);
        let crowd = many(&lanes, 0..96);
        let first = lanes.pin(id(255));
        drop(crowd);
        let second = lanes.pin(id(255));
        assert_eq!((first.lane, second.lane), (1, 1), "though there is no crowd any more");
        drop(first);
        assert_eq!(lanes.pin(id(255)).lane, 1);
        drop(second);
        assert_eq!(lanes.pin(id(255)).lane, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_later_does_not_wait_for_a_writer_that_is_late() {
        let lanes = Lanes::new(2, QUEUE);
        lanes.set_busy(0, true);
        let first = lanes.pin(id(1));
        tokio::time::advance(LATE + Duration::from_millis(1)).await;
        assert_eq!((first.lane, lanes.pin(id(2)).lane, lanes.pin(id(1)).lane), (0, 1, 0));
        lanes.set_busy(0, false);
        assert_eq!(lanes.pin(id(2)).lane, 0);
    }

    #[test]
    fn a_writer_that_is_away_gets_only_those_who_must_wait_for_it() {
        let lanes = Lanes::new(2, QUEUE);
        let unsure = lanes.pin(id(1)).idle();
        lanes.set_away(0, true);
        let crowd = many(&lanes, 2..200);
        assert!(crowd.iter().all(|pin| pin.lane == 1), "however many");
        assert_eq!(lanes.pin(id(1)).lane, 0);
        drop(unsure);
        assert_eq!(lanes.pin(id(1)).lane, 1);
        lanes.set_away(0, false);
        assert_eq!(lanes.pin(id(1)).lane, 0);
    }

    #[test]
    fn a_short_queue_is_not_filled_while_another_is_empty() {
        let lanes = Lanes::new(2, 8);
        let pins = many(&lanes, 0..16);
        assert_eq!(pins.iter().filter(|pin| pin.lane == 0).count(), 8);
    }

    #[test]
    fn nothing_is_kept_of_jobs_that_are_over() {
        let lanes = Lanes::new(2, QUEUE);
        drop(many(&lanes, 0..200));
        let held = lanes.held();
        assert!(held.ids.is_empty());
        assert!(held.writers.iter().all(|writer| writer.jobs == 0));
    }
}
