//! A configuration that would give every live key a new id is refused: a retry would run again.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use proof::client::post;
use rusqlite::Connection;
use servers::{Postgres, Redis};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::task::block_in_place;
use tokio::time::{Duration, sleep};

use crate::gateway::Gateway;
use crate::upstream::{QUICK, Upstream};
use crate::{BODY, within};

const KEY: &str = "operation-0000000000000001";
const ONE: &str = "secret = \"the first secret of this deployment\"";
const TWO: &str = "secret = \"another secret of this deployment\"";
const NONE: &str = "";
/// Longer than a node takes from its start to its refusal.
const A_WHILE: Duration = Duration::from_secs(1);
const ACCEPT: &str = "--accept-forgetting";

/// A store, and a service that outlives every gateway on it.
struct Deployment {
    folder: TempDir,
    upstream: Upstream,
    /// The lines that name the store.
    store: String,
}

impl Deployment {
    async fn new(store: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, upstream: Upstream::start().await, store: store.to_owned() }
    }

    async fn on_sqlite() -> Self {
        Self::new("store = \"sqlite:onlyonce.db\"").await
    }

    /// `onlyonce serve` with these lines at the top, and with `rest` after the store.
    fn serve(&self, top: &str, rest: &str, flags: &[&str]) -> std::process::Command {
        serve_in(self.folder.path(), &self.upstream, &format!("{top}\n{}", self.store), rest, flags)
    }

    async fn start(&self, top: &str, rest: &str, flags: &[&str]) -> Gateway {
        Gateway::running(self.folder.path(), &mut self.serve(top, rest, flags)).await
    }

    /// Starts, sends the one request, and ends in order; whether the answer was a replay, and what was said.
    async fn request(&self, top: &str, rest: &str, flags: &[&str]) -> (bool, String) {
        let mut gateway = self.start(top, rest, flags).await;
        let answer = within("an answer", post(gateway.address, QUICK, KEY, BODY)).await.unwrap();
        assert_eq!(answer.status, 201);
        gateway.terminate();
        assert_eq!(gateway.ended().await.code(), Some(0));
        (answer.is_replay(), gateway.errors())
    }

    /// What is said by a gateway that must not start.
    async fn refused(&self, top: &str, rest: &str) -> String {
        let output = output(self.serve(top, rest, &[])).await;
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert_eq!(output.stdout, b"", "it said that it was ready");
        assert!(told.contains("every live key") && told.contains(ACCEPT), "{told}");
        told
    }

    fn executions(&self) -> usize {
        self.upstream.executions(KEY).len()
    }
}

fn serve_in(
    folder: &Path,
    upstream: &Upstream,
    top: &str,
    rest: &str,
    flags: &[&str],
) -> std::process::Command {
    let address = upstream.address;
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"";
    let config = format!("upstream = \"http://{address}\"\n{top}\n{admin}\n{rest}\n");
    fs::write(folder.join("onlyonce.toml"), config).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(["serve", "--config", "onlyonce.toml", "--listen", "127.0.0.1:0"]).args(flags);
    command.current_dir(folder).stdin(Stdio::null());
    command
}

async fn output(command: std::process::Command) -> Output {
    let mut command = Command::from(command);
    within("a refusal", command.kill_on_drop(true).output()).await.unwrap()
}

/// Refused with another secret and without one, unchanged by that, and overruled by the flag alone.
async fn is_refused_another_secret(t: Deployment) {
    assert!(!t.request(ONE, "", &[]).await.0);
    for other in [TWO, NONE] {
        let told = t.refused(other, "").await;
        assert!(told.contains("`secret`") && !told.contains("scope"), "{told}");
        assert!(t.request(ONE, "", &[]).await.0, "the refusal changed nothing");
    }
    assert_eq!(t.executions(), 1);
    let (is_replay, told) = t.request(TWO, "", &[ACCEPT]).await;
    assert!(!is_replay && told.contains("`secret`"), "{told}");
    assert!(told.contains("no other node may still run"), "{told}");
    assert!(t.request(TWO, "", &[]).await.0, "it is the secret of this store now");
    t.refused(ONE, "").await;
    assert_eq!(t.executions(), 2, "once for each secret");
}

#[test]
fn the_help_of_the_flag_says_to_stop_the_other_nodes_first() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let help =
        String::from_utf8(command.args(["serve", "--help"]).output().unwrap().stdout).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("Stop all other nodes first"), "{help}");
}

