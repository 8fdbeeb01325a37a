//! The keys that hide answers and keys in the store.

use super::{Once, OnceBuilder};
use crate::store::sealed::SealKey;

impl OnceBuilder {
    /// Seals answers and the texts of keys in the store: see [`store::sealed`](crate::store::sealed). The first key seals,
    /// all of them open. Default: none, and nothing is sealed.
    #[must_use]
    pub fn with_seal(self, keys: Vec<SealKey>) -> Self {
        self.store.seal.replace(keys);
        self
    }
}

impl Once {
    /// From now on these are the keys of the seal, for every call of the store that is made after this. An answer that was
    /// sealed with a key that is not among them is not kept any more.
    pub fn reseal(&self, keys: Vec<SealKey>) {
        self.inner.store.seal.replace(keys);
    }

    /// How often something sealed was read from the store and did not open, since this engine started.
    pub fn unopened(&self) -> u64 {
        self.inner.store.seal.unopened()
    }
}
