//! Checks that this configuration gives live keys the ids that they have in the store.
//!
//! The store keeps a small text for each input of the ids: the secret, the version of the encoding, the scope. A node
//! with another text would find no record of a key that was used before, and a retry would run again.

use super::any_store::AnyStore;
use super::{Once, OnceBuilder};
use crate::hex;
use crate::record::{StateKind, StateSet};
use crate::scope::{SCOPE_VERSION, Secret};
use crate::store::{Fault, Scan};

/// An input of the ids that differs from what the store was used with before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdChange {
    /// [`SECRET`](Self::SECRET), [`SCOPE_VERSION`](Self::SCOPE_VERSION), or a name that the caller gave.
    pub name: String,
    /// The text that the store keeps.
    pub before: String,
    /// The text of this configuration.
    pub now: String,
}

impl IdChange {
    /// The name of the secret: 16 hexadecimal digits, or [`NO_SECRET`](Self::NO_SECRET).
    pub const SECRET: &str = "secret";
    /// The text of no secret.
    pub const NO_SECRET: &str = "none";
    /// The name of the version of the encoding that ids are hashed from.
    pub const SCOPE_VERSION: &str = "scope version";
}

impl OnceBuilder {
    /// The inputs that give keys other ids than they have in the store: the secret, the version of the encoding, and
    /// the inputs that the caller names with a text each, such as the scope of its policy.
    ///
    /// Without a change the list is empty, and the store keeps the texts that it did not know yet. With a change the
    /// store keeps its old texts: either do not start, or [accept](Self::accept_id_change) each change, and every live
    /// key is forgotten. `onlyonce serve` does not start; [`build`](Self::build) does not look.
    ///
    /// Of the secret the store keeps 64 bits of an HMAC. Somebody who reads the store can test guesses of the secret
    /// with it, as with any record: 32 random bytes cannot be guessed, a word can.
    ///
    /// ```
    /// # #[cfg(feature = "memory")] {
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use onlyonce::{Once, scope::Secret, store::memory::MemoryStore};
    ///
    /// let store = MemoryStore::new();
    /// let builder = |secret: &str| Once::builder(store.clone()).with_secret(Secret::new(secret));
    /// assert!(builder("one").id_changes(&[]).await?.is_empty());
    /// let changes = builder("two").id_changes(&[]).await?;
    /// assert_eq!(changes[0].name, "secret");
    /// # Ok::<(), onlyonce::store::Fault>(())
    /// # })?; }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn id_changes(&self, others: &[(&str, &str)]) -> Result<Vec<IdChange>, Fault> {
        id_changes(&self.store, self.secret.as_ref(), others).await
    }

    /// Whether the store is used with another secret than this one, so that keys have other ids there. It only looks.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn has_other_secret(&self) -> Result<bool, Fault> {
        let kept = self.store.check_value(IdChange::SECRET, None, None).await?;
        Ok(kept.is_some_and(|kept| kept != secret_text(self.secret.as_ref())))
    }

    /// Whether there may be a record that a retry could still find. It looks at so many records only that a start does not
    /// wait for it: if those have all expired and there are more, there may be one. Of use where nobody else can make a record
    /// meanwhile, as in a file of SQLite that this process has opened.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn may_have_live_keys(&self) -> Result<bool, Fault> {
        let states = StateSet::of(&StateKind::ALL);
        let mut scan = Scan { states, after: None, limit: SCANNED_ROWS };
        for _ in 0..SCANS_MAX {
            let page = self.store.scan(scan.clone()).await?;
            if page.records.iter().any(|(_, record)| !record.is_expired(page.now)) {
                return Ok(true);
            }
            scan.after = page.next;
            if scan.after.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the store keep the text of this configuration; false if another node has changed it meanwhile.
    ///
    /// # Errors
    /// If the store gives no answer. Repeating the call is harmless.
    pub async fn accept_id_change(&self, change: &IdChange) -> Result<bool, Fault> {
        let IdChange { name, before, now } = change;
        let kept = self.store.check_value(name, Some(before), Some(now)).await?;
        Ok(kept.as_ref() == Some(now))
    }
}

impl Once {
    /// The same for an engine that runs, before its layers are [replaced](Self::replace_layers).
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn id_changes(&self, others: &[(&str, &str)]) -> Result<Vec<IdChange>, Fault> {
        id_changes(&self.inner.store, self.inner.secret.as_ref(), others).await
    }
}

async fn id_changes(
    store: &AnyStore,
    secret: Option<&Secret>,
    others: &[(&str, &str)],
) -> Result<Vec<IdChange>, Fault> {
    let (secret, version) = (secret_text(secret), SCOPE_VERSION.to_string());
    let own = [(IdChange::SECRET, &*secret), (IdChange::SCOPE_VERSION, &*version)];
    let mut changes = Vec::new();
    for (name, now) in own.iter().chain(others) {
        // After a change nothing is written: the node may be refused.
        let to = changes.is_empty().then_some(*now);
        let kept = store.check_value(name, None, to).await?;
        if let Some(before) = kept.filter(|before| before != now) {
            changes.push(IdChange { name: (*name).into(), before, now: (*now).into() });
        }
    }
    Ok(changes)
}

fn secret_text(secret: Option<&Secret>) -> String {
    match secret {
        Some(secret) => hex::encode(&secret.derive("the check value")[..SECRET_BYTES]),
        None => IdChange::NO_SECRET.to_owned(),
    }
}

/// The records of one look at the store, and how many looks there are.
const SCANNED_ROWS: usize = 500;
const SCANS_MAX: usize = 40;
/// Enough bytes to tell two secrets apart, and no more of the HMAC than needed.
const SECRET_BYTES: usize = 8;
