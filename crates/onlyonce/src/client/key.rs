//! Keys that a client makes: once per operation, before the first byte, never from the payload.

use sha2::{Digest, Sha256};

use crate::clock::Clock;
use crate::hex;
use crate::key::{Key, KeyRules};

impl Key {
    /// A new key for a new operation: a random UUID (version 4).
    ///
    /// ```
    /// use onlyonce::key::Key;
    ///
    /// assert_eq!(Key::random().as_str().len(), 36);
    /// assert_ne!(Key::random(), Key::random());
    /// ```
    pub fn random() -> Self {
        uuid(random_bytes(), 4)
    }

    /// A new key for a new operation: a UUID of version 7, which begins with the time by `clock` and so
    /// sorts by it. Everyone who sees the key can read when it was made.
    pub fn time_ordered(clock: &dyn Clock) -> Self {
        let mut bytes = random_bytes();
        let ms = clock.wall().as_ms().max(0).to_be_bytes();
        bytes[..6].copy_from_slice(&ms[2..]);
        uuid(bytes, 7)
    }

    /// The key of the operation that these identifiers name: the same parts give the same key, on every
    /// machine and after every crash. 64 hexadecimal digits.
    ///
    /// Name the operation by what it *is* in your business (merchant, order, sequence number), never by
    /// what is sent: a payload that changes would make a second operation of a retry, and two equal
    /// orders of one customer would become one.
    ///
    /// ```
    /// use onlyonce::key::Key;
    ///
    /// let key = Key::derive(["merchant", "acme", "order", "4711", "1"]);
    /// assert_eq!(key, Key::derive(["merchant", "acme", "order", "4711", "1"]));
    /// assert_ne!(key, Key::derive(["merchant", "acme", "order", "47", "111"]));
    /// ```
    pub fn derive<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut digest = Sha256::new_with_prefix(DERIVED);
        for part in parts {
            let part = part.as_ref().as_bytes();
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        made(&hex::encode(&digest.finalize()))
    }
}

fn uuid(mut bytes: [u8; 16], version: u8) -> Key {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex::encode(&bytes);
    let groups = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    made(&groups.join("-"))
}

fn made(text: &str) -> Key {
    Key::from_text(text, &KeyRules::default()).expect("hexadecimal digits make a key")
}

fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("without randomness no key may be made");
    bytes
}

/// Written into every derived key: it never changes.
const DERIVED: &[u8] = b"onlyonce client key 1\0";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{StoreTime, SystemClock};
    use crate::key::KeyFormat;

    fn is_uuid(key: &Key, version: char) -> bool {
        let rules = KeyRules { format: KeyFormat::Uuid, ..KeyRules::default() };
        let text = key.as_str();
        let variant = text.chars().nth(19);
        Key::from_text(text, &rules).is_ok()
            && text.chars().nth(14) == Some(version)
            && variant.is_some_and(|digit| "89ab".contains(digit))
    }

    // R150
    #[test]
    fn random_keys_are_uuids_of_version_4_and_all_different() {
        let keys: std::collections::HashSet<_> = (0..1000).map(|_| Key::random()).collect();
        assert_eq!(keys.len(), 1000);
        assert!(keys.iter().all(|key| is_uuid(key, '4')));
    }

    struct At(i64);

    impl Clock for At {
        fn wall(&self) -> StoreTime {
            StoreTime::from_ms(self.0)
        }

        fn boot(&self) -> std::time::Duration {
            SystemClock.boot()
        }
    }

    // R150
    #[test]
    fn time_ordered_keys_are_uuids_of_version_7_that_begin_with_the_time() {
        let key = Key::time_ordered(&At(0x0123_4567_89ab));
        assert!(is_uuid(&key, '7'), "{}", key.as_str());
        assert!(key.as_str().starts_with("01234567-89ab-7"));
        assert!(Key::time_ordered(&At(1)).as_str() < Key::time_ordered(&At(2)).as_str());
    }

    // R150
    #[test]
    fn derived_keys_depend_on_each_part_and_on_where_it_ends() {
        let key = |parts: &[&str]| Key::derive(parts.iter().copied());
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        let all = [key(&[]), key(&[""]), key(&["ab"]), key(&["a", "b"]), key(&["b", "a"])];
        for (n, one) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|other| one != other));
        }
    }

    // R150
    #[test]
    fn derived_keys_never_change_between_versions() {
        let key = Key::derive(["merchant", "acme", "order", "4711", "1"]);
        assert_eq!(key.as_str(), PINNED);
    }

    const PINNED: &str = "4cc9314bcb8a23a323b080b4fbd43339612a0788115194db866f759cc8254412";
}
