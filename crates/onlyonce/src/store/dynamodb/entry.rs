//! Entries of the audit trail and the heads of its chains, as items of the table.
//!
//! A chain is a partition: its entries by their numbers, and its head. Two indexes find entries by operation and by time.
//! What they go by is made from the entry, and an entry reads only if its item is exactly the one that is written for it:
//! a change of any attribute shows.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{Item, blob, integer, number, text};
use super::names::{BY_OPERATION, BY_TIME, HEAD, Names, PARTITION, PLACE, SHARDS, SORT, hex, key};
use crate::clock::StoreTime;
use crate::event::EventKind;
use crate::hex::{decode as from_hex, encode as to_hex};
use crate::scope::{KeyDigest, OperationId, Principal};
use crate::store::audit::{
    About, Chain, ChainRow, Entry, EntryCursor, Head, Link, Note, WriterId, by_from_text,
    ids_from_text, ids_to_text,
};

/// The key of an entry.
pub(super) fn entry_key(names: &Names, writer: WriterId, sequence: u64) -> Item {
    key(names.chain(writer), sort(sequence))
}

/// The number of an entry, so that texts are in the order of numbers.
pub(super) fn sort(sequence: u64) -> String {
    format!("{sequence:020}")
}

pub(super) fn encode(names: &Names, entry: &Entry) -> Item {
    let Entry { writer, sequence, hash, at, note } = entry;
    let Note { kind, id, status, count, about } = note;
    let About { key, route, principal, attempt, by, ids } = &**about;
    let of_key = names.entries_of(id.map(|id| id.prefix()));
    // By the hash, so that all shards are written alike.
    let shard = names.shard(hash[0] % SHARDS);
    let values: [(&str, Option<AttributeValue>); 16] = [
        (BY_OPERATION.1, Some(text(of_key))),
        (BY_TIME.1, Some(text(shard))),
        (PLACE, Some(text(place_text(&EntryCursor::of(entry))))),
        ("entry_hash", Some(blob(hash.to_vec()))),
        ("at_ms", Some(number(at.as_ms()))),
        (KIND, Some(text(kind.name()))),
        (OPERATION, id.map(|id| text(hex(id)))),
        (KEY_DIGEST, key.map(|key| blob(key.as_bytes().to_vec()))),
        ("route_name", Some(text(&**route)).filter(|_| !route.is_empty())),
        ("principal", principal.map(|who| blob(who.as_bytes().to_vec()))),
        ("attempt", attempt.map(number)),
        ("http_status", status.map(number)),
        ("dropped", count.map(number)),
        ("who", by.as_ref().map(|by| text(by.who()))),
        ("why", by.as_ref().map(|by| text(by.why()))),
        ("ids", ids_to_text(ids).map(text)),
    ];
    let values = values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    entry_key(names, *writer, *sequence).into_iter().chain(values).collect()
}

/// A row of a chain, as it was found; `None` if it has no number.
pub(super) fn chain_row(names: &Names, writer: WriterId, item: &Item) -> Option<ChainRow> {
    let sequence = item.get(SORT)?.as_s().ok()?.parse().ok()?;
    let entry = decode(names, item).filter(|entry| entry.writer == writer);
    let unreadable = ChainRow::Unreadable { sequence };
    Some(entry.map_or(unreadable, |entry| ChainRow::Entry(Box::new(entry))))
}

/// `None` if no writer wrote it so.
pub(super) fn decode(names: &Names, item: &Item) -> Option<Entry> {
    let (writer, sequence) = owner(names, item)?;
    let at = StoreTime::from_ms(integer(item, "at_ms").ok()?);
    let hash = bytes(item, "entry_hash")??;
    let entry = Entry { writer, sequence, hash, at, note: note(item)? };
    (encode(names, &entry) == *item).then_some(entry)
}

fn note(item: &Item) -> Option<Note> {
    Some(Note {
        kind: EventKind::named(string(item, KIND)?)?,
        id: operation(item),
        status: integer(item, "http_status").ok().and_then(|status| status.try_into().ok()),
        count: integer(item, "dropped").ok().and_then(|count| count.try_into().ok()),
        about: Arc::new(about(item)?),
    })
}

fn about(item: &Item) -> Option<About> {
    Some(About {
        key: bytes(item, KEY_DIGEST)?.map(KeyDigest::from_bytes),
        route: string(item, "route_name").unwrap_or_default().into(),
        principal: bytes(item, "principal")?.map(Principal::from_bytes),
        attempt: integer(item, "attempt").ok().and_then(|attempt| attempt.try_into().ok()),
        by: by_from_text(string(item, "who"), string(item, "why"))?,
        ids: ids_from_text(string(item, "ids"))?,
    })
}

/// The operation that an entry is about.
pub(super) fn operation(item: &Item) -> Option<OperationId> {
    let digits = from_hex(string(item, OPERATION)?)?;
    Some(OperationId::from_bytes(digits))
}

