//! Writes with a note: the record, the entry and the head of its chain change in one transaction.
//!
//! 1. A node has [`CHAINS`] chains. The id of an operation says which one tells of it; notes that changed no record have a
//!    chain of their own.
//! 2. On a chain one transaction is under way at a time, and this node remembers where the chain ends. After one that was
//!    not surely done it reads the head again.
//! 3. A transaction needs the head as it was read. So a late copy of one that was given up is done before the next one,
//!    which then is not and reads the head again; or never.
//! 4. A transaction does not return what it replaced. So a record is read, judged by [`cas`], and replaced if it still is
//!    what was read.

use std::ops::ControlFlow;
use std::time::Duration;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};

use super::ANSWER_WAIT;
use super::call::{Failed, call};
use super::entry::{self, End, head_key};
use super::expression::{self, Expression};
use super::item::{self, Item, blob, number};
use super::names::key;
use super::table::{PAUSE_MS, Table, refused, unreadable};
use crate::clock::StoreTime;
use crate::record::{Record, Revision, Token};
use crate::scope::OperationId;
use crate::store::audit::{Appended, Entry, Link, Note, WriterId};
use crate::store::{Fault, Guard, Next, StoreError, Swap, cas};

/// The chains that this node writes.
#[derive(Debug)]
pub(super) struct Chains {
    store: [u8; 16],
    /// Where each ends; `None` if that is to be read.
    ends: [Mutex<Option<End>>; CHAINS + 1],
}

impl Default for Chains {
    fn default() -> Self {
        let ends = std::array::from_fn(|_| Mutex::default());
        Self { store: *Token::random().as_bytes(), ends }
    }
}

impl Chains {
    /// The number of the chain that tells of this operation.
    fn of(id: OperationId) -> usize {
        let [.., last] = *id.as_bytes();
        usize::from(last) % CHAINS
    }

    /// Its end, for one transaction at a time.
    async fn end(&self, number: usize) -> Result<MutexGuard<'_, Option<End>>, Fault> {
        let end = timeout(ANSWER_WAIT, self.ends[number].lock()).await;
        end.map_err(|_| Fault::NotDone(StoreError::Busy))
    }

    fn writer(&self, number: usize) -> WriterId {
        WriterId::new(self.store, number as u8)
    }
}

/// What a change is told as, and when it is too late for it.
#[derive(Clone, Copy)]
pub(super) struct Noted<'a> {
    pub(super) note: &'a Note,
    pub(super) not_after: StoreTime,
}

/// Changes of records.
impl Table {
    /// Puts a record and adds the note, or neither.
    pub(super) async fn put_noted(
        &self,
        id: OperationId,
        item: Item,
        condition: Expression,
        noted: Noted<'_>,
    ) -> Result<(), Failed> {
        let put = Put::builder().table_name(&self.address.table).set_item(Some(item));
        let put = put.condition_expression(condition.text).set_expression_attribute_values(
            (!condition.values.is_empty()).then(|| condition.values.into_iter().collect()),
        );
        let put = put.return_values_on_condition_check_failure(ALL_OLD).build().map_err(unbuilt)?;
        self.commit(id, TransactWriteItem::builder().put(put).build(), noted).await
    }

    /// Deletes a record and adds the note, or neither.
    async fn delete_noted(
        &self,
        id: OperationId,
        condition: Expression,
        noted: Noted<'_>,
    ) -> Result<(), Failed> {
        let delete = Delete::builder().table_name(&self.address.table);
        let delete = delete.set_key(Some(self.names.record(id)));
        let delete = delete.condition_expression(condition.text);
        let values = condition.values.into_iter().collect();
        let delete = delete.set_expression_attribute_values(Some(values));
        let delete = delete.return_values_on_condition_check_failure(ALL_OLD);
        let delete = delete.build().map_err(unbuilt)?;
        self.commit(id, TransactWriteItem::builder().delete(delete).build(), noted).await
    }

    pub(super) async fn swap_noted(
        &self,
        id: OperationId,
        guard: Guard,
        to: &Next,
        note: &Note,
    ) -> Result<Swap, Fault> {
        for _ in 0..SWAPS_MAX {
            let read = self.get(id).await?;
            let Some(record) = self.whole(id, read.clone()).await? else {
                continue;
            };
            let (revision, next) = match cas::judge(self.seen(record), &guard, to) {
                ControlFlow::Continue(put) => put,
                ControlFlow::Break(answer) => {
                    self.forget_erased(id, to).await?;
                    return Ok(answer);
                }
            };
            // The times in it are of this moment, and what is kept would live too short: later the record is judged anew.
            let not_after = to.not_after().min(self.now().plus_ms(PAUSE_MS));
            let noted = Noted { note, not_after };
            match self.replace_noted(id, revision, next.as_deref(), noted).await {
                Ok(revision) => {
                    self.forget_replaced(id, to, read.as_ref()).await?;
                    return Ok(Swap::Done(revision));
                }
                Err(Failed::Condition(_)) => {}
                Err(failed) => return Err(failed.fault()),
            }
        }
        Err(Fault::NotDone(StoreError::Busy))
    }

