//! A global table of the version of 2017 says nothing of it in its own description.

use onlyonce::store::dynamodb::{DynamoOpenError, DynamoStore};
use servers::WireFault;

use crate::emulator::{address, config};
use crate::lab::Lab;

const GLOBAL: &str =
    r#"{"GlobalTableDescription":{"GlobalTableName":"keys","GlobalTableStatus":"ACTIVE"}}"#;

#[tokio::test]
async fn a_global_table_of_the_older_version_is_refused() {
    let Some(lab) = Lab::start("").await else { return };
    lab.fail_next("DescribeGlobalTable", WireFault::Told(GLOBAL));
    let opened = DynamoStore::open_with(&address(&lab.wire.url(), ""), config()).await;
    assert!(matches!(opened, Err(DynamoOpenError::GlobalTable { .. })), "{opened:?}");
}

#[tokio::test]
async fn a_store_that_may_not_ask_for_regions_says_so_at_its_start() {
    let Some(lab) = Lab::start("").await else { return };
    assert_eq!(lab.store.warnings(), Vec::<String>::new());
    lab.fail_next("DescribeGlobalTable", WireFault::Expired);
    let opened = DynamoStore::open_with(&address(&lab.wire.url(), ""), config()).await.unwrap();
    assert!(opened.warnings().concat().contains("dynamodb:DescribeGlobalTable"));
}
