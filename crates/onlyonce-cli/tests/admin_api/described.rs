//! The description of the API, held to the running listener by schemathesis. In the full tier only.

use std::process::Command;

use crate::lab::{Lab, text};

#[test]
fn schemathesis_finds_no_difference() {
    if std::env::var("ONLYONCE_TEST_TIER").as_deref() != Ok("full") {
        return eprintln!("only in the full tier: ONLYONCE_TEST_TIER=full");
    }
    let lab = Lab::start();
    for number in 0..5 {
        lab.unknown(&format!("order-{number}"));
        lab.send("/pay", &format!("paid-{number}"));
    }
    let venv = lab.folder.path().join("venv");
    let made = Command::new("python3").args(["-m", "venv"]).arg(&venv).status();
    let pip =
        Command::new(venv.join("bin/pip")).args(["install", "--quiet", "schemathesis>=4"]).output();
    if !made.is_ok_and(|made| made.success()) || !pip.as_ref().is_ok_and(|pip| pip.status.success())
    {
        return eprintln!("skipped: pip cannot install schemathesis here");
    }
    let run = Command::new(venv.join("bin/st"))
        .args(["run", &format!("http://{}/api/v1/openapi.json", lab.admin)])
        .args(["--max-examples", "50", "--exclude-path", "/api/v1/events", "--checks", "all"])
        .args(["--exclude-checks", EXCLUDED])
        .current_dir(lab.folder.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}\n{}", text(&run.stdout), text(&run.stderr));
}

/// Without a token everything on loopback is allowed, and a well-formed request may still be refused by the state of the
/// operation, or by what only all of its members together say.
const EXCLUDED: &str = "ignored_auth,positive_data_acceptance";
