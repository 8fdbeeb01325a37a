//! `onlyonce send`: one operation, retried to a known outcome.

mod key;
mod list;
mod report;
mod voice;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use onlyonce::client::{Budget, Client, Journal, Retries};
use onlyonce::key::Key;

use self::report::{Format, Report};
use self::voice::Voice;
use super::{demand_file, exit};
use crate::config::units;

/// Send one request, and retry it with the same key until its outcome is known
///
/// Attempts are printed on stderr, the body of the answer on stdout. Run the command again with the same key
/// (--key, --derive or -H 'Idempotency-Key: ...'), and a service that honours Idempotency-Key executes the
/// request once.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub struct Send {
    /// HTTP method; may be left out, then it is POST
    #[arg(value_name = "METHOD", conflicts_with_all = JOURNAL_COMMANDS)]
    method: Option<String>,
    /// Where the request is sent: http://... or https://...
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// JSON body; @FILE reads it from a file, @- from stdin
    #[arg(long, value_name = "BODY", conflicts_with = "data", conflicts_with_all = JOURNAL_COMMANDS)]
    json: Option<String>,
    /// Body as it is, sent as a form unless -H gives a Content-Type; @FILE and @- as for --json
    #[arg(short, long, value_name = "BODY", conflicts_with_all = JOURNAL_COMMANDS)]
    data: Option<String>,
    /// Header, 'Name: value'; may be repeated. 'Idempotency-Key: KEY' is the same as --key KEY
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Idempotency key of the request [default: a new random key, which is printed]
    #[arg(long, value_name = "KEY", conflicts_with = "derive", conflicts_with_all = JOURNAL_COMMANDS)]
    key: Option<String>,
    /// Make the key from identifiers of your business, one part each: --derive invoice --derive 17
    #[arg(long, value_name = "PART", conflicts_with_all = JOURNAL_COMMANDS)]
    derive: Vec<String>,
    /// Write the request to this file before it is sent, and remove it when its outcome is known
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Finish all requests that are open in the journal, each with its own key
    #[arg(long, requires = "journal", conflicts_with_all = ["list", "forget"])]
    resume: bool,
    /// List the requests that are open in the journal, without headers and bodies
    #[arg(long, requires = "journal", conflicts_with = "forget")]
    list: bool,
    /// Remove a request from the journal, because you know what became of it
    #[arg(long, value_name = "KEY", requires = "journal")]
    forget: Option<String>,
    /// Time limit for all attempts together, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    deadline: Duration,
    /// Time limit for one attempt, such as 500ms or 30s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    attempt_timeout: Duration,
    /// How long the service keeps keys, such as 12h; a request that is older and may have been executed is not
    /// sent again [default: as /.well-known/idempotency of the service says, else 24h]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    window: Option<Duration>,
    /// Number of attempts; asking about a request that is still running does not count, and one attempt that
    /// could not connect is free
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_attempts: u32,
    /// Output on stdout: the body of the answer (or a table), or JSON
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print nothing on stderr if the exit code is 0; needs --derive, --key or --journal, because a random key
    /// would be lost if the command were stopped
    #[arg(short, long)]
    quiet: bool,
}

/// What is done with the journal alone.
const JOURNAL_COMMANDS: [&str; 3] = ["resume", "list", "forget"];

const USAGE: &str = "\
onlyonce send [OPTIONS] [METHOD] URL
       onlyonce send [OPTIONS] --resume --journal FILE
       onlyonce send --list --journal FILE
       onlyonce send --forget KEY --journal FILE";

const EXAMPLES: &str = "\
Examples:
  onlyonce send POST http://127.0.0.1:8080/charges --json '{\"customer\":\"you\",\"amount\":100}'
  onlyonce send POST http://127.0.0.1:8080/charges --json @charge.json --derive invoice --derive 17
  onlyonce send POST http://127.0.0.1:8080/charges --json @charge.json --journal pay.journal
  onlyonce send --resume --journal pay.journal --quiet

States of --list:
  not executed       no attempt was executed; --resume sends it
  in doubt           it may have been executed; --resume asks again with the same key
  needs reconciling  it may have been executed, and asking again does not tell: check at the service
                     whether it was executed, then use --forget

Exit codes:
  0  executed: a 2xx answer, fresh or replayed
  1  refused by the service
  2  the command line must be changed; nothing was sent
  3  did not get through, or was refused for its credentials: send it again with the same key
  4  unknown: it may have been executed; send it again with the same key, or reconcile if the message
     says so; never send it with a new key";

