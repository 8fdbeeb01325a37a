//! Taking over the records of another store.

use tokio_postgres::Error;

use super::error::OpenError;
use super::link::Link;
use super::params::Puts;
use super::place::Place;
use super::round::Put;
use super::sql::{self, WALL};
use super::trouble::Trouble;
use super::works::ensure;
use crate::clock::StoreTime;
use crate::record::Record;
use crate::scope::OperationId;
use crate::store::Fault;

/// An empty schema that takes over the records of another store. Until that is [finished](Self::finish), no
/// store is opened there: a node that knew half of the keys would run the other half again.
#[derive(Debug)]
pub struct Filling {
    link: Link,
    place: Place,
}

impl Filling {
    /// Begins to fill the schema at `url` from the store of that name, or goes on with it.
    ///
    /// # Errors
    /// As [`PostgresStore::open`](super::PostgresStore::open), and if the schema has records already or is
    /// being filled from another store.
    pub async fn begin(url: &str, from: &str) -> Result<Self, OpenError> {
        let place = Place::parse(url, None)?;
        let mut link = Link::connect(&place, &[], None).await?;
        match ensure(&mut link, &place).await {
            Ok(_) => {}
            Err(OpenError::Filling { from: before, .. }) if before == from => {}
            Err(error) => return Err(error),
        }
        let filling = Self { link, place };
        let failed =
            |error| OpenError::from_client(&filling.place.name, &filling.place.schema, error);
        if filling.mark(from).await.map_err(failed)? {
            return Ok(filling);
        }
        Err(OpenError::NotEmpty { schema: filling.place.schema })
    }

    /// Whether it is ours to fill.
    async fn mark(&self, from: &str) -> Result<bool, Error> {
        let schema = &self.place.schema;
        let sql = format!(
            "UPDATE {schema}.meta SET filled_from = $1
              WHERE one = 1 AND (filled_from = $1 OR NOT EXISTS (SELECT FROM {schema}.record))"
        );
        Ok(self.link.client.execute(&sql, &[&from]).await? == 1)
    }

    /// What the clock over there says.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn now(&self) -> Result<StoreTime, Fault> {
        let now = self.link.client.query_one_scalar(&format!("SELECT {WALL}"), &[]).await;
        now.map(StoreTime::from_ms).map_err(|error| Trouble::from(error).fault_of_read())
    }

    /// Copies records, as they are. What was copied before is left alone.
    ///
    /// # Errors
    /// As every write of a store. It is repeated without harm.
    pub async fn import(&self, records: &[(OperationId, Record)]) -> Result<(), Fault> {
        let put = |record: &Record| Put {
            record: record.clone(),
            from: record.revision(),
            not_after: StoreTime::MAX,
        };
        let puts: Vec<_> = records.iter().map(|(id, record)| (*id, put(record))).collect();
        let puts: Vec<_> = puts.iter().map(|(id, put)| (*id, put)).collect();
        let sql = sql::import(&format!("{}.record", self.place.schema));
        let columns = Puts::of((0, 0), &puts);
        let copied = self.link.client.execute(&sql, &columns.records()).await;
        copied.map(drop).map_err(|error| Trouble::from(error).fault())
    }

    /// Takes over the check value of this name, or that there is none.
    ///
    /// # Errors
    /// As every write of a store. It is repeated without harm.
    pub async fn import_check_value(&self, name: &str, value: Option<&str>) -> Result<(), Fault> {
        let table = format!("{}.check_value", self.place.schema);
        let client = &self.link.client;
        let done = match value {
            Some(value) => {
                let sql = format!(
                    "INSERT INTO {table} (name, value) VALUES ($1, $2)
                     ON CONFLICT (name) DO UPDATE SET value = excluded.value"
                );
                client.execute(&sql, &[&name, &value]).await
            }
            None => client.execute(&format!("DELETE FROM {table} WHERE name = $1"), &[&name]).await,
        };
        done.map(drop).map_err(|error| Trouble::from(error).fault())
    }

    /// Everything is there: from now on stores are opened here.
    ///
    /// # Errors
    /// As every write of a store. It is repeated without harm.
    pub async fn finish(&self) -> Result<(), Fault> {
        let sql = format!("UPDATE {}.meta SET filled_from = NULL WHERE one = 1", self.place.schema);
        let done = self.link.client.execute(&sql, &[]).await;
        done.map(drop).map_err(|error| Trouble::from(error).fault())
    }
}
