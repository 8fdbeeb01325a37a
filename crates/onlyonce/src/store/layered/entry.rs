//! An entry of the filter: a completed record, signed, so that only what a node of ours wrote is ever replayed.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::clock::StoreTime;
use crate::record::{Record, State, codec};
use crate::scope::OperationId;
use crate::store::StoreIdentity;

/// Which entry it is: that of a record, as this authority has it. Stores that share a Redis may have records with one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryId {
    pub(super) authority: StoreIdentity,
    pub(super) id: OperationId,
}

/// Signs entries, with the deployment's secret where there is one.
#[derive(Clone)]
pub(super) struct Seal(Vec<u8>);

/// What was found under the key of an entry.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// A completed record, and when it expires.
    Entry(Box<Record>, StoreTime),
    /// The mark of an entry that was deleted, or an entry of another version.
    NotOurs,
    /// Damaged, or not written by a node with this secret.
    Unreadable,
}

impl Seal {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self([PURPOSE, secret].concat())
    }

    /// The entry of a completed record; `None` for any other.
    pub(super) fn entry(&self, id: EntryId, record: &Record) -> Option<Vec<u8>> {
        let completed_at = completed_at(record)?;
        let mut entry = [MAGIC, &[VERSION]].concat();
        entry.extend(completed_at.as_ms().to_le_bytes());
        entry.extend(record.token.as_bytes());
        let text = codec::encode(record);
        let mac = self.mac(id, &entry, &text);
        entry.extend(mac);
        entry.extend(text);
        Some(entry)
    }

    pub(super) fn open(&self, id: EntryId, entry: &[u8]) -> Found {
        match entry.strip_prefix(MAGIC) {
            Some([VERSION, ..]) => {}
            Some([_, ..]) => return Found::NotOurs,
            _ => return Found::Unreadable,
        }
        self.record(id, entry).map_or(Found::Unreadable, |(record, at)| Found::Entry(record, at))
    }

    fn record(&self, id: EntryId, entry: &[u8]) -> Option<(Box<Record>, StoreTime)> {
        let (head, rest) = entry.split_at_checked(HEAD_BYTES)?;
        let (mac, text) = rest.split_at_checked(MAC_BYTES)?;
        if mac != self.mac(id, head, text) {
            return None;
        }
        let record = codec::decode(text).ok()?;
        match record.state {
            State::Completed { expires_at, .. } => Some((Box::new(record), expires_at)),
            _ => None,
        }
    }

    fn mac(&self, EntryId { authority, id }: EntryId, head: &[u8], text: &[u8]) -> [u8; MAC_BYTES] {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        let mac = mac.chain_update(authority.as_bytes()).chain_update(id.as_bytes());
        let mac = mac.chain_update(head).chain_update(text);
        let mac = mac.finalize().into_bytes();
        mac[..MAC_BYTES].try_into().expect("a digest is longer than that")
    }
}

/// When a record was completed; `None` if it is not.
pub(super) fn completed_at(record: &Record) -> Option<StoreTime> {
    match record.state {
        State::Completed { expires_at, .. } => {
            Some(StoreTime::from_ms(expires_at.as_ms().saturating_sub(record.ttl_ms)))
        }
        _ => None,
    }
}

const MAGIC: &[u8] = b"oF";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 2 + 1 + 8 + 16;
const MAC_BYTES: usize = 16;
const PURPOSE: &[u8] = b"onlyonce filter 2";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::fingerprint::Fingerprint;
    use crate::record::{Kept, KeyText, Response, SettledBy, Token};
    use crate::scope::Principal;

    const ID: EntryId = EntryId {
        authority: StoreIdentity::from_bytes([9; 16]),
        id: OperationId::from_bytes([3; 16]),
    };

    fn record(state: State) -> Record {
        Record {
            token: Token::from_bytes([1; 16]),
            count: 2,
            attempt: 1,
            state,
            taken_from: None,
            key: KeyText::new("order-1"),
            fingerprint: Fingerprint { version: 1, canonical: [1; 32], raw: [2; 32] },
            principal: Principal::from_bytes([4; 32]),
            route: "POST /orders".into(),
            target: "api.test/charges".into(),
            first_claimed_at: StoreTime::from_ms(5),
            lease_ms: 30_000,
            quiet_ms: 60_000,
            ttl_ms: 1_000,
        }
    }

    fn completed() -> Record {
        let body = Kept::Bytes { body: "kept".into(), trailers: None };
        let response = Response { status: StatusCode::OK, headers: HeaderMap::new(), body };
        let (settled_by, response) = (SettledBy::Owner, Arc::new(response));
        record(State::Completed { expires_at: StoreTime::from_ms(9_000), settled_by, response })
    }

    #[test]
    fn only_a_completed_record_has_an_entry() {
        let seal = Seal::new(b"secret");
        let entry = seal.entry(ID, &completed()).unwrap();
        let found = Found::Entry(Box::new(completed()), StoreTime::from_ms(9_000));
        assert_eq!(seal.open(ID, &entry), found);
        assert_eq!(entry[3..11], 8_000_i64.to_le_bytes(), "completed a ttl before it expires");
        for state in [
            State::Running { lease_until: StoreTime::from_ms(1) },
            State::Unknown { since: StoreTime::from_ms(1) },
            State::Released { expires_at: StoreTime::from_ms(1) },
        ] {
            assert_eq!(seal.entry(ID, &record(state)), None);
        }
    }

    // threat D8
    #[test]
    fn no_entry_with_a_flipped_bit_or_a_missing_byte_opens() {
        let seal = Seal::new(b"secret");
        let entry = seal.entry(ID, &completed()).unwrap();
        for bit in 0..entry.len() * 8 {
            let mut flipped = entry.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(seal.open(ID, &flipped), Found::Entry(..)), "bit {bit}");
        }
        for length in 0..entry.len() {
            assert!(!matches!(seal.open(ID, &entry[..length]), Found::Entry(..)), "{length} bytes");
        }
        let other = EntryId { id: OperationId::from_bytes([4; 16]), ..ID };
        assert_eq!(seal.open(other, &entry), Found::Unreadable);
        let other = EntryId { authority: StoreIdentity::from_bytes([8; 16]), ..ID };
        assert_eq!(seal.open(other, &entry), Found::Unreadable, "of another authority");
        assert_eq!(Seal::new(b"").open(ID, &entry), Found::Unreadable);
    }
}
