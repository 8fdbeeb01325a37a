//! The rows of the audit trail: how entries are written, and how what is there is read.
//!
//! Each connection that writes has a chain of its own, so that no writer waits for another. Columns are named once, in
//! [`COLUMNS`].

use std::sync::Arc;

use tokio_postgres::Row;
use uuid::Uuid;

use super::columns::{Param, array};
use super::value::Moment;
use crate::clock::StoreTime;
use crate::event::{By, EventKind};
use crate::scope::{KeyDigest, OperationId, Principal};
use crate::store::BoxError;
use crate::store::audit::{
    About, Chain, ChainRow, Entry, EntryCursor, EntryQuery, Head, Link, Note, WriterId,
    by_from_text, ids_from_text, ids_to_text,
};

/// The columns of an entry besides its writer, each with its type.
const COLUMNS: &[(&str, &str)] = &[
    ("sequence", "bigint"),
    ("hash", "bytea"),
    ("at", "timestamptz"),
    ("kind", "text"),
    ("id", "uuid"),
    ("key", "bytea"),
    ("route", "text"),
    ("principal", "bytea"),
    ("attempt", "integer"),
    ("status", "integer"),
    ("count", "bigint"),
    ("who", "text"),
    ("why", "text"),
    ("ids", "text"),
];

/// The names of the columns, each after `prefix`.
pub(super) fn names(prefix: &str) -> String {
    let names: Vec<_> = COLUMNS.iter().map(|(name, _)| format!("{prefix}{name}")).collect();
    names.join(", ")
}

/// The entries that `append.sql` is given, as the table `a`.
pub(super) fn given() -> String {
    let array = |((_, kind), number): (&(&str, &str), usize)| format!("${number}::{kind}[]");
    let arrays: Vec<_> = COLUMNS.iter().zip(HEAD_PARAMS + 1..).map(array).collect();
    format!("unnest({}) AS a ({})", arrays.join(", "), names(""))
}

/// The parameters of `append.sql`: the end of the chain, then the entries.
pub(super) fn append_params<'a>(chain: &Chain, entries: &'a [Entry]) -> Vec<Param<'a>> {
    let Head { writer, last, .. } = chain.head;
    let mut params: Vec<Param<'a>> = vec![
        Box::new(writer.to_bytes().to_vec()),
        Box::new(last.sequence.cast_signed()),
        Box::new(last.hash.to_vec()),
        Box::new(chain.appended.to_vec()),
    ];
    params.extend(COLUMNS.iter().map(|(name, _)| values(name, entries)));
    params
}

/// The values of a column.
fn values<'a>(column: &str, entries: &'a [Entry]) -> Param<'a> {
    let notes = entries.iter().map(|entry| &entry.note);
    let about = entries.iter().map(|entry| &*entry.note.about);
    match column {
        "sequence" => array(entries.iter().map(|entry| entry.sequence.cast_signed())),
        "hash" => array(entries.iter().map(|entry| &entry.hash[..])),
        "at" => array(entries.iter().map(|entry| Moment(entry.at))),
        "kind" => array(notes.map(|note| note.kind.name())),
        "id" => array(notes.map(|note| note.id.map(|id| Uuid::from_bytes(*id.as_bytes())))),
        "key" => array(about.map(|about| about.key.as_ref().map(|key| &key.as_bytes()[..]))),
        "route" => array(about.map(|about| &*about.route)),
        "principal" => {
            array(about.map(|about| about.principal.as_ref().map(|who| &who.as_bytes()[..])))
        }
        "attempt" => array(about.map(|about| about.attempt.map(u32::cast_signed))),
        "status" => array(notes.map(|note| note.status.map(i32::from))),
        "count" => array(notes.map(|note| note.count.map(u64::cast_signed))),
        "who" => array(about.map(|about| about.by.as_ref().map(By::who))),
        "why" => array(about.map(|about| about.by.as_ref().map(By::why))),
        "ids" => array(about.map(|about| ids_to_text(&about.ids))),
        _ => unreachable!("the columns are those of COLUMNS"),
    }
}

/// The statement and the parameters that find the entries of a query, by time, writer and number.
pub(super) fn find<'a>(schema: &str, query: &EntryQuery) -> (String, Vec<Param<'a>>) {
    let after = query.after.unwrap_or(BEFORE_ALL);
    let mut params: Vec<Param<'a>> = vec![
        Box::new(Moment(query.since.unwrap_or(StoreTime::from_ms(i64::MIN)))),
        Box::new(Moment(query.until.unwrap_or(StoreTime::MAX))),
        Box::new(Moment(after.at)),
        Box::new(after.writer.to_bytes().to_vec()),
        Box::new(after.sequence.cast_signed()),
        Box::new(query.page() as i64),
    ];
    let uuid = |id: OperationId| Uuid::from_bytes(*id.as_bytes());
    let which = match (query.id, query.key) {
        (None, None) => String::new(),
        (Some(id), None) => {
            params.push(Box::new(uuid(id)));
            "AND id = $7::uuid".to_owned()
        }
        (_, Some(key)) => {
            let (first, last) = (key.prefix().first_id(), key.prefix().last_id());
            params.push(Box::new(uuid(first)));
            params.push(Box::new(uuid(last)));
            params.push(Box::new(key.as_bytes().to_vec()));
            format!(
                "AND id IN (SELECT k.id FROM {schema}.audit k
                             WHERE k.id BETWEEN $7::uuid AND $8::uuid AND k.key = $9::bytea)"
            )
        }
    };
    let sql = format!(
        "SELECT writer, {COLUMNS}, {EXACT} FROM {schema}.audit
          WHERE at >= $1::timestamptz AND at < $2::timestamptz
            AND (at, writer, sequence) > ($3::timestamptz, $4::bytea, $5::bigint) {which}
          ORDER BY at, writer, sequence LIMIT $6::bigint",
        COLUMNS = names("")
    );
    (sql, params)
}

