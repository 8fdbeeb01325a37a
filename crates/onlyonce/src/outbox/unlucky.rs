//! Messages that find the sink unavailable although it takes others.

use std::collections::HashMap;

use uuid::Uuid;

/// How often each of them did, in this relay.
#[derive(Debug, Default)]
pub(super) struct Unlucky {
    messages: HashMap<Uuid, Luck>,
}

#[derive(Debug)]
struct Luck {
    times: u32,
    /// What the sink had taken when it was unavailable the last time.
    shipped: u64,
}

impl Unlucky {
    /// The sink was unavailable for `id` when it had taken `shipped` messages. Returns how often that was so with another
    /// message taken since the time before; zero if none was taken now, as in an outage.
    pub(super) fn note(&mut self, id: Uuid, shipped: u64) -> u32 {
        if self.messages.len() >= MESSAGES_MAX {
            self.messages.clear();
        }
        let luck = self.messages.entry(id).or_insert(Luck { times: 0, shipped });
        if shipped <= luck.shipped {
            return 0;
        }
        *luck = Luck { times: luck.times.saturating_add(1), shipped };
        luck.times
    }

    /// It was shipped.
    pub(super) fn forget(&mut self, id: Uuid) {
        self.messages.remove(&id);
    }
}

/// Above this all begin anew: then the sink is away, and no message is to blame.
const MESSAGES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_sink_took_in_between_counts() {
        let (mut unlucky, id) = (Unlucky::default(), Uuid::from_u128(1));
        let counted = [5, 5, 6, 6, 9, 9].map(|shipped| unlucky.note(id, shipped));
        assert_eq!(counted, [0, 0, 1, 0, 2, 0]);
        unlucky.forget(id);
        assert_eq!(unlucky.note(id, 10), 0);
    }
}