// threat J12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_secret_is_refused_on_sqlite() {
    is_refused_another_secret(Deployment::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_secret_is_refused_on_postgres_with_a_filter_and_without() {
    let postgres = block_in_place(Postgres::start);
    let redis = block_in_place(|| Redis::start(&[]));
    for filter in [String::new(), format!("filter = \"{}\"", redis.url())] {
        let database = block_in_place(|| postgres.database());
        let store = format!("store = \"{database}\"\n{filter}");
        is_refused_another_secret(Deployment::new(&store).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_secret_is_refused_on_redis() {
    let redis = block_in_place(|| Redis::start(&[]));
    let store = format!("store = \"{}\"", redis.url());
    is_refused_another_secret(Deployment::new(&store).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_scope_or_principal_is_refused_and_named() {
    let t = Deployment::on_sqlite().await;
    t.request(ONE, "", &[]).await;
    let told = t.refused(ONE, "[policy]\nscope = [\"principal\", \"path\"]").await;
    assert!(told.contains("`scope` of [policy]") && !told.contains("`secret`"), "{told}");
    assert!(told.contains("host, method, path, principal"), "it says what it was: {told}");
    let told = t.refused(ONE, "[policy]\nprincipal = \"header:X-Account\"").await;
    assert!(told.contains("`principal` of [policy]") && told.contains("auto"), "{told}");
    let told = t.refused(TWO, "[policy]\nscope = [\"path\"]\nprincipal = \"none\"").await;
    let all = ["`secret`", "`scope`", "`principal`"];
    assert!(all.iter().all(|name| told.contains(name)), "{told}");
    assert!(t.request(ONE, "", &[]).await.0, "the refusals changed nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gives_keys_the_same_ids_is_no_change() {
    let t = Deployment::on_sqlite().await;
    t.request(ONE, "", &[]).await;
    let same = "[policy]\nscope = [\"path\", \"host\", \"method\", \"principal\", \"path\"]\n\
                principal = \"auto\"\nttl = \"2h\"\nanonymous = \"allow\"";
    let (is_replay, told) = t.request(ONE, same, &[]).await;
    assert!(is_replay && !told.contains("scope"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_scope_or_principal_of_one_route_is_a_warning() {
    let t = Deployment::on_sqlite().await;
    let route = |rule: &str| format!("[[route]]\nmatch = \"POST /orders\"\n{rule}\n");
    t.request(ONE, "", &[]).await;
    let steps = [
        ("the route is new", route("principal = \"header:X-Shop\""), true),
        ("the same again", route("principal = \"header:X-Shop\""), false),
        ("another rule", route("principal = \"header:X-Account\""), true),
        ("as [policy] again", route(""), true),
        ("none of its own", String::new(), false),
        ("another scope", route("scope = [\"path\"]"), true),
        ("the route is gone", String::new(), true),
    ];
    for (step, routes, is_told) in steps {
        let (is_replay, told) = t.request(ONE, &routes, &[]).await;
        assert!(is_replay, "{step}: other routes keep their keys");
        assert_eq!(told.contains("POST /orders"), is_told, "{step}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_that_takes_requests_from_one_with_another_principal_is_a_warning() {
    let t = Deployment::on_sqlite().await;
    let wide = "[[route]]\nmatch = \"POST /{*rest}\"\nprincipal = \"header:X-Account\"\n";
    let narrow = "[[route]]\nmatch = \"POST /quick\"\n";
    assert!(!t.request(ONE, wide, &[]).await.0);
    let (is_replay, told) = t.request(ONE, &format!("{narrow}{wide}"), &[]).await;
    assert!(!is_replay, "the key has a new id");
    let moved = "requests of the route \\\"POST /{*rest}\\\" (scope host, method, path, principal; principal header:x-account; key header:idempotency-key) now match the route \\\"POST /quick\\\"";
    assert!(told.contains(moved), "{told}");
    let (is_replay, told) = t.request(ONE, &format!("{narrow}{wide}"), &[]).await;
    assert!(is_replay && !told.contains("now match"), "{told}");
}

/// The nodes of a fleet must agree. Of many that do not and start at once, those of one secret serve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_nodes_that_start_at_once_only_those_of_one_secret_serve() {
    let postgres = block_in_place(Postgres::start);
    let redis = block_in_place(|| Redis::start(&[]));
    let databases = (0..2).map(|_| block_in_place(|| postgres.database()));
    for store in databases.chain([redis.url()]) {
        let store = format!("store = \"{store}\"");
        let (mut nodes, mut folders) = (Vec::new(), Vec::new());
        for secret in [ONE, TWO, NONE, NONE, TWO, ONE] {
            let deployment = Deployment::new(&store).await;
            nodes.push((secret, started(deployment.serve(secret, "", &[]))));
            folders.push(deployment);
        }
        let serving = within("the refusals", only_two(&mut nodes)).await;
        assert_eq!(serving[0], serving[1], "they have the same secret");
        sleep(A_WHILE).await;
        assert_eq!(only_two(&mut nodes).await, serving, "they go on");
    }
}

/// The secrets of the two that serve, when all others were refused.
async fn only_two(nodes: &mut [(&'static str, Child)]) -> Vec<&'static str> {
    loop {
        let mut serving = Vec::new();
        for (secret, node) in &mut *nodes {
            match node.try_wait().unwrap() {
                Some(ended) => assert_eq!(ended.code(), Some(2)),
                None => serving.push(*secret),
            }
        }
        if serving.len() <= 2 {
            return serving;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn started(command: std::process::Command) -> Child {
    let mut command = Command::from(command);
    command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migrated_store_keeps_its_check_values() {
    let t = Deployment::on_sqlite().await;
    t.request(ONE, "", &[]).await;
    let postgres = block_in_place(Postgres::start);
    let database = block_in_place(|| postgres.database());
    let there = Deployment { store: format!("store = \"{database}\""), ..t };
    // A gateway that was tried on the empty database has left its own check values there.
    let mut tried = there.start(TWO, "", &[]).await;
    tried.terminate();
    tried.ended().await;
    let mut migrate = std::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    migrate.args(["migrate", "--from", "sqlite:onlyonce.db", "--to", &database]);
    migrate.current_dir(there.folder.path());
    let moved = output(migrate).await;
    assert!(moved.status.success(), "{moved:?}");
    there.refused(TWO, "").await;
    assert!(there.request(ONE, "", &[]).await.0, "the key lives on");
    assert_eq!(there.executions(), 1);
}

/// Made by a Rust service that keeps none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_check_values_takes_those_of_its_next_start() {
    let t = Deployment::on_sqlite().await;
    t.request(ONE, "", &[]).await;
    let db = Connection::open(t.folder.path().join("onlyonce.db")).unwrap();
    db.execute_batch("DELETE FROM check_value").unwrap();
    drop(db);
    let (is_replay, told) = t.request(ONE, "", &[]).await;
    assert!(is_replay && !told.contains("secret"), "{told}");
    t.refused(TWO, "").await;
}
