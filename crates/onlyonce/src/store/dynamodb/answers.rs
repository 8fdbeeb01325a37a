//! Answers, in the item of their record or in parts: written before the record names them, deleted after it does not.

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderMap, StatusCode};

use super::call::{Failed, call};
use super::item::{self, Answer, Item};
use super::names::EXPIRES;
use super::parts::{INLINE_BYTES_MAX, PARTS_MAX, Parts};
use super::table::{Table, refused, unreadable};
use crate::clock::StoreTime;
use crate::record::{Kept, NotKept, Record, Response, SettledBy, State, Token, codec};
use crate::scope::OperationId;
use crate::store::{Fault, Next};

impl Table {
    pub(super) async fn answer_of(
        &self,
        id: OperationId,
        record: &Record,
    ) -> Result<Option<Answer>, Fault> {
        let State::Completed { expires_at, settled_by, response } = &record.state else {
            return Ok(None);
        };
        let outcome = codec::encode_outcome(*settled_by, response);
        match self.inline(id, outcome)? {
            Ok(answer) => Ok(Some(answer)),
            Err(outcome) => self.in_parts(id, record.token, &outcome, *expires_at).await.map(Some),
        }
    }

    /// The answer that completes the record which is there. Its parts are kept for as long as the record is, and only the
    /// record knows how long that is.
    pub(super) async fn answer(
        &self,
        id: OperationId,
        token: Token,
        outcome: Vec<u8>,
    ) -> Result<Answer, Failed> {
        let outcome = match self.inline(id, outcome).map_err(Failed::Fault)? {
            Ok(answer) => return Ok(answer),
            Err(outcome) => outcome,
        };
        let Some(item) = self.get(id).await.map_err(Failed::Fault)? else {
            return Err(Failed::Condition(None));
        };
        let ttl_ms = item::integer(&item, "ttl_ms");
        let ttl_ms = ttl_ms.map_err(|error| Failed::Fault(unreadable(error)))?;
        let written = self.in_parts(id, token, &outcome, self.now().plus_ms(ttl_ms)).await;
        written.map_err(Failed::Fault)
    }

    /// The outcome in the item itself; or the outcome, if it does not fit.
    fn inline(&self, id: OperationId, outcome: Vec<u8>) -> Result<Result<Answer, Vec<u8>>, Fault> {
        match outcome.len() <= INLINE_BYTES_MAX {
            true => Ok(Ok(Answer::inline(outcome, id))),
            false if self.address.parts => Ok(Err(outcome)),
            false => Err(refused("its answer is too large for one item")),
        }
    }

    /// Writes the parts.
    async fn in_parts(
        &self,
        id: OperationId,
        token: Token,
        outcome: &[u8],
        expires_at: StoreTime,
    ) -> Result<Answer, Fault> {
        let parts = Parts::of(token, outcome);
        if parts.count > PARTS_MAX {
            return Err(refused("its answer has too many parts"));
        }
        let expires_s = item::seconds(expires_at.as_ms()).saturating_add(PART_SLACK_S);
        let items = parts.items(&self.names.parts(id), outcome, expires_s);
        let puts = stream::iter(items.into_iter().map(|item| self.put_item(item)));
        puts.buffer_unordered(PARTS_AT_ONCE).try_collect::<()>().await?;
        Ok(Answer::Parts(parts))
    }

    pub(super) async fn put_item(&self, item: Item) -> Result<(), Fault> {
        let _place = self.place().await?;
        let put = self.client.put_item().table_name(&self.address.table).set_item(Some(item));
        let done = call(&self.time, |trace| put.customize().interceptor(trace).send()).await;
        done.map(drop).map_err(Failed::fault)
    }

    /// The outcome that these parts have; `None` if they are not all there.
    pub(super) async fn read_parts(
        &self,
        id: OperationId,
        parts: &Parts,
    ) -> Result<Option<Bytes>, Fault> {
        let keys = parts.keys(&self.names.parts(id)).into_iter();
        let read = stream::iter(keys.map(|key| self.get_item(key))).buffered(PARTS_AT_ONCE);
        let mut outcome = Vec::new();
        for item in read.try_collect::<Vec<_>>().await? {
            let item = item.unwrap_or_default();
            let Some(part) = item.get("part").and_then(|part| part.as_b().ok()) else {
                return Ok(None);
            };
            outcome.extend_from_slice(part.as_ref());
        }
        match parts.is_whole(&outcome) {
            true => Ok(Some(outcome.into())),
            false => Err(unreadable("the parts of its answer are damaged")),
        }
    }

