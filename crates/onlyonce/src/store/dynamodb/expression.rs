//! The conditions and updates of the calls: what [`cas`](crate::store::cas) says of a guard and a write, in
//! DynamoDB's words.

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{Answer, FORMAT, Item, number, seconds, text, token};
use super::names::{EXPIRES, Names, SHARD};
use crate::clock::StoreTime;
use crate::record::{Revision, StateKind, Token};
use crate::scope::OperationId;
use crate::store::{Guard, Next};

/// An expression, and the values that it names.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) values: Vec<(String, AttributeValue)>,
}

impl Expression {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), values: Vec::new() }
    }

    /// The same, with this value under `:name`.
    pub(super) fn with(mut self, name: &str, value: AttributeValue) -> Self {
        self.values.push((format!(":{name}"), value));
        self
    }

    /// The same, and this.
    pub(super) fn and(self, text: &str) -> Self {
        let and = if self.text.is_empty() { "" } else { " AND " };
        Self { text: format!("{}{and}{text}", self.text), ..self }
    }

    /// The same, with a value under the name of each of these states; and the names.
    pub(super) fn with_states(self, states: &[StateKind]) -> (Self, String) {
        let names: Vec<_> = states.iter().map(|kind| format!(":{}", kind.name())).collect();
        let with = |all: Self, kind: &StateKind| all.with(kind.name(), text(kind.name()));
        (states.iter().fold(self, with), names.join(", "))
    }
}

/// There is no item.
pub(super) fn absent() -> Expression {
    Expression::new("attribute_not_exists(pk)")
}

/// What must be true of the item that is there. The state that `to` makes is left out of an owner's states: a record that
/// has it may already be what this write makes it, and is looked at first. `None` if no state is left.
pub(super) fn guarded(guard: &Guard, to: &Next) -> Option<Expression> {
    match guard {
        Guard::Unchanged(revision) => {
            Some(unchanged(token(revision.token), number(revision.count)))
        }
        Guard::Owner { token: owner, states } => {
            let kinds = StateKind::ALL.into_iter().filter(|kind| states.contains(*kind));
            let kinds: Vec<_> = kinds.filter(|kind| Some(*kind) != state_after(to)).collect();
            let (condition, names) = of_owner(*owner).with_states(&kinds);
            let text = format!("{} AND st IN ({names})", condition.text);
            (!kinds.is_empty()).then_some(Expression { text, ..condition })
        }
    }
}

/// There is no item, or an earlier copy of this record.
pub(super) fn absent_or(revision: Revision) -> Expression {
    let copy = unchanged(token(revision.token), number(revision.count));
    Expression { text: format!("attribute_not_exists(pk) OR ({})", copy.text), ..copy }
}

/// Exactly as it was read.
pub(super) fn unchanged(token: AttributeValue, count: AttributeValue) -> Expression {
    let condition = Expression::new("v = :v AND tok = :tok AND cnt = :cnt");
    condition.with("v", number(FORMAT)).with("tok", token).with("cnt", count)
}

/// Exactly as this item was read; `None` if it says nothing of its revision.
pub(super) fn as_read(item: &Item) -> Option<Expression> {
    Some(unchanged(item.get("tok")?.clone(), item.get("cnt")?.clone()))
}

/// Running, with this token.
pub(super) fn owned(owner: Token) -> Expression {
    let (condition, name) = of_owner(owner).with_states(&[StateKind::Running]);
    Expression { text: format!("{} AND st = {name}", condition.text), ..condition }
}

fn of_owner(owner: Token) -> Expression {
    let condition = Expression::new("v = :v AND tok = :tok");
    condition.with("v", number(FORMAT)).with("tok", token(owner))
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
    let update = Expression::new("SET at_ms = :until, cnt = cnt + :one");
    update.with("until", number(lease_until.as_ms())).with("one", number(1))
}

/// The record is unknown since `since`.
pub(super) fn unknown(names: &Names, id: OperationId, since: StoreTime) -> Expression {
    Expression::new(format!(
        "SET st = :to, at_ms = :at, cnt = cnt + :one, {SHARD} = :shard REMOVE {EXPIRES}, answer, answer_in"
    ))
    .with("to", text(StateKind::Unknown.name()))
    .with("at", number(since.as_ms()))
    .with("one", number(1))
    .with("shard", text(names.shard_of(id)))
}

/// The record is released until `expires_at`, or for its time to live.
pub(super) fn released(expires_at: Option<StoreTime>, now: StoreTime) -> Expression {
    let kept = kept_until(expires_at, now);
    let written =
        format!("SET st = :to, {}, cnt = cnt + :one REMOVE {SHARD}, answer, answer_in", kept.text);
    let update = Expression { text: written, ..kept };
    update.with("to", text(StateKind::Released.name())).with("one", number(1))
}

/// The record is completed for its time to live, under its token or a new one.
pub(super) fn completed(answer: Answer, new_token: Option<Token>, now: StoreTime) -> Expression {
    let kept = kept_until(None, now);
    let revision = match new_token {
        Some(_) => "tok = :new, cnt = :one",
        None => "cnt = cnt + :one",
    };
    let (attribute, other) = (answer.attribute(), answer.other_attribute());
    let written = format!(
        "SET st = :to, {}, {revision}, {attribute} = :answer REMOVE {SHARD}, {other}",
        kept.text
    );
    let update = Expression { text: written, ..kept }
        .with("to", text(StateKind::Completed.name()))
        .with("one", number(1))
        .with("answer", answer.value());
    match new_token {
        Some(new) => update.with("new", token(new)),
        None => update,
    }
}

/// The record is kept for its time to live from `now` on. That is a change: whoever has judged it by its old time must not
/// write over it.
pub(super) fn kept(now: StoreTime) -> Expression {
    let kept = kept_until(None, now);
    Expression { text: format!("SET {}, cnt = cnt + :one", kept.text), ..kept }
        .with("one", number(1))
}

/// The moments until which a record is kept: for the engine in milliseconds, for DynamoDB's own time to live in seconds.
/// Its time to live is known to the item alone.
fn kept_until(at: Option<StoreTime>, now: StoreTime) -> Expression {
    match at {
        Some(at) => Expression::new(format!("at_ms = :at, {EXPIRES} = :at_s"))
            .with("at", number(at.as_ms()))
            .with("at_s", number(seconds(at.as_ms()))),
        None => Expression::new(format!("at_ms = :now + ttl_ms, {EXPIRES} = :now_s + keep_s"))
            .with("now", number(now.as_ms()))
            .with("now_s", number(now.as_ms() / 1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_replaces_nothing_but_an_earlier_copy_of_the_same_record() {
        let condition = absent_or(Revision { token: Token::from_bytes([7; 16]), count: 3 });
        let copy = "v = :v AND tok = :tok AND cnt = :cnt";
        assert_eq!(condition.text, format!("attribute_not_exists(pk) OR ({copy})"));
        let names: Vec<_> = condition.values.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [":v", ":tok", ":cnt"]);
    }
}
