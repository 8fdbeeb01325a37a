//! One operation, as clients and the service name it.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Whose it is, its key, and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Operation {
    pub(crate) caller: String,
    pub(crate) key: String,
    pub(crate) class: Class,
    pub(crate) amount: u32,
}

/// What the gateway may do about an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Nothing: the service does not recognise a repetition.
    Opaque,
    /// Send it again: the service recognises it.
    Redrive,
}

impl Class {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Opaque => "opaque",
            Self::Redrive => "redrive",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Opaque => "/charges",
            Self::Redrive => "/transfers",
        }
    }
}

impl Operation {
    /// The nth. Each key is used by two callers, as two operations.
    pub(crate) fn nth(n: usize, run: u64) -> Self {
        let class = if (n / 2).is_multiple_of(3) { Class::Redrive } else { Class::Opaque };
        Self {
            caller: format!("caller-{}", n % 2),
            key: format!("operation-{run:016x}-{:08}", n / 2),
            class,
            amount: 1,
        }
    }

    /// The same key for something else.
    pub(crate) fn of_other_content(&self) -> Self {
        Self { amount: self.amount + 1, ..self.clone() }
    }

    pub(crate) fn body(&self) -> String {
        format!("{{\"amount\":{}}}", self.amount)
    }

    /// What tells its content apart from another.
    pub(crate) fn fingerprint(&self) -> String {
        digest(self.body().as_bytes())
    }
}

/// Tells bytes apart.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
