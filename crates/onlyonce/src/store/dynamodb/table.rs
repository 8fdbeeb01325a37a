//! The table of a store: claim, load, swap and renew, each by conditional writes.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use futures_util::future::join_all;
use quick_cache::sync::Cache;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::ANSWER_WAIT;
use super::address::DynamoAddress;
use super::answers;
use super::call::{Failed, call, unsure};
use super::error::DynamoOpenError;
use super::expression::{self, Expression};
use super::item::{self, Item};
use super::names::Names;
use super::noted::{Chains, Noted};
use super::server_time::ServerTime;
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::record::codec;
use crate::record::{Record, Revision, Token};
use crate::scope::OperationId;
use crate::store::audit::Note;
use crate::store::cas::{self, Effect};
use crate::store::{Beat, BoxError, Draft, Fault, Guard, Lease, Next, Seen, StoreError, Swap};

/// A table, and what this node knows of it.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) client: Client,
    pub(super) address: DynamoAddress,
    pub(super) names: Names,
    pub(super) time: ServerTime,
    /// Ids that had a record when this node last looked: their claims read before they write, because a put whose
    /// condition fails costs as much as one that is done.
    known: Cache<OperationId, ()>,
    /// Calls that may be on the wire at once: each has a connection.
    wire: Semaphore,
    /// The same for renewals, which wait for no other call: behind a crowd their leases would be over.
    renewals: Semaphore,
    /// Where scans of the table stand that have found no record yet, by what they ask for.
    pub(super) scans: Cache<String, (Item, Instant)>,
    /// Where the next sweep goes on; held by the one that is under way.
    pub(super) sweep_place: Mutex<Option<Item>>,
    /// Why no trail can be kept in this table, if none can.
    pub(super) no_trail: Option<&'static str>,
    /// The chains of the audit trail that this node writes.
    pub(super) chains: Chains,
    /// What is worth a line at every start.
    pub(super) warnings: Vec<String>,
}

impl Table {
    pub(super) fn new(client: Client, address: DynamoAddress) -> Result<Self, DynamoOpenError> {
        let names = Names::new(&address.prefix)?;
        Ok(Self {
            client,
            address,
            names,
            time: ServerTime::default(),
            known: Cache::new(KNOWN_IDS),
            wire: Semaphore::new(WIRE_CALLS_MAX),
            renewals: Semaphore::new(RENEWALS_MAX),
            scans: Cache::new(SCANS_MAX),
            sweep_place: Mutex::default(),
            no_trail: None,
            chains: Chains::default(),
            warnings: Vec::new(),
        })
    }

    pub(super) fn now(&self) -> StoreTime {
        self.time.now(SystemClock.boot())
    }

    /// A place on the wire. Calls wait for it in their order, at most [`ANSWER_WAIT`].
    pub(super) async fn place(&self) -> Result<SemaphorePermit<'_>, Fault> {
        place(&self.wire).await
    }
}

async fn place(places: &Semaphore) -> Result<SemaphorePermit<'_>, Fault> {
    match timeout(ANSWER_WAIT, places.acquire()).await {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(_)) => Err(Fault::NotDone(StoreError::Closed)),
        Err(_) => Err(Fault::NotDone(StoreError::Busy)),
    }
}

