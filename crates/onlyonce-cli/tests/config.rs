//! `onlyonce config`, run as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

fn config(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.arg("config").args(arguments).current_dir(folder);
    command.output().expect("the binary is built")
}

fn told(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("messages are UTF-8")
}

#[test]
fn the_default_configuration_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let printed = config(&["default"], folder.path());
    assert!(printed.status.success() && printed.stderr.is_empty());
    std::fs::write(folder.path().join("a.toml"), printed.stdout).unwrap();
    let checked = config(&["check", "a.toml"], folder.path());
    let (first, callers) = told(&checked.stdout).split_once('\n').unwrap();
    assert_eq!(first, "a.toml is good: 0 routes");
    // R26
    assert!(
        callers.starts_with("[policy]: callers are told apart by the credentials in"),
        "{callers}"
    );
    assert!(callers.contains("a request without a key is passed on unguarded"), "{callers}");
    assert_eq!((checked.status.code(), told(&checked.stderr)), (Some(0), ""));
}

#[test]
fn warnings_leave_a_configuration_good() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[route]]\nmatch = \"POST /a\"\nwait = \"1s\"\n";
    std::fs::write(folder.path().join("a.toml"), text).unwrap();
    let checked = config(&["check", "a.toml"], folder.path());
    assert!(told(&checked.stdout).starts_with("a.toml is good: 1 route\n"));
    assert!(told(&checked.stderr).starts_with("a.toml:3:1: warning: `wait` has no effect"));
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn a_bad_configuration_is_exit_code_2_with_every_problem_on_stderr() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.toml"), "listen = 1\nttl = 2\n").unwrap();
    let checked = config(&["check", "a.toml"], folder.path());
    assert_eq!((checked.status.code(), told(&checked.stdout)), (Some(2), ""));
    assert_eq!(told(&checked.stderr).lines().count(), 2);
    let missing = config(&["check", "nope.toml"], folder.path());
    assert_eq!(missing.status.code(), Some(2));
    assert!(told(&missing.stderr).starts_with("nope.toml: the file cannot be read: "));
}

#[test]
fn included_files_are_counted_and_named_in_what_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("routes")).unwrap();
    write("a.toml", "include = [\"routes/*.toml\"]\n[[route]]\nmatch = \"POST /a\"\n");
    write("routes/b.toml", "[[route]]\nmatch = \"POST /b\"\nkey_from = [\"json:/order_number\"]\n");
    let checked = config(&["check", "a.toml"], folder.path());
    let good = "a.toml is good: 2 routes, with those of 1 included file\n";
    assert_eq!(checked.status.code(), Some(0));
    assert!(told(&checked.stdout).starts_with(good), "{}", told(&checked.stdout));
    let warning = "routes/b.toml:3:1: warning: \"POST /b\" takes its key from json:/order_number";
    assert!(told(&checked.stderr).starts_with(warning), "{}", told(&checked.stderr));
    write("routes/b.toml", "[admin]\n");
    let checked = config(&["check", "a.toml"], folder.path());
    assert_eq!(checked.status.code(), Some(2));
    assert!(told(&checked.stderr).starts_with("routes/b.toml:1:2: `admin` does not belong"));
}

#[test]
fn the_schema_is_printed_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let printed = config(&["schema"], folder.path());
    assert!(printed.status.success() && printed.stderr.is_empty());
    let schema: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    assert_eq!(schema["properties"]["policy"]["properties"]["ttl"]["default"], "24h");
}
