//! SIGHUP: another configuration, whole or not at all, while requests are under way; and what the service manager hears.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proof::client;
use servers::Redis;
use tempfile::TempDir;

use crate::gateway::{Gateway, store};
use crate::upstream::{GATED, QUICK, Upstream};
use crate::{BODY, until, within};

struct Reloading {
    folder: TempDir,
    upstream: Upstream,
    gateway: Gateway,
}

impl Reloading {
    async fn start(policy: &str) -> Self {
        let (folder, upstream) = (tempfile::tempdir().unwrap(), Upstream::start().await);
        let gateway = Gateway::with_policy(folder.path(), upstream.address, policy).await;
        Self { folder, upstream, gateway }
    }

    fn configure(&self, top: &str, rest: &str) {
        configure(self.folder.path(), &self.upstream, top, rest);
    }

    /// Asks for a reload, and waits for the word about it.
    async fn reload(&self) -> String {
        let told = || self.gateway.errors().matches("SIGHUP").count();
        let before = told();
        self.gateway.hang_up();
        until("a word about the reload", || told() > before).await;
        let errors = self.gateway.errors();
        errors.lines().rfind(|line| line.contains("SIGHUP")).unwrap().to_owned()
    }

    async fn status(&self, path: &str) -> u16 {
        let answer = client::post_without_key(self.gateway.address, path, BODY);
        within("an answer", answer).await.unwrap().status.as_u16()
    }
}

