//! The columns of the table `record`, named once: statements, parameters and readings are made from this list.

use bytes::Bytes;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::value::Moment;
use crate::clock::StoreTime;
use crate::fingerprint::Fingerprint;
use crate::record::{
    KeyText, Record, Response, SettledBy, State, StateSet, TakenFrom, Token, codec,
};
use crate::scope::{OperationId, Principal};
use crate::store::{BoxError, StoreError};

/// Makes [`Row`]. Of each column: its name, its type here, its type in Postgres.
macro_rules! columns {
    (table { $($name:ident: $rust:ty, $sql:literal;)+ } beside { $($extra:ident: $extra_rust:ty, $extra_sql:literal;)+ }) => {
        /// A row of the table, and what a statement may be given beside it.
        #[derive(Clone, Default)]
        pub(super) struct Row<'a> {
            $(pub(super) $name: $rust,)+
            $(pub(super) $extra: $extra_rust,)+
        }

        impl<'a> Row<'a> {
            /// The columns of the table.
            pub(super) const NAMES: &'static [&'static str] = &[$(stringify!($name),)+];

            /// The type of a column in Postgres.
            pub(super) fn sql_type(column: &str) -> &'static str {
                match column {
                    $(stringify!($name) => $sql,)+
                    $(stringify!($extra) => $extra_sql,)+
                    _ => unreachable!("statements name columns that there are"),
                }
            }

            /// The parameter for a column: an array with the value of each row.
            pub(super) fn array(column: &str, rows: &[Self]) -> Param<'a> {
                match column {
                    $(stringify!($name) => array(rows.iter().map(|row| row.$name.clone())),)+
                    $(stringify!($extra) => array(rows.iter().map(|row| row.$extra)),)+
                    _ => unreachable!("statements name columns that there are"),
                }
            }

            /// Reads the columns of the table by their names.
            fn read(row: &'a tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
                Ok(Self { $($name: row.try_get(stringify!($name))?,)+ ..Self::default() })
            }
        }
    };
}

/// A parameter of a statement.
pub(super) type Param<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// Parameters as the client takes them.
pub(super) fn given<'a>(params: &'a [Param<'_>]) -> impl Iterator<Item = &'a (dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as _)
}

pub(super) fn array<'a, T: ToSql + Sync + Send + 'a>(values: impl Iterator<Item = T>) -> Param<'a> {
    Box::new(values.collect::<Vec<_>>())
}

columns! {
    table {
        id: Uuid, "uuid";
        token: Uuid, "uuid";
        count: i64, "bigint";
        attempt: i32, "integer";
        state: i16, "smallint";
        taken_from: Option<i16>, "smallint";
        taken_at: Option<Moment>, "timestamptz";
        key: &'a str, "text";
        fingerprint_version: i16, "smallint";
        fingerprint_canonical: &'a [u8], "bytea";
        fingerprint_raw: &'a [u8], "bytea";
        principal: &'a [u8], "bytea";
        route: &'a str, "text";
        target: &'a str, "text";
        first_claimed_at: Moment, "timestamptz";
        lease_ms: i64, "bigint";
        quiet_ms: i64, "bigint";
        ttl_ms: i64, "bigint";
        lease_until: Option<Moment>, "timestamptz";
        unknown_since: Option<Moment>, "timestamptz";
        expires_at: Option<Moment>, "timestamptz";
        settled_by: Option<i16>, "smallint";
        head: Option<Vec<u8>>, "bytea";
        body: Option<&'a [u8]>, "bytea";
        format: i16, "smallint";
    }
    // What must be true of the row that is there: of `old_states`, bit n is set if state n is allowed.
    beside {
        old_token: Uuid, "uuid";
        old_count: i64, "bigint";
        old_states: i32, "integer";
        not_after: Moment, "timestamptz";
    }
}

impl<'a> Row<'a> {
    /// Only an id, for statements that need no more.
    pub(super) fn of_id(id: OperationId) -> Self {
        Self { id: Uuid::from_bytes(*id.as_bytes()), ..Self::default() }
    }

    pub(super) fn of_record(id: OperationId, record: &'a Record) -> Self {
        let at = |moment: StoreTime| Some(Moment(moment));
        let (state, lease_until, unknown_since, expires_at) = match record.state {
            State::Running { lease_until } => (RUNNING, at(lease_until), None, None),
            State::Unknown { since } => (UNKNOWN, None, at(since), None),
            State::Released { expires_at } => (RELEASED, None, None, at(expires_at)),
            State::Completed { expires_at, .. } => (COMPLETED, None, None, at(expires_at)),
        };
        let (taken_from, taken_at) = match record.taken_from {
            None => (None, None),
            Some(TakenFrom::Unknown { since }) => (Some(UNKNOWN), at(since)),
            Some(TakenFrom::Released { expires_at }) => (Some(RELEASED), at(expires_at)),
        };
        let row = Self {
            token: uuid(record.token),
            count: record.count.cast_signed(),
            attempt: record.attempt.cast_signed(),
            state,
            taken_from,
            taken_at,
            key: record.key.as_str(),
            fingerprint_version: record.fingerprint.version.into(),
            fingerprint_canonical: &record.fingerprint.canonical,
            fingerprint_raw: &record.fingerprint.raw,
            principal: record.principal.as_bytes(),
            route: &record.route,
            target: &record.target,
            first_claimed_at: Moment(record.first_claimed_at),
            lease_ms: record.lease_ms,
            quiet_ms: record.quiet_ms,
            ttl_ms: record.ttl_ms,
            lease_until,
            unknown_since,
            expires_at,
            format: FORMAT,
            ..Self::of_id(id)
        };
        match &record.state {
            State::Completed { settled_by, response, .. } => {
                row.with_response(*settled_by, response)
            }
            _ => row,
        }
    }

