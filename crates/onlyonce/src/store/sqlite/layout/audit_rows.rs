//! The rows of the audit trail. A file has one chain, so a row does not name its writer: the head does.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use crate::clock::StoreTime;
use crate::event::{By, EventKind};
use crate::scope::{KeyDigest, OperationId, Principal};
use crate::store::audit::{
    About, Chain, ChainRow, Entry, EntryCursor, EntryPage, EntryQuery, Head, Link, Note, WriterId,
    by_from_text, ids_from_text, ids_to_text,
};

/// Inserts an entry. Its number is the next one, or the statement fails.
pub(crate) fn insert(db: &Connection, entry: &Entry) -> rusqlite::Result<()> {
    let Note { kind, id, status, count, about } = &entry.note;
    let About { key, route, principal, attempt, by, ids } = &**about;
    let mut statement = db.prepare_cached(INSERT)?;
    statement.execute(params![
        entry.sequence.cast_signed(),
        entry.hash,
        entry.at.as_ms(),
        kind.name(),
        id.as_ref().map(OperationId::as_bytes),
        key.as_ref().map(KeyDigest::as_bytes),
        route,
        principal.as_ref().map(Principal::as_bytes),
        attempt,
        status,
        count.map(u64::cast_signed),
        by.as_ref().map(By::who),
        by.as_ref().map(By::why),
        ids_to_text(ids),
    ])?;
    Ok(())
}

/// The end of the chain; `None` in a file that never had an entry.
pub(crate) fn read_chain(db: &Connection) -> rusqlite::Result<Option<Chain>> {
    let sql = format!("SELECT {HEAD}, appended FROM audit_head");
    let chain = |row: &Row<'_>| Ok(Chain { head: head(row)?, appended: row.get(5)? });
    db.query_row(&sql, [], chain).optional()
}