impl Send {
    /// Sends, resumes, lists or forgets.
    pub fn run(self) -> ExitCode {
        match super::block_on(self.act()) {
            Ok(code) => code,
            Err(error) => exit::trouble(&format!("cannot start: {error}")),
        }
    }

    async fn act(self) -> ExitCode {
        let voice = Voice::new(self.quiet);
        let code = match (&self.forget, self.list, self.resume) {
            (Some(key), ..) => self.forget(key).await,
            (None, true, _) => self.list(&voice).await,
            (None, false, true) => self.resume(&voice).await,
            (None, false, false) => self.send(&voice).await,
        };
        let code = code.unwrap_or_else(|code| code);
        voice.end(code);
        code
    }

    async fn client(&self, voice: &Voice) -> Result<Client, ExitCode> {
        let voice = voice.clone();
        let retries = Retries::new()
            .with_deadline(self.deadline)
            .with_attempt_timeout(self.attempt_timeout)
            .with_attempts(self.max_attempts)
            .with_observer(move |event| voice.tell(event));
        let retries = match self.window {
            Some(window) => retries.with_window(window),
            None => retries,
        };
        // One process for one operation: there is no other traffic that could pay for its retries.
        let tokens = 2.0 * f64::from(self.max_attempts) + 2.0;
        let budget = Budget::with(tokens.max(20.0), 0.1, RESUMED_TOKENS_PER_S);
        let mut client = Client::new().with_retries(retries.with_budget(Arc::new(budget)));
        for header in &self.headers {
            let (name, value) = parsed_header(header).map_err(|message| exit::usage(&message))?;
            if name != key::HEADER {
                client = client.with_header(name, value);
            }
        }
        match &self.journal {
            Some(path) => Ok(client.with_journal(open(path).await?)),
            None => Ok(client),
        }
    }

    async fn send(&self, voice: &Voice) -> Result<ExitCode, ExitCode> {
        let (method, url) = self.target().map_err(|message| exit::usage(&message))?;
        let body = self.body().map_err(|message| exit::usage(&message))?;
        let key = self.given_key().map_err(|message| exit::usage(&message))?;
        if self.quiet && key.is_none() && self.journal.is_none() {
            return Err(exit::usage(
                "--quiet does not print the random key, which would be lost if this command were \
                 stopped; give --key, --derive or --journal",
            ));
        }
        let mut request = self.client(voice).await?.request(method, &url).body(body);
        // The journal does not know of earlier runs either: it forgets what is settled.
        let has_unknown_past = key.is_some();
        if let Some(key) = key {
            request = request.with_key(key);
        }
        if let Some(media_type) = self.media_type() {
            request = request.header(http::header::CONTENT_TYPE, media_type);
        }
        let key = request.key().clone();
        voice.say(&format!("key {}", key.as_str()));
        let mut code = ExitCode::SUCCESS;
        // Printed before the journal lets go of the request.
        let end = request.send_and_tell(|end| {
            let report = match end {
                Ok(outcome) if has_unknown_past => {
                    Report::of(&key, end).with_advice(outcome.advice_for_given_key())
                }
                _ => Report::of(&key, end),
            };
            code = report.exit_code();
            let printed = report.print(self.format, voice);
            self.say_if_not_printed(&printed, voice);
            printed
        });
        drop(end.await);
        Ok(code)
    }

    fn say_if_not_printed(&self, printed: &std::io::Result<()>, voice: &Voice) {
        let Err(error) = printed else { return };
        match &self.journal {
            Some(_) => voice.say_in_any_case(&format!(
                "the outcome could not be printed, so the request stays in the journal: {error}. Run --resume to get it again"
            )),
            // Whoever reads stdout has heard enough.
            None if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            None => voice.say_in_any_case(&format!("the outcome could not be printed: {error}")),
        }
    }

    async fn resume(&self, voice: &Voice) -> Result<ExitCode, ExitCode> {
        if self.given_key().map_err(|message| exit::usage(&message))?.is_some() {
            let message = "--resume uses the keys of the journal; leave -H 'Idempotency-Key' out";
            return Err(exit::usage(message));
        }
        self.demand_journal()?;
        voice.name_keys();
        let client = self.client(voice).await?;
        // Each is printed before the journal lets go of it.
        let tell = |key: &Key, end: &Result<_, _>| {
            let printed = Report::of(key, end).print_line(self.format, voice);
            self.say_if_not_printed(&printed, voice);
            printed
        };
        let resumed = client.resume_and_tell(tell).await;
        let resumed = resumed.map_err(|error| exit::trouble(&error.to_string()))?;
        let is_empty = resumed.operations.is_empty() && resumed.failures.is_empty();
        if is_empty && resumed.left == 0 {
            voice.say("nothing is open in the journal");
        }
        Ok(report::conclude(&resumed, voice))
    }

