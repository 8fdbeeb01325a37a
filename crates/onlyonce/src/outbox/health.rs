//! Is the sink away, or are messages to blame? Judged topic by topic, by what the sink takes and what it does not.
//!
//! 1. **A message is to blame** if the sink has taken another one of its topic since it failed the last time, or if it is the
//!    only one of its topic that has failed since the sink took one. It blocks its own key, and pauses longer each time. Only
//!    then its refusals are counted.
//! 2. **A topic is away** if messages of it fail that were never to blame: the sink is unavailable, or refuses those of several
//!    keys and takes none. Nothing is counted, and the topic is only probed until the sink takes a message of it.
//!
//! It is forgotten when the relay ends; messages that have failed are known by their column `error`.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::backoff::Backoff;
use super::options::POLL_FIRST;
use super::queue::{Leased, OUTAGE_PAUSE, Verdict, Walk};

/// What one relay has seen.
#[derive(Debug)]
pub(super) struct Health {
    topics: HashMap<String, Topic>,
    /// The messages that have failed and were not taken since.
    messages: HashMap<Uuid, Luck>,
    /// How many messages the sink has taken, of all topics.
    taken: u64,
    /// From which time on a message that is to blame counts as refused although the sink was unavailable.
    unavailable_max: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Topic {
    /// What `taken` was when the sink took one of this topic the last time.
    taken_at: u64,
    /// What has failed since.
    failing: Failing,
    /// Pauses between two rounds of probes. Active while the topic is away.
    outage: Backoff,
    /// Whether the last failure was a refusal.
    is_answering: bool,
    /// How many more messages are probed in this round.
    left: usize,
    /// Pauses after probes that found nothing due.
    idle: Backoff,
    /// Where the probes are.
    pub(super) walk: Walk,
    /// Lanes whose last message was taken.
    good: VecDeque<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    None,
    One(Uuid),
    Several,
}

#[derive(Debug)]
struct Luck {
    /// What `taken` was when it failed the last time.
    failed_at: u64,
    /// How often it was to blame because the sink took another one in between.
    blamed: u32,
}

/// Whether a message is to blame.
struct Blame {
    /// The sink has taken another one since it failed the last time.
    is_now: bool,
    /// How often that was so, this time included.
    times: u32,
}

/// What a failure means.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// The topic was not away before.
    pub(super) begins_outage: bool,
}

impl Health {
    pub(super) fn new(unavailable_max: Option<u32>) -> Self {
        Self { topics: HashMap::new(), messages: HashMap::new(), taken: 0, unavailable_max }
    }

    /// The sink has taken it, so it takes messages of this topic.
    pub(super) fn shipped(&mut self, leased: &Leased) {
        self.taken += 1;
        self.messages.remove(&leased.id);
        let taken = self.taken;
        let topic = self.of(&leased.message.topic);
        (topic.taken_at, topic.failing) = (taken, Failing::None);
        topic.end_outage();
        let lane = leased.lane();
        if !topic.good.contains(&lane) {
            topic.good.truncate(GOOD_LANES_MAX - 1);
            topic.good.push_front(lane);
        }
    }

    /// The sink was unavailable for it, or has refused it.
    pub(super) fn failed(&mut self, leased: &Leased, is_refused: bool) -> Judged {
        let taken_at = self.of(&leased.message.topic).taken_at;
        let Blame { is_now, times } = self.blame(leased.id, taken_at);
        let is_tired = self.unavailable_max.is_some_and(|max| is_now && times >= max);
        let topic = self.of(&leased.message.topic);
        let is_alone = topic.failing.add(leased.id);
        let lane = leased.lane();
        topic.good.retain(|good| *good != lane);
        topic.is_answering = is_refused;
        let was_away = topic.outage.is_active();
        let verdict = match times {
            _ if (is_refused || is_tired) && is_now => Verdict::Refused,
            _ if is_refused && is_alone => {
                // The sink has answered.
                topic.end_outage();
                Verdict::Refused
            }
            0 => {
                topic.pause();
                Verdict::Later(OUTAGE_PAUSE)
            }
            // It says nothing about the sink.
            times => Verdict::Later(blamed_pause(times)),
        };
        let begins_outage = !was_away && topic.outage.is_active();
        Judged { verdict, begins_outage }
    }

    fn blame(&mut self, id: Uuid, taken_at: u64) -> Blame {
        if self.messages.len() >= MESSAGES_MAX {
            self.messages.clear();
        }
        let failed_at = self.taken;
        let luck = self.messages.entry(id).or_insert(Luck { failed_at, blamed: 0 });
        let is_now = taken_at > luck.failed_at;
        luck.failed_at = failed_at;
        luck.blamed = luck.blamed.saturating_add(is_now.into());
        Blame { is_now, times: luck.blamed }
    }

