//! One connection with statements of its user's own, made anew when it breaks.

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::address::ServerAddress;
use super::connection::{ANSWER_WAIT_MAX, Connection};
use super::error::PostgresOpenError;
use super::schema::{self, Missing};
use super::statement::filled_in;
use crate::store::BoxError;

/// A connection to a primary. Its statements must be harmless to repeat: nobody is told whether one whose answer was
/// lost was done.
pub(crate) struct PreparedConnection {
    address: ServerAddress,
    statements: Vec<String>,
    connection: Option<Connection>,
}

impl PreparedConnection {
    /// Connects for the first time, and makes the schema if it is not there. The texts have `{schema}` and `{now}` in
    /// them.
    #[cfg(feature = "outbox")]
    pub(crate) async fn open(
        url: &str,
        schema: Option<&str>,
        texts: Vec<String>,
    ) -> Result<Self, PostgresOpenError> {
        Self::open_in(ServerAddress::parse(url, schema)?, texts, Missing::Make).await
    }

    /// The same for operators, who may have named another database by mistake: the schema must be there.
    pub(crate) async fn open_installed(
        url: &str,
        schema: Option<&str>,
        texts: Vec<String>,
    ) -> Result<Self, PostgresOpenError> {
        Self::open_in(ServerAddress::parse(url, schema)?, texts, Missing::Refuse).await
    }

    async fn open_in(
        address: ServerAddress,
        texts: Vec<String>,
        missing: Missing,
    ) -> Result<Self, PostgresOpenError> {
        schema::enter(&address, missing).await?;
        let statements = texts.iter().map(|text| filled_in(text, &address.schema)).collect();
        let mut opened = Self { address, statements, connection: None };
        opened.ready().await?;
        Ok(opened)
    }

    /// Runs the statement with this number. After an error the next call connects again.
    pub(crate) async fn query(
        &mut self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, BoxError> {
        let connection = self.ready().await?;
        let answer = connection.query(&connection.prepared[statement], params.iter().copied());
        let error = match timeout(ANSWER_WAIT_MAX, answer).await {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(error)) => error.into(),
            Err(elapsed) => elapsed.into(),
        };
        self.connection = None;
        Err(error)
    }

    async fn ready(&mut self) -> Result<&Connection, PostgresOpenError> {
        let open = self.connection.take().filter(|connection| !connection.client.is_closed());
        let ready = match open {
            Some(connection) => connection,
            None => Connection::open(&self.address, &self.statements, None).await?,
        };
        Ok(self.connection.insert(ready))
    }
}

impl std::fmt::Debug for PreparedConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}
