//! `onlyonce keys`, `tail` and `sweep`, on a gateway and on a store.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::lab::{Lab, text};

#[test]
fn an_unknown_outcome_is_listed_shown_and_settled() {
    let lab = Lab::start();
    let id = lab.unknown("order-1");
    let listed = lab.at_admin(&["keys", "list", "--state", "unknown"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let table = text(&listed.stdout);
    assert!(
        table.starts_with("STATE") && table.contains("order-1") && table.contains(&id),
        "{table}"
    );
    let shown = text(&lab.at_admin(&["keys", "show", "order-1"]).stdout);
    assert!(shown.starts_with("Sent at ") && shown.contains("Check before you decide"), "{shown}");
    std::fs::write(lab.folder.path().join("answer.json"), "{\"id\":\"ch_1\"}").unwrap();
    let settle = [
        "keys",
        "settle",
        "order-1",
        "--status",
        "201",
        "--header",
        "Content-Type: application/json",
        "--body",
        "answer.json",
        "--reason",
        "seen",
    ];
    let settled = lab.at_admin(&settle);
    assert!(settled.status.success(), "{}", text(&settled.stderr));
    let retry = lab.send("/hangs-up", "order-1");
    assert_eq!((retry.status, retry.body.as_str()), (201, "{\"id\":\"ch_1\"}"));
    let json: Value =
        serde_json::from_slice(&lab.at_admin(&["keys", "show", &id, "--format", "json"]).stdout)
            .unwrap();
    assert_eq!(
        json["events"].as_array().unwrap().iter().find(|event| event["kind"] == "settled").unwrap()
            ["who"],
        "ann"
    );
    let again = lab.at_admin(&settle);
    assert_eq!(
        again.status.code(),
        Some(1),
        "a state that forbids it is bad news: {}",
        text(&again.stderr)
    );
    let nothing = lab.at_admin(&["keys", "show", "nothing"]);
    assert_eq!(nothing.status.code(), Some(1));
}

// threat K33
#[test]
fn a_dry_run_of_one_change_changes_nothing() {
    let lab = Lab::with("", "", "[audit]\nkeep = \"1d\"");
    lab.unknown("unsure");
    assert_eq!(lab.send("/pay", "paid").status, 201);
    let changes: [&[&str]; 4] = [
        &["settle", "unsure", "--status", "201"],
        &["release", "unsure", "--force"],
        &["forget", "paid"],
        &["erase", "paid"],
    ];
    let before = (lab.get("operations?key=unsure"), lab.get("operations?key=paid"));
    for change in changes {
        let key = change[1];
        let id = lab.id(key);
        for name in [&[key][..], &[id.as_str()], &["--key", key], &["--id", id.as_str()]] {
            let asked = [&["keys", change[0]], name, &change[2..], &["--reason", "r", "--dry-run"]];
            let dry = lab.at_admin(&asked.concat());
            assert!(dry.status.success(), "{asked:?}: {}", text(&dry.stderr));
            let said = format!("{}: {id} would be changed\n", change[0]);
            assert!(text(&dry.stdout).starts_with(&said), "{}", text(&dry.stdout));
        }
    }
    let after = (lab.get("operations?key=unsure"), lab.get("operations?key=paid"));
    assert_eq!(before, after, "a dry run changed a record");
    let refused = lab.at_admin(&["keys", "forget", "unsure", "--reason", "r", "--dry-run"]);
    assert_eq!(
        refused.status.code(),
        Some(1),
        "what would be refused is: {}",
        text(&refused.stderr)
    );
    assert_eq!(lab.send("/pay", "paid").header("idempotent-replayed"), Some("true"));
    assert_eq!(lab.service.executions("paid"), 1);
    let trail = lab.at_admin(&["audit", "--format", "json"]);
    assert!(!text(&trail.stdout).contains("operator"), "{}", text(&trail.stdout));
    let forget = ["keys", "forget", "--key", "paid", "--reason", "r"];
    assert!(lab.at_admin(&forget).status.success());
    assert_eq!(lab.send("/pay", "paid").header("idempotent-replayed"), None);
    assert_eq!(lab.service.executions("paid"), 2, "without --dry-run it is done");
}

// threat K34
#[test]
fn a_key_with_the_text_of_another_id_changes_nobody_elses_operation() {
    let lab = Lab::start();
    let of_ann = lab.unknown("order-1");
    let of_bob = lab.unknown(&of_ann);
    for change in [&["release", "--force"][..], &["settle", "--failed"]] {
        let asked = [&["keys", change[0], &of_ann][..], &change[1..], &["--reason", "r"]].concat();
        let refused = lab.at_admin(&asked);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
        let (table, said) = (text(&refused.stdout), text(&refused.stderr));
        assert!(table.contains("order-1") && table.contains(&of_bob), "both are named: {table}");
        assert!(said.contains("--id") && said.contains("--key"), "{said}");
    }
    let shown = lab.at_admin(&["keys", "show", &of_ann]);
    assert_eq!(shown.status.code(), Some(2), "{}", text(&shown.stdout));
    assert_eq!(lab.get("summary")["states"]["unknown"], 2);
    let shown = lab.at_admin(&["keys", "show", "--key", &of_ann]);
    assert!(text(&shown.stdout).contains(&of_bob), "{}", text(&shown.stderr));
    let change = ["keys", "settle", "--id", &of_ann, "--failed", "--reason", "r"];
    assert!(lab.at_admin(&change).status.success());
    let state = |id: &str| lab.get(&format!("operations/{id}"))["state"].clone();
    assert_eq!((state(&of_ann), state(&of_bob)), (json!("completed"), json!("unknown")));
}

#[test]
fn many_are_changed_only_with_a_yes() {
    let lab = Lab::start();
    for number in 0..25 {
        lab.unknown(&format!("order-{number}"));
    }
    let release = ["keys", "release", "--all", "--state", "unknown", "--force", "--reason", "down"];
    let dry = lab.at_admin(&[&release[..], &["--dry-run"]].concat());
    assert!(
        text(&dry.stdout).starts_with("release: 25 of 25 would be changed"),
        "{}",
        text(&dry.stdout)
    );
    let refused = lab.at_admin(&release);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert_eq!(lab.get("operations?state=unknown")["operations"].as_array().unwrap().len(), 25);
    let done = lab.at_admin(&[&release[..], &["--yes", "--format", "json"]].concat());
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(done["changed"], 25);
    let no_filter = lab.at_admin(&["keys", "forget", "--all", "--reason", "r"]);
    assert_eq!(no_filter.status.code(), Some(2));
}

#[test]
fn a_file_is_reached_through_its_gateway_and_by_itself_when_that_has_ended() {
    let mut lab = Lab::start();
    lab.unknown("order-1");
    let store = lab.store();
    let open = lab.command(&["keys", "list", "--store", &store]);
    assert_eq!(open.status.code(), Some(3));
    assert!(text(&open.stderr).contains("--admin"), "{}", text(&open.stderr));
    lab.stop();
    let listed = lab.command(&["keys", "list", "--store", &store, "--format", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!((&listed[0]["key"], &listed[0]["state"]), (&json!("order-1"), &json!("unknown")));
    let failed =
        lab.command(&["keys", "settle", "order-1", "--failed", "--reason", "r", "--store", &store]);
    assert!(failed.status.success(), "{}", text(&failed.stderr));
    let csv = text(&lab.command(&["keys", "list", "--store", &store, "--format", "csv"]).stdout);
    assert!(csv.contains("\"completed\"") && csv.contains("\"operator\""), "{csv}");
    let gone = lab.at_admin(&["keys", "list"]);
    assert_eq!(gone.status.code(), Some(3), "{}", text(&gone.stderr));
}

#[test]
fn keys_under_a_secret_are_looked_up_with_the_configuration() {
    let mut lab = Lab::with("secret = \"0123456789abcdef0123456789abcdef\"", "", "");
    let id = lab.unknown("order-1");
    lab.stop();
    let (store, config) = (lab.store(), lab.config().display().to_string());
    let blind = lab.command(&["keys", "show", "order-1", "--store", &store]);
    assert_eq!(blind.status.code(), Some(2));
    assert!(text(&blind.stderr).contains("--config"), "{}", text(&blind.stderr));
    let unsure = lab.command(&["keys", "show", &id, "--store", &store]);
    assert_eq!(unsure.status.code(), Some(2), "it may be somebody's key");
    assert!(text(&unsure.stderr).contains("--id"), "{}", text(&unsure.stderr));
    assert!(lab.command(&["keys", "show", "--id", &id, "--store", &store]).status.success());
    let shown = lab.command(&["keys", "show", "order-1", "--config", &config]);
    assert!(text(&shown.stdout).contains(&id), "{}", text(&shown.stderr));
}

#[test]
fn a_misspelt_route_or_state_is_no_good_news() {
    let lab = Lab::with("", "[[route]]\nmatch = \"POST /charges\"\n", "");
    let changes = ["--reason", "r", "--dry-run"];
    for (command, flags) in [
        (&["list"][..], &[][..]),
        (&["list", "--format", "csv"], &[]),
        (&["release", "--all"], &changes),
    ] {
        let ask = |filter: &[&str]| {
            let output = lab.at_admin(&[&["keys"], command, filter, flags].concat());
            (output.status.code(), text(&output.stderr))
        };
        let (code, said) = ask(&["--route", "POST /chargs"]);
        assert_eq!(code, Some(1), "{command:?}: {said}");
        assert!(said.contains("did you mean \"POST /charges\"?"), "{command:?}: {said}");
        let (code, said) = ask(&["--state", "unkown"]);
        assert_eq!(code, Some(2), "{command:?}: {said}");
        assert!(said.contains("did you mean \"unknown\"?"), "{command:?}: {said}");
        // None yet, or none any more.
        assert_eq!(ask(&["--route", "POST /charges"]).0, Some(0), "{command:?}");
        assert_eq!(ask(&["--state", "unknown"]).0, Some(0), "{command:?}");
        assert_eq!(ask(&["--route", "default"]).0, Some(0), "{command:?}");
    }
    let tail = lab.at_admin(&["tail", "--route", "POST /chargs"]);
    assert_eq!(tail.status.code(), Some(1), "{}", text(&tail.stderr));
}

#[test]
fn tokens_are_given_by_flag_or_variable() {
    let lab = Lab::with_tokens();
    let id = lab.unknown("order-1");
    let list = |token: &[&str]| lab.at_admin(&[&["keys", "list"], token].concat()).status.code();
    assert_eq!(
        (list(&[]), list(&["--token", "wrong"]), list(&["--token", "readers-token"])),
        (Some(2), Some(2), Some(0))
    );
    let settle = ["keys", "settle", &id, "--failed", "--reason", "r", "--token", "readers-token"];
    assert_eq!(lab.at_admin(&settle).status.code(), Some(2));
    let admin = format!("http://{}", lab.admin);
    let swept = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["sweep", "--admin", &admin])
        .env("ONLYONCE_ADMIN_TOKEN", "operators-token")
        .output()
        .unwrap();
    assert_eq!(text(&swept.stdout), "0 expired records deleted\n", "{}", text(&swept.stderr));
}

// threat K38
#[test]
fn a_command_shows_its_token_to_no_other_listener_and_believes_none() {
    let lab = Lab::with_tokens();
    // The service behind the data port answers everything with 201; this one says what our API would.
    let other = listener(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 44\r\nConnection: close\r\n\r\n\
         {\"operations\":[],\"changed\":0,\"matched\":0}   ",
    );
    let commands: [&[&str]; 8] = [
        &["keys", "list"],
        &["keys", "show", "order-1"],
        &["keys", "release", "--all", "--state", "unknown", "--reason", "r"],
        &["keys", "forget", "order-1", "--reason", "r"],
        &["sweep"],
        &["tail"],
        &["audit"],
        &["audit", "verify"],
    ];
    for base in [format!("http://{}", lab.address), format!("http://{}", other.address)] {
        for command in commands {
            let flags = ["--admin", &base, "--token", "operators-token"];
            let asked = lab.command(&[command, &flags].concat());
            assert_eq!(asked.status.code(), Some(3), "{command:?}: {}", text(&asked.stdout));
            assert_eq!(text(&asked.stdout), "", "{command:?}");
            let said = text(&asked.stderr);
            let is_named = said.contains("is not the admin listener") && said.contains(&base);
            assert!(is_named, "{command:?}: {said}");
        }
    }
    let heard = other.heard.lock().unwrap();
    let asked = heard.lines().filter(|line| line.starts_with("GET /api/v1/gateway "));
    assert_eq!(asked.count(), commands.len());
    assert!(!heard.to_ascii_lowercase().contains("authorization"), "{heard}");
    assert!(!heard.contains("POST"), "{heard}");
}

struct Other {
    address: SocketAddr,
    heard: Arc<Mutex<String>>,
}

/// Gives each request this answer, and keeps what it hears.
fn listener(answer: &'static str) -> Other {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::<Mutex<String>>::default();
    let hears = heard.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()) {
                *hears.lock().unwrap() += &(line + "\n");
            }
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    Other { address, heard }
}

#[test]
fn tail_prints_what_happens() {
    let lab = Lab::start();
    let admin = format!("http://{}", lab.admin);
    let mut tail = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["tail", "--state", "unknown", "--admin", &admin])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let said = BufReader::new(tail.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(said.contains("listening"), "{said}");
    lab.unknown("order-1");
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("unknown") && line.contains("order-1"), "{line}");
    tail.kill().unwrap();
    tail.wait().unwrap();
    let on_store = lab.command(&["tail", "--store", "sqlite:x.db"]);
    assert_eq!(on_store.status.code(), Some(2));
}

/// As a newcomer comes upon it: the first start of README.md, and then `keys list`.
#[test]
fn where_there_is_no_admin_listener_the_messages_lead_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.args(arguments).current_dir(folder.path()).env_remove("ONLYONCE_ADMIN_TOKEN");
        command
    };
    let serve = |more: &[&str]| {
        let start = ["serve", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"];
        let mut child = run(&[&start[..], more].concat()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        (child, ready)
    };
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{nobody}");
    let (mut gateway, ready) = serve(&[]);
    assert!(ready.contains("no admin listener (--admin 127.0.0.1:8081 opens one)"), "{ready}");
    // Each of the two ways in says what helps, and neither sends to the other alone.
    for arguments in [
        ["keys", "list", "--admin", &*nobody],
        ["keys", "list", "--store", "sqlite:onlyonce.db"],
        ["tail", "--admin", &*nobody, "--format=json"],
    ] {
        let told = run(&arguments).output().unwrap();
        let said = text(&told.stderr);
        assert_eq!(told.status.code(), Some(3), "{arguments:?}: {said}");
        assert!(said.contains("start the gateway with --admin 127.0.0.1:8081"), "{said}");
        assert!(said.contains("stop it"), "{said}");
    }
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    let stopped = run(&["keys", "list", "--store", "sqlite:onlyonce.db"]).output().unwrap();
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    let (mut gateway, ready) = serve(&["--admin", "127.0.0.1:0"]);
    let (_, admin) = ready.trim_end().rsplit_once("admin ").unwrap();
    let asked = run(&["keys", "list", "--admin", admin]).output().unwrap();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert!(asked.status.success(), "{}", text(&asked.stderr));
}
