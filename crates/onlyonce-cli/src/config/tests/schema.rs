//! The schema says what the reader says: it takes every good file, and refuses unknown names and other kinds of values.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::documented::examples;
use super::names::TABLES;
use super::refused::{MISPLACED, NOT_BUILT, RULES, UNKNOWN, VALUES};
use super::*;

fn schema() -> Value {
    serde_json::from_str(&Config::schema_text()).unwrap()
}

/// The name under which each section is, and what it has.
fn sections() -> impl Iterator<Item = (&'static str, &'static Section)> {
    [("", &TOP)].into_iter().chain(TABLES)
}

// A sentence that begins otherwise would leave its name without a type: see names/kind.rs.
#[test]
fn every_name_says_what_it_is() {
    for (_, section) in sections() {
        for name in section.names().filter(|name| !name.is_later()) {
            let kind = name.kind().unwrap_or_else(|| panic!("{}: {}", name.name, name.values));
            let has_names = TABLES.iter().any(|(title, _)| *title == name.name);
            let is_table = format!("{kind:?}").contains("Table");
            assert_eq!(is_table, has_names, "{}: {kind:?}", name.name);
        }
    }
}

#[test]
fn the_schema_has_every_name_that_is_built_and_no_other() {
    let schema = schema();
    let properties = |object: &Value| {
        let names = object["properties"].as_object().unwrap().keys().cloned();
        (names.collect::<Vec<_>>(), object["additionalProperties"].clone())
    };
    let built = |section: &Section| {
        let names = section.names().filter(|name| !name.is_later());
        let mut names: Vec<_> = names.map(|name| name.name.to_owned()).collect();
        names.sort();
        (names, json!(false))
    };
    assert_eq!(properties(&schema), built(&TOP));
    let top = &schema["properties"];
    assert_eq!(properties(&top["policy"]), built(&POLICY));
    assert_eq!(properties(&top["route"]["items"]), built(&ROUTE));
    let route = &top["route"]["items"]["properties"];
    assert_eq!(properties(&route["reconcile"]), built(&RECONCILE));
    assert_eq!(properties(&route["velocity"]["items"]), built(&VELOCITY));
    assert_eq!(route["ttl"]["default"], "24h");
    assert_eq!(route["live_keys_max"]["default"], 100_000);
    assert_eq!(route["key"]["enum"], json!(["optional", "required"]));
    let said = route["ttl"]["description"].as_str().unwrap();
    assert!(said.starts_with("How long an answer is kept") && said.ends_with("\"24h\"."), "{said}");
}

/// What a validator must say of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Takes,
    Refuses,
    /// The schema does not know what the reader knows.
    Any,
}

// One run for all texts: most of its time is the start of the validator.
#[test]
fn a_validator_takes_good_files_and_refuses_unknown_names_and_other_kinds_of_values() {
    let texts: Vec<_> = good_files().chain(refused()).chain(every_name_and_kind()).collect();
    let Some(said) = validate(&texts) else { return };
    for ((text, expected), wrong) in texts.iter().zip(said) {
        let verdict = if wrong.is_null() { Verdict::Takes } else { Verdict::Refuses };
        assert!(*expected == Verdict::Any || verdict == *expected, "{expected:?}: {text}\n{wrong}");
    }
}

fn good_files() -> impl Iterator<Item = (String, Verdict)> {
    let bench = std::fs::read_to_string(repository("crates/bench/gateway.toml")).unwrap();
    let files = [Config::default_text().to_owned(), bench, String::new()].into_iter();
    files.chain(examples().map(|(_, text)| text)).map(|text| (text, Verdict::Takes))
}

/// The lists that the reader is tested with, as far as they are about names and kinds of values.
fn refused() -> impl Iterator<Item = (String, Verdict)> {
    let is_of_kind =
        |(_, said): &&(&str, &str)| said.contains("; this is a") || said.contains(", not \"");
    let names = UNKNOWN.iter().chain(&MISPLACED).map(|(text, _)| (*text).to_owned());
    let later = NOT_BUILT.iter().map(|(table, name)| format!("{table}\n{name} = []"));
    let others = VALUES.iter().chain(&RULES).filter(is_of_kind).map(|(text, _)| (*text).to_owned());
    let others: Vec<_> = others.collect();
    assert!(others.len() >= 5, "{others:?}");
    names.chain(later).chain(others).map(|text| (text, Verdict::Refuses))
}

