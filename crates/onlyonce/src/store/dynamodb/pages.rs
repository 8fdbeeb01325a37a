//! Pages of records: what is running or unknown from the index, everything else from the table.
//!
//! 1. The index lags behind the table. Each record that it names is read from the table, consistently, before it is
//!    listed; so a record may be missed by a scan that comes right after its claim, and is never listed as it was.
//! 2. A cursor is the id of the last record that was looked at: the index is read shard by shard, in the order of ids.

use aws_sdk_dynamodb::types::KeysAndAttributes;
use futures_util::future::try_join_all;

use super::call::{Failed, call};
use super::expression::{self, Expression};
use super::item::{Item, number, text};
use super::names::{INDEX, PARTITION, SHARD, SHARDS, SORT, shard_of};
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
        while shard < SHARDS {
            let (ids, has_more) = self.shard_page(shard, after, limit - records.len()).await?;
            let last = ids.last().copied();
            let listed = self.read(&ids).await?;
            let wanted = |record: &Record| states.contains(record.state.kind());
            records.extend(listed.into_iter().filter(|(_, record)| wanted(record)));
            if records.len() >= limit {
                return Ok((records, last));
            }
            (shard, after) = if has_more { (shard, last) } else { (shard + 1, None) };
        }
        Ok((records, None))
    }

    /// The ids that the index has in this shard, and whether there are more of them.
    async fn shard_page(
        &self,
        shard: u8,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<(Vec<OperationId>, bool), Fault> {
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
        Ok((ids, page.last_evaluated_key.is_some()))
    }

    /// These records as they are now, at most [`BATCH_ROWS_MAX`]. One that does not read is left out: a load of it is an
    /// error.
    async fn read(&self, ids: &[OperationId]) -> Result<Listed, Fault> {
        let mut keys: Vec<_> = ids.iter().map(|id| self.names.record(*id)).collect();
        let mut items = Vec::new();
        for _ in 0..BATCHES_MAX {
            if keys.is_empty() {
                return self.listing(items).await;
            }
            let (read, left) = self.read_batch(keys).await?;
            items.extend(read);
            keys = left;
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

    /// In the order of their ids in the table.
    async fn listing(&self, items: Vec<Item>) -> Result<Listed, Fault> {
        let records = items.into_iter().filter_map(|item| Some((self.names.id(&item)?, item)));
        let records = records.map(|(id, item)| async move {
            match self.listed(id, item).await {
                Ok(record) => Ok(record.map(|record| (id, record))),
                Err(Fault::NotDone(StoreError::Unreadable(_))) => Ok(None),
                Err(fault) => Err(fault),
            }
        });
        let mut records: Listed = try_join_all(records).await?.into_iter().flatten().collect();
        records.sort_by_key(|(id, _)| *id);
        Ok(records)
    }

    async fn scan_table(
        &self,
        states: StateSet,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<(Listed, Option<OperationId>), Fault> {
        let mut start = after.map(|id| self.names.record(id));
        let kinds = StateKind::ALL.into_iter().filter(|kind| states.contains(*kind));
        let filter = self.records_in(&kinds.collect::<Vec<_>>());
        for reads in 1.. {
            let (items, next) = self.table_page(&filter, start, limit).await?;
            let last = items.iter().filter_map(|item| self.names.id(item)).next_back();
            let records = self.listing(items).await?;
            let Some(next) = next else {
                return Ok((records, None));
            };
            let place = self.names.id(&next).or(last);
            match place {
                Some(place) if !records.is_empty() || reads >= READS_MAX => {
                    return Ok((records, Some(place)));
                }
                _ => start = Some(next),
            }
        }
        Ok((Vec::new(), None))
    }

    /// Items that the filter lets through, and where the next page starts. The limit counts all that were read.
    async fn table_page(
        &self,
        filter: &Expression,
        start: Option<Item>,
        limit: usize,
    ) -> Result<(Vec<Item>, Option<Item>), Fault> {
        let _place = self.place().await?;
        let scan = self.client.scan().table_name(&self.address.table).consistent_read(true);
        let scan = scan.filter_expression(&filter.text).limit(rows(limit));
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
        let items = self.partition(self.names.same_key(prefix), limit, None).await?;
        let mut records = self.listing(items).await?;
        records.truncate(limit);
        Ok(records)
    }

    /// The keys of all parts of this operation's answers.
    pub(super) async fn part_keys(&self, id: OperationId) -> Result<Vec<Item>, Fault> {
        let keys_only = format!("{PARTITION}, {SORT}");
        self.partition(self.names.parts(id), PART_KEYS_MAX, Some(keys_only)).await
    }

    async fn partition(
        &self,
        partition: String,
        limit: usize,
        only: Option<String>,
    ) -> Result<Vec<Item>, Fault> {
        let (mut items, mut start) = (Vec::new(), None);
        loop {
            let _place = self.place().await?;
            let query = self.client.query().table_name(&self.address.table).consistent_read(true);
            let query = query.key_condition_expression(format!("{PARTITION} = :partition"));
            let query = query.expression_attribute_values(":partition", text(&partition));
            let query =
                query.set_projection_expression(only.clone()).set_exclusive_start_key(start);
            let page = call(&self.time, |trace| query.customize().interceptor(trace).send()).await;
            let page = page.map_err(Failed::fault)?;
            items.extend(page.items.unwrap_or_default());
            start = page.last_evaluated_key;
            if start.is_none() || items.len() >= limit {
                return Ok(items);
            }
        }
    }

    /// Deletes what has expired at `until`, where this store does not leave that to DynamoDB. It reads the whole table.
    pub(super) async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        let mut swept = Swept { deleted: 0, more: false };
        if !self.address.sweeps {
            return Ok(swept);
        }
        let filter = self.records_in(&[StateKind::Released, StateKind::Completed]);
        let expired = format!("{} AND at_ms <= :until", filter.text);
        let filter = Expression { text: expired, ..filter }.with("until", number(until.as_ms()));
        let mut start = None;
        loop {
            let (items, next) = self.table_page(&filter, start, PAGE_ROWS_MAX).await?;
            for item in items {
                if swept.deleted == limit {
                    return Ok(Swept { more: true, ..swept });
                }
                swept.deleted += usize::from(self.sweep_one(&item).await?);
            }
            start = next;
            if start.is_none() {
                return Ok(swept);
            }
        }
    }

    /// Deletes a record that has not changed since it was read.
    async fn sweep_one(&self, item: &Item) -> Result<bool, Fault> {
        let (Some(id), Some(token), Some(count)) =
            (self.names.id(item), item.get("tok"), item.get("cnt"))
        else {
            return Ok(false);
        };
        let unchanged = expression::unchanged(token.clone(), count.clone());
        match self.delete(id, unchanged).await {
            Ok(old) => {
                self.forget_parts(id, old.as_ref()).await;
                Ok(true)
            }
            Err(Failed::Condition(_)) => Ok(false),
            Err(Failed::Fault(fault)) => Err(fault),
        }
    }
}

fn rows(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX).max(1)
}

/// Records in one page.
const PAGE_ROWS_MAX: usize = 1000;
/// Keys in one `BatchGetItem`: DynamoDB takes no more.
const BATCH_ROWS_MAX: usize = 100;
/// How often a batch is asked for what DynamoDB left out of it.
const BATCHES_MAX: usize = 50;
/// Pages of the table that one call reads before it says where to go on, though it found nothing.
const READS_MAX: usize = 8;
/// Parts of one operation that are looked for.
const PART_KEYS_MAX: usize = 1000;
