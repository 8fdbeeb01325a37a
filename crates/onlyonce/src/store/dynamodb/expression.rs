//! The conditions and updates of the calls: what [`cas`](crate::store::cas) says of a guard and a write, in
//! DynamoDB's words.

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{Answer, FORMAT, number, seconds, text, token};
use super::names::{EXPIRES, Names, SHARD};
use crate::clock::StoreTime;
use crate::record::{StateKind, Token};
use crate::scope::OperationId;
use crate::store::{Guard, Next};

/// An expression, and the values that it names.
#[derive(Debug, Default)]
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) values: Vec<(String, AttributeValue)>,
}

impl Expression {
    fn value(&mut self, name: &str, value: AttributeValue) {
        self.values.push((format!(":{name}"), value));
    }
}

/// What must be true of the item that is there. The state that `to` makes is left out of an owner's states: a record that
/// has it may already be what this write makes it, and is looked at first. `None` if no state is left.
pub(super) fn guarded(guard: &Guard, to: &Next) -> Option<Expression> {
    let mut condition = Expression::default();
    condition.value("v", number(FORMAT));
    match guard {
        Guard::Owner { token: owner, states } => {
            let kinds = StateKind::ALL.into_iter().filter(|kind| states.contains(*kind));
            let kinds: Vec<_> = kinds.filter(|kind| Some(*kind) != state_after(to)).collect();
            if kinds.is_empty() {
                return None;
            }
            let names: Vec<_> = kinds.iter().map(|kind| format!(":{}", kind.name())).collect();
            condition.text = format!("v = :v AND tok = :tok AND st IN ({})", names.join(", "));
            condition.value("tok", token(*owner));
            for kind in kinds {
                condition.value(kind.name(), text(kind.name()));
            }
        }
        Guard::Unchanged(revision) => {
            condition.text = "v = :v AND tok = :tok AND cnt = :cnt".to_owned();
            condition.value("tok", token(revision.token));
            condition.value("cnt", number(revision.count));
        }
    }
    Some(condition)
}

/// Running, with this token.
pub(super) fn owned(owner: Token) -> Expression {
    let mut condition = Expression::default();
    condition.text = "v = :v AND tok = :tok AND st = :running".to_owned();
    condition.value("v", number(FORMAT));
    condition.value("tok", token(owner));
    condition.value("running", text(StateKind::Running.name()));
    condition
}

const fn state_after(to: &Next) -> Option<StateKind> {
    match to {
        Next::Absent => None,
        Next::Running(_) => Some(StateKind::Running),
        Next::Unknown { .. } => Some(StateKind::Unknown),
        Next::Released { .. } => Some(StateKind::Released),
        Next::Completed { .. } | Next::Replaced(_) => Some(StateKind::Completed),
    }
}

/// A lease that runs anew. It changes nothing that the index has.
pub(super) fn renewed(lease_until: StoreTime) -> Expression {
    let mut update = Expression::default();
    update.text = "SET at_ms = :until, cnt = cnt + :one".to_owned();
    update.value("until", number(lease_until.as_ms()));
    update.value("one", number(1));
    update
}

/// The record is unknown since `since`.
pub(super) fn unknown(names: &Names, id: OperationId, since: StoreTime) -> Expression {
    let mut update = Expression::default();
    update.text = format!(
        "SET st = :to, at_ms = :at, cnt = cnt + :one, {SHARD} = :shard REMOVE {EXPIRES}, answer, answer_in"
    );
    update.value("to", text(StateKind::Unknown.name()));
    update.value("at", number(since.as_ms()));
    update.value("one", number(1));
    update.value("shard", text(names.shard_of(id)));
    update
}

/// The record is released until `expires_at`, or for its time to live.
pub(super) fn released(expires_at: Option<StoreTime>, now: StoreTime) -> Expression {
    let mut update = Expression::default();
    let kept = kept_until(&mut update, expires_at, now);
    update.text =
        format!("SET st = :to, {kept}, cnt = cnt + :one REMOVE {SHARD}, answer, answer_in");
    update.value("to", text(StateKind::Released.name()));
    update.value("one", number(1));
    update
}

/// The record is completed for its time to live, under its token or a new one.
pub(super) fn completed(answer: Answer, new_token: Option<Token>, now: StoreTime) -> Expression {
    let mut update = Expression::default();
    let kept = kept_until(&mut update, None, now);
    let revision = match new_token {
        Some(_) => "tok = :new, cnt = :one",
        None => "cnt = cnt + :one",
    };
    let (attribute, other) = (answer.attribute(), answer.other_attribute());
    update.text =
        format!("SET st = :to, {kept}, {revision}, {attribute} = :answer REMOVE {SHARD}, {other}");
    update.value("to", text(StateKind::Completed.name()));
    update.value("one", number(1));
    update.value("answer", answer.value());
    if let Some(new) = new_token {
        update.value("new", token(new));
    }
    update
}

/// The moments until which a record is kept: for the engine in milliseconds, for DynamoDB's own time to live in seconds.
/// Its time to live is known to the item alone.
fn kept_until(update: &mut Expression, at: Option<StoreTime>, now: StoreTime) -> String {
    match at {
        Some(at) => {
            update.value("at", number(at.as_ms()));
            update.value("at_s", number(seconds(at.as_ms())));
            format!("at_ms = :at, {EXPIRES} = :at_s")
        }
        None => {
            update.value("now", number(now.as_ms()));
            update.value("now_s", number(now.as_ms() / 1000));
            format!("at_ms = :now + ttl_ms, {EXPIRES} = :now_s + keep_s")
        }
    }
}
