//! The audit trail of a store: the chains of all nodes, each in a partition of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{Delete, Get, Select, TransactGetItem, TransactWriteItem, Update};
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep};

use super::DynamoStore;
use super::call::{Failed, call};
use super::entry::{
    self, End, KEY_DIGEST, KIND, OPERATION, chain_row, entry_key, head_key, moment_text, place,
    place_text, sort,
};
use super::expression::Expression;
use super::item::{Item, blob, integer, number, text};
use super::names::{BY_OPERATION, BY_TIME, PARTITION, PLACE, SHARDS, SORT, hex};
use super::noted::{OLDEST, unbuilt};
use super::table::{Table, unreadable};
use crate::clock::StoreTime;
use crate::event::EventKind;
use crate::scope::{KeyDigest, OperationId};
use crate::store::audit::{
    Appended, Audit, Calling, ChainRow, EntryPage, EntryQuery, Head, Link, Note, Trail, WriterId,
};
use crate::store::{Draft, Fault, Guard, Next, Seen, StoreError, Swap};

impl Audit for DynamoStore {
    fn claim(&self, draft: Draft, note: Arc<Note>) -> Calling<'_, Seen> {
        Box::pin(self.claim_as(draft, Some(note)))
    }

    fn swap(&self, id: OperationId, guard: Guard, to: Next, note: Arc<Note>) -> Calling<'_, Swap> {
        Box::pin(self.swap_as(id, guard, to, Some(note)))
    }

    fn append(&self, batch: Arc<Appended>) -> Calling<'_, ()> {
        Box::pin(self.run(|table| async move { table.append(&batch).await }))
    }

    fn prune(&self, until: StoreTime, limit: usize) -> Calling<'_, bool> {
        Box::pin(self.run(move |table| async move { table.prune(until, limit).await }))
    }

    fn keep(&self) -> Duration {
        self.audit.map_or(Duration::ZERO, |options| options.keep)
    }

    fn trail(&self) -> &dyn Trail {
        self
    }
}

/// Entries are found by indexes, which lag; chains and heads are read as they are.
impl Trail for DynamoStore {
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage> {
        Box::pin(self.run(move |table| async move { table.entries(&query).await }))
    }

    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64> {
        Box::pin(self.run(move |table| async move { table.count(id, kind).await }))
    }

    fn heads(&self) -> Calling<'_, Vec<Head>> {
        Box::pin(self.run(|table| async move { table.heads().await }))
    }

    fn head(&self, writer: WriterId) -> Calling<'_, Option<Head>> {
        Box::pin(self.run(move |table| async move { table.head(writer).await.map(Some) }))
    }

    fn writers(&self) -> Calling<'_, Vec<WriterId>> {
        Box::pin(self.run(|table| async move { table.writers().await }))
    }

    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>> {
        Box::pin(self.run(move |table| async move {
            let items = table.chain_items(writer, after, limit).await?;
            Ok(items.iter().filter_map(|item| chain_row(&table.names, writer, item)).collect())
        }))
    }

    fn catch_up(&self) -> Calling<'_, ()> {
        let waiting = |_| async {
            sleep(LAG).await;
            Ok(())
        };
        Box::pin(self.run(waiting))
    }
}

/// Chains.
impl Table {
    /// A head that is gone, or does not read, is that of a chain without entries: the entries that are there tell.
    async fn heads(&self) -> Result<Vec<Head>, Fault> {
        let chains = self.listed_chains().await?;
        let heads = chains.into_iter().map(|(writer, _)| async move {
            let head = self.get_item(head_key(&self.names, writer)).await?;
            Ok(head_of(writer, head))
        });
        stream::iter(heads).buffered(HEADS_AT_ONCE).try_collect().await
    }

    /// Read by a transaction: what this head tells is there for whoever reads it later.
    async fn head(&self, writer: WriterId) -> Result<Head, Fault> {
        for pause in READ_PAUSES_MS.map(Duration::from_millis) {
            let get = Get::builder().table_name(&self.address.table);
            let get = get.set_key(Some(head_key(&self.names, writer))).build();
            let get = TransactGetItem::builder().get(get.map_err(|error| unbuilt(error).fault())?);
            let read = {
                let _place = self.place().await?;
                let read = self.client.transact_get_items().transact_items(get.build());
                call(&self.time, |trace| read.customize().interceptor(trace).send()).await
            };
            match read {
                Ok(read) => {
                    let head = read.responses.unwrap_or_default().pop();
                    return Ok(head_of(writer, head.and_then(|head| head.item)));
                }
                Err(Failed::Conflict) => sleep(pause).await,
                Err(failed) => return Err(failed.fault()),
            }
        }
        Err(Failed::Conflict.fault())
    }

