//! Makes the client of a store, and checks its table.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use std::time::Duration;

use super::ANSWER_WAIT;
use super::address::DynamoAddress;
use super::error::DynamoOpenError;
use super::import;
use super::schema::{DynamoFacts, Missing};
use super::table::Table;

/// The table at `address`, if a store can use it.
pub(super) async fn open(
    address: DynamoAddress,
    config: Option<SdkConfig>,
    import_from: Option<&str>,
) -> Result<Table, DynamoOpenError> {
    let client = client(&address, config).await;
    let mut table = Table::new(client, address)?;
    let facts = DynamoFacts::read(&table).await?;
    let name = || table.address.table.clone();
    match facts.missing() {
        Some(Missing::Table) => return Err(DynamoOpenError::NoTable { table: name() }),
        Some(Missing::OneRegion) => return Err(DynamoOpenError::GlobalTable { table: name() }),
        Some(Missing::Use(why)) => return Err(DynamoOpenError::WrongTable { table: name(), why }),
        None if table.time.is_known() => {}
        None => {
            let why = "its answers have no Date, and nobody knows what time it is";
            return Err(DynamoOpenError::WrongTable { table: name(), why });
        }
    }
    import::check(&table, import_from).await?;
    table.warnings = facts.warnings(table.address.sweeps);
    table.no_trail = facts.no_trail();
    Ok(table)
}

pub(super) async fn client(address: &DynamoAddress, config: Option<SdkConfig>) -> Client {
    let config = match config {
        Some(config) => config,
        None => load(address).await,
    };
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_WAIT)
        .operation_attempt_timeout(ANSWER_WAIT)
        .build();
    let mut builder = Builder::from(&config)
        // A repeated write whose first copy was done would be reported as one whose condition failed.
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts);
    if let Some(endpoint) = &address.endpoint {
        builder = builder.endpoint_url(endpoint);
        if config.region().is_none() {
            builder = builder.region(Region::from_static(ANY_REGION));
        }
    }
    if let Some(region) = &address.region {
        builder = builder.region(Region::new(region.clone()));
    }
    Client::from_conf(builder.build())
}

/// Credentials and a region by the SDK's own chain; TLS by ring.
async fn load(address: &DynamoAddress) -> SdkConfig {
    let http =
        aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring));
    let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http.build_https());
    let loader = match (&address.region, &address.endpoint) {
        (Some(region), _) => loader.region(Region::new(region.clone())),
        _ => loader,
    };
    loader.load().await
}

/// How long a new connection may take.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// The region that calls to an endpoint of one's own are signed for, where none is known.
const ANY_REGION: &str = "us-east-1";