/// Reading.
impl Table {
    pub(super) async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        for _ in 0..READS_MAX {
            let read = self.get(id).await?;
            if let Some(record) = self.whole(id, read).await? {
                return Ok(self.seen(record));
            }
        }
        Err(unsure("the parts of an answer changed whenever they were read"))
    }

    pub(super) async fn get(&self, id: OperationId) -> Result<Option<Item>, Fault> {
        self.get_item(self.names.record(id)).await
    }

    pub(super) async fn get_item(&self, key: Item) -> Result<Option<Item>, Fault> {
        let _place = self.place().await?;
        let get = self.client.get_item().table_name(&self.address.table).consistent_read(true);
        let get = get.set_key(Some(key));
        let got = call(&self.time, |trace| get.customize().interceptor(trace).send()).await;
        Ok(got.map_err(Failed::fault)?.item)
    }

    /// What is there after a write whose condition failed.
    async fn after_condition(&self, id: OperationId, old: Option<Item>) -> Result<Seen, Fault> {
        let whole = match old {
            Some(_) => self.whole(id, old).await?,
            // Absent; or something that is not DynamoDB, and does not say what is there.
            None => None,
        };
        match whole {
            Some(record) => Ok(self.seen(record)),
            None => self.load(id).await.map_err(after_record),
        }
    }

    /// The record of an item that was read. `None` if the parts of its answer are gone because it was replaced meanwhile.
    pub(super) async fn whole(
        &self,
        id: OperationId,
        read: Option<Item>,
    ) -> Result<Option<Option<Record>>, Fault> {
        let Some(item) = read else {
            self.known.remove(&id);
            return Ok(Some(None));
        };
        self.known.insert(id, ());
        let outcome = match item::parts(&item).map_err(unreadable)? {
            None => None,
            Some(parts) => match self.read_parts(id, &parts).await.map_err(after_record)? {
                Some(outcome) => Some(outcome),
                None if self.get(id).await.map_err(after_record)?.as_ref() != Some(&item) => {
                    return Ok(None);
                }
                // DynamoDB may delete this record at any moment, and its parts were first. Whether it is over is judged above.
                None if item::is_over(&item, self.now()) => Some(answers::gone()),
                None => return Err(unreadable("parts of its answer are missing")),
            },
        };
        item::decode(id, &item, outcome).map(|record| Some(Some(record))).map_err(unreadable)
    }

    /// The record in an item of a page. An answer in parts is not read with it, and then it is loaded alone.
    pub(super) async fn listed(
        &self,
        id: OperationId,
        item: Item,
    ) -> Result<Option<Record>, Fault> {
        match item.contains_key("answer_in") {
            true => Ok(self.load(id).await?.record),
            false => item::decode(id, &item, None).map(Some).map_err(unreadable),
        }
    }

    pub(super) fn seen(&self, record: Option<Record>) -> Seen {
        Seen { record, mine: false, now: self.now() }
    }
}

/// Writing.
impl Table {
    pub(super) async fn claim(&self, draft: &Draft, note: Option<&Note>) -> Result<Seen, Fault> {
        let seen = match self.now() > draft.not_after || self.known.get(&draft.id).is_some() {
            true => Some(self.load(draft.id).await?),
            false => None,
        };
        // Read again: the load took its time. DynamoDB has no clock that could judge a copy which arrives late.
        let now = self.now();
        let seen = match seen {
            Some(seen) if seen.record.is_some() || now > draft.not_after => seen,
            _ => self.insert(draft, cas::first_attempt(draft, now), note).await?,
        };
        let mine = cas::is_mine(seen.record.as_ref(), draft);
        Ok(Seen { mine, ..seen })
    }

    async fn insert(
        &self,
        draft: &Draft,
        record: Record,
        note: Option<&Note>,
    ) -> Result<Seen, Fault> {
        let Draft { id, not_after, .. } = *draft;
        let item = item::encode(&self.names, id, &record, None);
        let put = match note {
            None => self.put(item, expression::absent(), not_after).await.map(drop),
            Some(note) => {
                self.put_noted(id, item, expression::absent(), Noted { note, not_after }).await
            }
        };
        match put {
            Ok(()) => {
                self.known.insert(id, ());
                Ok(self.seen(Some(record)))
            }
            Err(Failed::Condition(old)) => self.after_condition(id, old).await,
            Err(failed) => Err(failed.fault()),
        }
    }

    /// Copies a record of another store, over an earlier copy of it and nothing else. Another record is there if the other
    /// store was used after an import that was interrupted: that copy is out of date, and to keep it would run its operation
    /// again.
    pub(super) async fn import(&self, id: OperationId, record: &Record) -> Result<(), Fault> {
        let answer = self.answer_of(id, record).await?;
        let item = item::encode(&self.names, id, record, answer);
        let copy = expression::absent_or(record.revision());
        match self.put(item, copy, StoreTime::MAX).await {
            Ok(_) => Ok(()),
            Err(Failed::Condition(_)) => Err(refused(OUT_OF_DATE)),
            Err(failed) => Err(failed.fault()),
        }
    }

    /// Writes under the guard. If it does not hold, [`cas`] says what that means for the record that is there: a repeated
    /// write, a stale one, or one whose guard does hold for this very record, which is then named by its revision.
    pub(super) async fn swap(
        &self,
        id: OperationId,
        guard: Guard,
        to: &Next,
    ) -> Result<Swap, Fault> {
        let mut exact = guard;
        for _ in 0..SWAPS_MAX {
            let now = self.now();
            let failed = match expression::guarded(&exact, to).filter(|_| now <= to.not_after()) {
                Some(condition) => self.write(id, &exact, to, condition, now).await,
                None => Err(Failed::Condition(self.get(id).await?)),
            };
            let seen = match failed {
                Ok(revision) => return Ok(Swap::Done(revision)),
                Err(Failed::Condition(old)) => self.after_condition(id, old).await?,
                Err(failed) => return Err(failed.fault()),
            };
            match cas::swap(seen.record.as_ref(), &guard, to, now) {
                Effect::Already(revision) => {
                    self.forget_erased(id, to).await?;
                    return Ok(Swap::Done(self.keep_for_ttl(id, to, revision, now).await));
                }
                Effect::Stale => return Ok(Swap::Stale(Box::new(seen))),
                Effect::Write(_) | Effect::Delete(_) => {
                    let revision = seen.record.as_ref().map(Record::revision);
                    exact = revision.map_or(guard, Guard::Unchanged);
                }
            }
        }
        Err(Fault::NotDone(StoreError::Busy))
    }

