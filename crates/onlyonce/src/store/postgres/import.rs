//! Taking over the records of another store.

use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::address::ServerAddress;
use super::columns::{Row, given};
use super::connection::Connection;
use super::error::PostgresOpenError;
use super::schema::{Missing, ensure};
use super::sql_error::SqlError;
use super::statement::{NOW, Statement};
use super::value::Moment;
use crate::clock::StoreTime;
use crate::record::Record;
use crate::scope::OperationId;
use crate::store::{Fault, StoreError};

/// An empty schema that takes over the records of another store. Until that is [finished](Self::finish), no
/// store is opened there: a node that knew half of the keys would run the other half again.
#[derive(Debug)]
pub struct Import {
    connection: Connection,
    address: ServerAddress,
}

impl Import {
    /// Begins to copy the store of the name `from` into the schema at `url`, or goes on with it.
    ///
    /// # Errors
    /// As [`PostgresStore::open`](super::PostgresStore::open), and if the schema has records already or is
    /// being filled from another store.
    pub async fn begin(url: &str, from: &str) -> Result<Self, PostgresOpenError> {
        let address = ServerAddress::parse(url, None)?;
        let mut connection = Connection::open(&address, &[], None).await?;
        match ensure(&mut connection.client, &address, Missing::Make).await {
            Ok(_) => {}
            Err(PostgresOpenError::Importing(_, before)) if before == from => {}
            Err(error) => return Err(error),
        }
        let import = Self { connection, address };
        if import.mark(from).await.map_err(|error| import.address.failed(error))? {
            return Ok(import);
        }
        Err(PostgresOpenError::NotEmpty(import.address.schema))
    }

    /// Whether the schema is empty, or this very import was begun before.
    async fn mark(&self, from: &str) -> Result<bool, Error> {
        let schema = &self.address.schema;
        let sql = format!(
            "UPDATE {schema}.meta SET imported_from = $1
              WHERE one = 1 AND (imported_from = $1 OR NOT EXISTS (SELECT FROM {schema}.record))"
        );
        // After every claim that is under way: it would not be seen otherwise.
        let begin = format!("BEGIN; LOCK TABLE {schema}.record IN SHARE ROW EXCLUSIVE MODE");
        let client = &self.connection.client;
        client.batch_execute(&begin).await?;
        let marked = client.execute(&sql, &[&from]).await?;
        client.batch_execute("COMMIT").await?;
        Ok(marked == 1)
    }

    /// What the clock over there says.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn now(&self) -> Result<StoreTime, Fault> {
        let now = self.connection.client.query_one_scalar(&format!("SELECT {NOW}"), &[]).await;
        now.map(|Moment(now)| now).map_err(|error| SqlError::from(error).fault_of_read())
    }

    /// Copies records, as they are, over what was copied of them before: a copy that is out of date would run its operation
    /// again.
    ///
    /// # Errors
    /// As every write of a store, and if the import is finished. It is repeated without harm.
    pub async fn import(&self, records: &[(OperationId, Record)]) -> Result<(), Fault> {
        let rows = records.iter().map(|(id, record)| Row::of_record(*id, record));
        let params = Statement::Import.params(&rows.collect::<Vec<_>>());
        let params: Vec<_> = given(&params).collect();
        let copied = self.execute(&Statement::Import.sql(&self.address.schema), &params).await?;
        match copied == records.len() {
            true => Ok(()),
            false => Err(Fault::NotDone(StoreError::Refused("this import is finished".into()))),
        }
    }

    /// Takes over the check value of this name, or that there is none.
    ///
    /// # Errors
    /// As every write of a store. It is repeated without harm.
    pub async fn import_check_value(&self, name: &str, value: Option<&str>) -> Result<(), Fault> {
        let table = format!("{}.check_value", self.address.schema);
        let Some(value) = value else {
            let delete = format!("DELETE FROM {table} WHERE name = $1");
            return self.execute(&delete, &[&name]).await.map(drop);
        };
        let sql = format!(
            "INSERT INTO {table} (name, value) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        );
        self.execute(&sql, &[&name, &value]).await.map(drop)
    }

    /// Everything is there: from now on stores are opened here.
    ///
    /// # Errors
    /// As every write of a store. It is repeated without harm.
    pub async fn finish(&self) -> Result<(), Fault> {
        let sql =
            format!("UPDATE {}.meta SET imported_from = NULL WHERE one = 1", self.address.schema);
        self.execute(&sql, &[]).await.map(drop)
    }

    /// How many rows it returned.
    async fn execute(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<usize, Fault> {
        let done = self.connection.query(sql, params.iter().copied()).await;
        done.map(|rows| rows.len()).map_err(|error| SqlError::from(error).fault())
    }
}
