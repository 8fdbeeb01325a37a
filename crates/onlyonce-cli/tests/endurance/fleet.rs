//! Two gateways on one Postgres, and the load that they are under.

use std::net::SocketAddr;

use servers::Postgres;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::{JoinSet, block_in_place};

use crate::gateway::Gateway;
use crate::history::Shared;
use crate::upstream::Upstream;

/// How many clients send at once.
const CLIENTS: usize = 32;

pub(crate) struct Fleet {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) upstream: Upstream,
    pub(crate) postgres: Postgres,
    database: String,
    folders: Vec<TempDir>,
}

impl Fleet {
    /// Two gateways on a Postgres of their own, with these lines under `[policy]`.
    pub(crate) async fn start(policy: &str) -> Self {
        let postgres = block_in_place(Postgres::start);
        let database = block_in_place(|| postgres.database());
        let top = format!("store = \"{database}\"");
        Self { database, ..Self::on(postgres, &top, policy).await }
    }

    /// Two gateways with these lines at the top, where the store is named, and under `[policy]`.
    pub(crate) async fn on(postgres: Postgres, top: &str, policy: &str) -> Self {
        let upstream = Upstream::start().await;
        let (mut gateways, mut folders) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let folder = tempfile::tempdir().unwrap();
            gateways.push(Gateway::with_top(folder.path(), upstream.address, top, policy).await);
            folders.push(folder);
        }
        Self { gateways, upstream, database: postgres.url(), postgres, folders }
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways.iter().map(|gateway| gateway.address).collect()
    }

    /// Ends a gateway in order, and starts it anew at the same address.
    pub(crate) async fn restart(&mut self, which: usize) {
        let address = self.gateways[which].address.to_string();
        self.gateways[which].terminate();
        self.gateways[which].ended().await;
        self.gateways[which] = Gateway::listening(self.folders[which].path(), &address).await;
    }

    /// Counts statements anew.
    pub(crate) fn forget_statements(&self) {
        self.sql(
            "CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()",
        );
    }

    /// How many statements the gateways' database was sent since.
    pub(crate) fn statements(&self) -> usize {
        let count = self.sql(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements JOIN pg_database ON pg_database.oid = dbid
             WHERE datname = current_database() AND query !~ 'pg_stat_statements'",
        );
        count.parse().unwrap()
    }

    fn sql(&self, statements: &str) -> String {
        block_in_place(|| self.postgres.sql(&self.database, statements))
    }

    /// Brings everything to an end, and judges it.
    pub(crate) async fn judge(&self, shared: &Shared, least: &[(&str, usize)]) {
        let gateways = self.addresses();
        shared.finish(&gateways).await;
        shared.history().reopen_unknown();
        shared.finish(&gateways).await;
        shared.reread_everything(&gateways).await;
        let history = shared.history();
        history.judge(&self.upstream.all_executions());
        history.judge_counts(least);
    }
}

/// Clients at work. They end when told to.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    clients: JoinSet<()>,
}

impl Load {
    pub(crate) fn start(shared: &Shared, gateways: &[SocketAddr]) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(shared.clone().send_until(gateways.to_vec(), stopped.clone()));
        }
        Self { stop, clients }
    }

    pub(crate) async fn end(self) {
        self.stop.send_replace(true);
        self.clients.join_all().await;
    }
}
