//! The servers that a store needs, and what can be done to them.

use std::net::SocketAddr;
use std::path::Path;

use proof::cutter::Cutter;
use servers::{Postgres, Redis};
use tokio::task::block_in_place;

/// Which store the gateways have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file, for one gateway.
    Sqlite,
    /// Postgres, for two.
    Postgres,
    /// Postgres for two, with Redis in front of it.
    Filtered,
    /// Postgres for two, with a synchronous standby.
    Replicated,
}

impl Kind {
    pub(crate) fn is_fleet(self) -> bool {
        self != Self::Sqlite
    }
}

/// The servers of a store.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) postgres: Option<Postgres>,
    pub(crate) standby: Option<Postgres>,
    pub(crate) redis: Option<Redis>,
    /// Between the gateways and Postgres.
    pub(crate) line: Option<Cutter>,
    /// How the store is named in a configuration.
    pub(crate) settings: String,
    standbys: usize,
}

impl Servers {
    pub(crate) async fn start(kind: Kind, folder: &Path) -> Self {
        if kind == Kind::Sqlite {
            let settings = format!("store = \"sqlite:{}\"", folder.join("onlyonce.db").display());
            let (postgres, standby, redis, line) = (None, None, None, None);
            return Self { postgres, standby, redis, line, settings, standbys: 0 };
        }
        let postgres = block_in_place(Postgres::start);
        let database = block_in_place(|| postgres.database());
        let line = Cutter::start(address(&postgres)).await.unwrap();
        let ports = [postgres.port(), line.address.port()].map(|port| format!(":{port}/"));
        let mut settings = format!("store = \"{}\"", database.replace(&ports[0], &ports[1]));
        let redis = (kind == Kind::Filtered).then(|| block_in_place(|| Redis::start(&[])));
        if let Some(redis) = &redis {
            settings += &format!("\nfilter = \"{}\"", redis.url());
        }
        let (postgres, line) = (Some(postgres), Some(line));
        let mut servers = Self { postgres, standby: None, redis, line, settings, standbys: 0 };
        if kind == Kind::Replicated {
            servers.add_standby().await;
        }
        servers
    }

    /// A standby that has everything that the primary has confirmed.
    pub(crate) async fn add_standby(&mut self) {
        self.standbys += 1;
        let name = format!("standby_{}", self.standbys);
        let primary = self.postgres.as_ref().unwrap();
        let standby = block_in_place(|| primary.standby(&name));
        let is_sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        block_in_place(|| {
            primary
                .sql("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"));
            primary.sql("postgres", "SELECT pg_reload_conf()");
        });
        crate::until("the standby to be synchronous", || {
            block_in_place(|| primary.sql("postgres", is_sync)) == "1"
        })
        .await;
        self.standby = Some(standby);
    }

    /// The primary dies, and its standby takes over.
    pub(crate) fn fail_over(&mut self) {
        block_in_place(|| {
            let mut dead = self.postgres.take().unwrap();
            dead.kill();
            let standby = self.standby.take().unwrap();
            // Nobody stands by the new primary yet; it must not wait for one.
            standby.promote();
            standby.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''");
            standby.sql("postgres", "SELECT pg_reload_conf()");
            self.line.as_ref().unwrap().lead_to(address(&standby));
            self.postgres = Some(standby);
        });
    }
}

fn address(postgres: &Postgres) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], postgres.port()))
}