/// A head, as it was found.
pub(super) fn chain_end(row: &Row) -> Result<Chain, BoxError> {
    let link = |sequence: &str, hash: &str| -> Result<Link, BoxError> {
        let sequence = row.try_get::<_, i64>(sequence)?.cast_unsigned();
        Ok(Link { sequence, hash: row.try_get::<_, &[u8]>(hash)?.try_into()? })
    };
    let head = Head {
        writer: writer(row)?,
        from: link("from_sequence", "from_hash")?,
        last: link("sequence", "hash")?,
    };
    let appended = row.try_get::<_, &[u8]>("appended")?.try_into().unwrap_or_default();
    Ok(Chain { head, appended })
}

/// A row of a chain, as it was found.
pub(super) fn chain_row(row: &Row) -> Result<ChainRow, BoxError> {
    let sequence = row.try_get::<_, i64>("sequence")?.cast_unsigned();
    let unreadable = ChainRow::Unreadable { sequence };
    Ok(entry(row).map_or(unreadable, |entry| ChainRow::Entry(Box::new(entry))))
}

/// Where a row stands among all entries.
pub(super) fn place(row: &Row) -> Result<EntryCursor, BoxError> {
    let Moment(at) = row.try_get("at")?;
    let sequence = row.try_get::<_, i64>("sequence")?.cast_unsigned();
    Ok(EntryCursor { at, writer: writer(row)?, sequence })
}

/// An entry; an error if a value is none that a writer writes.
pub(super) fn entry(row: &Row) -> Result<Entry, BoxError> {
    if !row.try_get::<_, bool>("is_exact")? {
        return Err("its time is not in whole milliseconds".into());
    }
    let EntryCursor { at, writer, sequence } = place(row)?;
    let hash = row.try_get::<_, &[u8]>("hash")?.try_into()?;
    Ok(Entry { writer, sequence, hash, at, note: note(row)? })
}

fn note(row: &Row) -> Result<Note, BoxError> {
    let id: Option<Uuid> = row.try_get("id")?;
    let status: Option<i32> = row.try_get("status")?;
    Ok(Note {
        kind: EventKind::named(row.try_get("kind")?).ok_or("its kind is not known")?,
        id: id.map(|id| OperationId::from_bytes(id.into_bytes())),
        status: status.map(u16::try_from).transpose()?,
        count: row.try_get::<_, Option<i64>>("count")?.map(i64::cast_unsigned),
        about: Arc::new(about(row)?),
    })
}

fn about(row: &Row) -> Result<About, BoxError> {
    let digest = |name: &str| -> Result<Option<[u8; 32]>, BoxError> {
        Ok(row.try_get::<_, Option<&[u8]>>(name)?.map(TryInto::try_into).transpose()?)
    };
    Ok(About {
        key: digest("key")?.map(KeyDigest::from_bytes),
        route: row.try_get::<_, &str>("route")?.into(),
        principal: digest("principal")?.map(Principal::from_bytes),
        attempt: row.try_get::<_, Option<i32>>("attempt")?.map(i32::cast_unsigned),
        by: by_from_text(row.try_get("who")?, row.try_get("why")?)
            .ok_or("nobody wrote that name")?,
        ids: ids_from_text(row.try_get("ids")?).ok_or("nobody wrote those ids")?,
    })
}

/// What is told of a record that a sweep has deleted.
pub(super) fn expired(id: Uuid, row: &Row) -> Result<Note, BoxError> {
    let about = About {
        route: row.try_get::<_, &str>("route")?.into(),
        principal: Some(Principal::from_bytes(row.try_get::<_, &[u8]>("principal")?.try_into()?)),
        attempt: Some(row.try_get::<_, i32>("attempt")?.cast_unsigned()),
        ..About::default()
    };
    Ok(Note::expired_by(OperationId::from_bytes(id.into_bytes()), about))
}

fn writer(row: &Row) -> Result<WriterId, BoxError> {
    Ok(WriterId::from_bytes(row.try_get::<_, &[u8]>("writer")?.try_into()?))
}

/// The parameters of `append.sql` before the entries.
const HEAD_PARAMS: usize = 4;
/// A time is read in milliseconds; a change below that must show, too.
pub(super) const EXACT: &str = "at = date_trunc('milliseconds', at) AS is_exact";
const BEFORE_ALL: EntryCursor = EntryCursor {
    at: StoreTime::from_ms(i64::MIN),
    writer: WriterId::new([0; 16], 0),
    sequence: 0,
};