    /// By the index of all entries: a chain that is not listed any more is found too.
    async fn writers(&self) -> Result<Vec<WriterId>, Fault> {
        let mut writers: BTreeSet<_> =
            self.listed_chains().await?.into_iter().map(|(writer, _)| writer).collect();
        for shard in 0..SHARDS {
            let of = self.names.shard(shard);
            let all = self.indexed(BY_TIME, of, &format!("{PLACE} > :none"), Expression::new(""));
            let all = all.expression_attribute_values(":none", text(" "));
            self.query_pages(all.projection_expression(format!("{PARTITION}, {SORT}")), |page| {
                let items = page.items.unwrap_or_default();
                writers.extend(items.iter().filter_map(|item| entry::writer(&self.names, item)));
                true
            })
            .await?;
        }
        Ok(writers.into_iter().collect())
    }

    /// All chains, each with a time from before which it has no entry.
    async fn listed_chains(&self) -> Result<Vec<(WriterId, i64)>, Fault> {
        let query = self.client.query().consistent_read(true);
        let query = query.key_condition_expression(format!("{PARTITION} = :chains"));
        let query = query.expression_attribute_values(":chains", text(self.names.chains()));
        let chains = self.query(query, usize::MAX).await?;
        let chain = |item: &Item| {
            let writer = item.get(SORT)?.as_s().ok()?.parse().ok()?;
            Some((writer, integer(item, OLDEST).unwrap_or_default()))
        };
        Ok(chains.iter().filter_map(chain).collect())
    }

