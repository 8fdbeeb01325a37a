//! The table that a store needs: how it is made, and whether one is as it should be.

use aws_config::SdkConfig;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, IndexStatus, KeySchemaElement, KeyType,
    PointInTimeRecoverySpecification, PointInTimeRecoveryStatus, Projection, ProjectionType,
    ScalarAttributeType, TableDescription, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};
use tokio::time::{sleep, timeout};

use super::address::DynamoAddress;
use super::call::{Failed, call};
use super::error::DynamoOpenError;
use super::names::{BY_OPERATION, BY_TIME, EXPIRES, INDEX, INDEXES, PARTITION, PLACE, SHARD, SORT};
use super::open::client;
use super::table::Table;
use crate::clock::{Clock, SystemClock};
use crate::store::{BoxError, Fault};
use std::time::Duration;

/// How a table is set up. Read by [`inspect`]; nothing is written.
#[derive(Clone, Debug)]
pub struct DynamoFacts {
    description: Option<TableDescription>,
    /// Whether it is part of a global table of the version of 2017, of which its own description says nothing; `None` if
    /// DynamoDB does not let us ask.
    pub older_global: Option<bool>,
    /// Whether DynamoDB deletes what is over, by our attribute; `None` if it does not let us ask.
    pub expires: Option<bool>,
    /// Whether the table can be restored to any second of the last weeks; `None` if DynamoDB does not let us ask.
    pub point_in_time_recovery: Option<bool>,
    /// How far DynamoDB's clock is ahead of this machine's.
    pub clock_ahead_ms: i64,
}

/// Why a table cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is not there.
    Table,
    /// It is replicated between regions.
    OneRegion,
    /// Something in it.
    Use(&'static str),
}

impl DynamoFacts {
    /// Whether it is there.
    pub fn is_there(&self) -> bool {
        self.description.is_some()
    }

    /// The first thing for which it cannot be used, if there is one.
    pub fn missing(&self) -> Option<Missing> {
        let Some(table) = &self.description else {
            return Some(Missing::Table);
        };
        match () {
            () if self.regions() > 1 => Some(Missing::OneRegion),
            () if table.table_status() == Some(&TableStatus::Deleting) => {
                Some(Missing::Use("it is being deleted"))
            }
            () if !is_keyed(table.key_schema(), PARTITION, SORT) => {
                Some(Missing::Use("its keys are not pk and sk"))
            }
            () if !self.has_index(INDEXES[0]) => Some(Missing::Use(
                "it has no index pending with the keys shard_key and pk, or it is not ready",
            )),
            () => None,
        }
    }

    /// Why no audit trail can be kept in it, if none can.
    pub fn no_trail(&self) -> Option<&'static str> {
        let has_all = INDEXES[1..].iter().all(|index| self.has_index(*index));
        (!has_all).then_some(
            "it has no indexes trail_by_operation and trail_by_time that show all attributes, or they are not ready",
        )
    }

    fn has_index(&self, (name, partition, sort): (&str, &str, &str)) -> bool {
        let indexes = self.description.as_ref().map(TableDescription::global_secondary_indexes);
        let mut indexes = indexes.unwrap_or_default().iter();
        let index = indexes.find(|index| index.index_name() == Some(name));
        index.is_some_and(|index| {
            let shows = index.projection().and_then(Projection::projection_type);
            is_keyed(index.key_schema(), partition, sort)
                // An emulator may not tell.
                && index.index_status().is_none_or(|status| *status == IndexStatus::Active)
                && (name == INDEX || shows == Some(&ProjectionType::All))
        })
    }

    /// In how many regions it is written, at least: DynamoDB may list the other regions alone, or none.
    pub fn regions(&self) -> usize {
        let Some(table) = &self.description else {
            return 1;
        };
        let is_global = self.older_global == Some(true)
            || table.global_table_version().is_some()
            || !table.replicas().is_empty();
        if is_global { table.replicas().len().max(2) } else { 1 }
    }

    /// Read and write units that are paid for; `None` on demand.
    pub fn provisioned(&self) -> Option<(i64, i64)> {
        let table = self.description.as_ref()?;
        let mode = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
        let units = table.provisioned_throughput()?;
        let units = (units.read_capacity_units()?, units.write_capacity_units()?);
        (mode != Some(&BillingMode::PayPerRequest) && units != (0, 0)).then_some(units)
    }

    /// Whether it is refused that anybody deletes it by mistake.
    pub fn is_protected(&self) -> bool {
        let table = self.description.as_ref();
        table.and_then(TableDescription::deletion_protection_enabled).unwrap_or(false)
    }

    /// What is worth a line at every start.
    pub(super) fn warnings(&self, sweeps: bool) -> Vec<String> {
        let warnings = [
            (
                self.expires == Some(false) && !sweeps,
                format!(
                    "nothing deletes expired records: turn on the time to live of the table, by the attribute {EXPIRES}, or use sweep=scan"
                ),
            ),
            (self.older_global.is_none(), MAY_BE_GLOBAL.to_owned()),
        ];
        warnings.into_iter().filter(|(is_due, _)| *is_due).map(|(_, warning)| warning).collect()
    }

    pub(super) async fn read(table: &Table) -> Result<Self, DynamoOpenError> {
        let description = describe(table).await?;
        let name = &table.address.table;
        let expires = match table.client.describe_time_to_live().table_name(name).send().await {
            Ok(told) => told.time_to_live_description.map(|told| {
                let is_on = matches!(
                    told.time_to_live_status(),
                    Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
                );
                is_on && told.attribute_name() == Some(EXPIRES)
            }),
            Err(_) => None,
        };
        let backups = table.client.describe_continuous_backups().table_name(name).send().await;
        let backups = backups.ok().and_then(|told| told.continuous_backups_description);
        let point_in_time_recovery = backups.map(|told| {
            let status = told.point_in_time_recovery_description();
            let status = status.and_then(|told| told.point_in_time_recovery_status());
            status == Some(&PointInTimeRecoveryStatus::Enabled)
        });
        let older_global = is_older_global(table).await;
        let clock_ahead_ms = table.now().since_ms(SystemClock.wall());
        Ok(Self { description, older_global, expires, point_in_time_recovery, clock_ahead_ms })
    }
}