    async fn write(
        &self,
        id: OperationId,
        guard: &Guard,
        to: &Next,
        condition: Expression,
        now: StoreTime,
    ) -> Result<Revision, Failed> {
        let old = match to {
            Next::Absent => self.delete(id, condition).await?,
            Next::Running(attempt) => {
                let record = cas::later_attempt(attempt, now);
                let item = item::encode(&self.names, id, &record, None);
                self.put(item, condition, to.not_after()).await?
            }
            Next::Replaced(record) => {
                let answer = self.answer_of(id, record).await.map_err(Failed::Fault)?;
                let item = item::encode(&self.names, id, record, answer);
                self.put(item, condition, to.not_after()).await?
            }
            Next::Unknown { since } => {
                let update = expression::unknown(&self.names, id, since.unwrap_or(now));
                self.update(id, update, condition, &self.wire).await?
            }
            Next::Released { expires_at } => {
                let released = expression::released(*expires_at, now);
                self.update(id, released, condition, &self.wire).await?
            }
            Next::Completed { settled_by, response, token } => {
                let outcome = codec::encode_outcome(*settled_by, response);
                let answer = self.answer(id, cas::token_after(guard, to), outcome).await?;
                // Parts take their time, and the time to live begins with the completion.
                let completed = expression::completed(answer, *token, self.now());
                self.update(id, completed, condition, &self.wire).await?
            }
        };
        match to {
            Next::Absent => drop(self.known.remove(&id)),
            _ => self.known.insert(id, ()),
        }
        self.forget_replaced(id, to, old.as_ref()).await.map_err(Failed::Fault)?;
        let revision = revision_after(guard, to, old).map_err(Failed::Fault)?;
        Ok(self.keep_for_ttl(id, to, revision, now).await)
    }

    /// A machine that was paused as a whole, with its boot clock, learns the time by the answer to its first call. If this was
    /// that call, the record ends too early by the pause: it is kept for its time to live from now. The settle itself is done,
    /// whether this succeeds or not. Returns the record's revision.
    async fn keep_for_ttl(
        &self,
        id: OperationId,
        to: &Next,
        settled: Revision,
        at: StoreTime,
    ) -> Revision {
        let now = self.now();
        let begins_ttl = matches!(to, Next::Completed { .. } | Next::Released { expires_at: None });
        if !begins_ttl || now.since_ms(at) <= PAUSE_MS {
            return settled;
        }
        let condition =
            expression::unchanged(item::token(settled.token), item::number(settled.count));
        match self.update(id, expression::kept(now), condition, &self.wire).await {
            Ok(_) => Revision { count: settled.count + 1, ..settled },
            Err(_) => settled,
        }
    }

    pub(super) async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Vec<Beat> {
        join_all(held.iter().map(|(id, token)| self.beat(*id, *token, lease))).await
    }

    async fn beat(&self, id: OperationId, token: Token, lease: Lease) -> Beat {
        let renewed = expression::renewed(self.now().plus_ms(lease.as_ms()));
        let is_read =
            |item: Option<Item>| item.is_some_and(|item| item::decode(id, &item, None).is_ok());
        match self.update(id, renewed, expression::owned(token), &self.renewals).await {
            Ok(old) if is_read(old.clone()) => Beat::Kept,
            Err(Failed::Condition(None)) => Beat::Lost,
            Err(Failed::Condition(Some(item))) if item::integer(&item, "v") == Ok(item::FORMAT) => {
                Beat::Lost
            }
            _ => Beat::Unsure,
        }
    }
}

