//! The address of a store: server, database, schema, and how the connection is secured.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::PostgresOpenError;
use super::tls::{Trust, connector};

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
    /// Held by each connection until it has said goodbye.
    pub(super) alive: Option<mpsc::Sender<()>>,
}

impl ServerAddress {
    /// Takes our own parameters out of `url` and leaves the others to the client below.
    pub(super) fn parse(url: &str, schema: Option<&str>) -> Result<Self, PostgresOpenError> {
        let SplitUrl { rest, ours } = SplitUrl::split(url)?;
        let mut config: Config = rest.parse().map_err(bad_url)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(PostgresOpenError::BadUrl("it names no host".to_owned()));
        }
        if config.get_application_name().is_none() {
            config.application_name("onlyonce");
        }
        config.connect_timeout(HOST_WAIT_MAX);
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(2);
        let trust = ours.trust(&mut config)?;
        let schema = schema.or(ours.schema.as_deref()).unwrap_or(SCHEMA);
        Ok(Self {
            name: name(&config),
            schema: quoted(schema)?,
            is_unverified: matches!(trust, Trust::Anyone)
                && config.get_ssl_mode() != SslMode::Disable,
            tls: connector(&trust)?,
            alive: None,
            config,
        })
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} schema {}", self.name, self.schema)
    }
}

/// A URL without the parameters that only we read.
struct SplitUrl {
    rest: String,
    ours: Ours,
}

#[derive(Default)]
struct Ours {
    schema: Option<String>,
    ssl_mode: Option<String>,
    root_cert: Option<PathBuf>,
}

impl SplitUrl {
    fn split(url: &str) -> Result<Self, PostgresOpenError> {
        let mut ours = Ours::default();
        let Some((before, query)) = url.split_once('?') else {
            return Ok(Self { rest: url.to_owned(), ours });
        };
        let mut others = Vec::new();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("schema", value)) => ours.schema = Some(decoded(value)?),
                Some(("sslmode", value)) => ours.ssl_mode = Some(decoded(value)?),
                Some(("sslrootcert", value)) => ours.root_cert = Some(decoded(value)?.into()),
                _ => others.push(pair),
            }
        }
        let rest = if others.is_empty() {
            before.to_owned()
        } else {
            format!("{before}?{}", others.join("&"))
        };
        Ok(Self { rest, ours })
    }
}

impl Ours {
    /// As libpq reads these words: only `verify-full` checks who answers.
    fn trust(&self, config: &mut Config) -> Result<Trust, PostgresOpenError> {
        let (mode, trust) = match self.ssl_mode.as_deref() {
            Some("disable") => (SslMode::Disable, Trust::Anyone),
            None | Some("prefer") => (SslMode::Prefer, Trust::Anyone),
            Some("require") => (SslMode::Require, Trust::Anyone),
            Some("verify-full") => (SslMode::Require, Trust::Verified(self.root_cert.clone())),
            Some(other) => {
                let why =
                    format!("sslmode is {other:?}: give disable, prefer, require or verify-full");
                return Err(PostgresOpenError::BadUrl(why));
            }
        };
        config.ssl_mode(mode);
        Ok(trust)
    }
}

fn bad_url(error: tokio_postgres::Error) -> PostgresOpenError {
    let cause =
        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    PostgresOpenError::BadUrl(cause)
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
    let bad = || PostgresOpenError::BadUrl("a parameter is not percent-encoded UTF-8".to_owned());
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).ok_or_else(bad)?;
        bytes.push(u8::from_str_radix(code, 16).map_err(|_| bad())?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| bad())
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
