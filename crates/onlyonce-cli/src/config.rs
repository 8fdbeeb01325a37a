//! The configuration of the gateway: one TOML file, read whole before a port is opened.
//!
//! 1. A name that is not known is refused, with the nearest one that is; so is what a later version will have.
//! 2. Every problem is told with file, line and column, all of them at once.
//! 3. Of a route's values the most particular stands: its own, its preset's, `[policy]`'s, the default.
//! 4. The first route that matches a request wins; what none matches has `[policy]` itself.
//! 5. Routes may stand in files of their own, by `include`; they come after those of the file itself.
//!
//! The file is walked by hand rather than by serde: serde stops at the first problem, and knows neither the place
//! of a contradiction nor the name that was meant.
//!
//! ```
//! use std::path::Path;
//! use http::Method;
//! use onlyonce_cli::config::Config;
//!
//! let file = Path::new("onlyonce.toml");
//! let text = "[[route]]\nmatch = \"POST /charges\"\npreset = \"payments\"\n";
//! let config = Config::parse(text, file)?;
//! assert!(config.route(&Method::POST, "/charges").guards(&Method::POST));
//!
//! let error = Config::parse("[policy]\nttll = \"1h\"\n", file).unwrap_err();
//! assert_eq!(error.to_string(), "onlyonce.toml:2:1: unknown name `ttll`; did you mean `ttl`?");
//! # Ok::<(), onlyonce_cli::config::ConfigError>(())
//! ```

mod address;
mod admin;
mod audit;
mod authorize;
mod callers;
mod cors;
mod error;
mod field;
mod flags;
mod include;
mod jwt;
mod keyless;
mod listen;
mod matching;
mod names;
mod odd;
mod pattern;
mod peers;
mod preset;
mod principal;
mod read;
mod reconcile;
mod route;
mod rules;
mod schema;
mod seal;
mod sources;
mod store;
mod tls;
pub(crate) mod units;
mod velocity;
mod webhook;

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use onlyonce::scope::Secret;
use onlyonce::store::audit::AuditOptions;
use onlyonce::store::sealed::SealKey;

pub use self::address::{Upstream, UpstreamError};
pub use self::admin::{Admin, AdminError, Hidden};
pub use self::audit::AuditError;
pub use self::authorize::{AuthorizeError, AuthorizeQuestion, AuthorizeRule};
pub use self::cors::{CorsError, CorsOrigin};
pub use self::error::{ConfigError, Note};
pub use self::flags::{Flags, FlagsError};
pub use self::jwt::{JwksUrl, JwksUrlError, JwtKeys, JwtRule};
pub use self::listen::{ListenError, listen_address};
pub use self::matching::{Match, MatchError, MethodError};
pub(crate) use self::names::nearest;
pub use self::names::{
    ADMIN, AUDIT, JWT, Name, OTLP, POLICY, RECONCILE, ROUTE, SEAL, Section, TLS, TOP, UPSTREAM_TLS,
    VELOCITY, WEBHOOK,
};
pub use self::pattern::PatternError;
pub(crate) use self::peers::is_proof;
pub use self::peers::{Peers, PeersError, TrustedPeers};
pub use self::principal::{PrincipalError, PrincipalRule, PrincipalSource};
pub use self::reconcile::{Ask, AskError, ReconcileRule};
pub use self::route::{Anonymous, ForwardKey, Route};
pub use self::store::{FilterError, FilterUrl, ServerUrl, StoreFlag, StoreUrl, StoreUrlError};
pub use self::tls::{CertificateFiles, TlsRule, UpstreamTlsRule};

use self::rules::Rules;
use self::sources::Sources;

