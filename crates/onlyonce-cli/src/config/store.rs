//! Where operations are remembered.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Config, Hidden};

/// Where operations are remembered.
///
/// ```
/// use onlyonce_cli::config::StoreUrl;
///
/// assert_eq!("sqlite:keys.db".parse(), Ok(StoreUrl::Sqlite("keys.db".into())));
/// let store: StoreUrl = "postgres://me:secret@db.internal/keys".parse()?;
/// assert_eq!(store.to_string(), "postgres://db.internal/keys");
/// # Ok::<(), onlyonce_cli::config::StoreUrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// `sqlite:FILE`: one file, relative to the working directory.
    Sqlite(PathBuf),
    /// `postgres://…`: for many nodes.
    Postgres(ServerUrl),
    /// `redis://…`: for many nodes; what it promises depends on how it is set up.
    Redis(ServerUrl),
    /// `dynamodb:TABLE`: for many nodes, without a database to run. It has no credentials in it.
    #[cfg(feature = "dynamodb")]
    DynamoDb(String),
    /// `memory:`: forgotten when the process ends.
    Memory,
}

/// What `--store` says: an address, or `env:NAME` for the one that the variable holds. One that is wrong is told
/// without being repeated, because it may have a password in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFlag(Result<StoreUrl, StoreUrlError>);

impl StoreFlag {
    /// Reads the flag; what is wrong with it is told by [`StoreFlag::url`].
    pub fn parse(text: &str) -> Result<Self, std::convert::Infallible> {
        let named = |name| std::env::var(name).map_err(|_| StoreUrlError::NoVariable);
        let text = text.strip_prefix("env:").map_or_else(|| Ok(text.to_owned()), named);
        Ok(Self(text.and_then(|text| text.parse())))
    }

    /// The address.
    pub fn url(&self) -> Result<StoreUrl, StoreUrlError> {
        self.0.clone()
    }
}

impl From<StoreUrl> for StoreFlag {
    fn from(url: StoreUrl) -> Self {
        Self(Ok(url))
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        match text.split_once(':') {
            Some(("sqlite", file)) => sqlite(file),
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("postgres" | "postgresql", _)) => {
                ServerUrl::new(text).map(Self::Postgres).ok_or(StoreUrlError::Postgres)
            }
            Some(("redis" | "rediss", _)) => {
                ServerUrl::new(text).map(Self::Redis).ok_or(StoreUrlError::Redis)
            }
            Some(("dynamodb", _)) => dynamodb(text),
            _ => Err(StoreUrlError::Unknown),
        }
    }
}

#[cfg(feature = "dynamodb")]
fn dynamodb(text: &str) -> Result<StoreUrl, StoreUrlError> {
    use onlyonce::store::dynamodb::DynamoAddress;
    let address = text.parse::<DynamoAddress>().map_err(|_| StoreUrlError::DynamoDb)?;
    Ok(StoreUrl::DynamoDb(address.to_string()))
}

#[cfg(not(feature = "dynamodb"))]
const fn dynamodb(_: &str) -> Result<StoreUrl, StoreUrlError> {
    Err(StoreUrlError::NotBuilt)
}

fn sqlite(file: &str) -> Result<StoreUrl, StoreUrlError> {
    match file {
        "" => Err(StoreUrlError::NoFile),
        ":memory:" => Err(StoreUrlError::SqliteMemory),
        _ if file.starts_with("//") => Err(StoreUrlError::Slashes),
        _ => Ok(StoreUrl::Sqlite(file.into())),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => write!(f, "sqlite:{}", file.display()),
            Self::Postgres(url) | Self::Redis(url) => url.fmt(f),
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(address) => f.write_str(address),
            Self::Memory => f.write_str("memory:"),
        }
    }
}

/// The address of a server. It is shown without the credentials and parameters in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    whole: Hidden,
    shown: String,
}

impl ServerUrl {
    /// `None` if there is no host, or something in between, in `text`.
    fn new(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let shown = format!("{scheme}://{host}{}{path}", if path.is_empty() { "" } else { "/" });
        (!host.is_empty()).then(|| Self { whole: Hidden::new(text), shown })
    }