/// The revision that a write made, by the item that was there before it.
fn revision_after(guard: &Guard, to: &Next, old: Option<Item>) -> Result<Revision, Fault> {
    match to {
        Next::Absent => Ok(cas::deletion(guard)),
        Next::Running(attempt) => Ok(Revision { token: attempt.draft.token, count: 1 }),
        Next::Replaced(record) => Ok(record.revision()),
        Next::Completed { token: Some(token), .. } => Ok(Revision { token: *token, count: 1 }),
        _ => {
            let count = old.as_ref().and_then(|old| item::integer(old, "cnt").ok());
            let count = count.and_then(|count| u64::try_from(count).ok());
            let count = count.ok_or_else(|| unsure("a write was answered without its record"))?;
            Ok(Revision { token: cas::token_after(guard, to), count: count + 1 })
        }
    }
}

/// The three writes. Each returns the item that was there before.
impl Table {
    /// A put that finds its place too late is one whose condition does not hold.
    async fn put(
        &self,
        item: Item,
        condition: Expression,
        not_after: StoreTime,
    ) -> Result<Option<Item>, Failed> {
        let _place = self.place().await.map_err(Failed::Fault)?;
        if self.now() > not_after {
            return Err(Failed::Condition(None));
        }
        let put = self.client.put_item().table_name(&self.address.table).set_item(Some(item));
        let put = put.condition_expression(condition.text).return_values(ReturnValue::AllOld);
        let put = put.return_values_on_condition_check_failure(ALL_OLD);
        let values = (!condition.values.is_empty()).then(|| condition.values.into_iter().collect());
        let put = put.set_expression_attribute_values(values);
        let done = call(&self.time, |trace| put.customize().interceptor(trace).send()).await?;
        Ok(done.attributes)
    }

    async fn update(
        &self,
        id: OperationId,
        update: Expression,
        condition: Expression,
        places: &Semaphore,
    ) -> Result<Option<Item>, Failed> {
        let _place = place(places).await.map_err(Failed::Fault)?;
        let values = update.values.into_iter().chain(condition.values).collect();
        let write = self.client.update_item().table_name(&self.address.table);
        let write = write.set_key(Some(self.names.record(id)));
        let write = write.update_expression(update.text).condition_expression(condition.text);
        let write = write.set_expression_attribute_values(Some(values));
        let write = write.return_values(ReturnValue::AllOld);
        let write = write.return_values_on_condition_check_failure(ALL_OLD);
        let done = call(&self.time, |trace| write.customize().interceptor(trace).send()).await?;
        Ok(done.attributes)
    }

    pub(super) async fn delete(
        &self,
        id: OperationId,
        condition: Expression,
    ) -> Result<Option<Item>, Failed> {
        let _place = self.place().await.map_err(Failed::Fault)?;
        let delete = self.client.delete_item().table_name(&self.address.table);
        let delete = delete.set_key(Some(self.names.record(id)));
        let delete = delete.condition_expression(condition.text);
        let delete =
            delete.set_expression_attribute_values(Some(condition.values.into_iter().collect()));
        let delete = delete.return_values(ReturnValue::AllOld);
        let delete = delete.return_values_on_condition_check_failure(ALL_OLD);
        let done = call(&self.time, |trace| delete.customize().interceptor(trace).send()).await?;
        Ok(done.attributes)
    }
}

/// A fault after the store has shown a record. A route that passes requests while the store is away must not pass this one.
fn after_record(fault: Fault) -> Fault {
    match fault {
        Fault::NotDone(StoreError::Unavailable(_)) => Fault::NotDone(StoreError::Busy),
        fault => fault,
    }
}

pub(super) fn unreadable(why: impl Into<BoxError>) -> Fault {
    Fault::NotDone(StoreError::Unreadable(why.into()))
}

pub(super) fn refused(why: &'static str) -> Fault {
    Fault::NotDone(StoreError::Refused(why.into()))
}

const OUT_OF_DATE: &str = "the table has an earlier copy of a record that was changed since: give an empty table or another \
     prefix, as in dynamodb:TABLE?prefix=NAME";
const ALL_OLD: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;
/// How often a record is read whose answer in parts is replaced meanwhile.
const READS_MAX: usize = 3;
/// How often a write is tried whose record changes meanwhile.
const SWAPS_MAX: usize = 4;
/// A settle that is later than this by the time of its answer was sent after a pause.
pub(super) const PAUSE_MS: i64 = 10_000;
/// Ids that are remembered as having a record: about 4 MiB.
const KNOWN_IDS: usize = 65_536;
/// Scans whose place is remembered.
const SCANS_MAX: usize = 16;
/// Calls that may be on the wire at once. Each has a connection, and DynamoDB answers in milliseconds.
const WIRE_CALLS_MAX: usize = 256;
/// Renewals that may be on the wire at once, besides.
const RENEWALS_MAX: usize = 64;
