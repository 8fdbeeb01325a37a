//! The command line of `torture`, and what it makes of itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

use crate::config::units;
use crate::torture::Hooks;
use crate::torture::plan::{Options, PLAIN_MAX, Program};
use crate::torture::report::Format;
use crate::torture::secrets::Secrets;
use crate::torture::target::{Address, Target};

/// Attack an API with duplicates, cuts and races: can one key execute twice, or an answer lie?
///
/// Sends the request again and again with one key, at the same instant, over connections that are cut, as another caller,
/// with another body. Says what was seen, with a curl script that repeats it. For a verdict somebody must count executions:
/// --upstream-shim, --count-url, --count-sql, --count-cmd or --webhook-listen.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct Torture {
    /// Where the request goes; several are nodes of one service
    #[arg(value_name = "URL", required_unless_present = "config")]
    pub(super) urls: Vec<String>,
    /// File of flags in TOML: count-url = "…" is --count-url; the command line comes after it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// JSON body, or @FILE; {marker} stands for a text that is counted, {key} for the key [default: {"marker":"{marker}"}]
    #[arg(long, value_name = "BODY", conflicts_with = "data")]
    json: Option<String>,
    /// Body as it is, or @FILE, sent as a form unless -H gives a Content-Type
    #[arg(short, long, value_name = "BODY")]
    data: Option<String>,
    /// Body that the service refuses with 4xx or 5xx (T9) [default: the body without its end]
    #[arg(long, value_name = "BODY")]
    fail_json: Option<String>,
    /// HTTP method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "POST")]
    method: String,
    /// Header of every request, 'Name: value'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Header with the credentials of the caller, 'Name: value'
    #[arg(long, value_name = "HEADER")]
    auth_a: Vec<String>,
    /// Header with the credentials of a second caller (T8)
    #[arg(long, value_name = "HEADER")]
    auth_b: Vec<String>,
    /// Header that carries the key
    #[arg(long, value_name = "NAME", default_value = "Idempotency-Key")]
    key_header: String,
    /// Keys are UUIDs, for services that take no others
    #[arg(long)]
    uuid_keys: bool,
    /// Certificates to trust for https, as PEM
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,

    /// Be the service behind the gateway under test, at this address: exact counts
    #[arg(long, value_name = "ADDRESS", help_heading = "Who counts executions")]
    pub(super) upstream_shim: Option<SocketAddr>,
    /// How long an execution takes in the shim
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = units::duration, help_heading = "Who counts executions")]
    pub(super) shim_time: Duration,
    /// Address that tells how often a {marker} was executed: a number, or JSON with one
    #[arg(long, value_name = "URL", help_heading = "Who counts executions")]
    pub(super) count_url: Option<String>,
    /// Header of the count URL, 'Name: value'
    #[arg(long = "count-header", value_name = "HEADER", help_heading = "Who counts executions")]
    pub(super) count_headers: Vec<String>,
    /// Query that counts a {marker}, for --count-db
    #[arg(long, value_name = "SQL", requires = "count_db", help_heading = "Who counts executions")]
    pub(super) count_sql: Option<String>,
    /// Database of --count-sql: postgres://… (by psql) or a SQLite file
    #[arg(
        long,
        value_name = "DATABASE",
        requires = "count_sql",
        help_heading = "Who counts executions"
    )]
    pub(super) count_db: Option<String>,
    /// Shell command that prints how often a {marker} was executed
    #[arg(long, value_name = "COMMAND", help_heading = "Who counts executions")]
    pub(super) count_cmd: Option<String>,
    /// Listen here for callbacks of the service, and count those with a marker
    #[arg(long, value_name = "ADDRESS", help_heading = "Who counts executions")]
    pub(super) webhook_listen: Option<SocketAddr>,

    /// Programs to run, such as T1,T2
    #[arg(long, value_name = "PROGRAMS", value_delimiter = ',', value_parser = Program::parse, help_heading = "What is done")]
    only: Vec<Program>,
    /// Programs to leave out
    #[arg(long, value_name = "PROGRAMS", value_delimiter = ',', value_parser = Program::parse, help_heading = "What is done")]
    skip: Vec<Program>,
    /// Makes the same plan again; a target that knows its keys already must be emptied first [default: random]
    #[arg(long, value_name = "N", help_heading = "What is done")]
    pub(super) seed: Option<u64>,
    /// Most requests that are sent
    #[arg(long, value_name = "N", default_value_t = 3000, help_heading = "What is done")]
    pub(super) requests_max: usize,
    /// Requests a second, bursts excepted
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "What is done")]
    pub(super) rate: u32,
    /// Requests of the hot key (T15)
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=10_000), help_heading = "What is done")]
    crowd: u32,
    /// How long an answer may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration, help_heading = "What is done")]
    pub(super) timeout: Duration,
    /// How long an execution may come after its answer, for a service that works later
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = units::duration, help_heading = "Who counts executions")]
    pub(super) settle: Duration,
    /// How long the attacks may last; then there is a verdict on what was done
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = units::duration, help_heading = "What is done")]
    pub(super) time_limit: Duration,
    /// Shell command that kills the service (T10)
    #[arg(long, value_name = "COMMAND", requires = "start_cmd", help_heading = "What is done")]
    kill_cmd: Option<String>,
    /// Shell command that starts it again, and returns
    #[arg(long, value_name = "COMMAND", requires = "kill_cmd", help_heading = "What is done")]
    start_cmd: Option<String>,
    /// Process to stop and continue (T10)
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(2..), help_heading = "What is done")]
    pid: Option<i32>,
    /// Lease of the service: --pid is stopped for 1.5 times as long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration, help_heading = "What is done")]
    lease: Duration,
    /// Shell command that restarts the store (T12)
    #[arg(long, value_name = "COMMAND", help_heading = "What is done")]
    store_restart_cmd: Option<String>,
    /// Shell command that empties a cache in front of the store (T12)
    #[arg(long, value_name = "COMMAND", help_heading = "What is done")]
    store_flush_cmd: Option<String>,
    /// Shell command to run at the end
    #[arg(long, value_name = "COMMAND", help_heading = "What is done")]
    pub(super) cleanup_cmd: Option<String>,
    /// Host that may be attacked though it is not this machine; may be repeated
    #[arg(long = "allow-host", value_name = "HOST", help_heading = "What is done")]
    allow_hosts: Vec<String>,
    /// Print what would be sent, and send nothing
    #[arg(long, help_heading = "What is done")]
    pub(super) dry_run: bool,

    /// Report on stdout
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, help_heading = "Report")]
    pub(super) format: Format,
    /// Report in a file: .txt, .md, .html, .json or .xml (JUnit); may be repeated
    #[arg(long = "report", value_name = "FILE", value_parser = report_file, help_heading = "Report")]
    pub(super) reports: Vec<String>,
    /// No progress on stderr
    #[arg(short, long, help_heading = "Report")]
    pub(super) quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce torture http://127.0.0.1:8080/charges --json '{\"amount\":100,\"marker\":\"{marker}\"}' \\
      --count-url 'http://127.0.0.1:9000/count?marker={marker}'
  onlyonce torture http://127.0.0.1:8080/charges --upstream-shim 127.0.0.1:9000 --report torture.html
  onlyonce torture http://127.0.0.1:8080/charges --only T2,T8 --auth-a 'Authorization: Bearer a' \\
      --auth-b 'Authorization: Bearer b' --count-cmd 'grep -c {marker} executions.log'
  onlyonce torture http://127.0.0.1:8080/charges --dry-run

