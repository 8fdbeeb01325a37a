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
        assert!(told.contains("keys in use would be forgotten") && told.contains(ACCEPT), "{told}");
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

/// Two lists of routes: with the second the key of the one request has another id.
const MOVES: [(&str, &str, &str); 10] = [
    ("another principal of [policy]", "", "[policy]\nprincipal = \"header:X-Shop\""),
    ("another scope of [policy]", "", "[policy]\nscope = [\"path\"]"),
    ("another principal", "", "[[route]]\nmatch = \"POST /quick\"\nprincipal = \"header:X-Shop\""),
    ("another scope", "", "[[route]]\nmatch = \"POST /quick\"\nscope = [\"path\"]"),
    (
        "another place of the key",
        "",
        "[[route]]\nmatch = \"POST /quick\"\nkey_from = [\"header:X-Key\"]",
    ),
    ("literal paths", "", "[[route]]\nmatch = \"POST /quick\"\npaths = \"literal\""),
    ("a route that is gone", "[[route]]\nmatch = \"POST /quick\"\nscope = [\"path\"]", ""),
    (
        "a route before another",
        WIDE,
        "[[route]]\nmatch = \"POST /quick\"\n[[route]]\nmatch = \"POST /{*rest}\"\nprincipal = \"header:X-Account\"\n",
    ),
    (
        "routes in another order",
        "[[route]]\nmatch = \"POST /{name}\"\nscope = [\"path\"]\n[[route]]\nmatch = \"POST /quick\"\n",
        "[[route]]\nmatch = \"POST /quick\"\n[[route]]\nmatch = \"POST /{name}\"\nscope = [\"path\"]\n",
    ),
    ("another place of the key in [policy]", "", "[policy]\nkey_from = [\"header:X-Key\"]"),
];
const WIDE: &str = "[[route]]\nmatch = \"POST /{*rest}\"\nprincipal = \"header:X-Account\"\n";

/// A reload and a restart judge alike, and say the same.
// threat K29
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_reload_does_not_take_no_restart_takes() {
    for (what, before, now) in MOVES {
        let t = Deployment::on_sqlite().await;
        let gateway = t.start("", before, &[]).await;
        let first = within("an answer", post(gateway.address, QUICK, KEY, BODY)).await.unwrap();
        assert_eq!(first.status, 201, "{what}");
        drop(t.serve("", now, &[]));
        gateway.hang_up();
        crate::until("a word about the reload", || gateway.errors().contains("SIGHUP")).await;
        let told = gateway.errors();
        let reason = told.split_once("keys in use would be forgotten (").map(|(_, after)| after);
        let reason = reason.and_then(|after| after.split_once("):")).map(|(reason, _)| reason);
        let reason = reason.unwrap_or_else(|| panic!("{what}: {told}"));
        drop(gateway);
        let refused = t.refused("", now).await;
        assert!(refused.contains(reason), "{what}: {reason}, {refused}");
        assert!(t.request("", before, &[]).await.0, "{what}: the refusals changed nothing");
        assert_eq!(t.executions(), 1, "{what}");
        assert!(!t.request("", now, &[ACCEPT]).await.0, "{what}: the key is a new one");
        // Where it is found elsewhere, the request has none.
        let has_key = !now.contains("key_from");
        assert_eq!(t.request("", now, &[]).await.0, has_key, "{what}: from then on an old one");
        t.refused("", before).await;
    }
}

// threat K29
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_that_keep_every_id_come_and_go_at_a_restart() {
    let t = Deployment::on_sqlite().await;
    let same = "[[route]]\nmatch = \"POST /quick\"\nttl = \"2h\"\n";
    let lists = ["", same, WIDE, ""];
    t.request("", lists[0], &[]).await;
    assert!(t.request("", lists[1], &[]).await.0);
    assert!(t.request("", lists[0], &[]).await.0);
    t.refused("", lists[2]).await;
    // What a gateway took while it ran is no change for the next one.
    let gateway = t.start("", lists[0], &[]).await;
    drop(t.serve("", lists[1], &[]));
    gateway.hang_up();
    crate::until("the reload", || gateway.errors().contains("is in force")).await;
    drop(gateway);
    assert!(t.request("", lists[1], &[]).await.0);
    assert_eq!(t.executions(), 1);
}

// threat K29: where no other gateway can have made one meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_without_live_keys_takes_every_change() {
    let t = Deployment::on_sqlite().await;
    let mut gateway = t.start(ONE, "", &[]).await;
    gateway.terminate();
    gateway.ended().await;
    let (is_replay, told) = t.request(TWO, "[policy]\nttl = \"1s\"\nscope = [\"path\"]", &[]).await;
    assert!(!is_replay && told.contains("holds no key in use"), "{told}");
    t.refused(ONE, "[policy]\nttl = \"1s\"").await;
    // It has expired, and was not swept.
    sleep(Duration::from_millis(1_100)).await;
    t.request(ONE, "[policy]\nttl = \"1s\"", &[]).await;
    let postgres = block_in_place(Postgres::start);
    let shared =
        Deployment::new(&format!("store = \"{}\"", block_in_place(|| postgres.database()))).await;
    let mut first = shared.start("", "", &[]).await;
    shared.refused("", MOVES[0].2).await;
    first.terminate();
    first.ended().await;
    shared.refused("", MOVES[0].2).await;
}

/// A fleet on one store: a node with new routes joins while one with the old ones runs.
// threat K29
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nodes_of_a_fleet_agree_on_their_routes() {
    let postgres = block_in_place(Postgres::start);
    let store = format!("store = \"{}\"", block_in_place(|| postgres.database()));
    let (one, two) = (Deployment::new(&store).await, Deployment::new(&store).await);
    let (_, old, new) = MOVES[0];
    let mut running = one.start("", old, &[]).await;
    two.refused("", new).await;
    let mut joined = two.start("", new, &[ACCEPT]).await;
    assert!(joined.errors().contains("no other node may still run"), "{}", joined.errors());
    // The old one goes on, and hears of it when it is told to read its file again, or starts again.
    running.hang_up();
    crate::until("a word about the reload", || running.errors().contains("SIGHUP")).await;
    assert!(running.errors().contains("keys in use would be forgotten"), "{}", running.errors());
    running.terminate();
    running.ended().await;
    one.refused("", old).await;
    let mut again = one.start("", new, &[]).await;
    for node in [&mut again, &mut joined] {
        node.terminate();
        assert_eq!(node.ended().await.code(), Some(0));
    }
}

/// As older versions keep it: without the rule of [policy].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_routes_of_an_older_version_are_read() {
    let t = Deployment::on_sqlite().await;
    t.request("", WIDE, &[]).await;
    let db = Connection::open(t.folder.path().join("onlyonce.db")).unwrap();
    let read = || -> String {
        let sql = "SELECT value FROM check_value WHERE name = 'routes'";
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let (routes, policy) =
        read().split_once("*: ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert!(
        routes.starts_with("POST /{*rest}: ") && policy.contains("key header"),
        "{routes}{policy}"
    );
    db.execute_batch("DELETE FROM check_value WHERE name = 'routes'").unwrap();
    drop(db);
    assert!(t.request("", WIDE, &[]).await.0);
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
