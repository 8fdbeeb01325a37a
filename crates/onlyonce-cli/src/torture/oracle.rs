//! Who counts executions. The strongest that was given is asked, and named in the report.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::sleep;

use super::shim::{Arrival, Shim};
use super::target::{Address, filled};
use super::wire::{self, Connector, Fault, Outcome};

/// Who counts executions.
#[derive(Clone, Debug)]
pub(crate) enum Oracle {
    /// This command is the service behind the target.
    Shim(Shim),
    /// `GET` of an address; headers are sent along.
    Url { connector: Connector, headers: Vec<(String, String)> },
    /// A command of the user.
    Command(String),
    /// A query: of `psql`, or of a SQLite file.
    Sql { database: String, query: String },
    /// The service calls back.
    Webhook(Shim),
    /// Nobody: two different answers prove a violation, and nothing proves that there is none.
    Answers,
}

impl Oracle {
    pub(crate) fn counts(&self) -> bool {
        !matches!(self, Self::Answers)
    }

    /// For people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Shim(shim) => format!("upstream shim at {}: exact", shim.address),
            Self::Url { connector, .. } => {
                let url = connector.address.url(&connector.address.path);
                format!("count URL {}", super::secrets::shown_url(&url))
            }
            Self::Command(_) => "count command".to_owned(),
            Self::Sql { .. } => "count query".to_owned(),
            Self::Webhook(shim) => format!("callbacks to {}", shim.address),
            Self::Answers => {
                "none (only answers can be compared: that proves violations, never their absence)"
                    .to_owned()
            }
        }
    }

    /// How often the request with this marker was executed.
    pub(crate) async fn count(&self, marker: &str) -> Result<u64, String> {
        let mut failed = String::new();
        for number in 0..TRIES {
            sleep(PAUSE * number).await;
            let counted = match self {
                Self::Shim(shim) | Self::Webhook(shim) => Ok(shim.executions(marker)),
                Self::Url { connector, headers } => by_url(connector, headers, marker).await,
                Self::Command(command) => by_command(&filled(command, marker, marker)).await,
                Self::Sql { database, query } => {
                    by_query(database, &filled(query, marker, marker)).await
                }
                Self::Answers => Err("nobody counts".to_owned()),
            };
            match counted {
                Ok(count) => return Ok(count),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// What is known of each execution.
    pub(crate) fn arrivals(&self, marker: &str) -> Vec<Arrival> {
        match self {
            Self::Shim(shim) | Self::Webhook(shim) => shim.arrivals(marker),
            _ => Vec::new(),
        }
    }

    /// The command line that asks it, for a person.
    pub(crate) fn question(&self, marker: &str) -> Option<String> {
        match self {
            Self::Url { connector, .. } => {
                let Address { path, .. } = &connector.address;
                let url = connector.address.url(&filled(path, marker, marker));
                Some(format!("curl -sS '{}'", super::secrets::shown_url(&url)))
            }
            Self::Command(command) => Some(filled(command, marker, marker)),
            Self::Sql { query, .. } => Some(format!("# {}", filled(query, marker, marker))),
            Self::Shim(_) | Self::Webhook(_) | Self::Answers => None,
        }
    }
}

async fn by_url(
    connector: &Connector,
    headers: &[(String, String)],
    marker: &str,
) -> Result<u64, String> {
    let Address { path, .. } = &connector.address;
    let mut request = format!("GET {} HTTP/1.1\r\n", filled(path, marker, marker));
    request += &format!("Host: {}\r\n", connector.address.authority());
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += "Accept: application/json, text/plain\r\nConnection: close\r\n\r\n";
    match wire::exchange(connector, request.as_bytes(), Fault::None, TIMEOUT).await {
        Outcome::Answered(answer) if answer.is_success() => {
            let text = String::from_utf8_lossy(&answer.body);
            number_in(&text).ok_or_else(|| "the count URL answered without a number".to_owned())
        }
        Outcome::Answered(answer) => Err(format!("the count URL answered {}", answer.status)),
        Outcome::NotConnected(error) | Outcome::Broken(error) => {
            Err(format!("the count URL: {error}"))
        }
        Outcome::TimedOut | Outcome::Cut(_) => {
            Err("the count URL did not answer in time".to_owned())
        }
    }
}

async fn by_command(command: &str) -> Result<u64, String> {
    let mut process = Command::new("sh");
    process.args(["-c", command]);
    number_of(process, "the count command").await
}

async fn by_query(database: &str, query: &str) -> Result<u64, String> {
    if database.starts_with("postgres://") || database.starts_with("postgresql://") {
        let mut process = Command::new("psql");
        process.args(["-X", "-A", "-t", "-c", query, database]);
        return number_of(process, "psql").await;
    }
    let (file, query) = (database.trim_start_matches("sqlite:").to_owned(), query.to_owned());
    let work = tokio::task::spawn_blocking(move || {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = rusqlite::Connection::open_with_flags(file, flags)?;
        connection.busy_timeout(TIMEOUT)?;
        connection.query_row(&query, [], |row| row.get::<_, i64>(0))
    });
    let counted = work.await.map_err(|error| error.to_string())?;
    let counted = counted.map_err(|error| format!("the count query: {error}"))?;
    u64::try_from(counted).map_err(|_| "the count query: a negative number".to_owned())
}

async fn number_of(mut process: Command, name: &str) -> Result<u64, String> {
    process.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, process.output()).await;
    let output = output.map_err(|_| format!("{name} did not end in time"))?;
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    number_in(&text).ok_or_else(|| format!("{name} printed no number"))
}

/// A number, a JSON object with one, or a list, whose members are counted.
fn number_in(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    match serde_json::from_str(text).ok()? {
        serde_json::Value::Array(members) => Some(members.len() as u64),
        serde_json::Value::Object(members) => {
            let named =
                ["count", "executions", "total", "n"].iter().find_map(|name| members.get(*name));
            let only = members.values().next().filter(|_| members.len() == 1);
            named.or(only).and_then(serde_json::Value::as_u64)
        }
        _ => None,
    }
}

/// How often the oracle is asked for one number.
const TRIES: u32 = 5;
/// Before the second time; before the third it is twice as long.
const PAUSE: Duration = Duration::from_millis(20);
/// How long it may take.
const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::number_in;

    #[test]
    fn a_count_is_read_in_the_ways_in_which_services_tell_it() {
        let texts =
            ["2\n", r#"{"count":2}"#, r#"{"executions":2,"of":7}"#, "[{},{}]", r#"{"rows":2}"#];
        assert_eq!(texts.map(number_in), [Some(2); 5]);
        assert_eq!(["", "none", "{}", "-1", "true"].map(number_in), [None; 5]);
    }
}