Exit codes:
  0  no violation was observed
  1  violated: the report has the evidence
  2  the command line must be changed
  3  the target cannot be reached, or refuses plain requests
  4  inconclusive: nobody counts executions, too little was put to the test, or --time-limit came first";

impl Torture {
    pub(super) fn target(&self) -> Result<Target, String> {
        let nodes: Vec<_> =
            self.urls.iter().map(|url| Address::parse(url)).collect::<Result<_, _>>()?;
        if nodes.is_empty() {
            return Err("the URL is missing".to_owned());
        }
        let method = self.method.to_ascii_uppercase();
        Method::from_bytes(method.as_bytes())
            .map_err(|_| format!("`{method}` is not an HTTP method"))?;
        HeaderName::from_bytes(self.key_header.as_bytes())
            .map_err(|_| format!("`{}` is not the name of a header", self.key_header))?;
        let mut given = headers("--header", &self.headers)?;
        let at = given.iter().position(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let given_type = at.map(|at| given.remove(at).1);
        let (body, media_type) = match (&self.json, &self.data) {
            (Some(json), _) => (text_of(json)?, "application/json"),
            (None, Some(data)) => (text_of(data)?, "application/x-www-form-urlencoded"),
            (None, None) => ("{\"marker\":\"{marker}\"}".to_owned(), "application/json"),
        };
        if self.data.is_none() {
            let example =
                body.replace("{marker}", "m").replace("{key}", "k").replace("{amount}", "1");
            let checked: Result<serde_json::Value, _> = serde_json::from_str(&example);
            checked.map_err(|error| format!("--json is not JSON: {error}"))?;
        }
        let (auth_a, auth_b) =
            (headers("--auth-a", &self.auth_a)?, headers("--auth-b", &self.auth_b)?);
        let count_headers = headers("--count-header", &self.count_headers)?;
        let secrets = Secrets::of(given.iter().chain(&auth_a).chain(&auth_b).chain(&count_headers));
        Ok(Target {
            nodes,
            method,
            key_header: self.key_header.clone(),
            headers: given,
            auth_a,
            auth_b,
            content_type: Some(given_type.unwrap_or_else(|| media_type.to_owned())),
            body,
            refused_body: self.fail_json.clone(),
            secrets,
        })
    }

    pub(super) fn options(&self, seed: u64) -> Options {
        Options {
            seed,
            only: self.only.clone(),
            skip: self.skip.clone(),
            crowd: crowd_within(self.crowd as usize, self.requests_max),
            has_second_caller: !self.auth_b.is_empty() && !self.auth_a.is_empty(),
            has_shim: self.upstream_shim.is_some(),
            has_json_body: self.data.is_none(),
            has_uuid_keys: self.uuid_keys,
            has_kill: self.kill_cmd.is_some(),
            has_pid: self.pid.is_some(),
            has_store_restart: self.store_restart_cmd.is_some(),
            has_store_flush: self.store_flush_cmd.is_some(),
        }
    }

    pub(super) fn hooks(&self) -> Hooks {
        Hooks {
            kill: self.kill_cmd.clone(),
            start: self.start_cmd.clone(),
            pid: self.pid,
            lease: self.lease,
            store_restart: self.store_restart_cmd.clone(),
            store_flush: self.store_flush_cmd.clone(),
        }
    }

    /// Nobody is attacked by mistake, and nothing is counted that cannot be told apart.
    pub(super) fn check(&self, target: &Target) -> Result<(), String> {
        let counted = self.count_url.as_ref().map(|url| Address::parse(url)).transpose()?;
        for address in target.nodes.iter().chain(&counted) {
            if !address.is_loopback() && !self.allow_hosts.contains(&address.host) {
                let host = &address.host;
                return Err(format!(
                    "{host} is not this machine; if you may attack it, add --allow-host {host}"
                ));
            }
        }
        let questions = [
            ("--count-url", &self.count_url),
            ("--count-cmd", &self.count_cmd),
            ("--count-sql", &self.count_sql),
        ];
        for (name, question) in questions {
            if question.as_ref().is_some_and(|question| !question.contains("{marker}")) {
                return Err(format!(
                    "{name} must contain {{marker}}, so that each request is counted by itself"
                ));
            }
        }
        let is_counted = questions.iter().any(|(_, question)| question.is_some())
            || self.upstream_shim.is_some()
            || self.webhook_listen.is_some();
        if is_counted && !target.carries_marker() {
            return Err("the request must carry {marker} in its body, its URL or a header, or it cannot be counted".to_owned());
        }
        if self.requests_max < PLAIN_MAX {
            return Err(format!(
                "--requests-max must be {PLAIN_MAX} at least: so many plain requests may come before the attacks"
            ));
        }
        Ok(())
    }
}

/// Half of what may be sent at most, and what this process may open.
fn crowd_within(wanted: usize, requests_max: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, fewer are sent.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let open = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = usize::try_from(open).unwrap_or(usize::MAX).saturating_sub(FILES_KEPT) / 2;
    wanted.min(requests_max / 2).min(room).max(2)
}

/// Names and values of `Name: value`.
/// The headers that a flag names.
pub(super) fn headers(flag: &str, texts: &[String]) -> Result<Vec<(String, String)>, String> {
    let parsed = texts.iter().map(|text| {
        let (name, value) = text.split_once(':')?;
        let (name, value) = (name.trim(), value.trim());
        HeaderName::from_bytes(name.as_bytes()).ok()?;
        HeaderValue::from_str(value).ok()?;
        Some((name.to_owned(), value.to_owned()))
    });
    // Not shown: it may be a credential.
    parsed
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{flag} takes a header, such as 'Authorization: Bearer TOKEN'"))
}

/// The text itself, or what is in the file that it names.
fn text_of(given: &str) -> Result<String, String> {
    let Some(path) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    Ok(text.trim_end().to_owned())
}

fn report_file(name: &str) -> Result<String, String> {
    match Format::of_file(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err("the name must end with .txt, .md, .html, .json or .xml".to_owned()),
    }
}

/// Files that the process needs beside the crowd.
const FILES_KEPT: usize = 128;
