//! `onlyonce send`: one operation, retried to a known outcome.

mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use onlyonce::client::{Budget, Client, Event, Journal, Retries};
use onlyonce::key::{Key, KeyRules};

use self::report::{Format, Report};
use super::exit;
use crate::config::units;

/// Send one operation, and retry it with one key until its outcome is known.
///
/// Prints each attempt on stderr and the answer's body on stdout. Run it again with the same --key or
/// --derive, and a service that honours Idempotency-Key does nothing twice.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Send {
    /// METHOD URL, or URL alone for POST
    #[arg(value_name = "METHOD] [URL", num_args = 1..=2, required_unless_present_any = ["resume", "forget"], conflicts_with_all = ["resume", "forget"])]
    target: Vec<String>,
    /// The body as JSON; @FILE reads it from a file, @- from stdin
    #[arg(long, value_name = "BODY", conflicts_with = "data")]
    json: Option<String>,
    /// The body as it is, sent as a form unless a Content-Type is given; @FILE and @- as above
    #[arg(short, long, value_name = "BODY")]
    data: Option<String>,
    /// A header, 'Name: value'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The operation's key [default: a new one, which is printed]
    #[arg(long, value_name = "KEY", conflicts_with = "derive")]
    key: Option<String>,
    /// Make the key from what the operation is in your business, part by part: --derive invoice --derive 17
    #[arg(long, value_name = "PART")]
    derive: Vec<String>,
    /// Write the operation to this file before it is sent, and strike it out when it is settled
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Finish all that is open in the journal, with the same keys
    #[arg(long, requires = "journal")]
    resume: bool,
    /// Strike an operation out of the journal: you know what became of it
    #[arg(long, value_name = "KEY", requires = "journal", conflicts_with = "resume")]
    forget: Option<String>,
    /// How long all attempts may take together
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    deadline: Duration,
    /// How long one attempt may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    attempt_timeout: Duration,
    /// How often it is sent; asking about an operation that is still at work does not count
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_attempts: u32,
    /// How the outcome is told on stdout: the body alone, or a summary as JSON
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce send POST http://127.0.0.1:8080/charges --json '{\"customer\":\"you\",\"amount\":100}'
  onlyonce send POST http://127.0.0.1:8080/charges --json @charge.json --derive invoice --derive 17
  onlyonce send POST http://127.0.0.1:8080/charges --json @charge.json --journal pay.journal
  onlyonce send --resume --journal pay.journal

Exit codes:
  0  it happened: an answer below 400, fresh or replayed
  1  a definite refusal: nothing happened
  2  the command line must be changed; nothing was sent
  3  it never got through: nothing happened, send it again with the same key
  4  unknown: it may have happened; send it again with the same key, never with a new one";