fn is_keyed(schema: &[KeySchemaElement], partition: &str, sort: &str) -> bool {
    let has = |name, kind| {
        schema.iter().any(|key| key.attribute_name() == name && *key.key_type() == kind)
    };
    has(partition, KeyType::Hash) && has(sort, KeyType::Range)
}

/// Reads how the table at `address` is set up.
///
/// # Errors
/// When DynamoDB cannot be reached, or refuses us.
pub async fn inspect(address: &str) -> Result<DynamoFacts, DynamoOpenError> {
    let address: DynamoAddress = address.parse()?;
    let client = client(&address, None).await;
    DynamoFacts::read(&Table::new(client, address)?).await
}

/// Makes the table at `address` if it is not there: paid for on demand, with its index, its time to live and
/// point-in-time recovery. Says whether it was made.
///
/// # Errors
/// When DynamoDB cannot be reached, or refuses us.
pub async fn make_table(address: &str, config: Option<SdkConfig>) -> Result<bool, DynamoOpenError> {
    let address: DynamoAddress = address.parse()?;
    let client = client(&address, config).await;
    let table = Table::new(client, address)?;
    if describe(&table).await?.is_some() {
        return Ok(false);
    }
    table.make().await.map_err(DynamoOpenError::Unreachable)?;
    match timeout(MAKE_WAIT, until_active(&table)).await {
        Ok(active) => active?,
        Err(late) => return Err(DynamoOpenError::Unreachable(late.into())),
    }
    let name = &table.address.table;
    let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name(EXPIRES).build();
    let ttl = ttl.map_err(|error| DynamoOpenError::Unreachable(error.into()))?;
    let set = table.client.update_time_to_live().table_name(name);
    let set = set.time_to_live_specification(ttl).send().await;
    set.map_err(|error| DynamoOpenError::Unreachable(error.into_service_error().into()))?;
    // An emulator may not know it, and `doctor` says whether it is on.
    let recovery = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true);
    if let Ok(recovery) = recovery.build() {
        let set = table.client.update_continuous_backups().table_name(name);
        drop(set.point_in_time_recovery_specification(recovery).send().await);
    }
    Ok(true)
}

async fn until_active(table: &Table) -> Result<(), DynamoOpenError> {
    while describe(table)
        .await?
        .is_none_or(|told| told.table_status() != Some(&TableStatus::Active))
    {
        sleep(MAKE_LOOK).await;
    }
    Ok(())
}

/// `None` if it is not there.
async fn describe(table: &Table) -> Result<Option<TableDescription>, DynamoOpenError> {
    let describe = table.client.describe_table().table_name(&table.address.table);
    let told = call(&table.time, |trace| async {
        match describe.customize().interceptor(trace).send().await {
            Err(error) if is_absent(error.as_service_error()) => Ok(None),
            told => told.map(Some),
        }
    });
    match told.await {
        Ok(told) => Ok(told.and_then(|told| told.table)),
        Err(failed) => Err(DynamoOpenError::Unreachable(unwrapped(failed.fault()))),
    }
}

