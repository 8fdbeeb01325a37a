//! A quick hash of an operation's id. Ids are digests, but a client has a hand in them: so it is keyed.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The key, new for each store that is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed(u64, u64);

impl Keyed {
    pub(crate) fn new() -> Self {
        let random = RandomState::new();
        Self(random.hash_one(0), random.hash_one(1))
    }

    /// Both halves multiplied, and the product folded: nobody who does not know the key can aim.
    pub(crate) fn hash(self, id: &[u8; 16]) -> u64 {
        let id = u128::from_le_bytes(*id);
        let product = u128::from(id as u64 ^ self.0) * u128::from((id >> 64) as u64 ^ self.1);
        let folded = (product >> 64) as u64 ^ product as u64;
        folded.wrapping_mul(ODD) ^ folded >> 29
    }
}

/// For maps whose keys are ids.
impl BuildHasher for Keyed {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher { keyed: *self, hash: 0 }
    }
}

pub(crate) struct IdHasher {
    keyed: Keyed,
    hash: u64,
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        // The length of an id comes before it, and says nothing.
        if let Ok(id) = bytes.try_into() {
            self.hash = self.keyed.hash(id);
        }
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
