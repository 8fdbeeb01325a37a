//! Writes trials: names, keys and chances, all from the seed.

use super::{Caller, Kind, Program, Shot, Step, Trial};

/// What the options allow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) only: Vec<Program>,
    pub(crate) skip: Vec<Program>,
    /// Requests of the hot key.
    pub(crate) crowd: usize,
    pub(crate) has_second_caller: bool,
    pub(crate) has_shim: bool,
    pub(crate) has_json_body: bool,
    pub(crate) has_uuid_keys: bool,
    pub(crate) has_kill: bool,
    pub(crate) has_pid: bool,
    pub(crate) has_store_restart: bool,
    pub(crate) has_store_flush: bool,
}

impl Options {
    pub(crate) fn is_chosen(&self, program: Program) -> bool {
        (self.only.is_empty() || self.only.contains(&program)) && !self.skip.contains(&program)
    }
}

/// Makes the trials of one program: names, keys and chances, all from the seed.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) options: &'a Options,
    program: Program,
    random: u64,
    pub(crate) trials: Vec<Trial>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(program: Program, options: &'a Options) -> Self {
        let random = options.seed ^ (program as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { options, program, random, trials: Vec::new() }
    }

    /// A trial; `steps` gets its key.
    pub(crate) fn trial(
        &mut self,
        kind: Kind,
        label: impl Into<String>,
        steps: impl FnOnce(&str) -> Vec<Step>,
    ) -> &mut Trial {
        let program = self.program.to_string().to_ascii_lowercase();
        let marker =
            format!("{}{program}-{:03}", marker_prefix(self.options.seed), self.trials.len());
        let key = key_of(&marker, self.options.has_uuid_keys);
        let steps = steps(&key);
        let other_marker = format!("{marker}x");
        let (label, program) = (label.into(), self.program);
        self.trials.push(Trial {
            program,
            label,
            kind,
            key,
            marker: format!("{marker}o"),
            other_marker,
            misbehaviour: None,
            steps,
        });
        self.trials.last_mut().expect("one was pushed")
    }

    /// A number below `bound`, by splitmix64.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) % u64::from(bound.max(1))).unwrap_or_default()
    }
}

/// A plain request before the attacks: does it work, and how long does it take?
pub(crate) fn probe(options: &Options, number: usize, caller: Caller) -> Trial {
    let name = format!("{}p-{number:03}", marker_prefix(options.seed));
    let key = key_of(&name, options.has_uuid_keys);
    Trial {
        program: Program::T1,
        label: "a plain request".to_owned(),
        kind: Kind::Fresh,
        marker: format!("{name}o"),
        other_marker: format!("{name}x"),
        misbehaviour: None,
        steps: vec![Step::One(Shot::plain(&key).of(caller))],
        key,
    }
}

/// A key that belongs to this name alone; as a UUID, for services that want one.
fn key_of(name: &str, is_uuid: bool) -> String {
    if !is_uuid {
        return format!("k-{name}");
    }
    // FNV-1a, from two starts.
    let hash = |start: u64| {
        name.bytes()
            .fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        0x8000 | low >> 48 & 0x3fff,
        low & 0xffff_ffff_ffff
    )
}

/// How every marker of a run begins.
pub(crate) fn marker_prefix(seed: u64) -> String {
    format!("oo{seed:x}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_uuids_and_differ() {
        let keys = ["oo1-t1-000", "oo1-t1-001", "oo2-t1-000"].map(|name| key_of(name, true));
        for key in &keys {
            let parts: Vec<_> = key.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{key}");
            assert!(
                key.as_bytes()[14] == b'4' && matches!(key.as_bytes()[19], b'8'..=b'b'),
                "{key}"
            );
        }
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
    }
}
