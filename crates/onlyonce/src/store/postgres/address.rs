//! The address of a store: server, database, schema, and how the connection is secured.

use std::error::Error as _;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio::time::error::Elapsed;
use tokio_postgres::config::Host;
use tokio_postgres::{Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::PostgresOpenError;
use super::identity::LastIdentity;
use super::tls::connector;

/// A parsed address. It is shown without its password.
#[derive(Clone)]
pub(super) struct ServerAddress {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// Quoted, as statements name it.
    pub(super) schema: String,
    /// Server and database, for people.
    pub(super) name: String,
    /// The connection is encrypted, and nobody checks who answers.
    pub(super) is_unverified: bool,
    /// Where the last connection led.
    pub(super) identity: LastIdentity,
}

impl ServerAddress {
    /// Takes our own parameters out of `url` and leaves the others to the client below. As libpq reads `sslmode`, only
    /// `verify-full` checks who answers.
    pub(super) fn parse(url: &str, schema: Option<&str>) -> Result<Self, PostgresOpenError> {
        let (before, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut others, mut in_url, mut root_cert, mut is_verified) =
            (Vec::new(), None, None, false);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("schema", value)) => in_url = Some(decoded(value)?),
                Some(("sslrootcert", value)) => root_cert = Some(decoded(value)?),
                Some(("sslmode", "verify-full")) => {
                    is_verified = true;
                    others.push("sslmode=require");
                }
                _ => others.push(pair),
            }
        }
        let schema = schema.or(in_url.as_deref()).unwrap_or(SCHEMA);
        let mark = if others.is_empty() { "" } else { "?" };
        let config = configured(&format!("{before}{mark}{}", others.join("&")))?;
        Ok(Self {
            name: name(&config),
            schema: quoted(schema)?,
            is_unverified: !is_verified,
            identity: LastIdentity::default(),
            tls: connector(is_verified, root_cert.as_deref().map(Path::new))?,
            config,
        })
    }

    /// What the client said of this server.
    pub(super) fn failed(&self, error: Error) -> PostgresOpenError {
        PostgresOpenError::from_client(&self.name, &self.schema, error)
    }

    /// Nobody answered in time.
    pub(super) fn silent(&self, elapsed: Elapsed) -> PostgresOpenError {
        PostgresOpenError::Unreachable(self.name.clone(), elapsed.into())
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} schema {}", self.name, self.schema)
    }
}

fn configured(url: &str) -> Result<Config, PostgresOpenError> {
    let mut config: Config = url.parse().map_err(|error: Error| {
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        PostgresOpenError::BadUrl(cause)
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(PostgresOpenError::BadUrl("it names no host".to_owned()));
    }
    if config.get_application_name().is_none() {
        config.application_name("onlyonce");
    }
    config.connect_timeout(HOST_WAIT_MAX);
    config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(2);
    Ok(config)
}

fn name(config: &Config) -> String {
    let hosts = config.get_hosts().iter().zip(0..).map(|(host, at)| {
        let ports = config.get_ports();
        let port = ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(host) => format!("{host}:{port}"),
            Host::Unix(path) => path.display().to_string(),
        }
    });
    let hosts: Vec<_> = hosts.collect();
    let database = config.get_dbname().or_else(|| config.get_user()).unwrap_or_default();
    format!("{}/{database}", hosts.join(","))
}

/// A name that Postgres takes as it is.
fn quoted(schema: &str) -> Result<String, PostgresOpenError> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&schema.len())
        && !schema.starts_with("pg_")
        && !schema.chars().any(char::is_control);
    if !is_name {
        return Err(PostgresOpenError::BadSchema(schema.to_owned()));
    }
    Ok(format!("\"{}\"", schema.replace('"', "\"\"")))
}

fn decoded(text: &str) -> Result<String, PostgresOpenError> {
    let bad = |_| PostgresOpenError::BadUrl("a parameter is not percent-encoded UTF-8".to_owned());
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(bad)
}

/// The schema of a store that names none.
const SCHEMA: &str = "onlyonce";
/// Longer names are cut off by Postgres.
const NAME_BYTES_MAX: usize = 63;
/// How long one host may take to be reached before the next is tried.
const HOST_WAIT_MAX: Duration = Duration::from_secs(2);
const KEEPALIVE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<ServerAddress, PostgresOpenError> {
        ServerAddress::parse(url, None)
    }

    #[test]
    fn a_schema_comes_from_the_options_or_the_url_or_is_ours() {
        let schema = |url, option| ServerAddress::parse(url, option).unwrap().schema;
        assert_eq!(schema("postgres://u@h/d", None), "\"onlyonce\"");
        assert_eq!(schema("postgres://u@h/d?schema=a%20%22b", None), "\"a \"\"b\"");
        assert_eq!(schema("postgres://u@h/d?schema=a", Some("b")), "\"b\"");
    }

    #[test]
    fn a_name_that_postgres_would_change_is_refused() {
        for schema in ["", "pg_x", "a\0b", &"x".repeat(64)] {
            let refused = ServerAddress::parse("postgres://u@h/d", Some(schema));
            assert!(matches!(refused, Err(PostgresOpenError::BadSchema { .. })), "{schema:?}");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address = parse("postgres://u:secret@a,b:5/d?target_session_attrs=read-write").unwrap();
        assert_eq!(address.name, "a:5432,b:5/d");
        assert!(!format!("{address:?}").contains("secret"));
    }

    #[test]
    fn what_is_not_an_address_is_refused() {
        for url in [
            "",
            "nonsense",
            "postgres://",
            "postgres://h/d?sslmode=verify-ca",
            "postgres://h/d?x=%zz",
        ] {
            assert!(matches!(parse(url), Err(PostgresOpenError::BadUrl { .. })), "{url:?}");
        }
    }
}
