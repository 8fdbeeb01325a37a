//! Taking over the records of another store.

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::DynamoStore;
use super::address::DynamoAddress;
use super::error::DynamoOpenError;
use super::schema::make_table;
use super::table::{Table, refused};
use crate::clock::StoreTime;
use crate::hex;
use crate::record::{Record, Token};
use crate::scope::OperationId;
use crate::store::{Fault, Maintain, Store};

/// An empty table, or prefix of one, that takes over the records of another store. Until that is
/// [finished](Self::finish), no store is opened there: a node that knew half of the keys would run the other half again.
#[derive(Debug)]
pub struct Import {
    store: DynamoStore,
    from: String,
}

impl Import {
    /// Begins to copy the store of the name `from` into the table at `address`, or goes on with it. Makes the table if it
    /// is not there.
    ///
    /// # Errors
    /// As [`DynamoStore::open`], and if there are records already or it is being filled from another store.
    pub async fn begin(address: &str, from: &str) -> Result<Self, DynamoOpenError> {
        make_table(address, None).await?;
        let parsed: DynamoAddress = address.parse()?;
        let store = DynamoStore::open_marked(parsed.clone(), None, Some(from)).await?;
        let import = Self { store, from: from.to_owned() };
        let unreached = |fault: Fault| DynamoOpenError::Unreachable(fault.into());
        let before = import.store.check_value(MARK, None, None).await.map_err(unreached)?;
        let look = import.store.run(|table| async move { table.is_empty().await });
        let is_empty = look.await.map_err(unreached)?;
        if !is_begun(before.as_deref()) && !is_empty {
            return Err(DynamoOpenError::NotEmpty { table: parsed.table });
        }
        let before = before.filter(|before| !is_begun(Some(before)));
        let marked = import.store.check_value(MARK, before.as_deref(), Some(from)).await;
        match marked.map_err(unreached)? {
            Some(before) if before != from => {
                Err(DynamoOpenError::Importing { table: parsed.table, from: before })
            }
            _ => Ok(import),
        }
    }

    /// What the clock over there says.
    ///
    /// # Errors
    /// If DynamoDB does not answer.
    pub async fn now(&self) -> Result<StoreTime, Fault> {
        Ok(self.store.load(OperationId::from_bytes([0; 16])).await?.now)
    }

    /// Copies records, as they are.
    ///
    /// # Errors
    /// As every write of a store. It is repeated without harm.
    pub async fn import(&self, records: &[(OperationId, Record)]) -> Result<(), Fault> {
        let copies = records.iter().cloned().map(|(id, record)| {
            self.store.run(move |table| async move { table.import(id, &record).await })
        });
        stream::iter(copies).buffer_unordered(COPIES_MAX).try_collect().await
    }

    /// Takes over the check value of this name, or that there is none.
    ///
    /// # Errors
    /// As every write of a store. It is repeated without harm.
    pub async fn import_check_value(&self, name: &str, value: Option<&str>) -> Result<(), Fault> {
        let kept = self.store.check_value(name, None, None).await?;
        if let Some(value) = value {
            self.store.check_value(name, kept.as_deref(), Some(value)).await?;
        }
        Ok(())
    }

    /// Everything is there: from now on stores are opened here.
    ///
    /// # Errors
    /// As every write of a store. It is repeated without harm.
    pub async fn finish(&self) -> Result<(), Fault> {
        let finished = format!("{FINISHED}{}", hex::encode(Token::random().as_bytes()));
        match self.store.check_value(MARK, Some(&self.from), Some(&finished)).await? {
            Some(mark) if !is_begun(Some(&mark)) => Ok(()),
            _ => Err(refused("another import has taken its place")),
        }
    }
}

/// Whether an import has begun and is not finished.
fn is_begun(mark: Option<&str>) -> bool {
    mark.is_some_and(|mark| !mark.starts_with(FINISHED))
}

/// Refuses a table that is being filled, but for the import from `by`.
pub(super) async fn check(table: &Table, by: Option<&str>) -> Result<(), DynamoOpenError> {
    let marked = table.check_value(MARK, None, None).await;
    match marked.map_err(|fault| DynamoOpenError::Unreachable(fault.into()))? {
        Some(from) if is_begun(Some(&from)) && Some(from.as_str()) != by => {
            Err(DynamoOpenError::Importing { table: table.address.table.clone(), from })
        }
        _ => Ok(()),
    }
}

/// The check value that says from where a table is being filled.
const MARK: &str = "import";
/// What it says after the end, with a number of its own. It is not deleted, and does not come back: a late copy of the call
/// that set the mark would find what it found before, and set it again.
const FINISHED: &str = "finished ";
/// Records that are copied at once.
const COPIES_MAX: usize = 32;