    /// The whole address. Never show it.
    pub fn reveal(&self) -> &str {
        self.whole.reveal()
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The Redis in front of a Postgres.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterUrl(ServerUrl);

impl FilterUrl {
    /// The whole address. Never show it.
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

impl FromStr for FilterUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        match text.parse() {
            Ok(StoreUrl::Redis(url)) => Ok(Self(url)),
            _ => Err(StoreUrlError::Redis),
        }
    }
}

impl fmt::Display for FilterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Config {
    /// Whether the filter has something to stand in front of. Checked when a file is read and when flags are added.
    pub(super) fn check_filter(&self) -> Result<(), FilterError> {
        match (&self.filter, &self.store) {
            (None, _) | (Some(_), StoreUrl::Postgres(_)) => Ok(()),
            _ => Err(FilterError),
        }
    }
}

/// Use Postgres as the store, or remove the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`filter` stands in front of a postgres:// store, and `store` is another one")]
pub struct FilterError;

/// Why a text names no store. The text itself is not repeated: it may have a password in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreUrlError {
    /// Use one of these.
    #[error(
        "a store is sqlite:FILE, postgres://HOST/DATABASE, redis://HOST, dynamodb:TABLE or memory:"
    )]
    Unknown,
    /// Give the file's name after the colon.
    #[error("sqlite: needs the name of a file")]
    NoFile,
    /// Write the path right after the colon.
    #[error(
        "write the file right after `sqlite:`, as in sqlite:onlyonce.db or sqlite:/var/lib/onlyonce.db"
    )]
    Slashes,
    /// Write `memory:`.
    #[error("a store in memory is `memory:`")]
    SqliteMemory,
    /// Give a host and a database.
    #[error("a Postgres is postgres://USER:PASSWORD@HOST:PORT/DATABASE")]
    Postgres,
    /// Give a host.
    #[error("a Redis is redis://HOST:PORT, or rediss:// with TLS")]
    Redis,
    /// Give a table, and settings that there are.
    #[error(
        "a DynamoDB is dynamodb:TABLE, with ?region=…&endpoint=…&prefix=…&parts=off&sweep=scan"
    )]
    DynamoDb,
    /// Build with the feature.
    #[error("this build has no DynamoDB: build it with `--features dynamodb`")]
    NotBuilt,
    /// Set the variable.
    #[error("the variable after `env:` is not set")]
    NoVariable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_files_servers_or_memory() {
        let stores = [
            "sqlite:onlyonce.db",
            "sqlite:/var/lib/x.db",
            "postgres://db/keys",
            "postgresql://db:5432",
            "redis://cache:6379/2",
            "rediss://cache",
            "memory:",
        ];
        for text in stores {
            assert_eq!(text.parse::<StoreUrl>().unwrap().to_string(), text);
        }
        let cases = [
            ("sqlite:///x.db", StoreUrlError::Slashes),
            ("sqlite::memory:", StoreUrlError::SqliteMemory),
            ("sqlite:", StoreUrlError::NoFile),
            ("postgres:db", StoreUrlError::Postgres),
            ("postgres://me:pw@/x", StoreUrlError::Postgres),
            ("redis:cache", StoreUrlError::Redis),
            ("memory", StoreUrlError::Unknown),
            ("onlyonce.db", StoreUrlError::Unknown),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<StoreUrl>(), Err(error), "{text}");
        }
    }

    // threat H1
    #[test]
    fn a_password_is_never_shown() {
        let secrets = [
            "postgres://me:hunter2@db/x?sslmode=require&password=hunter2",
            "redis://:hunter2@cache",
            "postgres://me:hunter2@hunter2@db",
        ];
        for text in secrets {
            let store: StoreUrl = text.parse().unwrap();
            assert!(!format!("{store} {store:?}").contains("hunter2"), "{store} {store:?}");
            let (StoreUrl::Postgres(url) | StoreUrl::Redis(url)) = store else {
                panic!("{store} is a server");
            };
            assert_eq!(url.reveal(), text);
        }
    }

    #[test]
    fn only_a_redis_is_a_filter() {
        assert_eq!("redis://cache".parse::<FilterUrl>().unwrap().to_string(), "redis://cache");
        assert_eq!("postgres://db".parse::<FilterUrl>(), Err(StoreUrlError::Redis));
    }
}
