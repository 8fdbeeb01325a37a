//! What the runs have met. A run of many seeds that has not met all of it has shown nothing.

use onlyonce::Counts;

macro_rules! met {
    ($($name:ident,)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Met { $(pub(crate) $name: u64,)* }

        impl Met {
            pub(crate) fn add(&mut self, more: &Self) {
                $(self.$name += more.$name;)*
            }

            fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

met! {
    requests, executed, replayed, conflicts, mismatches, unknowns, reaped, takeovers, fenced, released, swept, waited,
    disowned, settles_retried, lost_calls, lost_replies, doubled, late, refused, crashes, standstills, partitions,
    holds, clock_jumps, hang_ups, other_gateway, other_body, other_principal, silent_service, slow_service,
    confirmed_at_the_end,
}

impl Met {
    pub(crate) fn add_counts(&mut self, counts: &Counts) {
        self.executed += counts.executed;
        self.replayed += counts.replayed;
        self.conflicts += counts.in_progress;
        self.mismatches += counts.reused;
        self.unknowns += counts.unknown;
        self.reaped += counts.reaped;
        self.takeovers += counts.takeovers;
        self.fenced += counts.fenced;
        self.released += counts.released;
        self.swept += counts.swept;
        self.waited += counts.waited;
        self.disowned += counts.disowned;
        self.settles_retried += counts.settles_retried;
    }

    /// What no run has met.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        self.named().into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }
}

impl std::fmt::Display for Met {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<_> =
            self.named().iter().map(|(name, count)| format!("{name} {count}")).collect();
        f.write_str(&words.join(", "))
    }
}
