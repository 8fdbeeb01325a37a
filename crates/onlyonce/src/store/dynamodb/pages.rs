//! Pages of records: what is running or unknown from the index, everything else from the table.
//!
//! 1. The index lags behind the table. Each record that it names is read from the table, consistently, before it is
//!    listed; so a record may be missed by a scan that comes right after its claim, and is never listed as it was.
//! 2. A cursor is the id of the last record that was looked at: the index is read shard by shard, in the order of ids.

use std::time::Duration;

use aws_sdk_dynamodb::operation::query::QueryOutput;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::KeysAndAttributes;
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep};

use super::call::{Failed, call};
use super::expression::{self, Expression};
use super::item::{Item, number, text};
use super::names::{EXPIRES, INDEX, PARTITION, SHARD, SHARDS, SORT, shard_of};
use super::parts::{PARTS_MAX, nth};
use super::table::{Table, refused};
use crate::clock::StoreTime;
use crate::record::{Record, StateKind, StateSet};
use crate::scope::{IdPrefix, OperationId};
use crate::store::{Cursor, Fault, Page, Scan, StoreError, Swept};

type Listed = Vec<(OperationId, Record)>;

impl Table {
    pub(super) async fn scan(&self, query: &Scan) -> Result<Page, Fault> {
        let after = query.after.map(|cursor| OperationId::from_bytes(cursor.0.to_be_bytes()));
        let limit = query.limit.clamp(1, PAGE_ROWS_MAX);
        let has = |kind| query.states.contains(kind);
        let (records, next) = match () {
            () if has(StateKind::Released) || has(StateKind::Completed) => {
                self.scan_table(query.states, after, limit).await?
            }
            () if has(StateKind::Running) || has(StateKind::Unknown) => {
                self.scan_index(query.states, after, limit).await?
            }
            () => (Vec::new(), None),
        };
        let next = next.map(|id| Cursor(u128::from_be_bytes(*id.as_bytes())));
        Ok(Page { records, next, now: self.now() })
    }

    async fn scan_index(
        &self,
        states: StateSet,
        mut after: Option<OperationId>,
        limit: usize,
    ) -> Result<(Listed, Option<OperationId>), Fault> {
        let (mut records, mut shard) = (Vec::new(), after.map_or(0, shard_of));
        let mut looked = 0;
        while shard < SHARDS {
            let (ids, next) = self.shard_page(shard, after, limit - records.len()).await?;
            let last = ids.last().copied();
            records.extend(self.read(&ids, states).await?);
            looked += ids.len();
            // A scan for what runs passes everything that is unknown, which may be more than one call can read.
            if last.is_some() && (records.len() >= limit || looked >= LOOKED_MAX) {
                return Ok((records, last));
            }
            (shard, after) = if next.is_some() { (shard, next) } else { (shard + 1, None) };
        }
        Ok((records, None))
    }