/// Each name of each table with each kind of value: what the reader calls another kind is to be refused, and what it
/// takes is to be taken.
fn every_name_and_kind() -> impl Iterator<Item = (String, Verdict)> {
    let texts = sections().flat_map(|(title, section)| {
        let names = section.names().filter(|name| !name.is_later());
        names.flat_map(move |name| KINDS.map(|value| text(title, name.name, value)))
    });
    let texts: Vec<_> = texts.collect();
    assert!(texts.len() > 300, "{}", texts.len());
    texts.into_iter().map(|text| {
        let verdict = match parse(&text) {
            Ok(_) => Verdict::Takes,
            Err(said) if said.to_string().contains("; this is ") => Verdict::Refuses,
            Err(_) => Verdict::Any,
        };
        (text, verdict)
    })
}

const KINDS: [&str; 6] = ["\"a b\"", "7", "1.5", "true", "[]", "{}"];

/// A file that gives this name this value, in the table with this title.
fn text(title: &str, name: &str, value: &str) -> String {
    match title {
        "" => format!("{name} = {value}"),
        "route" => format!("[[route]]\n{}{name} = {value}", or_match(name)),
        "reconcile" => format!("[policy]\nreconcile = {{ {name} = {value} }}"),
        "velocity" => format!("[policy]\nvelocity = [{{ {name} = {value} }}]"),
        "webhook" => format!("[[route]]\nmatch = \"POST /\"\nwebhook = {{ {name} = {value} }}"),
        _ => format!("[{title}]\n{name} = {value}"),
    }
}

fn or_match(name: &str) -> &'static str {
    if name == "match" { "" } else { "match = \"POST /\"\n" }
}

/// What a validator for JSON Schema finds wrong with each text; `None` if none is installed.
fn validate(texts: &[(String, Verdict)]) -> Option<Vec<Value>> {
    let skipped = || println!("SKIPPED: jsonschema is not installed; scripts/test installs it");
    let mut python = Command::new(repository("target/languages/python/bin/python"));
    python.arg(repository("crates/onlyonce-cli/src/config/tests/validate.py"));
    let Ok(mut child) = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        skipped();
        return None;
    };
    let texts: Vec<_> = texts.iter().map(|(text, _)| text).collect();
    let asked = json!({ "schema": schema(), "texts": texts }).to_string();
    // A program without its package does not read on.
    let _ = child.stdin.take().unwrap().write_all(asked.as_bytes());
    let output = child.wait_with_output().unwrap();
    if output.status.code() == Some(NOT_INSTALLED) {
        skipped();
        return None;
    }
    assert!(output.status.success());
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// How validate.py says so.
const NOT_INSTALLED: i32 = 3;

// What an editor runs: the language server for TOML.
#[test]
fn a_language_server_takes_the_default_file_and_refuses_a_misspelt_one() {
    let taplo = repository("target/languages/python/bin/taplo");
    if Command::new(&taplo).arg("--version").output().is_err() {
        return println!("SKIPPED: taplo is not installed; scripts/test installs it");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("schema.json"), Config::schema_text()).unwrap();
    let check = |name: &str, text: &str| {
        let text = format!("#:schema ./schema.json\n{text}");
        std::fs::write(folder.path().join(name), text).unwrap();
        let mut command = Command::new(&taplo);
        let command = command.args(["lint", "--colors", "never", name]).current_dir(&folder);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_good, said) = check("good.toml", Config::default_text());
    assert!(is_good, "{said}");
    let (is_good, said) =
        check("bad.toml", "[policy]\nttll = \"1h\"\nlease = 5\nkey = \"requierd\"\n");
    assert!(!is_good);
    for name in ["ttll", "lease", "requierd"] {
        assert!(said.contains(name), "{said}");
    }
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