/// Only this call tells of a global table of the version of 2017. A server that does not know the call has none.
async fn is_older_global(table: &Table) -> Option<bool> {
    let describe = table.client.describe_global_table().global_table_name(&table.address.table);
    match describe.send().await {
        Ok(_) => Some(true),
        Err(error) => {
            let code = error.code().unwrap_or_default();
            let is_none = ["GlobalTableNotFoundException", "UnknownOperationException"];
            is_none.contains(&code).then_some(false)
        }
    }
}

fn is_absent(error: Option<&DescribeTableError>) -> bool {
    error.is_some_and(DescribeTableError::is_resource_not_found_exception)
}

/// What went wrong, without who was asked.
fn unwrapped(fault: Fault) -> BoxError {
    use crate::store::StoreError::Unavailable;
    match fault {
        Fault::NotDone(Unavailable(error)) | Fault::Unsure(Unavailable(error)) => error,
        fault => fault.into(),
    }
}

impl Table {
    /// DynamoDB's own count of the items, some hours old.
    pub(super) async fn items(&self) -> Result<u64, Fault> {
        let describe = self.client.describe_table().table_name(&self.address.table);
        let told = call(&self.time, |trace| describe.customize().interceptor(trace).send()).await;
        let items = told.map_err(Failed::fault)?.table.and_then(|table| table.item_count);
        Ok(items.and_then(|items| u64::try_from(items).ok()).unwrap_or_default())
    }

    async fn make(&self) -> Result<(), BoxError> {
        let key = |name: &str, kind: KeyType| {
            KeySchemaElement::builder().attribute_name(name).key_type(kind).build()
        };
        let text = |name: &str| {
            let text = AttributeDefinition::builder().attribute_name(name);
            text.attribute_type(ScalarAttributeType::S).build()
        };
        let make = self.client.create_table().table_name(&self.address.table);
        let make = make.billing_mode(BillingMode::PayPerRequest);
        let mut make =
            make.key_schema(key(PARTITION, KeyType::Hash)?).key_schema(key(SORT, KeyType::Range)?);
        for name in [PARTITION, SORT, SHARD, BY_OPERATION.1, BY_TIME.1, PLACE] {
            make = make.attribute_definitions(text(name)?);
        }
        for (name, partition, sort) in INDEXES {
            let shows = match name {
                INDEX => ProjectionType::KeysOnly,
                _ => ProjectionType::All,
            };
            let index = GlobalSecondaryIndex::builder()
                .index_name(name)
                .projection(Projection::builder().projection_type(shows).build())
                .key_schema(key(partition, KeyType::Hash)?)
                .key_schema(key(sort, KeyType::Range)?);
            make = make.global_secondary_indexes(index.build()?);
        }
        match make.send().await {
            Ok(_) => Ok(()),
            // Another node was first.
            Err(error) => match error.into_service_error() {
                error if error.is_resource_in_use_exception() => Ok(()),
                error => Err(error.into()),
            },
        }
    }
}

const MAY_BE_GLOBAL: &str = "DynamoDB does not say whether other regions write the table, too (a global table of the version \
     of 2017), and then nothing is promised: allow dynamodb:DescribeGlobalTable";
/// How long a new table may take until it can be used.
const MAKE_WAIT: Duration = Duration::from_secs(120);
/// Between two looks at a new table.
const MAKE_LOOK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::ReplicaDescription;

    use super::*;

    fn facts(description: TableDescription) -> DynamoFacts {
        let (expires, point_in_time_recovery) = (Some(true), Some(true));
        let description = Some(description);
        let older_global = Some(false);
        DynamoFacts {
            description,
            older_global,
            expires,
            point_in_time_recovery,
            clock_ahead_ms: 0,
        }
    }

    #[test]
    fn a_table_with_a_replica_in_another_region_is_refused() {
        let replica = ReplicaDescription::builder().region_name("eu-west-1").build();
        let global = facts(TableDescription::builder().replicas(replica).build());
        assert_eq!(global.missing(), Some(Missing::OneRegion));
        let single = facts(TableDescription::builder().build());
        let older = DynamoFacts { older_global: Some(true), ..single.clone() };
        assert_eq!(older.missing(), Some(Missing::OneRegion));
        assert_eq!(single.missing(), Some(Missing::Use("its keys are not pk and sk")));
    }
}