    async fn chain_items(
        &self,
        writer: WriterId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Item>, Fault> {
        let Some(first) = after.checked_add(1) else {
            return Ok(Vec::new());
        };
        let query = self.client.query().consistent_read(true);
        let query = query.key_condition_expression(format!(
            "{PARTITION} = :chain AND {SORT} BETWEEN :first AND :last"
        ));
        let query = query
            .expression_attribute_values(":chain", text(self.names.chain(writer)))
            .expression_attribute_values(":first", text(sort(first)))
            .expression_attribute_values(":last", text(sort(u64::MAX)));
        let limited = query.limit(i32::try_from(limit).unwrap_or(i32::MAX).max(1));
        let mut items = self.query(limited, limit).await?;
        items.truncate(limit);
        Ok(items)
    }

    /// Deletes entries from before `until`, one chain after the other. A chain that is written at the same moment is left for
    /// the next time.
    async fn prune(&self, until: StoreTime, limit: usize) -> Result<bool, Fault> {
        let (begun, mut more, mut unread) = (Instant::now(), false, None);
        for (writer, oldest_ms) in self.listed_chains().await? {
            if oldest_ms >= until.as_ms() {
                continue;
            }
            match self.prune_chain(writer, until, limit).await {
                Ok(has_more) => more |= has_more,
                Err(Failed::Conflict) => {}
                Err(Failed::Fault(fault @ Fault::NotDone(StoreError::Unreadable(_)))) => {
                    unread = Some(fault);
                }
                Err(failed) => return Err(failed.fault()),
            }
            if begun.elapsed() > PRUNE_TIME {
                return Ok(true);
            }
        }
        // One chain that cannot go on must not stop the others, nor be passed in silence.
        unread.map_or(Ok(more), Err)
    }

    /// Whether the chain may have more entries from before `until`.
    async fn prune_chain(
        &self,
        writer: WriterId,
        until: StoreTime,
        limit: usize,
    ) -> Result<bool, Failed> {
        let head = self.get_item(head_key(&self.names, writer)).await.map_err(Failed::Fault)?;
        let Some(end) = head.and_then(|head| End::of(writer, &head)) else {
            return Ok(false);
        };
        let mut from = end.chain.head.from;
        let rows = self.chain_items(writer, from.sequence, limit).await.map_err(Failed::Fault)?;
        let is_old = |row: &&Item| integer(row, "at_ms").is_ok_and(|at| at < until.as_ms());
        let old: Vec<_> = rows.iter().take_while(is_old).collect();
        for some in old.chunks(DELETED_MAX) {
            let entries = some.iter().filter_map(|row| entry::decode(&self.names, row));
            let links: Vec<_> =
                entries.map(|entry| Link { sequence: entry.sequence, hash: entry.hash }).collect();
            let Some(last) = links.last().copied().filter(|_| links.len() == some.len()) else {
                return Err(Failed::Fault(unreadable(
                    "an entry of the trail is damaged: it stays, and those after it",
                )));
            };
            self.delete_entries(writer, &links, from).await?;
            from = last;
        }
        if old.len() < limit {
            let oldest = rows.get(old.len()).and_then(|row| integer(row, "at_ms").ok());
            let empty = || self.now().plus_ms(-NOTED_LATE_MS).max(until);
            let next = oldest.map_or_else(empty, StoreTime::from_ms);
            self.list_chain(writer, next).await?;
        }
        Ok(old.len() == limit)
    }

    /// The chain begins after these from now on.
    async fn delete_entries(
        &self,
        writer: WriterId,
        entries: &[Link],
        from: Link,
    ) -> Result<(), Failed> {
        let last = entries.last().copied().unwrap_or(from);
        let delete = |entry: &Link| {
            let delete = Delete::builder().table_name(&self.address.table);
            let delete = delete.set_key(Some(entry_key(&self.names, writer, entry.sequence)));
            let delete = delete.build().map_err(unbuilt)?;
            Ok(TransactWriteItem::builder().delete(delete).build())
        };
        let mut writes = entries.iter().map(delete).collect::<Result<Vec<_>, Failed>>()?;
        let update = Update::builder().table_name(&self.address.table);
        let update = update
            .set_key(Some(head_key(&self.names, writer)))
            .update_expression("SET from_sequence = :sequence, from_hash = :hash")
            .condition_expression("from_sequence = :before")
            .expression_attribute_values(":sequence", number(last.sequence))
            .expression_attribute_values(":hash", blob(last.hash.to_vec()))
            .expression_attribute_values(":before", number(from.sequence));
        let update = update.build().map_err(unbuilt)?;
        writes.push(TransactWriteItem::builder().update(update).build());
        let mut done = Err(Failed::Conflict);
        for pause in READ_PAUSES_MS.map(Duration::from_millis) {
            done = self.transact_all(writes.clone(), StoreTime::MAX).await;
            match done {
                Err(Failed::Conflict) => sleep(pause).await,
                _ => break,
            }
        }
        done
    }
}

/// Entries.
impl Table {
    async fn entries(&self, query: &EntryQuery) -> Result<EntryPage, Fault> {
        let (first, last) = range(query);
        if first > last {
            return Ok(EntryPage::of(Vec::new(), query));
        }
        let of = query.id.map(|id| id.prefix()).or_else(|| query.key.map(|key| key.prefix()));
        let (index, partitions) = match of {
            Some(of) => (BY_OPERATION, vec![self.names.entries_of(Some(of))]),
            None => (BY_TIME, (0..SHARDS).map(|shard| self.names.shard(shard)).collect()),
        };
        // Without a filter, what is read is what is found.
        let has_filter = query.id.is_some() || query.key.is_some();
        let limit = (!has_filter).then(|| i32::try_from(query.page()).unwrap_or(i32::MAX));
        let found = partitions.into_iter().map(|partition| {
            let place = format!("{PLACE} BETWEEN :first AND :last");
            let found = self.indexed(index, partition, &place, filter(query));
            let found = found
                .expression_attribute_values(":first", text(&first))
                .expression_attribute_values(":last", text(&last));
            self.query(found.set_limit(limit), query.page())
        });
        let found = try_join_all(found).await?.into_iter().flatten();
        let mut rows: Vec<_> =
            found.filter_map(|item| Some((place(&self.names, &item)?, item))).collect();
        rows.sort_by_key(|(place, _)| *place);
        rows.truncate(query.page());
        let rows = join_all(rows.into_iter().map(|(place, item)| async move {
            let entry = entry::decode(&self.names, &item);
            let is_asked_for = match (query.key, &entry) {
                (Some(key), Some(entry)) if entry.note.about.key.is_none() => {
                    self.has_key(entry.note.id, key).await?
                }
                _ => true,
            };
            Ok::<_, Fault>((place, entry.filter(|_| is_asked_for)))
        }));
        let rows = rows.await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(EntryPage::of(rows, query))
    }

