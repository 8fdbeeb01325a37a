//! The drafts and writes that the cases are made of.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::clock::StoreTime;
use crate::fingerprint::Fingerprint;
use crate::record::{
    Kept, KeyText, NotKept, Record, Response, SettledBy, State, StateKind, StateSet, TakenFrom,
    Token,
};
use crate::scope::{OperationId, Principal};
use crate::store::{Draft, Guard, Lease, Next, Takeover};

/// One compare-and-swap.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) id: OperationId,
    pub(super) guard: Guard,
    pub(super) to: Next,
}

/// What the owner of a draft writes.
impl Write {
    pub(super) fn by_owner(draft: &Draft, states: &[StateKind], to: Next) -> Self {
        let guard = Guard::Owner { token: draft.token, states: StateSet::of(states) };
        let id = draft.id;
        Self { id, guard, to }
    }

    pub(super) fn settle(draft: &Draft) -> Self {
        Self::settle_with(draft, response("first"))
    }

    pub(super) fn settle_with(draft: &Draft, response: Arc<Response>) -> Self {
        Self::by_owner(draft, &SETTLES_FROM, completed(response))
    }

    pub(super) fn release(draft: &Draft) -> Self {
        Self::by_owner(draft, &RELEASES_FROM, Next::Absent)
    }

    pub(super) fn mark_unknown(draft: &Draft) -> Self {
        Self::by_owner(draft, &[StateKind::Running], Next::Unknown { since: None })
    }

    pub(super) fn return_to_unknown(draft: &Draft, since: StoreTime) -> Self {
        let since = Some(since);
        Self::by_owner(draft, &RELEASES_FROM, Next::Unknown { since })
    }

    pub(super) fn return_to_released(draft: &Draft, expires_at: StoreTime) -> Self {
        let expires_at = Some(expires_at);
        Self::by_owner(draft, &RELEASES_FROM, Next::Released { expires_at })
    }

    /// The release at once of a route that says so; tests need it to make released records.
    pub(super) fn vouch(draft: &Draft) -> Self {
        let to = Next::Released { expires_at: None };
        Self::by_owner(draft, &RELEASES_FROM, to)
    }
}

/// What anyone else writes who read `record` under `id`.
impl Write {
    pub(super) fn by_other(id: OperationId, record: &Record, to: Next) -> Self {
        let guard = Guard::Unchanged(record.revision());
        Self { id, guard, to }
    }

    pub(super) fn reap(id: OperationId, record: &Record) -> Self {
        Self::by_other(id, record, Next::Unknown { since: None })
    }

    pub(super) fn free(id: OperationId, record: &Record) -> Self {
        Self::by_other(id, record, Next::Released { expires_at: None })
    }

    pub(super) fn delete(id: OperationId, record: &Record) -> Self {
        Self::by_other(id, record, Next::Absent)
    }

    pub(super) fn decree(id: OperationId, record: &Record, by: Token) -> Self {
        let to = Next::Completed {
            settled_by: SettledBy::Operator,
            response: response("decreed"),
            token: Some(by),
        };
        Self::by_other(id, record, to)
    }

    /// The same completed record without its answer and its key, as `by` writes it.
    pub(super) fn erase(id: OperationId, record: &Record, by: Token) -> Self {
        let mut erased = Record { token: by, count: 1, key: KeyText::erased(), ..record.clone() };
        if let State::Completed { response, .. } = &mut erased.state {
            *response = Arc::new(response.without_body(NotKept::Erased));
        }
        Self::by_other(id, record, Next::Replaced(Box::new(erased)))
    }

    /// The next attempt, of what `record` is.
    pub(super) fn take(draft: &Draft, record: &Record) -> Self {
        let attempt = Takeover {
            draft: draft.clone(),
            attempt: record.attempt + 1,
            taken_from: taken_from(&record.state),
            first_claimed_at: Some(record.first_claimed_at),
        };
        Self::by_other(draft.id, record, Next::Running(Box::new(attempt)))
    }
}

fn taken_from(state: &State) -> Option<TakenFrom> {
    match *state {
        State::Unknown { since } => Some(TakenFrom::Unknown { since }),
        State::Released { expires_at } => Some(TakenFrom::Released { expires_at }),
        State::Running { .. } | State::Completed { .. } => None,
    }
}

/// The claim of operation `number` by its first owner.
pub(super) fn draft(number: u8) -> Draft {
    Draft {
        id: id(number),
        token: token(number),
        key: KeyText::new(format!("order \"{number}\" / 100%")),
        fingerprint: Fingerprint { version: 255, canonical: [number; 32], raw: [!number; 32] },
        principal: Principal::from_bytes([number ^ 0x55; 32]),
        route: format!("POST /orders/{{id}}/é{number}").into(),
        target: format!("api.test/orders/{number}").into(),
        lease: Lease::new(LEASE),
        quiet_ms: 60_000,
        ttl_ms: 86_400_000,
        not_after: StoreTime::MAX,
    }
}

/// The claim of the same operation by the owner of `token(by)`.
pub(super) fn rival(draft: &Draft, by: u8) -> Draft {
    let token = token(by);
    Draft { token, ..draft.clone() }
}

/// The claim of operation `number` that expires as soon as it is completed and [`BRIEF`] have passed.
pub(super) fn brief(number: u8) -> Draft {
    let ttl_ms = 1;
    Draft { ttl_ms, ..draft(number) }
}

/// Ids all over the range, the first and the last of it included.
pub(super) fn id(number: u8) -> OperationId {
    let spread = match number {
        FIRST => 0,
        LAST => u128::MAX,
        _ => u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835),
    };
    OperationId::from_bytes(spread.to_be_bytes())
}

pub(super) const fn token(number: u8) -> Token {
    let mut bytes = [0xc0; 16];
    bytes[15] = number;
    Token::from_bytes(bytes)
}

pub(super) fn response(text: &'static str) -> Arc<Response> {
    let mut headers = HeaderMap::new();
    headers.insert("location", http::HeaderValue::from_static("/orders/1"));
    Arc::new(Response {
        status: StatusCode::CREATED,
        headers,
        body: Kept::Bytes { body: text.into(), trailers: None },
    })
}

pub(super) fn completed(response: Arc<Response>) -> Next {
    Next::Completed { settled_by: SettledBy::Owner, response, token: None }
}

/// The number of the lowest id.
pub(super) const FIRST: u8 = 0;
/// The number of the highest id.
pub(super) const LAST: u8 = u8::MAX;
/// A lease that no case outlives.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// After so long a [`brief`] record has expired.
pub(super) const BRIEF: Duration = Duration::from_millis(10);
pub(super) const SETTLES_FROM: [StateKind; 3] =
    [StateKind::Running, StateKind::Unknown, StateKind::Released];
pub(super) const RELEASES_FROM: [StateKind; 2] = [StateKind::Running, StateKind::Unknown];
/// Long enough to claim in, short enough to wait for.
pub(super) const SOON_MS: i64 = 300;
