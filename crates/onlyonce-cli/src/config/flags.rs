//! What the command line says, over what the file says.

use std::net::SocketAddr;

use super::{
    Admin, AdminError, AuditError, Config, FilterError, StoreFlag, StoreUrlError, Upstream,
    listen_address,
};

/// What `serve` may be told on the command line instead of in a file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// The service behind the gateway, such as http://127.0.0.1:9000
    #[arg(long, value_name = "URL")]
    pub upstream: Option<Upstream>,
    /// The address that clients connect to
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub listen: Option<SocketAddr>,
    /// The address for operators: their page, the API, health checks and metrics
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub admin: Option<SocketAddr>,
    /// Where operations are recorded: sqlite:FILE, postgres://…, redis://…, dynamodb:TABLE, memory: or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse)]
    pub store: Option<StoreFlag>,
    /// Allow routes with the preset payments on a Redis that may lose records
    #[arg(long)]
    pub accept_loss: bool,
    /// Start although `secret`, scope, principal or routes have changed, so that keys in use get new ids. Stop all
    /// other nodes first: a node that still runs with the old values executes retries that this one executes too. Or although a
    /// SQLite file has lost its log, as after a restore
    #[arg(long)]
    pub accept_forgetting: bool,
}

impl Config {
    /// The configuration with these flags over it, ready to be served.
    pub fn with_flags(mut self, flags: Flags) -> Result<Self, FlagsError> {
        self.upstream = flags.upstream.or(self.upstream);
        self.listen = flags.listen.unwrap_or(self.listen);
        if let Some(store) = flags.store {
            self.store = store.url()?;
        }
        self.accept_loss = flags.accept_loss;
        self.accept_forgetting = flags.accept_forgetting;
        if let Some(listen) = flags.admin {
            let admin = self.admin.unwrap_or_else(|| Admin::at(listen));
            self.admin = Some(Admin { listen, ..admin });
        }
        self.check_admin()?;
        self.check_filter()?;
        self.check_audit()?;
        match self.has_every_upstream() {
            true if self.serves_itself() => Err(FlagsError::Itself(self.listen)),
            true => Ok(self),
            false => Err(FlagsError::NoUpstream),
        }
    }

    /// Whether a request would be sent to the gateway's own listener, and from there again.
    fn serves_itself(&self) -> bool {
        let mut routes = self.routes.iter().chain([&self.fallback]);
        routes.any(|route| self.upstream_of(route).is_some_and(|at| at.is_at(self.listen)))
    }

    fn has_every_upstream(&self) -> bool {
        let mut routes = self.routes.iter().chain([&self.fallback]);
        routes.all(|route| self.upstream_of(route).is_some())
    }
}

/// Why a configuration cannot be served. Change the flags or the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlagsError {
    /// Say where requests go.
    #[error("there is no upstream: pass --upstream URL, or set `upstream` in the configuration")]
    NoUpstream,
    /// Give the service or the gateway another address.
    #[error(
        "an upstream is {0}, the address on which the gateway itself listens: requests would go round in a loop; give the address of the service"
    )]
    Itself(SocketAddr),
    /// Write the store as the message says.
    #[error("--store: {0}")]
    Store(#[from] StoreUrlError),
    /// Close the listener for operators, or give it a token.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Use Postgres as the store, or remove the filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Use another store, or remove the trail.
    #[error(transparent)]
    Audit(#[from] AuditError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreUrl;

    fn flags() -> Flags {
        Flags { upstream: Some("http://127.0.0.1:9000".parse().unwrap()), ..Flags::default() }
    }

    #[test]
    fn flags_stand_over_the_file() {
        let flags = Flags {
            listen: Some("127.0.0.1:1".parse().unwrap()),
            admin: Some("127.0.0.1:2".parse().unwrap()),
            store: Some(StoreUrl::Memory.into()),
            ..flags()
        };
        let config = Config::default().with_flags(flags).unwrap();
        assert_eq!(config.listen.port(), 1);
        assert_eq!(config.admin.unwrap().listen.port(), 2);
        assert_eq!(config.store, StoreUrl::Memory);
        assert_eq!(config.upstream.unwrap().to_string(), "http://127.0.0.1:9000");
    }

    // threat H1
    #[test]
    fn a_store_that_is_none_is_told_without_its_password() {
        let store = StoreFlag::parse("postgress://me:hunter2@db").ok();
        let error = Config::default().with_flags(Flags { store, ..flags() }).unwrap_err();
        assert_eq!(error, FlagsError::Store(StoreUrlError::Unknown));
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn a_gateway_without_an_upstream_is_not_started() {
        let error = Config::default().with_flags(Flags::default()).unwrap_err();
        assert_eq!(error, FlagsError::NoUpstream);
    }

    #[test]
    fn a_gateway_in_front_of_itself_is_not_started() {
        let served = |listen: &str, upstream: &str| {
            let (listen, upstream) = (listen.parse().unwrap(), upstream.parse().unwrap());
            let flags =
                Flags { listen: Some(listen), upstream: Some(upstream), ..Flags::default() };
            Config::default().with_flags(flags).map(|_| ())
        };
        let loops = [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("127.0.0.1:8080", "http://LocalHost:8080/api"),
            ("127.0.0.1:8080", "h2c://0.0.0.0:8080"),
            ("127.0.0.1:80", "http://127.0.0.1"),
            ("127.0.0.1:443", "https://localhost"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080"),
            ("[::]:8080", "http://127.0.0.1:8080"),
        ];
        for (listen, upstream) in loops {
            let itself = FlagsError::Itself(listen.parse().unwrap());
            assert_eq!(served(listen, upstream), Err(itself), "{listen} {upstream}");
        }
        for (listen, upstream) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8081"),
            ("127.0.0.1:8080", "http://127.0.0.2:8080"),
            ("0.0.0.0:8080", "http://192.0.2.7:8080"),
            ("127.0.0.1:0", "http://127.0.0.1:8080"),
            ("127.0.0.1:8080", "http://api.internal:8080"),
        ] {
            assert_eq!(served(listen, upstream), Ok(()), "{listen} {upstream}");
        }
    }

    #[test]
    fn a_flag_does_not_open_the_admin_listener_to_everybody() {
        let admin = Some("0.0.0.0:8081".parse().unwrap());
        let error = Config::default().with_flags(Flags { admin, ..flags() }).unwrap_err();
        assert!(matches!(error, FlagsError::Admin(AdminError::Open(_))));
    }
}