    /// The topics that are only probed. [`REST`] stands for all that are not named.
    pub(super) fn away(&self) -> Vec<String> {
        let away = self.topics.iter().filter(|(_, topic)| topic.outage.is_active());
        away.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn is_away(&self, name: &str) -> bool {
        self.topics.get(name).is_some_and(|topic| topic.outage.is_active())
    }

    /// The topic that is to be probed next, and when.
    pub(super) fn next_probe(&self) -> Option<(&str, Instant)> {
        let away = self.topics.iter().filter(|(_, topic)| topic.outage.is_active());
        let next = away.map(|(name, topic)| (name.as_str(), topic.probe_at()));
        next.min_by_key(|(_, at)| *at)
    }

    /// The topic with this name.
    pub(super) fn of(&mut self, name: &str) -> &mut Topic {
        if self.topics.len() >= TOPICS_MAX && !self.topics.contains_key(name) {
            self.topics.retain(|_, topic| topic.outage.is_active());
        }
        let is_full = self.topics.len() >= TOPICS_MAX && !self.topics.contains_key(name);
        let name = if is_full { REST } else { name };
        self.topics.entry(name.to_owned()).or_insert_with(Topic::new)
    }
}

impl Topic {
    fn new() -> Self {
        Self {
            taken_at: 0,
            failing: Failing::None,
            outage: Backoff::new(OUTAGE_FIRST, OUTAGE_MAX),
            is_answering: false,
            left: 0,
            idle: Backoff::new(POLL_FIRST, OUTAGE_MAX),
            walk: Walk::default(),
            good: VecDeque::new(),
        }
    }

    fn probe_at(&self) -> Instant {
        match self.left {
            0 => self.outage.until().max(self.idle.until()),
            _ => self.idle.until(),
        }
    }

    /// How many messages may be probed now. A round has few at first, and more as the pauses grow: many keys with poison must
    /// not hide the others.
    pub(super) fn probes(&self) -> usize {
        let doublings = self.outage.pauses().saturating_sub(1).min(PROBE_DOUBLINGS);
        if self.left > 0 { self.left } else { PROBES_FIRST << doublings }
    }

    /// The lanes to be probed before all others.
    pub(super) fn good_lanes(&self) -> Vec<String> {
        self.good.iter().cloned().collect()
    }

    /// So many are being sent. The next round is after a longer pause, also if this one never ends.
    pub(super) fn note_probes(&mut self, sent: usize) {
        let left = self.probes().saturating_sub(sent);
        if self.left == 0 {
            self.pause();
        }
        self.left = left;
        self.idle.reset();
    }

    /// All that have not failed were probed.
    pub(super) fn end_round(&mut self) {
        self.left = 0;
    }

    /// Nothing of it was due.
    pub(super) fn note_idle(&mut self) {
        self.left = 0;
        self.idle.pause();
    }

    /// A sink that refuses is there, and asking it costs little.
    fn pause(&mut self) {
        self.outage.pause_at_most(if self.is_answering { REFUSING_MAX } else { OUTAGE_MAX });
    }

    fn end_outage(&mut self) {
        self.outage.reset();
        self.idle.reset();
        self.left = 0;
    }
}

impl Failing {
    /// Whether this one is the only one.
    fn add(&mut self, id: Uuid) -> bool {
        *self = match self {
            Self::None => Self::One(id),
            Self::One(one) if *one == id => Self::One(id),
            Self::One(_) | Self::Several => Self::Several,
        };
        *self == Self::One(id)
    }
}

/// The pause of a message that is to blame, for the n-th time, and was not refused.
fn blamed_pause(times: u32) -> Duration {
    let factor = 2_u32.saturating_pow(times.saturating_sub(1));
    OUTAGE_PAUSE.saturating_mul(factor).min(BLAMED_PAUSE_MAX)
}

/// Above this many topics that are away, all others are one: no topic has an empty name.
pub(super) const REST: &str = "";
const TOPICS_MAX: usize = 1_000;
/// Above this, all begin anew.
const MESSAGES_MAX: usize = 10_000;
const GOOD_LANES_MAX: usize = 16;
/// Messages of the first round of probes, and how often their number doubles: to 64.
const PROBES_FIRST: usize = 4;
const PROBE_DOUBLINGS: u32 = 4;
/// Pauses between two rounds.
const OUTAGE_FIRST: Duration = Duration::from_millis(100);
const OUTAGE_MAX: Duration = Duration::from_secs(5);
const REFUSING_MAX: Duration = Duration::from_millis(500);
/// The longest pause of a message that finds the sink unavailable although it takes others.
const BLAMED_PAUSE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
