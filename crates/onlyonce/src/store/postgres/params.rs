//! The parameters of the writers' statements: a column for each field, a value for each member.

use tokio_postgres::types::ToSql;

use super::job::{Task, open_states};
use super::round::{Member, Put, Step};
use super::row::{body_column, state_columns, taken_columns};
use super::value::{Uuid, Values};
use crate::record::{Response, Revision, Token, codec};
use crate::scope::OperationId;
use crate::store::{Draft, Guard, Next};

/// Parameters as a statement takes them.
pub(super) type Params<'a> = Vec<&'a (dyn ToSql + Sync)>;

/// What this node knows of the time: the first two parameters of every statement.
pub(super) type Known = (i64, i64);

pub(super) struct Loads {
    known: Known,
    ids: Values<Uuid>,
}

impl Loads {
    pub(super) fn new(known: Known, ids: impl Iterator<Item = OperationId>) -> Self {
        Self { known, ids: Values(ids.map(|id| uuid(&id)).collect()) }
    }

    pub(super) fn params(&self) -> Params<'_> {
        vec![&self.known.0, &self.known.1, &self.ids]
    }
}

pub(super) struct Claims<'a> {
    known: Known,
    ids: Values<Uuid>,
    tokens: Values<Uuid>,
    keys: Values<&'a str>,
    versions: Values<i16>,
    canonicals: Values<&'a [u8]>,
    raws: Values<&'a [u8]>,
    principals: Values<&'a [u8]>,
    routes: Values<&'a str>,
    numbers: [Values<i64>; 4],
    targets: Values<&'a str>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(known: Known, members: impl Iterator<Item = &'a Member>) -> Self {
        let drafts: Vec<&'a Draft> = members.filter_map(draft).collect();
        let number = |of: fn(&Draft) -> i64| Values::of(&drafts, |draft| of(draft));
        Self {
            known,
            ids: Values::of(&drafts, |draft| uuid(&draft.id)),
            tokens: Values::of(&drafts, |draft| Uuid(*draft.token.as_bytes())),
            keys: Values::of(&drafts, |draft| draft.key.as_str()),
            versions: Values::of(&drafts, |draft| draft.fingerprint.version.into()),
            canonicals: Values::of(&drafts, |draft| &draft.fingerprint.canonical[..]),
            raws: Values::of(&drafts, |draft| &draft.fingerprint.raw[..]),
            principals: Values::of(&drafts, |draft| &draft.principal.as_bytes()[..]),
            routes: Values::of(&drafts, |draft| &*draft.route),
            numbers: [
                number(|draft| draft.lease.as_ms()),
                number(|draft| draft.quiet_ms),
                number(|draft| draft.ttl_ms),
                number(|draft| draft.not_after.as_ms()),
            ],
            targets: Values::of(&drafts, |draft| &*draft.target),
        }
    }

    pub(super) fn params(&self) -> Params<'_> {
        let [lease, quiet, ttl, not_after] = &self.numbers;
        vec![
            &self.known.0,
            &self.known.1,
            &self.ids,
            &self.tokens,
            &self.keys,
            &self.versions,
            &self.canonicals,
            &self.raws,
            &self.principals,
            &self.routes,
            lease,
            quiet,
            ttl,
            not_after,
            &self.targets,
        ]
    }
}

fn draft(member: &Member) -> Option<&Draft> {
    match &member.job.task {
        Task::Claim(draft, _) => Some(draft),
        Task::Swap(..) => None,
    }
}

/// The guards of many writes.
struct Guards {
    ids: Values<Uuid>,
    tokens: Values<Uuid>,
    states: Values<i32>,
    counts: Values<i64>,
}