    /// The ids that the index has in this shard, and after which one there may be more of them.
    async fn shard_page(
        &self,
        shard: u8,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<(Vec<OperationId>, Option<OperationId>), Fault> {
        let _place = self.place().await?;
        let start = after.map(|id| {
            let mut key = self.names.record(id);
            key.insert(SHARD.to_owned(), text(self.names.shard(shard)));
            key
        });
        let query = self.client.query().table_name(&self.address.table).index_name(INDEX);
        let query = query.key_condition_expression(format!("{SHARD} = :shard"));
        let query = query.expression_attribute_values(":shard", text(self.names.shard(shard)));
        let query = query.set_exclusive_start_key(start).limit(rows(limit.min(BATCH_ROWS_MAX)));
        let page = call(&self.time, |trace| query.customize().interceptor(trace).send()).await;
        let page = page.map_err(Failed::fault)?;
        let ids =
            page.items.unwrap_or_default().iter().filter_map(|key| self.names.id(key)).collect();
        Ok((ids, page.last_evaluated_key.and_then(|key| self.names.id(&key))))
    }

    /// Those of these records that are in one of the states now; at most [`BATCH_ROWS_MAX`]. One that does not read is left
    /// out: a load of it is an error.
    async fn read(&self, ids: &[OperationId], states: StateSet) -> Result<Listed, Fault> {
        let mut keys: Vec<_> = ids.iter().map(|id| self.names.record(*id)).collect();
        let mut items = Vec::new();
        for pause in BATCH_PAUSES_MS.map(Duration::from_millis) {
            let (read, left) = match keys.is_empty() {
                true => return Ok(self.listing(items).await?.0),
                false => self.read_batch(keys).await?,
            };
            items.extend(read.into_iter().filter(|item| is_in(states, item)));
            keys = left;
            if !keys.is_empty() {
                sleep(pause).await;
            }
        }
        Err(Fault::NotDone(StoreError::Busy))
    }

    /// What was read, and the keys that were left for the next call.
    async fn read_batch(&self, keys: Vec<Item>) -> Result<(Vec<Item>, Vec<Item>), Fault> {
        let _place = self.place().await?;
        let asked = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
        let asked = asked.map_err(|_| refused("a batch without keys"))?;
        let batch = self.client.batch_get_item().request_items(&self.address.table, asked);
        let got = call(&self.time, |trace| batch.customize().interceptor(trace).send()).await;
        let mut got = got.map_err(Failed::fault)?;
        let table = &self.address.table;
        let read = got.responses.as_mut().and_then(|tables| tables.remove(table));
        let left = got.unprocessed_keys.as_mut().and_then(|tables| tables.remove(table));
        Ok((read.unwrap_or_default(), left.map_or_else(Vec::new, |left| left.keys)))
    }

    /// The records of these items, in the order of their ids, and of how many items: no more than until their answers have
    /// [`PAGE_BYTES_MAX`] together.
    async fn listing(&self, items: Vec<Item>) -> Result<(Listed, usize), Fault> {
        let (mut records, mut bytes, mut looked) = (Listed::new(), 0, 0);
        for item in items {
            if bytes >= PAGE_BYTES_MAX {
                break;
            }
            looked += 1;
            let Some(id) = self.names.id(&item) else { continue };
            match self.listed(id, item).await {
                Ok(Some(record)) => {
                    bytes += record
                        .response()
                        .map_or(0, |response| response.body.stored().map_or(0, |body| body.len()));
                    records.push((id, record));
                }
                Ok(None) | Err(Fault::NotDone(StoreError::Unreadable(_))) => {}
                Err(fault) => return Err(fault),
            }
        }
        records.sort_by_key(|(id, _)| *id);
        Ok((records, looked))
    }

    /// Reads whole pages: between two records there may be many items that are none. How far a call came that found no record
    /// is remembered for a moment, for the next one, which asks for the same.
    async fn scan_table(
        &self,
        states: StateSet,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<(Listed, Option<OperationId>), Fault> {
        let asked = format!("{states:?} after {after:?}");
        let place = self.scans.get(&asked).filter(|(_, at)| at.elapsed() < SCAN_KEPT);
        let mut start =
            place.map(|(start, _)| start).or_else(|| after.map(|id| self.names.record(id)));
        let kinds = StateKind::ALL.into_iter().filter(|kind| states.contains(*kind));
        let filter = self.records_in(&kinds.collect::<Vec<_>>());
        let begun = Instant::now();
        loop {
            let (mut items, next) = self.table_page(&filter, start).await?;
            let found = items.len();
            items.truncate(limit);
            let keys: Vec<_> = items.iter().map(key_of).collect();
            let (records, looked) = self.listing(items).await?;
            let last = looked.checked_sub(1).and_then(|last| keys.into_iter().nth(last));
            // What was cut off comes after the last that was looked at.
            let next = if looked < found { last.clone() } else { next };
            if !records.is_empty() || next.is_none() {
                self.scans.remove(&asked);
                let last = last.and_then(|key| self.names.id(&key));
                return Ok((records, last.filter(|_| next.is_some())));
            }
            if let Some(start) = &next {
                self.scans.insert(asked.clone(), (start.clone(), Instant::now()));
            }
            // Its caller does not wait longer: the next call goes on from here.
            if begun.elapsed() > SCAN_TIME {
                return Err(Fault::NotDone(StoreError::Busy));
            }
            start = next;
        }
    }

    /// Items of a page (a megabyte) that the filter lets through, and where the next page starts.
    async fn table_page(
        &self,
        filter: &Expression,
        start: Option<Item>,
    ) -> Result<(Vec<Item>, Option<Item>), Fault> {
        let _place = self.place().await?;
        let scan = self.client.scan().table_name(&self.address.table).consistent_read(true);
        let scan = scan.filter_expression(&filter.text);
        let values = filter.values.iter().cloned().collect();
        let scan =
            scan.set_expression_attribute_values(Some(values)).set_exclusive_start_key(start);
        let page = call(&self.time, |trace| scan.customize().interceptor(trace).send()).await;
        let page = page.map_err(Failed::fault)?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
    }

    /// Records of this store in these states, and no parts, check values or other stores' items.
    fn records_in(&self, states: &[StateKind]) -> Expression {
        let filter = Expression::new(format!("begins_with({PARTITION}, :records) AND st IN "));
        let filter = filter.with("records", text(self.names.all_records()));
        let (filter, names) = filter.with_states(states);
        Expression { text: format!("{}({names})", filter.text), ..filter }
    }

    /// Up to `limit` records whose ids begin with `prefix`: they share a partition.
    pub(super) async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Listed, Fault> {
        let mut items = self.partition(self.names.same_key(prefix), limit, None).await?;
        items.truncate(limit);
        Ok(self.listing(items).await?.0)
    }

    /// The keys of all parts of this operation's answers.
    pub(super) async fn part_keys(&self, id: OperationId) -> Result<Vec<Item>, Fault> {
        let keys_only = format!("{PARTITION}, {SORT}");
        let partitions = (0..PARTS_MAX).map(|at| nth(&self.names.parts(id), at));
        let found = partitions.map(|of| self.partition(of, PART_KEYS_MAX, Some(keys_only.clone())));
        Ok(try_join_all(found).await?.into_iter().flatten().collect())
    }

    async fn partition(
        &self,
        partition: String,
        limit: usize,
        only: Option<String>,
    ) -> Result<Vec<Item>, Fault> {
        let query = self.client.query().consistent_read(true).set_projection_expression(only);
        let query = query.key_condition_expression(format!("{PARTITION} = :partition"));
        let query = query.expression_attribute_values(":partition", text(partition));
        self.query(query, limit).await
    }

    /// What a query finds, page by page, until there are at least `limit` items.
    pub(super) async fn query(
        &self,
        query: QueryFluentBuilder,
        limit: usize,
    ) -> Result<Vec<Item>, Fault> {
        let mut items = Vec::new();
        let take = |page: QueryOutput| {
            items.extend(page.items.unwrap_or_default());
            items.len() < limit
        };
        self.query_pages(query, take).await?;
        Ok(items)
    }

    /// Takes the pages of a query for as long as `take` wants more.
    pub(super) async fn query_pages(
        &self,
        query: QueryFluentBuilder,
        mut take: impl FnMut(QueryOutput) -> bool,
    ) -> Result<(), Fault> {
        let mut start = None;
        loop {
            let _place = self.place().await?;
            let query = query.clone().table_name(&self.address.table);
            let query = query.set_exclusive_start_key(start);
            let page = call(&self.time, |trace| query.customize().interceptor(trace).send()).await;
            let mut page = page.map_err(Failed::fault)?;
            start = page.last_evaluated_key.take();
            if !take(page) || start.is_none() {
                return Ok(());
            }
        }
    }

    /// Whether there is no record at all, not even one that does not read.
    pub(super) async fn is_empty(&self) -> Result<bool, Fault> {
        let (filter, mut start) = (self.records_in(&StateKind::ALL), None);
        loop {
            let (items, next) = self.table_page(&filter, start).await?;
            if !items.is_empty() || next.is_none() {
                return Ok(items.is_empty());
            }
            start = next;
        }
    }

    /// Deletes what has expired at `until`, where this store does not leave that to DynamoDB. It reads the whole table, and goes
    /// on where the call before it ended.
    pub(super) async fn sweep(
        &self,
        until: StoreTime,
        limit: usize,
        is_audited: bool,
    ) -> Result<Swept, Fault> {
        let mut deleted = 0;
        let mut place = match self.sweep_place.try_lock() {
            Ok(place) if self.address.sweeps => place,
            // Another call sweeps.
            _ => return Ok(Swept { deleted, more: false }),
        };
        let (filter, begun) = (self.expired(until), Instant::now());
        loop {
            let (items, next) = self.table_page(&filter, place.clone()).await?;
            for item in items {
                if deleted == limit || begun.elapsed() > SWEEP_TIME {
                    return Ok(Swept { deleted, more: true });
                }
                deleted += usize::from(self.sweep_one(item, is_audited).await?);
            }
            *place = next;
            if place.is_none() || begun.elapsed() > SWEEP_TIME {
                return Ok(Swept { deleted, more: place.is_some() });
            }
        }
    }

    /// Records that have expired, and parts of answers that no record names any more.
    fn expired(&self, until: StoreTime) -> Expression {
        let filter = self.records_in(&[StateKind::Released, StateKind::Completed]);
        let expired = format!(
            "({} AND at_ms <= :until) OR (begins_with({PARTITION}, :parts) AND {EXPIRES} < :until_s)",
            filter.text
        );
        Expression { text: expired, ..filter }
            .with("until", number(until.as_ms()))
            .with("parts", text(self.names.all_parts()))
            .with("until_s", number(until.as_ms() / 1000))
    }

    /// Deletes a record that has not changed since it was read. Says whether it was one.
    async fn sweep_one(&self, item: Item, is_audited: bool) -> Result<bool, Fault> {
        if let Some(part) = self.names.part(&item) {
            return self.delete_part(part, &item).await.map(|()| false);
        }
        let (Some(id), Some(unchanged)) = (self.names.id(&item), expression::as_read(&item)) else {
            return Ok(false);
        };
        let deleted = match is_audited {
            false => self.delete(id, unchanged).await,
            true => self.expire(id, item, unchanged).await,
        };
        match deleted {
            // Parts that stay are swept when their own time is over.
            Ok(old) => Ok(self.forget_parts(id, old.as_ref()).await.map_or(true, |()| true)),
            Err(Failed::Condition(_)) => Ok(false),
            Err(failed) => Err(failed.fault()),
        }
    }
}

fn key_of(item: &Item) -> Item {
    let is_key = |name: &str| name == PARTITION || name == SORT;
    let key = item.iter().filter(|(name, _)| is_key(name));
    key.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether the item says that its record is in one of the states.
fn is_in(states: StateSet, item: &Item) -> bool {
    let named = item.get("st").and_then(|state| state.as_s().ok());
    let kind =
        StateKind::ALL.into_iter().find(|kind| named.is_some_and(|name| name == kind.name()));
    kind.is_some_and(|kind| states.contains(kind))
}

fn rows(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX).max(1)
}

/// Records in one page.
const PAGE_ROWS_MAX: usize = 1000;
/// Answers in one page, but for the last: far more than a page of ordinary ones has.
const PAGE_BYTES_MAX: usize = 32 << 20;
/// Records that one scan of the index looks at.
const LOOKED_MAX: usize = 1000;
/// How long the place of a scan that found nothing is of use: records that were written before it since are passed.
const SCAN_KEPT: Duration = Duration::from_secs(30);
/// Keys in one `BatchGetItem`: DynamoDB takes no more.
const BATCH_ROWS_MAX: usize = 100;
/// Before a batch is asked for what DynamoDB left out of it, because of its size or for want of read units.
const BATCH_PAUSES_MS: [u64; 8] = [10, 20, 40, 80, 160, 320, 640, 0];
/// How long one call reads the table without finding a record.
const SCAN_TIME: Duration = Duration::from_secs(3);
/// How long one call sweeps.
const SWEEP_TIME: Duration = Duration::from_secs(3);
/// Answers of one operation whose parts are looked for.
const PART_KEYS_MAX: usize = 1000;
