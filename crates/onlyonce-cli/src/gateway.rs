//! `onlyonce serve`: the library's own layer around a service that passes requests on.

mod ambiguity;
mod app;
mod authorize;
mod census;
mod cors;
mod credentials;
mod current;
mod forward;
mod forwarded_key;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod headers;
pub(crate) mod id_check;
mod jwt;
mod listen;
pub(crate) mod metrics;
mod outgoing;
mod principal;
mod reconcile;
mod reload;
mod sending;
mod spellings;
pub(crate) mod store;
pub mod telemetry;
mod unbroken;
mod upstream;
mod well_known;
mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use onlyonce::store::BoxError;
use onlyonce::{Left, Limits, Once, OnceBuilder};
use tokio::sync::watch;

use self::app::{App, Routes};
use self::current::{Current, InForce};
use self::jwt::Jwt;
use self::outgoing::Outgoing;
pub(crate) use self::store::About;
use self::store::Listeners;
use crate::admin::{self, Desk, Keeper, PolicyInForce, Setting};
use crate::config::{Admin, Config};
use crate::connections::Connections;
use crate::files::{self, Files, Shares};
use crate::tls::Secured;

pub use self::reload::ReloadError;

type Thread = JoinHandle<io::Result<()>>;

/// A gateway that serves.
#[derive(Debug)]
pub struct Gateway {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it tells how it is.
    pub admin: Option<SocketAddr>,
    once: Once,
    about: About,
    current: Current,
    outgoing: Outgoing,
    stage: watch::Sender<Stage>,
    threads: Vec<Thread>,
    admin_thread: Option<Thread>,
}

/// How far the gateway has come with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Serving,
    /// Takes nothing new, and lets end what is under way.
    Draining,
    /// Every operation has ended, or was given up as unknown: the runtimes of the serving threads may end.
    Drained,
    /// The serving threads have ended, and so may the admin thread.
    Ended,
}

/// Why a gateway does not start. The message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Change the configuration.
    #[error("{0}")]
    Config(BoxError),
    /// The store cannot be used as it is.
    #[error("the store cannot be opened: {0}")]
    Store(String),
    /// Set Redis up as the message says, use another store, or accept the loss.
    #[error(
        "the route {route:?} has the preset payments, and this store may lose records: {promise}; \
         set appendonly yes, appendfsync always, no-appendfsync-on-rewrite no and maxmemory-policy noeviction, \
         use postgres:// or sqlite:, or pass --accept-loss"
    )]
    Loss {
        /// The route.
        route: String,
        /// What the store promises.
        promise: String,
    },
    /// Set the old values again, or accept that keys are forgotten.
    #[error(
        "keys in use would be forgotten ({changes}): a retry of an earlier request would run twice. Restore the old \
         configuration, or pass --accept-forgetting if no such retry can still come"
    )]
    Forgetting {
        /// What is not as it was.
        changes: String,
    },
    /// Choose another address, or end what listens there.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

impl StartError {
    /// Whether the configuration or the flags must be changed, and not the world around them.
    pub fn is_of_configuration(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Loss { .. } | Self::Forgetting { .. })
    }
}

impl Gateway {
    /// Opens the store, binds the addresses, and serves on a thread per core.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        let secured = Secured::by(config).map_err(|error| StartError::Config(error.into()))?;
        let files = Files::raised(config.executing_max);
        let shares = files.shares(serving_threads());
        files::set_upstream_share(shares.upstream);
        let (once, about) = engine(config, &shares).await?;
        let listener = bind(config.listen)?;
        let address = local_address(&listener, config.listen)?;
        let (stage, staged) = watch::channel(Stage::Serving);
        let outgoing = Outgoing::new();
        let jwt = verifier(config).await.map_err(StartError::Config)?;
        let current = first(config, secured, &once, jwt, &outgoing).map_err(StartError::Config)?;
        let threads = serve(&current, listener, &about.listeners.clients, &staged);
        let (admin, admin_thread) = (None, None);
        let mut gateway =
            Self { address, admin, once, about, current, outgoing, stage, threads, admin_thread };
        if let Some(admin) = &config.admin {
            gateway.start_admin(admin, staged)?;
        }
        files.tell(config.executing_max, &shares);
        Ok(gateway)
    }

    /// Where clients reach it.
    pub fn url(&self) -> String {
        url(self.current.now().secured.listener.is_some(), self.address)
    }

    /// Where operators reach it.
    pub fn admin_url(&self) -> Option<String> {
        let is_secured = self.current.now().secured.admin.is_some();
        self.admin.map(|address| url(is_secured, address))
    }

    /// Takes nothing new, waits at most [`DRAIN`] for what is under way, with a client or without one, and says
    /// what it left. The admin listener answers until the end.
    pub async fn stop(self) -> Left {
        self.stage.send_replace(Stage::Draining);
        let left = self.once.shutdown(DRAIN).await;
        self.stage.send_replace(Stage::Drained);
        join(self.threads).await;
        self.stage.send_replace(Stage::Ended);
        join(self.admin_thread).await;
        left
    }

    fn start_admin(
        &mut self,
        admin: &Admin,
        stage: watch::Receiver<Stage>,
    ) -> Result<(), StartError> {
        let listener = bind(admin.listen)?;
        self.admin = Some(local_address(&listener, admin.listen)?);
        let current = self.current.clone();
        let desk = Desk::new(Setting {
            once: self.once.clone(),
            about: self.about.clone(),
            keeper: Keeper::new(admin),
            stage,
            listen: Some(self.url()),
            policy: PolicyInForce(Arc::new(move || admin::in_force(&current.now().config))),
        });
        let (census, once) = (self.about.census.clone(), self.once.clone());
        let is_paid = self.about.kind == "dynamodb";
        let every = if is_paid { census::EVERY_PAID } else { census::EVERY };
        let current = self.current.clone();
        let acceptor = move || current.now().secured.admin.clone();
        let connections = self.about.listeners.operators.clone();
        let serve = move || async move {
            tokio::spawn(census.refresh(once, every));
            admin::serve(listener, connections, acceptor, desk).await
        };
        self.admin_thread = Some(on_thread("onlyonce-admin", serve));
        Ok(())
    }
}