/// What a gateway is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where clients connect; 127.0.0.1:8080.
    pub listen: SocketAddr,
    /// The service behind the gateway, where a route has no other.
    pub upstream: Option<Upstream>,
    /// Where operations are remembered; the file `onlyonce.db`.
    pub store: StoreUrl,
    /// The Redis in front of a Postgres, if there is one.
    pub filter: Option<FilterUrl>,
    /// Whether a store that may lose records may keep payments. Only a flag says so.
    pub accept_loss: bool,
    /// Whether it may start although every live key would be a new one. Only a flag says so.
    pub accept_forgetting: bool,
    /// What keys the ids of operations.
    pub secret: Option<Secret>,
    /// How often what has expired is deleted; 15 minutes.
    pub sweep: Duration,
    /// How many records at a time; 5,000.
    pub sweep_rows: usize,
    /// The request bodies that are held at once; 256 MiB.
    pub bodies_bytes_max: usize,
    /// The operations that are under way at once; 10,000.
    pub executing_max: usize,
    /// The listener for operators, if there is one.
    pub admin: Option<Admin>,
    /// Where traces are sent, if they are.
    pub otlp: Option<Upstream>,
    /// How the listener speaks TLS, if it does.
    pub tls: Option<TlsRule>,
    /// How the gateway speaks TLS to services.
    pub upstream_tls: Option<UpstreamTlsRule>,
    /// How bearer tokens are verified.
    pub jwt: Option<JwtRule>,
    /// What answers and keys are sealed with in the store: the first seals, all of them open. Empty: nothing is sealed.
    pub seal: Vec<SealKey>,
    /// How the audit trail is kept, if there is one.
    pub audit: Option<AuditOptions>,
    /// What holds for some requests only; the first that matches wins.
    pub routes: Vec<Route>,
    /// What holds for all others.
    pub fallback: Route,
    /// The files that it includes, in the order of their routes.
    pub included: Vec<PathBuf>,
    /// What is allowed, but probably not meant. Say it, and go on.
    pub warnings: Vec<Note>,
}

impl Config {
    /// Reads the file, and those that it includes.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(&text_of(file)?, file)
    }

    /// Reads the text of a file, with the variables of this process's environment.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        Self::parse_with(text, file, &|name| std::env::var(name).ok())
    }

    /// Reads the text of a file; `env` tells what a variable holds. What it includes is read from the folder of `file`.
    pub fn parse_with(
        text: &str,
        file: &Path,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let sources = Sources::gather(text, file);
        match read::read(&sources, env) {
            Ok((config, odd)) => Ok(Self { warnings: sources.notes(odd), ..config }),
            Err(wrong) => Err(ConfigError::Wrong(sources.notes(wrong))),
        }
    }

    /// A file that says every default, with a comment each. Reading it gives [`Config::default`].
    pub fn default_text() -> &'static str {
        include_str!("config/default.toml")
    }

    /// The JSON Schema of such a file, for editors: names, what they may be, defaults and what they decide.
    pub fn schema_text() -> String {
        format!("{:#}\n", schema::schema())
    }

    /// The route for such a request.
    pub fn route(&self, method: &Method, path: &str) -> &Route {
        let matching = |route: &&Route| route.matching.matches(method, path);
        self.routes.iter().find(matching).unwrap_or(&self.fallback)
    }

    /// Where the requests of this route go, if that is said at all.
    pub fn upstream_of<'a>(&'a self, route: &'a Route) -> Option<&'a Upstream> {
        route.upstream.as_ref().or(self.upstream.as_ref())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: LISTEN,
            upstream: None,
            store: StoreUrl::Sqlite("onlyonce.db".into()),
            filter: None,
            accept_loss: false,
            accept_forgetting: false,
            secret: None,
            sweep: Duration::from_secs(15 * 60),
            sweep_rows: 5000,
            bodies_bytes_max: 256 << 20,
            executing_max: 10_000,
            admin: None,
            otlp: None,
            tls: None,
            upstream_tls: None,
            seal: Vec::new(),
            jwt: None,
            audit: None,
            routes: Vec::new(),
            fallback: Route::new(Match::EVERYTHING, Rules::default(), 0)
                .expect("the defaults do not contradict each other"),
            included: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// The text of a file that is no longer than a configuration may be.
fn text_of(file: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { file: file.to_owned(), source };
    let mut text = String::new();
    let opened = File::open(file).map_err(unreadable)?;
    let bytes = opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    match bytes as u64 > FILE_BYTES_MAX {
        true => Err(ConfigError::TooLong { file: file.to_owned(), bytes_max: FILE_BYTES_MAX }),
        false => Ok(text),
    }
}

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
