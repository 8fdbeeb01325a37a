//! What a distribution packages: completions, the manual page, the systemd unit.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::io::Write;
use std::path::Path;
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
    let text = std::fs::read_to_string(unit).unwrap();
    let here = folder.path().join("onlyonce.service");
    // The program is not installed where the package puts it.
    std::fs::write(&here, text.replace("/usr/bin/onlyonce", env!("CARGO_BIN_EXE_onlyonce")))
        .unwrap();
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