impl Send {
    /// Sends, resumes or forgets.
    pub fn run(self) -> ExitCode {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.act()),
            Err(error) => exit::trouble(&format!("cannot start: {error}")),
        }
    }

    async fn act(self) -> ExitCode {
        let client = match self.client().await {
            Ok(client) => client,
            Err(code) => return code,
        };
        match (&self.forget, self.resume) {
            (Some(key), _) => self.forget(key).await,
            (None, true) => self.resume(&client).await,
            (None, false) => self.send(&client).await,
        }
    }

    async fn client(&self) -> Result<Client, ExitCode> {
        let retries = Retries::new()
            .with_deadline(self.deadline)
            .with_attempt_timeout(self.attempt_timeout)
            .with_attempts(self.max_attempts)
            .with_observer(tell);
        // One process for one operation: there is no other traffic that could pay for its retries.
        let tokens = 2.0 * f64::from(self.max_attempts) + 2.0;
        let budget = Budget::with(tokens.max(20.0), 0.1, RESUMED_TOKENS_PER_S);
        let mut client = Client::new().with_retries(retries.with_budget(Arc::new(budget)));
        for header in &self.headers {
            let (name, value) = parsed_header(header).map_err(|message| exit::usage(&message))?;
            client = client.with_header(name, value);
        }
        match &self.journal {
            Some(path) => Ok(client.with_journal(open(path).await?)),
            None => Ok(client),
        }
    }

    async fn send(&self, client: &Client) -> ExitCode {
        let (method, url, body, key) = match self.operation() {
            Ok(operation) => operation,
            Err(message) => return exit::usage(&message),
        };
        let mut request = client.request(method, &url).body(body);
        if let Some(key) = key {
            request = request.with_key(key);
        }
        if let Some(media_type) = self.media_type() {
            request = request.header(http::header::CONTENT_TYPE, media_type);
        }
        let key = request.key().clone();
        eprintln!("onlyonce: key {}", key.as_str());
        let end = request.send().await;
        Report::of(&key, &end).print(self.format)
    }

    async fn resume(&self, client: &Client) -> ExitCode {
        let resumed = match client.resume().await {
            Ok(resumed) => resumed,
            Err(error) => return exit::trouble(&error.to_string()),
        };
        if resumed.operations.is_empty() && resumed.left == 0 {
            eprintln!("onlyonce: nothing is open");
        }
        let reports: Vec<_> =
            resumed.operations.iter().map(|(key, end)| Report::of(key, end)).collect();
        report::print_all(&reports, resumed.left, self.format)
    }

    async fn forget(&self, key: &str) -> ExitCode {
        let Some(path) = &self.journal else { return exit::usage("--forget needs --journal FILE") };
        let key = match Key::from_text(key, &KeyRules::default()) {
            Ok(key) => key,
            Err(error) => return exit::usage(&format!("--forget: {error}")),
        };
        let journal = match open(path).await {
            Ok(journal) => journal,
            Err(code) => return code,
        };
        match journal.forget(&key).await {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => exit::bad_news("no such key is open in the journal"),
            Err(error) => exit::trouble(&error.to_string()),
        }
    }

    fn operation(&self) -> Result<(Method, String, Bytes, Option<Key>), String> {
        let (method, url) = match &self.target[..] {
            [url] => (Method::POST, url.clone()),
            [method, url] => {
                let method = method.to_ascii_uppercase();
                let parsed = Method::from_bytes(method.as_bytes());
                (parsed.map_err(|_| format!("`{method}` is no method"))?, url.clone())
            }
            _ => return Err("say METHOD and URL".to_owned()),
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(format!(
                "`{url}` must begin with http:// or https://; say METHOD, then URL"
            ));
        }
        Ok((method, url, self.body()?, self.key()?))
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

    fn key(&self) -> Result<Option<Key>, String> {
        match &self.key {
            Some(key) => {
                let key = Key::from_text(key, &KeyRules::default());
                key.map(Some).map_err(|error| format!("--key: {error}"))
            }
            None if self.derive.is_empty() => Ok(None),
            None => Ok(Some(Key::derive(&self.derive))),
        }
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

async fn open(path: &std::path::Path) -> Result<Journal, ExitCode> {
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
    if duration.is_zero() { Err("it must be longer than nothing".to_owned()) } else { Ok(duration) }
}

/// Attempts as they happen.
fn tell(event: &Event<'_>) {
    match event {
        Event::Answered { number, answer } => {
            let replayed = if answer.is_replay() { ", replayed" } else { "" };
            eprintln!("onlyonce: attempt {number}: {}{replayed}", answer.status);
        }
        Event::Failed { number, failure } => {
            let causes = report::causes(failure.source.as_ref());
            eprintln!("onlyonce: attempt {number}: {failure}: {causes}");
        }
        Event::Waiting { wait } => {
            eprintln!("onlyonce: the same again in {:.1} s", wait.as_secs_f64());
        }
        Event::Redirected { to } => eprintln!("onlyonce: redirected to {to}"),
        _ => {}
    }
}

/// What `--resume` may do a second, in tokens: about ten operations.
const RESUMED_TOKENS_PER_S: f64 = 20.0;