    /// Whether an operation has an entry with this digest. What a store tells by itself has none.
    async fn has_key(&self, id: Option<OperationId>, key: KeyDigest) -> Result<bool, Fault> {
        let Some(id) = id else {
            return Ok(false);
        };
        let both = filter(&EntryQuery { id: Some(id), ..EntryQuery::all(1) });
        let both = both.and(&format!("{KEY_DIGEST} = :digest"));
        let both = both.with("digest", blob(key.as_bytes().to_vec()));
        let of = self.names.entries_of(Some(id.prefix()));
        let found = self.indexed(BY_OPERATION, of, &format!("{PLACE} > :none"), both);
        let found = found.expression_attribute_values(":none", text(" "));
        Ok(!self.query(found, 1).await?.is_empty())
    }

    async fn count(&self, id: OperationId, kind: EventKind) -> Result<u64, Fault> {
        let both = filter(&EntryQuery { id: Some(id), ..EntryQuery::all(1) });
        let both = both.and(&format!("{KIND} = :kind")).with("kind", text(kind.name()));
        let of = self.names.entries_of(Some(id.prefix()));
        let counted = self.indexed(BY_OPERATION, of, &format!("{PLACE} > :none"), both);
        let counted = counted.expression_attribute_values(":none", text(" "));
        let mut count = 0;
        self.query_pages(counted.select(Select::Count), |page| {
            count += u64::try_from(page.count).unwrap_or_default();
            true
        })
        .await?;
        Ok(count)
    }

    /// Entries of a partition of an index.
    fn indexed(
        &self,
        (index, of): (&str, &str),
        partition: String,
        place: &str,
        filter: Expression,
    ) -> QueryFluentBuilder {
        let query = self.client.query().index_name(index);
        let query = query.key_condition_expression(format!("{of} = :partition AND {place}"));
        let query = query.expression_attribute_values(":partition", text(partition));
        let query = query.set_filter_expression((!filter.text.is_empty()).then_some(filter.text));
        filter
            .values
            .into_iter()
            .fold(query, |query, (name, value)| query.expression_attribute_values(name, value))
    }
}

/// The first and the last text of a place that is asked for. Both are taken in, and no place has the text of the last.
fn range(query: &EntryQuery) -> (String, String) {
    let since = query.since.map_or_else(String::new, moment_text);
    // All texts of places are of one length: this one comes right after that of the cursor.
    let after = query.after.map_or_else(String::new, |after| format!("{}0", place_text(&after)));
    let last = query.until.map_or_else(|| "~".to_owned(), moment_text);
    (since.max(after).max(" ".to_owned()), last)
}

/// What an entry must have besides.
fn filter(query: &EntryQuery) -> Expression {
    let mut filter = Expression::new("");
    if let Some(id) = query.id {
        filter = filter.and(&format!("{OPERATION} = :id")).with("id", text(hex(id)));
    }
    if let Some(key) = query.key {
        let of_key = format!("({KEY_DIGEST} = :key OR attribute_not_exists({KEY_DIGEST}))");
        filter = filter.and(&of_key).with("key", blob(key.as_bytes().to_vec()));
    }
    filter
}

fn head_of(writer: WriterId, item: Option<Item>) -> Head {
    let end = item.and_then(|item| End::of(writer, &item));
    end.unwrap_or_else(|| End::new(writer)).chain.head
}

/// How much later than the rest an item of a transaction may show. DynamoDB gives no bound; it is milliseconds as a rule.
const LAG: Duration = Duration::from_millis(250);
/// Entries that are deleted in one transaction: few, because the writer of the chain waits for it.
const DELETED_MAX: usize = 25;
/// How long one call prunes.
const PRUNE_TIME: Duration = Duration::from_secs(3);
/// Heads that are read at once.
const HEADS_AT_ONCE: usize = 64;
/// Before a transaction is tried again that met another one.
const READ_PAUSES_MS: [u64; 6] = [5, 10, 20, 40, 80, 0];
/// How much later than it happened a note may be added.
const NOTED_LATE_MS: i64 = 3_600_000;
