//! `onlyonce audit`, as an auditor uses it: beside a running gateway, and after the key is gone.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod through_admin;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

struct Served {
    child: Child,
    address: String,
    admin: String,
    folder: tempfile::TempDir,
}

impl Served {
    fn start(store: &str) -> Self {
        Self::with(
            store,
            "sweep = \"200ms\"\nsecret = \"0123456789abcdef-a-secret\"",
            "ttl = \"1500ms\"\naudit_ids = [\"/id\", \"/none\"]",
        )
    }

    /// With these lines at the top and under `[policy]`.
    fn with(store: &str, top: &str, policy: &str) -> Self {
        Self::configured(
            &format!("store = \"{store}\"\n{top}"),
            &format!("[audit]\nkeep = \"30d\"\n[policy]\n{policy}\n"),
        )
    }

    /// With this text before and after what every configuration has; `after` begins under `[admin]`.
    fn configured(before: &str, after: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "listen = \"127.0.0.1:0\"\nupstream = \"http://{}\"\n{before}\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n{after}",
            upstream()
        );
        let text = text.replace("FOLDER", &folder.path().display().to_string());
        let config = folder.path().join("onlyonce.toml");
        std::fs::write(&config, text).unwrap();
        let (child, address, admin) = serve(&config);
        Self { child, address, admin, folder }
    }

    /// Starts the gateway again after it was stopped.
    fn start_again(&mut self) {
        (self.child, self.address, self.admin) = serve(&self.config());
    }

    /// What the admin API answers.
    fn api(&self, path: &str) -> serde_json::Value {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        let request = format!(
            "GET /api/v1/{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.admin
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("onlyonce.toml")
    }

    /// The whole answer to a charge.
    fn charge(&self, key: &str, amount: u32) -> String {
        let body = format!("{{\"amount\":{amount}}}");
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "POST /charges HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn audit(&self, arguments: &[&str]) -> Output {
        audit(&self.config(), arguments)
    }

    /// The kinds of the entries of a key, once the last one is there.
    fn life(&self, key: &str, last: &str) -> Vec<String> {
        for _ in 0..200 {
            let told = self.audit(&["--key", key, "--format", "json"]);
            assert!(told.status.success(), "{}", text(&told.stderr));
            let entries: Vec<serde_json::Value> = text(&told.stdout)
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let kinds: Vec<_> =
                entries.iter().map(|entry| entry["kind"].as_str().unwrap().to_owned()).collect();
            if kinds.iter().any(|kind| kind == last) {
                return kinds;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{last} is not told of {key}");
    }

    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a gateway, and returns where it listens: for clients, and for operators.
fn serve(config: &Path) -> (Child, String, String) {
    let mut child =
        command().args(["serve", "--config"]).arg(config).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let address = ready.split_once("http://").unwrap().1;
    let address = address.split([',', ' ', '\n']).next().unwrap().to_owned();
    let admin = ready.trim().split_once("admin http://").unwrap().1.to_owned();
    (child, address, admin)
}

fn audit(config: &Path, arguments: &[&str]) -> Output {
    let config = config.display().to_string();
    onlyonce(&[&["audit"], arguments, &["--config", &config]].concat())
}

fn onlyonce(arguments: &[&str]) -> Output {
    command().args(arguments).output().unwrap()
}

/// With credentials that an emulator of DynamoDB believes.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A service that makes a charge of every request, and its address.
fn upstream() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let body = format!("{{\"id\":\"=ch_{number}\"}}");
            let answer = format!(
                "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nConnection: close\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn proves_what_happened(store: &str) -> Served {
    let served = Served::start(store);
    assert!(served.charge("order-4711", 100).contains("201 Created"));
    for _ in 0..3 {
        assert!(served.charge("order-4711", 100).to_lowercase().contains("idempotent-replayed"));
    }
    assert!(served.charge("order-4711", 999).contains("422"));
    let mut kinds = served.life("order-4711", "expired");
    kinds.sort();
    let expected =
        ["claimed", "executed", "expired", "mismatched", "replayed", "replayed", "replayed"];
    assert_eq!(kinds, expected);
    let told = served.audit(&["--key", "order-4711"]);
    let lines: Vec<_> = text(&told.stdout).lines().collect();
    assert_eq!(lines.len(), 7);
    assert!(
        lines[1].contains("executed") && lines[1].contains("status 201  /id =ch_0"),
        "{lines:?}"
    );
    assert!(!text(&told.stdout).contains("order-4711"), "the trail has no key");
    let csv = served.audit(&["--format", "csv", "--since", "1h"]);
    let csv = text(&csv.stdout);
    assert!(csv.starts_with(
        "at,kind,id,route,principal,attempt,status,who,why,ids,count,writer,seq,hash\n"
    ));
    assert_eq!(csv.lines().count(), 8, "{csv}");
    assert!(served.audit(&["--until", "1h"]).stdout.is_empty());
    assert!(served.audit(&["--key", "order-4712"]).stdout.is_empty());
    let whole = served.audit(&["verify"]);
    assert_eq!((whole.status.code(), text(&whole.stdout)), (Some(0), ""));
    assert!(
        text(&whole.stderr).contains("the trail is whole: 7 entries"),
        "{}",
        text(&whole.stderr)
    );
    served
}

#[test]
fn an_auditor_sees_a_dedup_after_the_key_is_gone() {
    let mut served = proves_what_happened("sqlite:FOLDER/onlyonce.db");
    let listed = served.api("audit?key=order-4711&limit=5");
    assert_eq!(listed["entries"].as_array().unwrap().len(), 5);
    let rest =
        served.api(&format!("audit?key=order-4711&after={}", listed["next"].as_str().unwrap()));
    assert_eq!(
        (rest["entries"].as_array().unwrap().len(), &rest["next"]),
        (2, &serde_json::Value::Null)
    );
    assert_eq!(served.api("audit/verify")["ok"], true);
    assert_eq!(served.api("summary")["audit"]["entries"], 7);
    assert_eq!(served.api("audit?limit=0")["status"], 400);
    assert!(served.charge("order-4712", 100).contains("201 Created"));
    assert!(served.charge("order-4712", 100).to_lowercase().contains("idempotent-replayed"));
    served.life("order-4712", "replayed");
    let id = served.api("audit?key=order-4712")["entries"][0]["id"].as_str().unwrap().to_owned();
    let operation = served.api(&format!("operations/{id}"));
    assert_eq!(operation["replays"], 1, "{operation}");
    assert_eq!(operation["events"].as_array().unwrap().len(), 3);
    let heads = served.audit(&["heads"]);
    let kept = served.folder.path().join("heads");
    std::fs::write(&kept, &heads.stdout).unwrap();
    served.stop();
    let compared = served.audit(&["verify", "--head", kept.to_str().unwrap()]);
    assert_eq!(compared.status.code(), Some(0), "{}", text(&compared.stderr));
    let db = rusqlite::Connection::open(served.folder.path().join("onlyonce.db")).unwrap();
    db.execute_batch("UPDATE audit SET status = 200 WHERE kind = 'executed'").unwrap();
    drop(db);
    let changed = served.audit(&["verify", "--format", "json"]);
    assert_eq!(changed.status.code(), Some(1));
    let told: serde_json::Value = serde_json::from_slice(&changed.stdout).unwrap();
    assert_eq!(told["ok"], false);
    assert_eq!(told["faults"][0]["sequence"], 2);
    std::fs::write(&kept, "nonsense\n").unwrap();
    let refused = served.audit(&["verify", "--head", kept.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
}

#[cfg(feature = "dynamodb")]
#[test]
fn an_auditor_sees_a_dedup_in_dynamodb() {
    let Some(server) = servers::DynamoDb::start() else { return };
    let store = format!("dynamodb:keys?endpoint={}&sweep=scan", server.url());
    assert!(onlyonce(&["migrate", "--to", &store]).status.success());
    let mut served = proves_what_happened(&store);
    assert_eq!(served.api("audit/verify")["ok"], true);
    let mut entry = items(&server, "event_kind = :value", "executed").remove(0);
    entry["http_status"]["N"] = "200".into();
    let changed = serde_json::json!({ "TableName": "keys", "Item": entry });
    assert_eq!(server.call("PutItem", &changed.to_string()).0, 200);
    assert_eq!(served.api("audit/verify")["ok"], false);
    // A chain that is taken out of the list of chains is found all the same, by its entries.
    for listed in items(&server, "pk = :value", "oo/chains") {
        let key = serde_json::json!({ "pk": listed["pk"], "sk": listed["sk"] });
        let delete = serde_json::json!({ "TableName": "keys", "Key": key });
        assert_eq!(server.call("DeleteItem", &delete.to_string()).0, 200);
    }
    assert_eq!(served.api("audit/verify")["ok"], false);
    served.stop();
    let told = served.audit(&["verify"]);
    assert_eq!(told.status.code(), Some(1), "{}", text(&told.stderr));
}

/// The items of the table for which the condition holds with this value.
#[cfg(feature = "dynamodb")]
fn items(server: &servers::DynamoDb, condition: &str, value: &str) -> Vec<serde_json::Value> {
    let scan = serde_json::json!({
        "TableName": "keys",
        "FilterExpression": condition,
        "ExpressionAttributeValues": { ":value": { "S": value } },
    });
    let (_, found) = server.call("Scan", &scan.to_string());
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    found["Items"].as_array().unwrap().clone()
}

#[test]
fn an_auditor_sees_a_dedup_in_postgres_and_through_a_filter() {
    let (postgres, redis) = (servers::Postgres::start(), servers::Redis::start(&[]));
    let mut served = proves_what_happened(&postgres.url());
    assert_eq!(served.api("audit/verify")["ok"], true);
    served.stop();
    let database = postgres.database();
    postgres.sql("postgres", "SELECT 1");
    let filter = format!("{database}\"\nfilter = \"{}", redis.url());
    proves_what_happened(&filter);
}

#[test]
fn a_command_on_a_store_that_has_a_trail_goes_on_with_it() {
    let postgres = servers::Postgres::start();
    for name in ["sqlite:FOLDER/onlyonce.db", &postgres.url()] {
        let mut served = Served::with(name, "sweep = \"1h\"", "ttl = \"1h\"");
        let store = name.replace("FOLDER", &served.folder.path().display().to_string());
        assert!(served.charge("order-1", 100).contains("201 Created"));
        served.stop();
        let forget = ["keys", "forget", "order-1", "--reason", "asked to", "--store", &store];
        let forgotten = onlyonce(&forget);
        assert!(forgotten.status.success(), "{}", text(&forgotten.stderr));
        let told = onlyonce(&["audit", "--key", "order-1", "--store", &store]);
        let told = text(&told.stdout);
        assert!(told.contains("forgotten") && told.contains("asked to"), "{told}");
        is_whole(&store, 3);
    }
}

#[test]
fn a_sweep_of_a_store_that_has_a_trail_goes_on_with_it() {
    let postgres = servers::Postgres::start();
    for name in ["sqlite:FOLDER/onlyonce.db".to_owned(), postgres.database()] {
        let mut served = Served::with(&name, "sweep = \"1h\"", "ttl = \"1ms\"");
        let store = name.replace("FOLDER", &served.folder.path().display().to_string());
        assert!(served.charge("order-1", 100).contains("201 Created"));
        served.stop();
        let swept = onlyonce(&["sweep", "--store", &store]);
        assert_eq!(text(&swept.stdout), "1 expired records deleted\n", "{}", text(&swept.stderr));
        assert!(text(&onlyonce(&["audit", "--store", &store]).stdout).contains("expired"));
        is_whole(&store, 3);
    }
}

#[test]
fn a_sweep_keeps_the_trail_of_its_configuration() {
    let mut served = Served::with("sqlite:FOLDER/onlyonce.db", "sweep = \"1h\"", "ttl = \"1ms\"");
    assert!(served.charge("order-1", 100).contains("201 Created"));
    served.stop();
    let config = served.config().display().to_string();
    let swept = onlyonce(&["sweep", "--config", &config]);
    assert_eq!(text(&swept.stdout), "1 expired records deleted\n", "{}", text(&swept.stderr));
    assert!(served.life("order-1", "expired").contains(&"claimed".to_owned()));
}

/// With so many entries.
fn is_whole(store: &str, entries: usize) {
    let whole = onlyonce(&["audit", "verify", "--store", store]);
    let told = text(&whole.stderr);
    assert!(
        whole.status.success() && told.contains(&format!("whole: {entries} entries")),
        "{told}"
    );
}

#[test]
fn a_key_is_not_looked_up_without_the_secret_of_its_store() {
    let postgres = servers::Postgres::start();
    for name in ["sqlite:FOLDER/onlyonce.db", &postgres.url()] {
        let served = Served::with(name, "secret = \"0123456789abcdef-a-secret\"", "");
        let store = name.replace("FOLDER", &served.folder.path().display().to_string());
        assert!(served.charge("order-1", 100).contains("201 Created"));
        let blind = onlyonce(&["audit", "--key", "order-1", "--store", &store]);
        let told = text(&blind.stderr);
        assert_eq!(blind.status.code(), Some(2), "{told}");
        assert!(told.contains("kept under a secret") && told.contains("--config"), "{told}");
        assert!(blind.stdout.is_empty());
        assert!(text(&served.audit(&["--key", "order-1"]).stdout).contains("executed"));
        let nothing = served.audit(&["--key", "order-2"]);
        assert_eq!(
            (nothing.status.code(), text(&nothing.stderr)),
            (Some(0), "onlyonce: no entries\n")
        );
    }
}

#[test]
fn a_store_that_keeps_no_trail_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("a.toml");
    std::fs::write(&config, "store = \"redis://127.0.0.1\"\n\n[audit]\nkeep = \"400d\"\n").unwrap();
    let checked = onlyonce(&["config", "check", config.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(2));
    let told = text(&checked.stderr);
    assert!(told.contains(":3:1: Redis alone keeps no audit trail"), "{told}");
}

#[test]
fn an_auditor_who_may_only_read_reads_a_trail_in_postgres_and_makes_nothing() {
    let postgres = servers::Postgres::start();
    let database = postgres.database();
    let reader = database.replace("//postgres@", "//auditor@");
    let (role, grant) = (
        "CREATE ROLE auditor LOGIN",
        "GRANT USAGE ON SCHEMA onlyonce TO auditor; GRANT SELECT ON ALL TABLES IN SCHEMA onlyonce TO auditor",
    );
    postgres.sql(&database, role);
    for store in [&database, &reader] {
        let nothing = onlyonce(&["audit", "--store", store]);
        assert_eq!(nothing.status.code(), Some(3));
        assert!(text(&nothing.stderr).contains("has no store"), "{}", text(&nothing.stderr));
    }
    let mut served = Served::with(&database, "", "");
    assert!(served.charge("order-1", 100).contains("201 Created"));
    served.stop();
    postgres.sql(&database, grant);
    for found in
        [&["audit", "--key", "order-1", "--store", &reader][..], &["audit", "--store", &reader]]
    {
        let listed = onlyonce(found);
        assert_eq!(text(&listed.stdout).lines().count(), 2, "{}", text(&listed.stderr));
    }
    is_whole(&reader, 2);
    assert_eq!(text(&onlyonce(&["audit", "heads", "--store", &reader]).stdout).lines().count(), 1);
    let nothing = onlyonce(&["audit", "--key", "order-2", "--store", &reader]);
    assert_eq!((nothing.status.code(), text(&nothing.stderr)), (Some(0), "onlyonce: no entries\n"));
}

#[test]
fn a_store_without_a_trail_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("a.toml");
    std::fs::write(&config, format!("store = \"sqlite:{}/a.db\"\n", folder.path().display()))
        .unwrap();
    let absent = audit(&config, &[]);
    assert_eq!(absent.status.code(), Some(3));
    assert!(text(&absent.stderr).contains("does not exist"), "{}", text(&absent.stderr));
    let nowhere = onlyonce(&["audit"]);
    assert_eq!(nowhere.status.code(), Some(2));
}
