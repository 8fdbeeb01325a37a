//! `onlyonce audit --admin`: the trail as a running gateway tells it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::Duration;

use crate::{Served, onlyonce, text};

impl Served {
    /// `onlyonce audit` with these arguments, asking the gateway.
    fn ask(&self, arguments: &[&str]) -> Output {
        ask(&self.admin, arguments)
    }

    /// Keeps the heads of now in a file, and returns its path.
    fn keep_heads(&self) -> String {
        let (heads, kept) = (self.ask(&["heads"]), self.folder.path().join("heads"));
        assert!(heads.status.success(), "{}", text(&heads.stderr));
        fs::write(&kept, &heads.stdout).unwrap();
        kept.display().to_string()
    }

    /// Changes the store while the gateway is away.
    fn tamper(&mut self, sql: &str) {
        self.stop();
        let db = rusqlite::Connection::open(self.folder.path().join("onlyonce.db")).unwrap();
        db.execute_batch(sql).unwrap();
        drop(db);
        self.start_again();
    }

    /// Waits until the trail has so many entries.
    fn await_entries(&self, count: usize) {
        for _ in 0..200 {
            if text(&self.audit(&[]).stdout).lines().count() >= count {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{count} entries did not come");
    }
}

fn ask(admin: &str, arguments: &[&str]) -> Output {
    let admin = format!("http://{admin}");
    let arguments = [&["audit"], arguments, &["--admin", &admin]].concat();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(arguments).env_remove("ONLYONCE_ADMIN_TOKEN").output().unwrap()
}

/// A key that an address must spell otherwise.
const AWKWARD: &str = "order-1&limit=1+1%20";

/// All that a command says; how old the oldest entry is differs from one moment to the next.
fn said(output: &Output) -> (Option<i32>, &str, &str) {
    let stderr = text(&output.stderr);
    let stderr = stderr.split_once("; the oldest is ").map_or(stderr, |(before, _)| before);
    (output.status.code(), text(&output.stdout), stderr)
}

#[test]
fn a_gateway_tells_the_same_as_its_store() {
    let postgres = servers::Postgres::start();
    for store in ["sqlite:FOLDER/onlyonce.db", &postgres.url()] {
        let top = "sweep = \"1h\"\nsecret = \"0123456789abcdef-a-secret\"";
        let served = Served::with(store, top, "audit_ids = [\"/id\"]");
        assert!(served.charge(AWKWARD, 100).contains("201 Created"));
        assert!(served.charge(AWKWARD, 999).contains("422"));
        // More than a page of the API.
        for _ in 0..220 {
            served.charge("order-2", 100);
        }
        served.await_entries(3 + 221);
        let all = served.ask(&[]);
        assert_eq!(text(&all.stdout).lines().count(), 3 + 221, "{}", text(&all.stderr));
        let of_key = served.ask(&["--key", AWKWARD]);
        assert_eq!(text(&of_key.stdout).lines().count(), 3, "{}", text(&of_key.stderr));
        let id = text(&of_key.stdout).split_whitespace().nth(2).unwrap().to_owned();
        let middle = text(&all.stdout).lines().nth(100).unwrap();
        let middle = middle.split_whitespace().next().unwrap();
        for arguments in [
            &[][..],
            &["--format", "json"],
            &["--format", "csv"],
            &["--key", AWKWARD],
            &["--key", "order-2", "--format", "json"],
            &["--key", "order-3", "--format", "csv"],
            &["--id", &id],
            &["--since", middle],
            &["--until", middle, "--format", "csv"],
            &["--since", "1h", "--key", "order-2"],
            &["--since", "1970-01-01"],
            &["--until", "1h"],
            &["heads"],
            &["heads", "--format", "json"],
            &["verify"],
            &["verify", "--format", "json"],
        ] {
            let (asked, read) = (served.ask(arguments), served.audit(arguments));
            assert_eq!(said(&asked), said(&read), "{arguments:?}");
            assert_eq!(asked.status.code(), Some(0), "{arguments:?}");
        }
        assert!(text(&served.ask(&["verify"]).stderr).contains("whole: 224 entries"));
        let kept = served.keep_heads();
        let compared = served.ask(&["verify", "--head", &kept]);
        assert_eq!(compared.status.code(), Some(0), "{}", text(&compared.stderr));
    }
}

#[test]
fn a_gateway_tells_that_its_trail_was_changed() {
    let mut served = Served::with("sqlite:FOLDER/onlyonce.db", "sweep = \"1h\"", "");
    assert!(served.charge("order-1", 100).contains("201 Created"));
    served.tamper("UPDATE audit SET status = 200 WHERE kind = 'executed'");
    for arguments in [&["verify"][..], &["verify", "--format", "json"]] {
        let asked = served.ask(arguments);
        assert_eq!(asked.status.code(), Some(1), "{}", text(&asked.stderr));
        assert_eq!(said(&asked), said(&served.audit(arguments)));
    }
    let told = served.ask(&["verify"]);
    assert!(text(&told.stdout).contains("entry 2: its hash is wrong"), "{}", text(&told.stdout));
    assert!(text(&told.stderr).contains("the trail was changed"), "{}", text(&told.stderr));
}

#[test]
fn a_gateway_compares_its_trail_with_heads_that_were_kept() {
    let mut served = Served::with("sqlite:FOLDER/onlyonce.db", "sweep = \"1h\"", "");
    assert!(served.charge("order-1", 100).contains("201 Created"));
    let kept = served.keep_heads();
    served.tamper(
        "UPDATE audit_head SET sequence = 1, hash = (SELECT hash FROM audit WHERE sequence = 1);
         DELETE FROM audit WHERE sequence = 2",
    );
    let blind = served.ask(&["verify"]);
    assert_eq!(blind.status.code(), Some(0), "{}", text(&blind.stderr));
    let compared = served.ask(&["verify", "--head", &kept]);
    assert_eq!(compared.status.code(), Some(1), "{}", text(&compared.stderr));
    assert!(text(&compared.stdout).contains("it is cut off"), "{}", text(&compared.stdout));
    assert_eq!(said(&compared), said(&served.audit(&["verify", "--head", &kept])));
    fs::write(&kept, "nonsense\n").unwrap();
    assert_eq!(served.ask(&["verify", "--head", &kept]).status.code(), Some(2));
}

#[test]
fn an_auditor_may_have_the_token_that_only_reads() {
    let served = Served::configured(
        "store = \"sqlite:FOLDER/onlyonce.db\"",
        "token = \"operators-token\"\nread_token = \"readers-token\"\n[audit]\nkeep = \"30d\"\n",
    );
    assert!(served.charge("order-1", 100).contains("201 Created"));
    for command in [&[][..], &["heads"], &["verify"]] {
        for (token, expected) in [
            (&["--token", "readers-token"][..], Some(0)),
            (&["--token", "operators-token"], Some(0)),
            (&["--token", "wrong"], Some(2)),
            (&[], Some(2)),
        ] {
            let asked = served.ask(&[command, token].concat());
            let told = text(&asked.stderr);
            assert_eq!(asked.status.code(), expected, "{command:?} {token:?}: {told}");
            assert_eq!(told.contains("--token"), expected == Some(2), "{told}");
        }
    }
}

#[test]
fn a_gateway_that_keeps_no_trail_says_what_to_do() {
    let served = Served::configured("store = \"sqlite:FOLDER/onlyonce.db\"", "");
    for command in [&[][..], &["--format", "csv"], &["heads"], &["verify"]] {
        let asked = served.ask(command);
        let told = text(&asked.stderr);
        assert_eq!((asked.status.code(), text(&asked.stdout)), (Some(3), ""), "{told}");
        assert!(told.contains("keeps no audit trail; set [audit]"), "{told}");
    }
}

#[test]
fn a_gateway_whose_trail_has_no_entries_yet_keeps_one() {
    let served = Served::with("sqlite:FOLDER/onlyonce.db", "", "");
    assert_eq!(said(&served.ask(&[])), (Some(0), "", "onlyonce: no entries\n"));
    assert_eq!(served.ask(&["verify"]).status.code(), Some(0));
}

#[test]
fn a_listener_that_is_no_gateway_is_no_news_of_the_trail() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let nobody = ask(&closed, &["verify"]);
    assert_eq!(nobody.status.code(), Some(3));
    assert!(text(&nobody.stderr).contains("is a gateway with an admin listener there?"));
    for answer in ["404 Not Found\r\n\r\n{}", "200 OK\r\n\r\n{\"ok\":false}", "200 OK\r\n\r\n[]"] {
        let other = stranger(answer);
        for command in [&[][..], &["--format", "csv"], &["heads"], &["verify"]] {
            let asked = ask(&other, command);
            let told = text(&asked.stderr);
            assert_eq!(
                (asked.status.code(), text(&asked.stdout)),
                (Some(3), ""),
                "{answer} {told}"
            );
            assert!(told.contains("admin listener"), "{told}");
        }
    }
}

#[test]
fn a_sweep_that_no_gateway_answered_is_no_number() {
    for answer in ["200 OK\r\n\r\n{}", "200 OK\r\n\r\n[]"] {
        let sweep = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .args(["sweep", "--admin", &format!("http://{}", stranger(answer))])
            .output()
            .unwrap();
        assert_eq!((sweep.status.code(), text(&sweep.stdout)), (Some(3), ""), "{sweep:?}");
    }
}

/// To compare with nothing would call every trail whole.
#[test]
fn heads_of_nothing_are_refused() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let compared = ask("127.0.0.1:1", &["verify", "--head", empty.path().to_str().unwrap()]);
    assert_eq!(compared.status.code(), Some(2));
    assert!(text(&compared.stderr).contains("no heads in it"), "{compared:?}");
}

/// The address of a server that answers everything so.
fn stranger(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let (status, body) = answer.split_once("\r\n\r\n").unwrap();
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}");
            let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
        }
    });
    address
}

#[test]
fn a_trail_is_read_from_one_place() {
    let admin = "http://127.0.0.1:1";
    for wrong in [
        &["audit", "--admin", admin, "--store", "sqlite:x.db"][..],
        &["audit", "--store", "sqlite:x.db", "verify", "--admin", admin],
        &["audit", "--admin", admin, "--config", "x.toml"],
        &["audit", "--store", "sqlite:x.db", "--token", "t"],
        &["audit", "--admin", "nonsense"],
        &["audit"],
    ] {
        let refused = onlyonce(wrong);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {told}");
        assert!(told.contains("--admin"), "{told}");
    }
}