async fn engine(config: &Config, shares: &Shares) -> Result<(Once, About), StartError> {
    let (builder, about) = store::open(config).await?;
    let builder = adjusted(builder, config);
    id_check::check(&builder, config).await?;
    Ok((builder.build(), About { listeners: Listeners::new(shares), ..about }))
}

/// A thread per core.
fn serving_threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

pub(crate) fn adjusted(builder: OnceBuilder, config: &Config) -> OnceBuilder {
    let limits = Limits::default()
        .with_executing_max(config.executing_max)
        .with_bodies_bytes_max(config.bodies_bytes_max)
        .with_sweep(config.sweep, config.sweep_rows);
    let builder = builder.with_limits(limits).with_seal(config.seal.clone());
    match &config.secret {
        Some(secret) => builder.with_secret(secret.clone()),
        None => builder,
    }
}

fn url(is_secured: bool, address: SocketAddr) -> String {
    let scheme = if is_secured { "https" } else { "http" };
    format!("{scheme}://{address}")
}

fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    listen::bind(address).map_err(|source| StartError::Listen { address, source })
}

fn local_address(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen { address, source })
}

/// What verifies bearer tokens, where the configuration says how.
async fn verifier(config: &Config) -> Result<Option<Arc<Jwt>>, BoxError> {
    match &config.jwt {
        Some(rule) => Ok(Some(Arc::new(Jwt::start(rule).await?))),
        None => Ok(None),
    }
}

/// The routes of every thread, a thread per core, by the first configuration.
fn first(
    config: &Config,
    secured: Secured,
    once: &Once,
    jwt: Option<Arc<Jwt>>,
    outgoing: &Outgoing,
) -> Result<Current, BoxError> {
    let services = || app::services(config, &secured.upstream, &[]);
    let layers = app::layers(config, once, jwt.as_ref(), &services()?);
    let routes = |_| {
        let services = services()?;
        Ok(Arc::new(Routes::new(config, &layers, services, jwt.clone(), outgoing)))
    };
    let threads = (0..serving_threads().get()).map(routes).collect::<Result<_, BoxError>>()?;
    Ok(Current::new(InForce { config: config.clone(), secured, threads }))
}

/// A thread that accepts connections, and those that serve them.
fn serve(
    current: &Current,
    listener: TcpListener,
    connections: &Connections,
    stage: &watch::Receiver<Stage>,
) -> Vec<Thread> {
    let (mut queues, mut threads) = (Vec::new(), Vec::new());
    for thread in 0..current.now().threads.len() {
        let app = App::new(thread, current.clone());
        let ((queue, accepted), stage) = (listen::queue(), stage.clone());
        queues.push(queue);
        let serve = move || listen::serve(accepted, app, stage, DRAIN);
        threads.push(on_thread("onlyonce-serve", serve));
    }
    let (stage, connections) = (stage.clone(), connections.clone());
    let accept = move || listen::accept(listener, connections, queues, stage);
    threads.push(on_thread("onlyonce-accept", accept));
    threads
}

async fn join(threads: impl IntoIterator<Item = Thread> + Send + 'static) {
    let joined = tokio::task::spawn_blocking(move || {
        for thread in threads {
            // A thread that failed has nothing left to say.
            let _ = thread.join();
        }
    });
    let _ = joined.await;
}

/// A thread with a runtime of its own: nothing of one core waits for another.
fn on_thread<F>(name: &str, serve: impl FnOnce() -> F + Send + 'static) -> Thread
where
    F: Future<Output = io::Result<()>>,
{
    let run = move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve())
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.expect("the operating system gives a thread")
}

/// How long a stop waits for what is under way.
pub const DRAIN: Duration = Duration::from_secs(25);
