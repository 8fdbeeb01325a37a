//! What a relay asks the database for: all that is due of the topics that the sink takes, and probes of the others.

use tokio::time::Instant;

use super::Sink;
use super::health::REST;
use super::queue::{Ask, Found, Lane};
use super::relay::Relay;

impl<S: Sink> Relay<S> {
    /// When messages may be leased, as far as there is room for them.
    pub(super) fn lease_at(&self) -> Instant {
        let probe_at = self.probe().map(|(_, at)| at);
        let next = [self.look_at(), probe_at].into_iter().flatten().min();
        // Nothing before a send ends.
        let next = next.unwrap_or_else(|| Instant::now() + self.options.lease);
        next.max(self.offline.until())
    }

    pub(super) async fn lease(&mut self) {
        let now = Instant::now();
        if let Some((topic, at)) = self.probe()
            && self.room() > 0
            && now >= at.max(self.offline.until())
        {
            let topic = topic.to_owned();
            self.lease_probes(&topic).await;
        }
        let is_due = self.look_at().is_some_and(|at| now >= at.max(self.offline.until()));
        if is_due && self.room() > 0 {
            self.lease_all().await;
        }
    }

    /// When all lanes are looked at next; not while every topic is away.
    fn look_at(&self) -> Option<Instant> {
        let is_away = |topic: &String| self.health.is_away(topic);
        let is_any_away = self.options.topic.as_ref().is_some_and(is_away);
        (!is_any_away && !self.health.is_away(REST)).then(|| self.idle.until())
    }

    /// The topic that is probed next, and when.
    fn probe(&self) -> Option<(&str, Instant)> {
        self.health.next_probe().filter(|_| self.suspects_room() > 0)
    }

    /// How many suspects may be leased. What fails, or is never answered, leaves most of the places to others.
    fn suspects_room(&self) -> usize {
        let places = (self.options.in_flight_max / 4).max(1);
        places.saturating_sub(self.sending.suspects()).min(self.room())
    }

    async fn lease_all(&mut self) {
        let (after, except) = (self.walk.go_on(), self.health.away());
        let are_all_there = except.is_empty();
        let topic = self.options.topic.clone();
        let rows_max = self.room().min(self.lease_rows_max);
        let suspects_max = self.suspects_room();
        let ask = Ask { topic, except, after, rows_max, suspects_max, ..Ask::default() };
        let Some(looked) = self.start(&ask).await else { return };
        let is_idle = self.walk.note(looked.leased > 0, looked.lane);
        if is_idle {
            self.idle.pause();
        }
        if is_idle && are_all_there {
            self.counts.note_no_age();
        }
    }

    /// Of a topic that is away: lanes first whose last message was taken, then others that have not failed, then one that has.
    async fn lease_probes(&mut self, topic: &str) {
        let probes = self.health.of(topic).probes();
        let rows_max = probes.min(self.suspects_room()).min(self.lease_rows_max);
        let mut ask = Ask { rows_max, suspects_max: 1, is_probe: true, ..Ask::default() };
        match topic {
            REST => ask.except = self.health.away(),
            _ => ask.topic = Some(topic.to_owned()),
        }
        let good = self.health.of(topic).good_lanes();
        if !good.is_empty() && topic != REST {
            let ask = Ask { lanes: Some(good), suspects_max: 0, ..ask.clone() };
            let Some(looked) = self.start(&ask).await else { return };
            if looked.leased > 0 {
                return self.health.of(topic).note_probes(looked.leased);
            }
        }
        ask.after = self.health.of(topic).walk.go_on();
        let Some(looked) = self.start(&ask).await else { return };
        let of_topic = self.health.of(topic);
        let is_idle = of_topic.walk.note(looked.leased > 0, looked.lane);
        match looked.leased {
            0 if is_idle => of_topic.note_idle(),
            0 => {}
            sent => of_topic.note_probes(sent),
        }
        if looked.suspects > 0 {
            of_topic.end_round();
        }
    }

    /// Leases what is asked for, and begins to send it. `None` if the database did not answer.
    async fn start(&mut self, ask: &Ask) -> Option<Looked> {
        let found = self.queue.lease(ask, self.options.lease).await;
        let Some(Found { leased, stopped }) = self.noted(found) else {
            // Their payloads may have been too much for the time of one answer.
            self.lease_rows_max = (self.lease_rows_max / 2).max(1);
            return None;
        };
        if leased.len() == self.lease_rows_max {
            self.lease_rows_max = (self.lease_rows_max + 1).min(LEASE_ROWS_MAX);
        }
        self.counts.note_age(&leased);
        let suspects = leased.iter().filter(|leased| leased.is_suspect).count();
        let started = Looked { leased: leased.len(), suspects, lane: stopped };
        if started.leased > 0 && !ask.is_probe {
            self.idle.reset();
        }
        for mut leased in leased {
            leased.is_suspect |= ask.is_probe;
            self.sending.start(leased, self.options.lease / 2);
        }
        Some(started)
    }
}

/// What became of a look.
struct Looked {
    leased: usize,
    suspects: usize,
    /// Where it stopped; `None` after the last lane.
    lane: Option<Lane>,
}

/// Messages that a lease asks for if their payloads arrive in time.
pub(super) const LEASE_ROWS_MAX: usize = 16;