/// The highest number of an entry; 0 if there is none.
pub(crate) fn last_sequence(db: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(max(sequence), 0) FROM audit";
    db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

pub(crate) fn write_chain(db: &Connection, chain: &Chain) -> rusqlite::Result<()> {
    let Chain { head: Head { writer, from, last }, appended } = chain;
    let sql = "INSERT OR REPLACE INTO audit_head
               (writer, sequence, hash, from_sequence, from_hash, appended) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut statement = db.prepare_cached(sql)?;
    let (last_sequence, from_sequence) = (last.sequence.cast_signed(), from.sequence.cast_signed());
    statement.execute(params![
        writer.to_bytes(),
        last_sequence,
        last.hash,
        from_sequence,
        from.hash,
        appended
    ])?;
    Ok(())
}

/// Deletes entries from the old end, at most `limit` of those before `until`, and moves the checkpoint of the chain. Whether
/// there may be more.
pub(crate) fn prune(
    db: &Connection,
    chain: &mut Chain,
    until: StoreTime,
    limit: usize,
) -> rusqlite::Result<bool> {
    let sql = "SELECT sequence, hash, at FROM audit ORDER BY sequence LIMIT ?1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([limit as i64])?;
    let (mut deleted, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(2)? >= until.as_ms() {
            break;
        }
        let sequence = row.get::<_, i64>(0)?.cast_unsigned();
        last = Some(Link { sequence, hash: row.get(1)? });
        deleted += 1;
    }
    let Some(last) = last else { return Ok(false) };
    let mut delete = db.prepare_cached("DELETE FROM audit WHERE sequence <= ?1")?;
    delete.execute([last.sequence.cast_signed()])?;
    chain.head.from = last;
    Ok(deleted == limit)
}

/// The heads of the file: one. Entries without a head are told as those of nobody, whose chain is empty.
pub(crate) fn heads(db: &Connection) -> rusqlite::Result<Vec<Head>> {
    let mut statement = db.prepare_cached(&format!("SELECT {HEAD} FROM audit_head"))?;
    let mut heads: Vec<_> = statement.query_map([], head)?.collect::<Result<_, _>>()?;
    if heads.is_empty() && last_sequence(db)? > 0 {
        heads.push(Head::new(NOBODY));
    }
    Ok(heads)
}

/// The rows after `after`, whoever wrote them: a file has one chain.
pub(crate) fn chain(
    db: &Connection,
    writer: WriterId,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<ChainRow>> {
    let sql = format!("SELECT {COLUMNS} FROM audit WHERE sequence > ?1 ORDER BY sequence LIMIT ?2");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map(params![after.cast_signed(), limit as i64], |row| {
        let sequence = row.get::<_, i64>(0)?.cast_unsigned();
        let unreadable = ChainRow::Unreadable { sequence };
        Ok(entry(row, writer).map_or(unreadable, |entry| ChainRow::Entry(Box::new(entry))))
    })?;
    rows.collect()
}

/// The entries that match `query`. One that does not read is left out: `verify` tells of it.
pub(crate) fn entries(db: &Connection, query: &EntryQuery) -> rusqlite::Result<EntryPage> {
    let writer = heads(db)?.first().map_or(NOBODY, |head| head.writer);
    let (low, high) = range(query);
    let since = query.since.map_or(i64::MIN, StoreTime::as_ms);
    let until = query.until.map_or(i64::MAX, StoreTime::as_ms);
    let (after_at, after) =
        query.after.map_or((i64::MIN, 0), |after| (after.at.as_ms(), after.sequence.cast_signed()));
    let key = query.key.as_ref().map(KeyDigest::as_bytes);
    let (which, of_key) = match (query.id, query.key) {
        (None, None) => ("", ""),
        (Some(_), None) => ("AND id = :low", ""),
        (_, Some(_)) => (
            "AND id BETWEEN :low AND :high",
            "AND id IN (SELECT id FROM audit WHERE id BETWEEN :low AND :high AND key = :key)",
        ),
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM audit WHERE at >= :since AND at < :until
         AND (at, sequence) > (:after_at, :after) {which} {of_key}
         ORDER BY at, sequence LIMIT :limit"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let page = query.page() as i64;
    let mut bound: Vec<(&str, &dyn ToSql)> = vec![
        (":since", &since),
        (":until", &until),
        (":after_at", &after_at),
        (":after", &after),
        (":limit", &page),
    ];
    let (low, high) = (low.as_bytes(), high.as_bytes());
    if !which.is_empty() {
        bound.push((":low", &low));
    }
    if !of_key.is_empty() {
        bound.extend([(":high", &high as &dyn ToSql), (":key", &key)]);
    }
    let bound = bound.as_slice();
    let found = statement.query_map(bound, |row| Ok((place(row, writer)?, entry(row, writer))))?;
    Ok(EntryPage::of(found.collect::<Result<_, _>>()?, query))
}

/// How many entries of a kind an operation has.
pub(crate) fn count(db: &Connection, id: OperationId, kind: EventKind) -> rusqlite::Result<u64> {
    let mut statement =
        db.prepare_cached("SELECT count(*) FROM audit WHERE id = ?1 AND kind = ?2")?;
    let counted = statement.query_row(params![id.as_bytes(), kind.name()], |row| row.get(0));
    counted.map(i64::cast_unsigned)
}

/// The ids that a query is about.
fn range(query: &EntryQuery) -> (OperationId, OperationId) {
    match (query.id, query.key) {
        (Some(id), _) => (id, id),
        (None, Some(key)) => (key.prefix().first_id(), key.prefix().last_id()),
        (None, None) => (OperationId::from_bytes([0; 16]), OperationId::from_bytes([255; 16])),
    }
}

fn head(row: &Row<'_>) -> rusqlite::Result<Head> {
    let link = |at| -> rusqlite::Result<Link> {
        Ok(Link { sequence: row.get::<_, i64>(at)?.cast_unsigned(), hash: row.get(at + 1)? })
    };
    Ok(Head { writer: WriterId::from_bytes(row.get(0)?), last: link(1)?, from: link(3)? })
}

fn place(row: &Row<'_>, writer: WriterId) -> rusqlite::Result<EntryCursor> {
    let (sequence, at) = (row.get::<_, i64>(0)?.cast_unsigned(), StoreTime::from_ms(row.get(2)?));
    Ok(EntryCursor { at, writer, sequence })
}

/// `None` if a value is none that a writer writes.
fn entry(row: &Row<'_>, writer: WriterId) -> Option<Entry> {
    let (who, why): (Option<String>, Option<String>) = (row.get(11).ok()?, row.get(12).ok()?);
    let about = About {
        key: row.get::<_, Option<[u8; 32]>>(5).ok()?.map(KeyDigest::from_bytes),
        route: row.get(6).ok()?,
        principal: row.get::<_, Option<[u8; 32]>>(7).ok()?.map(Principal::from_bytes),
        attempt: row.get(8).ok()?,
        by: by_from_text(who.as_deref(), why.as_deref())?,
        ids: ids_from_text(row.get::<_, Option<String>>(13).ok()?.as_deref())?,
    };
    let note = Note {
        kind: EventKind::named(&row.get::<_, String>(3).ok()?)?,
        id: row.get::<_, Option<[u8; 16]>>(4).ok()?.map(OperationId::from_bytes),
        status: row.get(9).ok()?,
        count: row.get::<_, Option<i64>>(10).ok()?.map(i64::cast_unsigned),
        about: Arc::new(about),
    };
    let sequence = row.get::<_, i64>(0).ok()?.cast_unsigned();
    let at = StoreTime::from_ms(row.get(2).ok()?);
    Some(Entry { writer, sequence, hash: row.get(1).ok()?, at, note })
}

/// The writer of entries that have no head.
const NOBODY: WriterId = WriterId::new([0; 16], 0);
const HEAD: &str = "writer, sequence, hash, from_sequence, from_hash";
const COLUMNS: &str =
    "sequence, hash, at, kind, id, key, route, principal, attempt, status, count, who, why, ids";
const INSERT: &str = "INSERT INTO audit
    (sequence, hash, at, kind, id, key, route, principal, attempt, status, count, who, why, ids)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