    /// Puts `next` in the place of exactly the record that was read, or deletes it.
    async fn replace_noted(
        &self,
        id: OperationId,
        read: Revision,
        next: Option<&Record>,
        noted: Noted<'_>,
    ) -> Result<Revision, Failed> {
        let unchanged = expression::unchanged(item::token(read.token), number(read.count));
        let Some(next) = next else {
            self.delete_noted(id, unchanged, noted).await?;
            return Ok(Revision { count: u64::MAX, ..read });
        };
        let answer = self.answer_of(id, next).await.map_err(Failed::Fault)?;
        let item = item::encode(&self.names, id, next, answer);
        self.put_noted(id, item, unchanged, noted).await?;
        Ok(next.revision())
    }

    /// Deletes a record whose time is over. Returns its item.
    pub(super) async fn expire(
        &self,
        id: OperationId,
        item: Item,
        unchanged: Expression,
    ) -> Result<Option<Item>, Failed> {
        let record = match self.listed(id, item.clone()).await {
            Ok(Some(record)) => record,
            // One that does not read stays, as an error for its id.
            Ok(None) | Err(Fault::NotDone(StoreError::Unreadable(_))) => {
                return Err(Failed::Condition(None));
            }
            Err(fault) => return Err(Failed::Fault(fault)),
        };
        let noted = Noted { note: &Note::expired(id, &record), not_after: StoreTime::MAX };
        self.delete_noted(id, unchanged, noted).await?;
        Ok(Some(item))
    }

    async fn commit(
        &self,
        id: OperationId,
        change: TransactWriteItem,
        noted: Noted<'_>,
    ) -> Result<(), Failed> {
        let told = |_: &mut End| vec![(self.now(), noted.note.clone())];
        self.add(Chains::of(id), Some((change, noted.not_after)), told).await.map(drop)
    }
}

/// Entries.
impl Table {
    /// Adds what changed no record, some notes at a time. A repeated batch goes on where the first one stopped.
    pub(super) async fn append(&self, batch: &Appended) -> Result<(), Fault> {
        let next = |end: &mut End| {
            if end.chain.appended != batch.batch {
                (end.chain.appended, end.appended) = (batch.batch, 0);
            }
            let left = batch.notes.get(end.appended..).unwrap_or_default();
            let notes = &left[..left.len().min(NOTES_MAX)];
            end.appended += notes.len();
            notes.to_vec()
        };
        while self.add(CHAINS, None, next).await.map_err(Failed::fault)? > 0 {}
        Ok(())
    }

    /// Adds the notes that `told` makes of the end of a chain, together with the change that they tell of. Says how many
    /// there were.
    async fn add(
        &self,
        number: usize,
        change: Option<(TransactWriteItem, StoreTime)>,
        told: impl Fn(&mut End) -> Vec<(StoreTime, Note)>,
    ) -> Result<usize, Failed> {
        let mut kept = self.chains.end(number).await.map_err(Failed::Fault)?;
        for pause in CONFLICT_PAUSES_MS.map(Duration::from_millis) {
            let mut end = match kept.take() {
                Some(end) => end,
                None => self.read_end(number).await.map_err(Failed::Fault)?,
            };
            let before = end;
            let notes = told(&mut end);
            if notes.is_empty() {
                *kept = Some(end);
                return Ok(0);
            }
            if before.chain.head.last.sequence == 0 {
                self.list_chain(before.chain.head.writer, notes[0].0).await?;
            }
            let entries: Vec<_> =
                notes.into_iter().map(|(at, note)| end.chain.add(at, note)).collect();
            match self.transact(change.clone(), &entries, before.chain.head.last, &end).await {
                Ok(()) => {
                    *kept = Some(end);
                    return Ok(entries.len());
                }
                Err(Failed::Condition(_)) if change.is_none() => sleep(pause).await,
                Err(Failed::Conflict) => sleep(pause).await,
                Err(failed) => return Err(failed),
            }
        }
        Err(Failed::Conflict)
    }