impl Guards {
    fn new(swaps: &[(OperationId, &Guard)]) -> Self {
        let parts = |guard: &Guard| match guard {
            Guard::Owner { token, states } => (*token, open_states(*states), 0),
            Guard::Unchanged(Revision { token, count }) => (*token, 0, count.cast_signed()),
        };
        Self {
            ids: Values::of(swaps, |(id, _)| uuid(id)),
            tokens: Values::of(swaps, |(_, guard)| token(parts(guard).0)),
            states: Values::of(swaps, |(_, guard)| parts(guard).1),
            counts: Values::of(swaps, |(_, guard)| parts(guard).2),
        }
    }
}

pub(super) struct Completions<'a> {
    known: Known,
    guards: Guards,
    settled_by: Values<i16>,
    heads: Values<Vec<u8>>,
    bodies: Values<Option<&'a [u8]>>,
    tokens: Values<Option<Uuid>>,
}

impl<'a> Completions<'a> {
    pub(super) fn new(known: Known, members: impl Iterator<Item = &'a Member>) -> Self {
        let swaps: Vec<_> = members.filter_map(completion).collect();
        let guards: Vec<_> = swaps.iter().map(|swap| (swap.id, swap.guard)).collect();
        Self {
            known,
            guards: Guards::new(&guards),
            settled_by: Values::of(&swaps, |swap| swap.settled_by),
            heads: Values::of(&swaps, |swap| codec::encode_head(swap.response)),
            bodies: Values::of(&swaps, |swap| body_column(swap.response)),
            tokens: Values::of(&swaps, |swap| swap.token.map(token)),
        }
    }

    pub(super) fn params(&self) -> Params<'_> {
        let Guards { ids, tokens, states, counts } = &self.guards;
        vec![
            &self.known.0,
            &self.known.1,
            ids,
            tokens,
            states,
            counts,
            &self.settled_by,
            &self.heads,
            &self.bodies,
            &self.tokens,
        ]
    }
}

struct Completion<'a> {
    id: OperationId,
    guard: &'a Guard,
    settled_by: i16,
    response: &'a Response,
    token: Option<Token>,
}

fn completion(member: &Member) -> Option<Completion<'_>> {
    let Task::Swap(swap, _) = &member.job.task else {
        return None;
    };
    let Next::Completed { settled_by, response, token } = &swap.to else {
        return None;
    };
    let settled_by = codec::settled_by_tag(*settled_by).into();
    Some(Completion { id: swap.id, guard: &swap.guard, settled_by, response, token: *token })
}

pub(super) struct Deletions {
    known: Known,
    guards: Guards,
}

impl Deletions {
    pub(super) fn new<'a>(known: Known, members: impl Iterator<Item = &'a Member>) -> Self {
        let guards = members.filter_map(|member| match &member.step {
            Step::Delete(guard) => Some((member.id(), guard)),
            _ => None,
        });
        Self { known, guards: Guards::new(&guards.collect::<Vec<_>>()) }
    }

    pub(super) fn params(&self) -> Params<'_> {
        let Guards { ids, tokens, states, counts } = &self.guards;
        vec![&self.known.0, &self.known.1, ids, tokens, states, counts]
    }
}

