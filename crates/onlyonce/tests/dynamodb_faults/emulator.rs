//! Stores in an emulator of DynamoDB.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use onlyonce::store::dynamodb::{DynamoStore, make_table};

/// Credentials that any emulator believes, and connections without TLS.
pub(crate) fn config() -> SdkConfig {
    let credentials = Credentials::new("test", "test", None, None, "test");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build()
}

pub(crate) fn address(url: &str, settings: &str) -> String {
    format!("dynamodb:keys?endpoint={url}{settings}")
}

pub(crate) async fn make(url: &str) {
    make_table(&address(url, ""), Some(config())).await.expect("a table is made");
}

pub(crate) async fn open(url: &str, settings: &str) -> DynamoStore {
    let opened = DynamoStore::open_with(&address(url, settings), config()).await;
    opened.expect("the store opens")
}