    /// Deletes the parts that a write has made superfluous. Only an erased answer must be gone before the write is answered.
    pub(super) async fn forget_replaced(
        &self,
        id: OperationId,
        to: &Next,
        old: Option<&Item>,
    ) -> Result<(), Fault> {
        match to {
            Next::Replaced(_) => self.forget_erased(id, to).await,
            _ => {
                drop(self.forget_parts(id, old).await);
                Ok(())
            }
        }
    }

    /// Deletes the parts that the item named which a write has replaced or deleted. Those of another attempt have another
    /// name, so that nothing is deleted that a later settle has written. What is not deleted now is deleted by DynamoDB's
    /// own time to live, or by a sweep.
    pub(super) async fn forget_parts(
        &self,
        id: OperationId,
        old: Option<&Item>,
    ) -> Result<(), Fault> {
        let parts = old.and_then(|old| item::parts(old).ok().flatten());
        let keys = parts.map_or_else(Vec::new, |parts| parts.keys(&self.names.parts(id)));
        self.delete_items(keys).await
    }

    /// An erased answer must not stay: all its parts are looked for, those too that an earlier erase or a settle that came too
    /// late has left. All that are there before the record is read, and still is as it was written, are older than it.
    pub(super) async fn forget_erased(&self, id: OperationId, to: &Next) -> Result<(), Fault> {
        let Next::Replaced(record) = to else {
            return Ok(());
        };
        let keys = self.part_keys(id).await.map_err(as_unsure)?;
        let item = self.get(id).await.map_err(as_unsure)?.unwrap_or_default();
        match item.get("tok") == Some(&item::token(record.token)) && !item.contains_key("answer_in")
        {
            true => self.delete_items(keys).await,
            false => Ok(()),
        }
    }

    /// Deletes a part that was written when it was read, and not again since.
    pub(super) async fn delete_part(&self, key: Item, read: &Item) -> Result<(), Fault> {
        let _place = self.place().await?;
        let delete = self.client.delete_item().table_name(&self.address.table).set_key(Some(key));
        let delete = delete.condition_expression(format!("{EXPIRES} = :read"));
        let expires = read.get(EXPIRES).cloned().unwrap_or_else(|| item::number(0));
        let delete = delete.expression_attribute_values(":read", expires);
        match call(&self.time, |trace| delete.customize().interceptor(trace).send()).await {
            Ok(_) | Err(Failed::Condition(_)) => Ok(()),
            Err(failed) => Err(failed.fault()),
        }
    }

    /// The write before it is done: what is not deleted is unsure, and tried again with it.
    pub(super) async fn delete_items(&self, keys: Vec<Item>) -> Result<(), Fault> {
        for key in keys {
            let _place = self.place().await.map_err(as_unsure)?;
            let delete = self.client.delete_item().table_name(&self.address.table);
            let delete = delete.set_key(Some(key));
            let done = call(&self.time, |trace| delete.customize().interceptor(trace).send()).await;
            done.map_err(|failed| as_unsure(failed.fault()))?;
        }
        Ok(())
    }
}

/// An outcome that is not there any more: a retry gets 410.
pub(super) fn gone() -> Bytes {
    let body = Kept::No(NotKept::Refused);
    let response = Response { status: StatusCode::GONE, headers: HeaderMap::new(), body };
    codec::encode_outcome(SettledBy::Owner, &response).into()
}

fn as_unsure(fault: Fault) -> Fault {
    match fault {
        Fault::NotDone(error) | Fault::Unsure(error) => Fault::Unsure(error),
    }
}

/// Parts of an answer that are written or read at once.
const PARTS_AT_ONCE: usize = 4;
/// How much longer than its record a part stays.
const PART_SLACK_S: i64 = 24 * 3600;
