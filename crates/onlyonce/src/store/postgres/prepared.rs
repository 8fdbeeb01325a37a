//! One connection with statements of its user's own, made anew when it breaks.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Row, Statement};

use super::address::ServerAddress;
use super::connection::Connection;
use super::error::PostgresOpenError;
use super::schema;
use super::server::demand_session;
use super::statement::filled_in;
use crate::store::BoxError;

/// A connection to a primary. Its statements must be harmless to repeat: nobody is told whether one whose answer was
/// lost was done.
pub(crate) struct PreparedConnection {
    address: ServerAddress,
    /// With `{schema}` and `{now}` in them.
    texts: Vec<String>,
    connected: Option<(Connection, Vec<Statement>)>,
}

impl PreparedConnection {
    /// Connects for the first time, and makes the schema if it is not there.
    #[cfg(feature = "outbox")]
    pub(crate) async fn open(
        url: &str,
        schema: Option<&str>,
        texts: Vec<String>,
    ) -> Result<Self, PostgresOpenError> {
        let (address, mut connection) = connect(url, schema).await?;
        schema::ensure(&mut connection.client, &address).await?;
        Self::with_statements(address, connection, texts).await
    }

    /// The same for operators, who may have named another database by mistake: the schema must be there.
    pub(crate) async fn open_installed(
        url: &str,
        schema: Option<&str>,
        texts: Vec<String>,
    ) -> Result<Self, PostgresOpenError> {
        let (address, mut connection) = connect(url, schema).await?;
        schema::demand(&mut connection.client, &address).await?;
        Self::with_statements(address, connection, texts).await
    }

    async fn with_statements(
        address: ServerAddress,
        connection: Connection,
        texts: Vec<String>,
    ) -> Result<Self, PostgresOpenError> {
        let statements = prepare(&connection, &address, &texts).await?;
        Ok(Self { address, texts, connected: Some((connection, statements)) })
    }

    /// Runs the statement with this number. After an error the next call connects again.
    pub(crate) async fn query(
        &mut self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, BoxError> {
        let (connection, statements) = self.ready().await?;
        let hidden: Vec<_> = params.iter().map(|param| HiddenParam(*param)).collect();
        let params: Vec<_> = hidden.iter().map(|param| param as &(dyn ToSql + Sync)).collect();
        let answer = connection.client.query(&statements[statement], &params);
        let answer = match timeout(ANSWER_WAIT_MAX, answer).await {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(error)) => BoxError::from(error),
            Err(elapsed) => elapsed.into(),
        };
        if let Some((connection, _)) = self.connected.take() {
            connection.driver.abort();
        }
        Err(answer)
    }

    async fn ready(&mut self) -> Result<&(Connection, Vec<Statement>), PostgresOpenError> {
        let ready = match self.connected.take() {
            Some(ready) if !ready.0.client.is_closed() => ready,
            _ => {
                let connection = Connection::open(&self.address, &[], None).await?;
                let statements = prepare(&connection, &self.address, &self.texts).await?;
                (connection, statements)
            }
        };
        Ok(self.connected.insert(ready))
    }
}

async fn connect(
    url: &str,
    schema: Option<&str>,
) -> Result<(ServerAddress, Connection), PostgresOpenError> {
    let address = ServerAddress::parse(url, schema)?;
    let connection = Connection::open(&address, &[], None).await?;
    demand_session(&connection, &address).await?;
    Ok((address, connection))
}

impl std::fmt::Debug for PreparedConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

/// A parameter that is never shown: the client below writes parameters to the debug log.
struct HiddenParam<'a>(&'a (dyn ToSql + Sync));

impl std::fmt::Debug for HiddenParam<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden(..)")
    }
}

impl ToSql for HiddenParam<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        self.0.to_sql_checked(kind, out)
    }

    /// The parameter inside is asked by [`to_sql`](Self::to_sql).
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

async fn prepare(
    connection: &Connection,
    address: &ServerAddress,
    texts: &[String],
) -> Result<Vec<Statement>, PostgresOpenError> {
    let prepare_all = async {
        let mut statements = Vec::with_capacity(texts.len());
        for text in texts {
            let sql = filled_in(text, &address.schema);
            statements.push(connection.client.prepare(&sql).await?);
        }
        Ok(statements)
    };
    let prepared = timeout(ANSWER_WAIT_MAX, prepare_all).await;
    prepared.map_err(|elapsed| address.silent(elapsed))?.map_err(|error| address.failed(error))
}

/// How long a statement may take: longer than `statement_timeout`.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
