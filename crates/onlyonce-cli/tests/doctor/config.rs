use std::process::Command;

use servers::Redis;

use crate::{Told, doctor};

const SECRET: &str = "secret = \"0123456789abcdef0123456789abcdef\"\n";

/// What is found of this configuration, with a new SQLite file unless it names a store.
fn told(text: &str) -> Told {
    let folder = tempfile::tempdir().unwrap();
    let store = match text.contains("store =") {
        true => String::new(),
        false => format!("store = \"sqlite:{}\"\n", folder.path().join("a.db").display()),
    };
    let file = folder.path().join("onlyonce.toml");
    std::fs::write(&file, format!("{store}{text}")).unwrap();
    doctor(&["--config", file.to_str().unwrap()])
}

#[test]
fn a_good_configuration_holds() {
    let route = "[[route]]\nmatch = \"POST /charges\"\npreset = \"payments\"\n";
    told(&format!("{SECRET}[admin]\n{route}")).is_sound();
}

#[test]
fn what_weakens_the_promise_is_named() {
    told("[policy]\nstore_down = \"pass\"\n").breaks("guarded", "store_down", "[policy]: \"pass\"");
    told("[policy]\nmode = \"observe\"\n").breaks("guarded", "mode", "nothing is guarded");
    told("store = \"memory:\"\n").breaks("durable", "store", "forgets every key");
    let release = "[[route]]\nmatch = \"POST /a\"\npreset = \"payments\"\nrecovery = \"release\"\n";
    told(release).breaks("guarded", "recovery", "POST /a: \"release\" with the preset payments");
}

#[test]
fn risks_are_named_and_do_not_fail() {
    let route = |line: &str| told(&format!("{SECRET}[[route]]\nmatch = \"POST /a\"\n{line}\n"));
    let short = route("recovery = \"redrive\"\nttl = \"1h\"\nredrive_for = \"2h\"");
    short.risks("guarded", "ttl", "POST /a: it is shorter than redrive_for");
    short.holds();
    route("recovery = \"release\"").risks("guarded", "recovery", "executed again");
    route("preset = \"payments\"\nkey = \"optional\"").risks("guarded", "key", "not guarded");
    route("fingerprint = \"none\"").risks("guarded", "fingerprint", "gets the answer of the first");
    route("principal = \"none\"").risks("guarded", "principal", "callers share");
    route("not_executed = [\"5xx\"]").risks("guarded", "not_executed", "failed halfway");
    told("").risks("private", "secret", "not set");
    let open = "[admin]\nlisten = \"0.0.0.0:8081\"\ntoken = \"a-token\"\n";
    told(open).risks("private", "admin", "0.0.0.0:8081");
}

#[test]
fn payments_on_a_redis_that_may_lose_them_are_named() {
    let redis = Redis::start(&[]);
    let route = "[[route]]\nmatch = \"POST /charges\"\npreset = \"payments\"\n";
    let told = told(&format!("store = \"{}\"\n{route}", redis.url()));
    told.breaks("guarded", "preset", "POST /charges: the preset payments");
    told.breaks("durable", "appendonly", "no");
}

#[test]
fn a_bad_configuration_or_no_store_is_exit_code_2() {
    assert_eq!(told("nonsense = 1\n").code, 2);
    let none = doctor(&[]);
    assert_eq!(none.code, 2);
    assert!(none.errors.contains("pass --store or --config"), "{}", none.errors);
}

#[test]
fn people_read_a_line_for_each_setting_and_what_to_do() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let output = command.args(["doctor", "--store", "memory:"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = "store memory:\n\nAn answer that was given survives a crash: DOES NOT HOLD\n  BAD  store: memory: forgets";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("\n       do: use sqlite:FILE or postgres://…\n"), "{text}");
    assert!(text.ends_with("\n1 promise does not hold.\n"), "{text}");
}