    async fn read_end(&self, number: usize) -> Result<End, Fault> {
        let writer = self.chains.writer(number);
        match self.get_item(head_key(&self.names, writer)).await? {
            None => Ok(End::new(writer)),
            Some(head) => End::of(writer, &head)
                .ok_or_else(|| unreadable("the head of a chain does not read")),
        }
    }

    /// Lists a chain before its first entry. It has none from before `oldest`.
    pub(super) async fn list_chain(
        &self,
        writer: WriterId,
        oldest: StoreTime,
    ) -> Result<(), Failed> {
        let mut item = key(self.names.chains(), writer.to_string());
        item.insert(OLDEST.to_owned(), number(oldest.as_ms()));
        self.put_item(item).await.map_err(Failed::Fault)
    }

    async fn transact(
        &self,
        change: Option<(TransactWriteItem, StoreTime)>,
        entries: &[Entry],
        before: Link,
        end: &End,
    ) -> Result<(), Failed> {
        let (change, not_after) = change.unzip();
        let entries = entries.iter().map(|entry| self.entry_put(entry));
        let mut writes: Vec<_> = change.into_iter().collect();
        writes.extend(entries.collect::<Result<Vec<_>, _>>()?);
        writes.push(self.head_update(before, end)?);
        self.transact_all(writes, not_after.unwrap_or(StoreTime::MAX)).await
    }

    pub(super) async fn transact_all(
        &self,
        writes: Vec<TransactWriteItem>,
        not_after: StoreTime,
    ) -> Result<(), Failed> {
        let _place = self.place().await.map_err(Failed::Fault)?;
        if self.now() > not_after {
            return Err(Failed::Condition(None));
        }
        let transaction = self.client.transact_write_items().set_transact_items(Some(writes));
        let done = call(&self.time, |trace| transaction.customize().interceptor(trace).send());
        done.await.map(drop)
    }

    fn entry_put(&self, entry: &Entry) -> Result<TransactWriteItem, Failed> {
        let put = Put::builder().table_name(&self.address.table);
        let put = put.set_item(Some(entry::encode(&self.names, entry)));
        let put = put.condition_expression(expression::absent().text).build().map_err(unbuilt)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// The head moves on to `end`, if it is as it was. Its beginning is for [`prune`](Table::prune) to move.
    fn head_update(&self, before: Link, end: &End) -> Result<TransactWriteItem, Failed> {
        let Link { sequence, hash } = end.chain.head.last;
        let update = Update::builder().table_name(&self.address.table);
        let update = update.set_key(Some(head_key(&self.names, end.chain.head.writer)));
        let update = update
            .update_expression(
                "SET last_sequence = :sequence, last_hash = :hash, batch_id = :batch, batch_notes = :notes, \
                 from_sequence = if_not_exists(from_sequence, :zero), from_hash = if_not_exists(from_hash, :none)",
            )
            .expression_attribute_values(":sequence", number(sequence))
            .expression_attribute_values(":hash", blob(hash.to_vec()))
            .expression_attribute_values(":batch", blob(end.chain.appended.to_vec()))
            .expression_attribute_values(":notes", number(end.appended))
            .expression_attribute_values(":zero", number(0))
            .expression_attribute_values(":none", blob(Link::default().hash.to_vec()));
        let update = match before.sequence {
            0 => update.condition_expression("attribute_not_exists(pk)"),
            _ => update
                .condition_expression("last_hash = :before")
                .expression_attribute_values(":before", blob(before.hash.to_vec())),
        };
        Ok(TransactWriteItem::builder().update(update.build().map_err(unbuilt)?).build())
    }
}

/// For a write that has no table or no key, which is none of ours.
pub(super) fn unbuilt(_: BuildError) -> Failed {
    Failed::Fault(refused("a write of a transaction is incomplete"))
}

const ALL_OLD: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;
/// Chains of a node, besides the one for notes that changed no record. A transaction takes about ten milliseconds, so that
/// a node makes about eight hundred changes a second.
const CHAINS: usize = 8;
/// Notes that are appended in one transaction. DynamoDB takes a hundred writes in one, and the head is one of them.
const NOTES_MAX: usize = 99;
/// How often a write is tried whose record changes meanwhile.
const SWAPS_MAX: usize = 8;
/// Before a transaction is tried again that met another one.
const CONFLICT_PAUSES_MS: [u64; 6] = [5, 10, 20, 40, 80, 0];
/// The attribute of a listed chain: it has no entry from before.
pub(super) const OLDEST: &str = "oldest_ms";