    async fn list(&self, voice: &Voice) -> Result<ExitCode, ExitCode> {
        let entries = self.existing_journal().await?.entries().await;
        let entries = entries.map_err(|error| exit::trouble(&error.to_string()))?;
        if entries.is_empty() {
            voice.say("nothing is open in the journal");
        }
        list::print(&entries, self.format);
        Ok(ExitCode::SUCCESS)
    }

    async fn forget(&self, key: &str) -> Result<ExitCode, ExitCode> {
        let key = key::parsed("--forget", key).map_err(|message| exit::usage(&message))?;
        match self.existing_journal().await?.forget(&key).await {
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => Err(exit::bad_news("the journal has no request with this key")),
            Err(error) => Err(exit::trouble(&error.to_string())),
        }
    }

    async fn existing_journal(&self) -> Result<Journal, ExitCode> {
        open(self.demand_journal()?).await
    }

    /// A journal that is not there is an error: an empty one in its place would look as if all were well.
    fn demand_journal(&self) -> Result<&Path, ExitCode> {
        let Some(path) = &self.journal else { return Err(exit::usage("--journal is missing")) };
        demand_file(path).map_err(|message| exit::usage(&message))?;
        Ok(path)
    }

    fn target(&self) -> Result<(Method, String), String> {
        let (method, url) = match (&self.method, &self.url) {
            (Some(method), Some(url)) => (method.to_ascii_uppercase(), url.clone()),
            (Some(url), None) => ("POST".to_owned(), url.clone()),
            _ => return Err("the URL is missing: onlyonce send [METHOD] URL".to_owned()),
        };
        let parsed = Method::from_bytes(method.as_bytes());
        let parsed = parsed.map_err(|_| format!("`{method}` is not an HTTP method"))?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(format!("the URL must begin with http:// or https://, but is `{url}`"));
        }
        Ok((parsed, url))
    }

    /// The key that was given, in whichever way; all ways must agree.
    fn given_key(&self) -> Result<Option<Key>, String> {
        key::agreed(self.key.as_deref(), &self.derive, &self.headers)
    }

    fn body(&self) -> Result<Bytes, String> {
        let Some(text) = self.json.as_ref().or(self.data.as_ref()) else { return Ok(Bytes::new()) };
        let body = read(text)?;
        if self.json.is_some() {
            let checked: Result<serde_json::Value, _> = serde_json::from_slice(&body);
            checked.map_err(|error| format!("--json is not JSON: {error}"))?;
        }
        Ok(body)
    }

    /// What the body is, unless a header says so.
    fn media_type(&self) -> Option<&'static str> {
        let named = |header: &String| header.to_ascii_lowercase().starts_with("content-type:");
        match (&self.json, &self.data) {
            _ if self.headers.iter().any(named) => None,
            (Some(_), _) => Some("application/json"),
            (None, Some(_)) => Some("application/x-www-form-urlencoded"),
            (None, None) => None,
        }
    }
}

async fn open(path: &Path) -> Result<Journal, ExitCode> {
    let journal = Journal::open(path).await;
    journal.map_err(|error| exit::trouble(&format!("{}: {error}", path.display())))
}

/// The text itself, or what is in the file that it names.
fn read(text: &str) -> Result<Bytes, String> {
    let read = match text.strip_prefix('@') {
        None => return Ok(Bytes::copy_from_slice(text.as_bytes())),
        Some("-") => {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).map(|_| bytes)
        }
        Some(path) => std::fs::read(path),
    };
    read.map(Bytes::from).map_err(|error| format!("cannot read {text}: {error}"))
}

/// Name and value of `Name: value`.
fn parsed_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = text.split_once(':').and_then(|(name, value)| {
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value))
    });
    // Not shown: it may be a credential.
    parsed.ok_or_else(|| "a header must look like -H 'Name: value'".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = units::duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("it must be longer than zero".to_owned()) } else { Ok(duration) }
}

/// Budget that `--resume` gets back per second: enough for about ten operations.
const RESUMED_TOKENS_PER_S: f64 = 20.0;
