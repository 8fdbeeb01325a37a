//! What a distribution packages: completions, the manual page, the systemd unit, the bill of materials; and that a
//! build can be repeated.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn onlyonce(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_onlyonce")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

fn fed(program: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn bash_accepts_its_completions_and_other_shells_have_some() {
    let script = onlyonce(&["completions", "bash"]);
    let checked = fed("bash", &["-n"], &script);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mut asked = script;
    asked.extend(b"\nCOMP_WORDS=(onlyonce doc) COMP_CWORD=1; _onlyonce onlyonce doc onlyonce; echo ${COMPREPLY[@]}\n");
    let answer = fed("bash", &[], &asked);
    assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "doctor");
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        assert!(!onlyonce(&["completions", shell]).is_empty(), "{shell}");
    }
}

#[test]
fn man_reads_the_manual_page_without_a_warning() {
    let page = onlyonce(&["man"]);
    let read = fed("man", &["--warnings", "-l", "-"], &page);
    let text = String::from_utf8_lossy(&read.stdout);
    assert!(
        read.status.success() && read.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    for word in ["onlyonce", "serve", "doctor", "SUBCOMMANDS"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn systemd_accepts_the_unit_and_finds_it_hardened() {
    let folder = tempfile::tempdir().unwrap();
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/onlyonce.service");
    let text = fs::read_to_string(unit).unwrap();
    let here = folder.path().join("onlyonce.service");
    // The program is not installed where the package puts it.
    fs::write(&here, text.replace("/usr/bin/onlyonce", env!("CARGO_BIN_EXE_onlyonce"))).unwrap();
    let verified =
        Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&here).output();
    let Ok(verified) = verified else {
        return eprintln!("systemd-analyze is not installed: the unit is not verified");
    };
    let told = String::from_utf8_lossy(&verified.stderr);
    let ours: Vec<_> = told.lines().filter(|line| line.contains("onlyonce.service")).collect();
    assert!(ours.is_empty(), "{told}");
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--threshold=20", "--no-pager"]).arg(&here);
    let judged = security.output().unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_bill_of_materials_has_what_is_built_and_is_valid() {
    let python = repository("target/languages/python/bin/python");
    let mut made = Command::new(&python);
    let made = made.arg(repository("scripts/sbom")).env("SOURCE_DATE_EPOCH", "1700000000");
    let Ok(made) = made.output() else {
        return println!(
            "SKIPPED: there is no Python in target/languages; scripts/test installs it"
        );
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bill: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let judged = fed(python.to_str().unwrap(), &["-c", VALIDATE], &with_few_addresses(&bill));
    match judged.status.code() {
        Some(3) => println!("SKIPPED: cyclonedx is not installed; scripts/test installs it"),
        code => assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&judged.stderr)),
    }
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    let components = bill["components"].as_array().unwrap();
    let find = |name: &str| components.iter().find(|component| component["name"] == name);
    let (rustls, own) = (find("rustls").unwrap(), find("onlyonce").unwrap());
    assert_eq!((&rustls["scope"], own["scope"].as_str()), (&"required".into(), Some("required")));
    assert_eq!(rustls["hashes"][0]["content"].as_str().unwrap().len(), 64);
    assert_eq!(find("cc").unwrap()["scope"], "excluded", "it runs while the program is built");
    assert!(find("proptest").is_none(), "tests are not shipped");
    let of_cli =
        |edge: &&serde_json::Value| edge["ref"] == bill["metadata"]["component"]["bom-ref"];
    let edges = bill["dependencies"].as_array().unwrap().iter().find(of_cli).unwrap();
    assert!(edges["dependsOn"].as_array().unwrap().contains(&own["bom-ref"]));
}

/// The validator takes long to parse an address, so that it gets ten of them.
fn with_few_addresses(bill: &serde_json::Value) -> Vec<u8> {
    let mut bill = bill.clone();
    for component in bill["components"].as_array_mut().unwrap().iter_mut().skip(10) {
        component.as_object_mut().unwrap().remove("externalReferences");
    }
    bill.to_string().into_bytes()
}

const VALIDATE: &str = "import sys
bill = sys.stdin.read()
try:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
except ImportError:
    sys.exit(3)
sys.exit(JsonStrictValidator(SchemaVersion.V1_5).validate_str(bill))";

// With a package that is built in a second instead of `onlyonce`, whose release takes minutes.
#[test]
fn two_builds_in_two_folders_are_compared_byte_by_byte() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&folder)
            .env("CARGO_NET_OFFLINE", "true")
            .output()
            .unwrap()
    };
    let build = |text: &str| {
        write("src/main.rs", text);
        run("git", &["add", "--all"]);
        let commit = ["-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-qm", "a"];
        assert!(run("git", &commit).status.success());
        run(
            "scripts/release-build",
            &["--verify", "--package", "toy", "--bin", "toy", "--profile", "dev"],
        )
    };
    run("git", &["init", "-q"]);
    write("Cargo.toml", "[package]\nname = \"toy\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    write("Cargo.lock", "version = 4\n[[package]]\nname = \"toy\"\nversion = \"0.1.0\"\n");
    write(".gitignore", "/dist\n");
    fs::create_dir(folder.path().join("scripts")).unwrap();
    let script = "scripts/release-build";
    fs::copy(repository(script), folder.path().join(script)).unwrap();

    let good = build("fn main() { println!(\"{}\", [1, 2][std::env::args().count()]) }\n");
    let (told, errors) =
        (String::from_utf8_lossy(&good.stdout), String::from_utf8_lossy(&good.stderr));
    assert!(good.status.success() && told.contains("two folders are the same"), "{told}{errors}");
    assert!(folder.path().join("dist/toy").exists());

    let bad = build("fn main() { println!(env!(\"CARGO_MANIFEST_DIR\")) }\n");
    assert_eq!(bad.status.code(), Some(1), "{}", String::from_utf8_lossy(&bad.stdout));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("the two builds differ"));
}