pub(super) struct Puts<'a> {
    known: Known,
    uuids: [Values<Uuid>; 3],
    numbers: [Values<i64>; 7],
    attempts: Values<i32>,
    small: [Values<Option<i16>>; 4],
    moments: [Values<Option<i64>>; 4],
    texts: [Values<&'a str>; 3],
    digests: [Values<&'a [u8]>; 3],
    heads: Values<Option<Vec<u8>>>,
    bodies: Values<Option<&'a [u8]>>,
}

impl<'a> Puts<'a> {
    pub(super) fn new(known: Known, members: impl Iterator<Item = &'a Member>) -> Self {
        Self::of(known, &members.filter_map(put).collect::<Vec<_>>())
    }

    pub(super) fn of(known: Known, puts: &[(OperationId, &'a Put)]) -> Self {
        let number = |of: fn(&Put) -> i64| Values::of(puts, |(_, put)| of(put));
        let small = |of: fn(&Put) -> Option<i16>| Values::of(puts, |(_, put)| of(put));
        let moment = |of: fn(&Put) -> Option<i64>| Values::of(puts, |(_, put)| of(put));
        let digest = |of: fn(&'a Put) -> &'a [u8]| Values::of(puts, |(_, put)| of(put));
        Self {
            known,
            uuids: [
                Values::of(puts, |(id, _)| uuid(id)),
                Values::of(puts, |(_, put)| token(put.from.token)),
                Values::of(puts, |(_, put)| token(put.record.token)),
            ],
            numbers: [
                number(|put| put.from.count.cast_signed()),
                number(|put| put.not_after.as_ms()),
                number(|put| put.record.count.cast_signed()),
                number(|put| put.record.first_claimed_at.as_ms()),
                number(|put| put.record.lease_ms),
                number(|put| put.record.quiet_ms),
                number(|put| put.record.ttl_ms),
            ],
            attempts: Values::of(puts, |(_, put)| put.record.attempt.cast_signed()),
            small: [
                small(|put| Some(state_columns(&put.record.state).0)),
                small(|put| taken_columns(put.record.taken_from).0),
                small(|put| Some(put.record.fingerprint.version.into())),
                small(settled_by),
            ],
            moments: [
                moment(|put| taken_columns(put.record.taken_from).1),
                moment(|put| state_columns(&put.record.state).1[0]),
                moment(|put| state_columns(&put.record.state).1[1]),
                moment(|put| state_columns(&put.record.state).1[2]),
            ],
            texts: [
                Values::of(puts, |(_, put)| put.record.key.as_str()),
                Values::of(puts, |(_, put)| &*put.record.route),
                Values::of(puts, |(_, put)| &*put.record.target),
            ],
            digests: [
                digest(|put| &put.record.fingerprint.canonical),
                digest(|put| &put.record.fingerprint.raw),
                digest(|put| put.record.principal.as_bytes()),
            ],
            heads: Values::of(puts, |(_, put)| {
                put.record.response().map(|it| codec::encode_head(it))
            }),
            bodies: Values::of(puts, |(_, put)| {
                put.record.response().and_then(|it| body_column(it))
            }),
        }
    }

    pub(super) fn params(&self) -> Params<'_> {
        let [ids, from_tokens, tokens] = &self.uuids;
        let [from_counts, not_after, counts, first_claimed_at, lease_ms, quiet_ms, ttl_ms] =
            &self.numbers;
        let [states, taken_from, versions, settled_by] = &self.small;
        let [taken_at, lease_until, unknown_since, expires_at] = &self.moments;
        let [keys, routes, targets] = &self.texts;
        let [canonicals, raws, principals] = &self.digests;
        vec![
            &self.known.0,
            &self.known.1,
            ids,
            from_tokens,
            from_counts,
            not_after,
            tokens,
            counts,
            &self.attempts,
            states,
            taken_from,
            taken_at,
            keys,
            versions,
            canonicals,
            raws,
            principals,
            routes,
            first_claimed_at,
            lease_ms,
            quiet_ms,
            ttl_ms,
            lease_until,
            unknown_since,
            expires_at,
            settled_by,
            &self.heads,
            &self.bodies,
            targets,
        ]
    }

    /// The records alone: neither the time nor what stood there before.
    pub(super) fn records(&self) -> Params<'_> {
        let mut params = self.params();
        params.drain(3..6);
        params.drain(..2);
        params
    }
}

fn put(member: &Member) -> Option<(OperationId, &Put)> {
    match &member.step {
        Step::Put(put) => Some((member.id(), put)),
        _ => None,
    }
}

fn settled_by(put: &Put) -> Option<i16> {
    match &put.record.state {
        crate::record::State::Completed { settled_by, .. } => {
            Some(codec::settled_by_tag(*settled_by).into())
        }
        _ => None,
    }
}

pub(super) fn uuid(id: &OperationId) -> Uuid {
    Uuid(*id.as_bytes())
}

pub(super) fn token(token: Token) -> Uuid {
    Uuid(*token.as_bytes())
}