fn configure(folder: &Path, upstream: &Upstream, top: &str, rest: &str) {
    let text = format!(
        "upstream = \"http://{}\"\nstore = \"sqlite:{}\"\n{top}\n[admin]\nlisten = \"127.0.0.1:0\"\n{rest}\n",
        upstream.address,
        store(folder).display()
    );
    fs::write(folder.join("onlyonce.toml"), text).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_changes_the_routes_and_says_which() {
    let t = Reloading::start("").await;
    assert_eq!(t.status(QUICK).await, 201);
    t.configure("", "[[route]]\nmatch = \"POST /quick\"\nkey = \"required\"");
    let told = t.reload().await;
    assert_eq!(
        told,
        "onlyonce: SIGHUP: onlyonce.toml was read again and is in force: added \"POST /quick\""
    );
    assert_eq!(t.status(QUICK).await, 400, "a key is required now");
    t.configure("", "");
    assert!(t.reload().await.ends_with("is in force: removed \"POST /quick\""));
    assert_eq!(t.status(QUICK).await, 201);
    included_files_are_read_again(&t).await;
}

async fn included_files_are_read_again(t: &Reloading) {
    let file = t.folder.path().join("routes/quick.toml");
    fs::create_dir(file.parent().unwrap()).unwrap();
    let route = "[[route]]\nmatch = \"POST /quick\"\n";
    fs::write(&file, format!("{route}key = \"required\"\n")).unwrap();
    t.configure("include = [\"routes/*.toml\"]", "");
    assert!(t.reload().await.ends_with("is in force: added \"POST /quick\""));
    assert_eq!(t.status(QUICK).await, 400, "by the included route");
    // Another line is no other route.
    fs::write(&file, format!("\n{route}key = \"required\"\n")).unwrap();
    assert!(t.reload().await.ends_with("is in force: no route differs"));
    fs::write(&file, route).unwrap();
    assert!(t.reload().await.ends_with("is in force: changed \"POST /quick\""));
    assert_eq!(t.status(QUICK).await, 201);
    fs::write(&file, format!("{route}ttll = 1\n")).unwrap();
    let told = t.reload().await;
    assert!(told.contains("stays in force: routes/quick.toml:3:1: unknown name `ttll`"), "{told}");
    // Without its file the route would be gone, and nobody would have said so.
    fs::remove_file(&file).unwrap();
    let told = t.reload().await;
    assert!(told.contains("`include`: no file matches"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_is_wrong_or_needs_a_restart_changes_nothing() {
    let t = Reloading::start("").await;
    let required = "[[route]]\nmatch = \"POST /quick\"\nkey = \"required\"";
    t.configure("", &format!("{required}\nnonsense = 1"));
    let told = t.reload().await;
    assert!(told.contains("is not taken, and the old configuration stays in force"), "{told}");
    t.configure("executing_max = 7\nsecret = \"s\"", required);
    let told = t.reload().await;
    assert!(
        told.ends_with(
            "`secret`, `executing_max` cannot change while the gateway runs: restart it"
        ),
        "{told}"
    );
    for new_ids in
        ["[policy]\nscope = [\"path\"]", "[[route]]\nmatch = \"POST /other\"\nprincipal = \"none\""]
    {
        t.configure("", &format!("{new_ids}\n{required}"));
        let told = t.reload().await;
        assert!(told.contains("keys in use would be forgotten"), "{told}");
    }
    fs::remove_file(t.folder.path().join("onlyonce.toml")).unwrap();
    assert!(t.reload().await.contains("cannot be read"));
    assert_eq!(t.status(QUICK).await, 201, "the first configuration is in force");
    t.configure("", required);
    assert!(t.reload().await.contains("is in force"));
    assert_eq!(t.status(QUICK).await, 400);
}

/// The gateway runs by one list of routes, and is told to take another one.
// threat J12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_routes_that_gives_live_keys_new_ids_is_not_taken() {
    let wide = "[[route]]\nmatch = \"POST /{*rest}\"\nprincipal = \"header:X-Account\"\n";
    let narrow = "[[route]]\nmatch = \"POST /quick\"\n";
    let same = format!("{narrow}principal = \"header:X-Account\"\n");
    let t = Reloading::start(wide).await;
    let key = "operation-0000000000000001";
    assert_eq!(client::post(t.gateway.address, QUICK, key, BODY).await.unwrap().status, 201);
    for (step, routes, is_taken) in [
        ("the narrow route comes first", format!("{narrow}{wide}"), false),
        ("it comes first, with the rule that its requests had", format!("{same}{wide}"), true),
        ("and goes", wide.to_owned(), true),
        ("the wide route goes", narrow.to_owned(), false),
    ] {
        t.configure("", &routes);
        let told = t.reload().await;
        assert_eq!(told.contains("is in force"), is_taken, "{step}: {told}");
        let has_names = told
            .contains("keys in use would be forgotten (requests of the route \"POST /{*rest}\"");
        assert!(is_taken || has_names && told.contains("header:x-account"), "{step}: {told}");
        let again = client::post(t.gateway.address, QUICK, key, BODY).await.unwrap();
        assert!(again.is_replay(), "{step}: {again:?}");
    }
    assert_eq!(t.upstream.executions(key).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_under_way_ends_by_the_policy_that_it_began_with() {
    let t = Reloading::start("").await;
    let (address, key) = (t.gateway.address, "operation-0000000000000001");
    let first = tokio::spawn(async move { client::post(address, GATED, key, BODY).await });
    until("the execution", || t.upstream.executing() == 1).await;
    // By this route the answer 201 would not be kept, and the key would be too short.
    t.configure(
        "",
        "[[route]]\nmatch = \"POST /gated\"\nresponse_bytes_max = \"0B\"\nkey_length = [40, 255]",
    );
    assert!(t.reload().await.contains("is in force"));
    t.upstream.open_gate();
    let first = within("the answer", first).await.unwrap().unwrap();
    assert_eq!(first.status, 201);
    let refused = client::post(address, GATED, key, BODY).await.unwrap();
    assert_eq!(refused.status, 400, "the new route has another rule for keys");
    t.configure("", "");
    assert!(t.reload().await.contains("is in force"));
    let again = client::post(address, GATED, key, BODY).await.unwrap();
    assert!(again.is_replay() && again.body == first.body, "{again:?}");
    assert_eq!(t.upstream.executions(key).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_or_unguarded_while_routes_are_replaced() {
    let t = Reloading::start("").await;
    let (address, stop) = (t.gateway.address, Arc::new(AtomicBool::new(false)));
    let mut sending = tokio::task::JoinSet::new();
    for caller in 0..4 {
        let stop = stop.clone();
        sending.spawn(async move {
            let mut sent = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let key = format!("operation-{caller}-{:016x}", sent.len());
                let first = client::post(address, QUICK, &key, BODY).await.unwrap();
                let again = client::post(address, QUICK, &key, BODY).await.unwrap();
                assert_eq!((first.status.as_u16(), first.is_replay()), (201, false), "{key}");
                assert!(again.is_replay() && again.body == first.body, "{key}: {again:?}");
                sent.push(key);
            }
            sent
        });
    }
    for ttl in 1..=10 {
        t.configure("", &format!("[[route]]\nmatch = \"POST /quick\"\nttl = \"{ttl}h\""));
        assert!(t.reload().await.contains("is in force"), "{}", t.gateway.errors());
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(sent) = within("the callers", sending.join_next()).await {
        for key in sent.unwrap() {
            assert_eq!(t.upstream.executions(&key).len(), 1, "{key}");
        }
    }
}

// R184, threat H2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_the_seal_rotate_under_load_and_no_answer_is_lost() {
    let mut t = Reloading::start("").await;
    let key = |byte: char| {
        let path = t.folder.path().join(format!("{byte}.key"));
        fs::write(&path, byte.to_string().repeat(64)).unwrap();
        format!("file:{}", path.display())
    };
    let [a, b, c] = ['a', 'b', 'c'].map(key);
    let rotations = [vec![&a], vec![&b, &a], vec![&c, &b, &a]];
    let (address, stop) = (t.gateway.address, Arc::new(AtomicBool::new(false)));
    let mut sending = tokio::task::JoinSet::new();
    for caller in 0..3 {
        let stop = stop.clone();
        sending.spawn(async move {
            let mut sent = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let key = format!("operation-{caller}-{:016x}", sent.len());
                let first = client::post(address, QUICK, &key, BODY).await.unwrap();
                assert_eq!((first.status.as_u16(), first.is_replay()), (201, false), "{key}");
                let again = client::post(address, QUICK, &key, BODY).await.unwrap();
                assert!(again.is_replay() && again.body == first.body, "{key}: {again:?}");
                sent.push((key, first.body));
            }
            sent
        });
    }
    for keys in &rotations {
        t.configure("", &format!("[seal]\nkeys = {keys:?}"));
        let told = t.reload().await;
        assert!(told.ends_with("is in force: changed [seal]"), "{told}");
        let executed = || t.upstream.all_executions().len();
        let before = executed();
        until("operations under these keys", || executed() > before + 10).await;
    }
    t.configure("", "[seal]\nkeys = [\"file:nowhere\"]");
    let told = t.reload().await;
    assert!(told.contains("stays in force") && told.contains("cannot be read"), "{told}");
    stop.store(true, Ordering::Relaxed);
    let mut sent = Vec::new();
    while let Some(by_caller) = within("the callers", sending.join_next()).await {
        sent.extend(by_caller.unwrap());
    }
    // A new process has nothing in memory: every answer is opened with the key that sealed it.
    t.gateway.kill().await;
    t.configure("", &format!("[seal]\nkeys = {:?}", rotations[2]));
    t.gateway = Gateway::listening(t.folder.path(), "127.0.0.1:0").await;
    for (key, body) in &sent {
        let again = client::post(t.gateway.address, QUICK, key, BODY).await.unwrap();
        assert!(again.is_replay() && again.body == *body, "{key}: {again:?}");
        assert_eq!(t.upstream.executions(key).len(), 1, "{key}");
    }
    assert_eq!(t.gateway.metric("onlyonce_unopened_total").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_manager_hears_of_the_start_a_reload_the_watchdog_and_the_stop() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), Upstream::start().await);
    configure(folder.path(), &upstream, "", "");
    let (manager, mut gateway) = managed(folder.path()).await;
    hear(&manager, "READY=1\nSTATUS=onlyonce ready: listening on").await;
    hear(&manager, "WATCHDOG=1").await;
    gateway.hang_up();
    let told = hear(&manager, "RELOADING=1\nMONOTONIC_USEC=").await;
    let moment = told.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
    assert!(moment.parse::<u64>().unwrap() > 0);
    hear(&manager, "READY=1\nSTATUS=SIGHUP: onlyonce.toml was read again").await;
    gateway.terminate();
    hear(&manager, "STOPPING=1").await;
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_watchdog_and_a_stop_do_not_wait_for_a_reload() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), Upstream::start().await);
    let redis = tokio::task::block_in_place(|| Redis::start(&[]));
    let text = format!(
        "upstream = \"http://{}\"\nstore = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        upstream.address,
        redis.url()
    );
    fs::write(folder.path().join("onlyonce.toml"), text).unwrap();
    let (manager, mut gateway) = managed(folder.path()).await;
    hear(&manager, "READY=1").await;
    redis.pause();
    gateway.hang_up();
    hear(&manager, "RELOADING=1").await;
    for _ in 0..3 {
        assert_eq!(next_message(&manager).await, "WATCHDOG=1\n", "the store has not answered yet");
    }
    gateway.terminate();
    let mut told = next_message(&manager).await;
    while told.starts_with("WATCHDOG=1") {
        told = next_message(&manager).await;
    }
    assert!(told.starts_with("STOPPING=1"), "{told}");
    redis.resume();
    assert_eq!(gateway.ended().await.code(), Some(0));
}

/// A gateway of a service manager that wants to hear of it every 200 ms, and the manager.
async fn managed(folder: &Path) -> (tokio::net::UnixDatagram, Gateway) {
    let socket = folder.join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_nonblocking(true).unwrap();
    let manager = tokio::net::UnixDatagram::from_std(manager).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(["serve", "--config", "onlyonce.toml", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "200000");
    let command = command.current_dir(folder).stdin(Stdio::null());
    let gateway = Gateway::running(folder, command).await;
    (manager, gateway)
}

/// Waits for a message that begins so.
async fn hear(manager: &tokio::net::UnixDatagram, begin: &str) -> String {
    loop {
        let message = next_message(manager).await;
        if message.starts_with(begin) {
            return message;
        }
    }
}

async fn next_message(manager: &tokio::net::UnixDatagram) -> String {
    let mut message = vec![0; 4096];
    let length = within("a message", manager.recv(&mut message)).await.unwrap();
    String::from_utf8_lossy(&message[..length]).into_owned()
}