    /// The columns of a response.
    pub(super) fn with_response(self, settled_by: SettledBy, response: &'a Response) -> Self {
        let body = response.body.stored().map(|body| &body[..]);
        let (settled_by, head) = (codec::settled_by_tag(settled_by), codec::encode_head(response));
        Self { settled_by: Some(settled_by.into()), head: Some(head), body, ..self }
    }
}

/// The states of an owner's guard by their numbers, but for the completed one.
pub(super) fn open_states(states: StateSet) -> i32 {
    i32::from(states.open_bits()) << RUNNING
}

/// The record in a row of the table. A row that does not read is an error for its id, never absent.
pub(super) fn record(row: &tokio_postgres::Row) -> Result<Record, StoreError> {
    Row::read(row).map_err(Into::into).and_then(Row::into_record).map_err(StoreError::Unreadable)
}

impl Row<'_> {
    fn into_record(self) -> Result<Record, BoxError> {
        if self.format != FORMAT {
            return Err(
                format!("its format is {}, and this build reads {FORMAT}", self.format).into()
            );
        }
        let attempt = u32::try_from(self.attempt)?;
        if attempt == 0 || self.count < 1 {
            return Err("its attempt or its count is below 1".into());
        }
        Ok(Record {
            token: Token::from_bytes(self.token.into_bytes()),
            count: self.count.cast_unsigned(),
            attempt,
            state: self.read_state()?,
            taken_from: self.read_origin()?,
            key: KeyText::new(self.key),
            fingerprint: Fingerprint {
                version: u8::try_from(self.fingerprint_version)?,
                canonical: self.fingerprint_canonical.try_into()?,
                raw: self.fingerprint_raw.try_into()?,
            },
            principal: Principal::from_bytes(self.principal.try_into()?),
            route: self.route.into(),
            target: self.target.into(),
            first_claimed_at: self.first_claimed_at.0,
            lease_ms: self.lease_ms,
            quiet_ms: self.quiet_ms,
            ttl_ms: self.ttl_ms,
        })
    }

    fn read_state(&self) -> Result<State, BoxError> {
        match self.state {
            RUNNING => Ok(State::Running { lease_until: present(self.lease_until)? }),
            UNKNOWN => Ok(State::Unknown { since: present(self.unknown_since)? }),
            RELEASED => Ok(State::Released { expires_at: present(self.expires_at)? }),
            COMPLETED => {
                let body = self.body.map_or_else(Bytes::new, Bytes::copy_from_slice);
                let head = self.head.as_deref().ok_or("it has no response")?;
                let settled_by = self.settled_by.ok_or("nobody settled it")?;
                Ok(State::Completed {
                    expires_at: present(self.expires_at)?,
                    settled_by: codec::settled_by(u8::try_from(settled_by)?)?,
                    response: codec::decode_head(head, body)?.into(),
                })
            }
            state => Err(format!("its state is {state}").into()),
        }
    }

    fn read_origin(&self) -> Result<Option<TakenFrom>, BoxError> {
        match (self.taken_from, self.taken_at) {
            (None, None) => Ok(None),
            (Some(UNKNOWN), Some(Moment(since))) => Ok(Some(TakenFrom::Unknown { since })),
            (Some(RELEASED), Some(Moment(expires_at))) => {
                Ok(Some(TakenFrom::Released { expires_at }))
            }
            _ => Err("it was taken from no state that is known".into()),
        }
    }
}

pub(super) fn uuid(token: Token) -> Uuid {
    Uuid::from_bytes(*token.as_bytes())
}

fn present(at: Option<Moment>) -> Result<StoreTime, BoxError> {
    at.map(|Moment(at)| at).ok_or_else(|| "a time of its state is missing".into())
}

/// The format of the rows that this build writes and reads.
pub(super) const FORMAT: i16 = 1;
pub(super) const RUNNING: i16 = 1;
pub(super) const UNKNOWN: i16 = 2;
pub(super) const RELEASED: i16 = 3;
pub(super) const COMPLETED: i16 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::StateKind;

    #[test]
    fn a_guard_names_its_states_by_their_numbers_and_never_the_completed_one() {
        assert_eq!(open_states(StateSet::of(&StateKind::ALL)), 0b1110);
        assert_eq!(open_states(StateSet::of(&[StateKind::Released])), 0b1000);
        assert_eq!(open_states(StateSet::of(&[StateKind::Completed])), 0);
    }
}
