//! Values that suit a trade, under one name.

use onlyonce::Policy;

use super::rules::{Remedy, Rules};

/// The trades that we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preset {
    Payments,
    Signup,
    Webhook,
    Job,
    JsonRpc,
    Mcp,
}

impl Preset {
    pub(super) const ALL: [(&str, Self); 6] = [
        ("payments", Self::Payments),
        ("signup", Self::Signup),
        ("webhook", Self::Webhook),
        ("job", Self::Job),
        ("jsonrpc", Self::JsonRpc),
        ("mcp", Self::Mcp),
    ];

    /// Takes the preset's values over, and notes that they were said at `at`.
    pub(super) fn apply(self, rules: &mut Rules, at: usize) {
        let preset = self.policy();
        for name in self.names() {
            rules.said.say(name, at);
            let before = rules.policy.clone();
            rules.policy = match *name {
                "key" => before.with_key(preset.key()),
                "key_length" => {
                    let (least, most) = preset.key_rules().length;
                    before.with_key_length(least, most)
                }
                "hold_max" => {
                    rules.hold_max = preset.hold_max();
                    before
                }
                "not_executed" => before.with_not_executed(preset.not_executed().to_vec()),
                "key_from" => before.with_key_from(preset.key_from().to_vec()),
                "fingerprint_exclude" => before.with_fingerprint(preset.fingerprint().clone()),
                "messages" => before.with_json_rpc(preset.is_json_rpc()),
                "recovery" => {
                    rules.remedy = Remedy::Release;
                    before
                }
                "live_keys_max" => before.with_live_keys_max(0),
                "live_bytes_max" => before.with_live_bytes_max(0),
                _ => before.with_ttl(preset.ttl()),
            };
        }
    }

    /// The library's preset of the same name.
    fn policy(self) -> Policy {
        match self {
            Self::Payments => Policy::payments(),
            Self::Signup => Policy::signup(),
            Self::Webhook => Policy::webhook(),
            Self::Job => Policy::job(),
            Self::JsonRpc => Policy::json_rpc(),
            Self::Mcp => Policy::mcp(),
        }
    }

    /// What it decides; all else stays as `[policy]` has it.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Payments => &["ttl", "key", "key_length"],
            Self::Signup => &["ttl"],
            Self::Webhook => {
                &["ttl", "not_executed", "recovery", "live_keys_max", "live_bytes_max"]
            }
            Self::Job => &["ttl", "hold_max", "live_keys_max", "live_bytes_max"],
            Self::JsonRpc | Self::Mcp => &["key_from", "fingerprint_exclude", "messages"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::matching::Match;
    use crate::config::route;

    // R105: a preset that the library gives another value must not lose it here.
    #[test]
    fn a_preset_is_the_librarys() {
        for (name, preset) in Preset::ALL {
            let mut rules = Rules::default();
            preset.apply(&mut rules, 0);
            let expected = preset.policy().with_route("default");
            let policy = route::policy(&Match::EVERYTHING, &rules);
            assert_eq!(format!("{policy:?}"), format!("{expected:?}"), "{name}");
        }
    }
}