/// Where an item stands among all entries; `None` if it is none.
pub(super) fn place(names: &Names, item: &Item) -> Option<EntryCursor> {
    let (writer, sequence) = owner(names, item)?;
    let at = StoreTime::from_ms(integer(item, "at_ms").ok()?);
    Some(EntryCursor { at, writer, sequence })
}

/// Whose entry an item is; `None` if it is none.
pub(super) fn writer(names: &Names, item: &Item) -> Option<WriterId> {
    owner(names, item).map(|(writer, _)| writer)
}

fn owner(names: &Names, item: &Item) -> Option<(WriterId, u64)> {
    let writer = string(item, PARTITION)?.strip_prefix(&names.chain_of_any())?;
    Some((writer.parse().ok()?, string(item, SORT)?.parse().ok()?))
}

/// Texts of places are in the order of places.
pub(super) fn place_text(place: &EntryCursor) -> String {
    let EntryCursor { at, writer, sequence } = place;
    format!("{}.{}.{}", moment_text(*at), to_hex(&writer.to_bytes()), sort(*sequence))
}

/// What the text of every place at this moment begins with.
pub(super) fn moment_text(at: StoreTime) -> String {
    format!("{:020}", at.as_ms().max(0))
}

/// The end of a chain as a node keeps it.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) chain: Chain,
    /// How many notes of the batch that was appended last are in it.
    pub(super) appended: usize,
}

impl End {
    /// A chain without entries.
    pub(super) fn new(writer: WriterId) -> Self {
        Self { chain: Chain::new(writer), appended: 0 }
    }

    /// The end that this head says; `None` if it does not read.
    pub(super) fn of(writer: WriterId, head: &Item) -> Option<Self> {
        let link = |sequence, hash| {
            let sequence = u64::try_from(integer(head, sequence).ok()?).ok()?;
            Some(Link { sequence, hash: bytes(head, hash)?? })
        };
        let (from, last) =
            (link("from_sequence", "from_hash")?, link("last_sequence", "last_hash")?);
        let appended = bytes(head, "batch_id")??;
        let chain = Chain { head: Head { writer, from, last }, appended };
        Some(Self { chain, appended: integer(head, "batch_notes").ok()?.try_into().ok()? })
    }
}

/// The key of the head of a chain.
pub(super) fn head_key(names: &Names, writer: WriterId) -> Item {
    key(names.chain(writer), HEAD.to_owned())
}

fn string<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

/// `None` if there is something else than so many bytes; `Some(None)` if there is nothing.
fn bytes<const N: usize>(item: &Item, name: &str) -> Option<Option<[u8; N]>> {
    match item.get(name) {
        None => Some(None),
        Some(value) => Some(Some(value.as_b().ok()?.as_ref().try_into().ok()?)),
    }
}

/// The attributes that filters name.
pub(super) const OPERATION: &str = "operation_id";
pub(super) const KEY_DIGEST: &str = "key_digest";
pub(super) const KIND: &str = "event_kind";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::By;
    use crate::store::audit::BusinessId;

    fn entry() -> Entry {
        let about = About {
            key: Some(KeyDigest::of_key(None, "k")),
            route: "charges".into(),
            principal: Some(Principal::of("user", b"ann")),
            attempt: Some(1),
            by: By::new("ann", "seen").ok(),
            ids: vec![BusinessId { pointer: "/id".to_owned(), value: "ch_1".to_owned() }],
        };
        let id = Some(OperationId::from_bytes([1; 16]));
        let kind = EventKind::Executed;
        let note = Note { kind, id, status: Some(201), count: None, about: Arc::new(about) };
        Chain::new(WriterId::new([7; 16], 3)).add(StoreTime::from_ms(5), note)
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_no_changed_attribute_is() {
        let names = Names::new("oo").unwrap();
        let (whole, bare) = (
            entry(),
            Chain::new(WriterId::new([7; 16], 0)).add(StoreTime::from_ms(5), Note::dropped(9)),
        );
        for entry in [whole, bare] {
            let item = encode(&names, &entry);
            assert_eq!(decode(&names, &item), Some(entry.clone()));
            for name in item.keys() {
                let mut without = item.clone();
                without.remove(name);
                let read = decode(&names, &without);
                // What an entry may lack is part of its hash.
                assert!(read.is_none_or(|read| read.hash_after([0; 32]) != entry.hash), "{name}");
                let mut other = item.clone();
                other.insert(name.clone(), text("x"));
                let read = decode(&names, &other);
                assert!(read.is_none_or(|read| read.hash_after([0; 32]) != entry.hash), "{name}");
            }
        }
    }

    #[test]
    fn texts_of_places_are_in_the_order_of_places() {
        let place = |at, number, sequence| EntryCursor {
            at: StoreTime::from_ms(at),
            writer: WriterId::new([7; 16], number),
            sequence,
        };
        let places = [place(9, 2, 1), place(10, 2, 9), place(10, 2, 10), place(10, 10, 1)];
        assert!(places.is_sorted());
        assert!(places.iter().map(place_text).is_sorted());
        assert!(moment_text(StoreTime::from_ms(10)) < place_text(&places[1]));
        assert!(moment_text(StoreTime::from_ms(10)) > place_text(&places[0]));
    }
}
