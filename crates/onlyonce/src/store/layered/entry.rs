//! A completed record as the filter keeps it: signed, so that only what a node wrote is ever replayed.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::clock::StoreTime;
use crate::record::{Record, State, codec};
use crate::scope::OperationId;

/// Signs entries, with the deployment's secret where there is one.
#[derive(Clone)]
pub(super) struct Seal(Vec<u8>);

/// What was found in the place of an entry.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// A completed record, and when it expires.
    Entry(Box<Record>, StoreTime),
    /// One that is being forgotten, or of another version.
    NotOurs,
    /// Not what any node wrote.
    Unreadable,
}

impl Seal {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self([PURPOSE, secret].concat())
    }

    /// The entry of a completed record; `None` for any other.
    pub(super) fn entry(&self, id: OperationId, record: &Record) -> Option<Vec<u8>> {
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

    pub(super) fn open(&self, id: OperationId, entry: &[u8]) -> Found {
        match entry.strip_prefix(MAGIC) {
            Some([VERSION, ..]) => {}
            Some([_, ..]) => return Found::NotOurs,
            _ => return Found::Unreadable,
        }
        self.record(id, entry).map_or(Found::Unreadable, |(record, at)| Found::Entry(record, at))
    }

    fn record(&self, id: OperationId, entry: &[u8]) -> Option<(Box<Record>, StoreTime)> {
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

    fn mac(&self, id: OperationId, head: &[u8], text: &[u8]) -> [u8; MAC_BYTES] {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        let mac = mac.chain_update(id.as_bytes()).chain_update(head).chain_update(text);
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
const PURPOSE: &[u8] = b"onlyonce filter 1";
