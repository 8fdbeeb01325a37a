//! The servers that a store needs, and what can be done to them.

use std::net::SocketAddr;
use std::path::Path;

use proof::cutter::Cutter;
use servers::{Patroni, Postgres, Redis};
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
    /// The same, and Patroni decides which of them is the primary.
    Patroni,
}

impl Kind {
    pub(crate) fn is_fleet(self) -> bool {
        self != Self::Sqlite
    }
}

/// The servers of a store.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    pub(crate) postgres: Option<Postgres>,
    pub(crate) standby: Option<Postgres>,
    pub(crate) patroni: Option<Patroni>,
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
            return Self { settings, ..Self::default() };
        }
        if kind == Kind::Patroni {
            let patroni = block_in_place(Patroni::start).unwrap();
            let database = block_in_place(|| patroni.database());
            let (line, settings) = line_to(patroni.primary_port(), &database).await;
            return Self { patroni: Some(patroni), line, settings, ..Self::default() };
        }
        let postgres = block_in_place(Postgres::start);
        let database = block_in_place(|| postgres.database());
        let (line, mut settings) = line_to(postgres.port(), &database).await;
        let redis = (kind == Kind::Filtered).then(|| block_in_place(|| Redis::start(&[])));
        if let Some(redis) = &redis {
            settings += &format!("\nfilter = \"{}\"", redis.url());
        }
        let mut servers =
            Self { postgres: Some(postgres), redis, line, settings, ..Self::default() };
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
            self.line.as_ref().unwrap().lead_to(address(standby.port()));
            self.postgres = Some(standby);
        });
    }

    /// The primary dies, and Patroni promotes its standby; the line follows, as a proxy that asks Patroni does.
    pub(crate) fn fail_over_by_patroni(&mut self) {
        let patroni = self.patroni.as_mut().unwrap();
        block_in_place(|| {
            let before = patroni.primary_port();
            patroni.kill_primary();
            let after = patroni.primary_port();
            assert_ne!(before, after, "the dead primary is still the primary");
            self.line.as_ref().unwrap().lead_to(address(after));
        });
    }
}

/// A line to the server at `port`, and how the store is named in a configuration that takes it.
async fn line_to(port: u16, database: &str) -> (Option<Cutter>, String) {
    let line = Cutter::start(address(port)).await.unwrap();
    let ports = [port, line.address.port()].map(|port| format!(":{port}/"));
    let settings = format!("store = \"{}\"", database.replace(&ports[0], &ports[1]));
    (Some(line), settings)
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
