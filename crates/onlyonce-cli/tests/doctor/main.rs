//! `onlyonce doctor`, against real files and servers that are set up wrongly, and rightly.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod config;
mod postgres;
mod redis;
mod sqlite;

use std::process::Command;

use serde_json::Value;

/// What the command said.
struct Told {
    code: i32,
    report: Value,
    errors: String,
}

/// Runs it with these arguments.
fn doctor(arguments: &[&str]) -> Told {
    run(Command::new(env!("CARGO_BIN_EXE_onlyonce")).arg("doctor").args(arguments))
}

/// Of a store alone.
fn doctor_of(store: &str) -> Told {
    doctor(&["--store", store])
}

fn run(command: &mut Command) -> Told {
    let output = command.args(["--format", "json"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    Told { code: output.status.code().unwrap(), report, errors }
}

impl Told {
    /// The findings about a setting, as (promise, finding).
    fn of(&self, setting: &str) -> Vec<(&str, &Value)> {
        let promises = self.report["promises"].as_array().unwrap();
        let findings = promises.iter().flat_map(|promise| {
            let findings = promise["findings"].as_array().unwrap();
            findings.iter().map(|finding| (promise["promise"].as_str().unwrap(), finding))
        });
        findings.filter(|(_, finding)| finding["setting"] == setting).collect()
    }

    /// The setting is named as a breach of the promise, with a reason and a remedy.
    #[track_caller]
    fn breaks(&self, promise: &str, setting: &str, reason: &str) {
        self.demand(promise, setting, reason, "does_not_hold");
        assert_eq!(self.code, 1, "{setting}: {}", self.errors);
        let judged = self.report["promises"].as_array().unwrap();
        let judged = judged.iter().find(|judged| judged["promise"] == promise).unwrap();
        assert_eq!(judged["verdict"], "does_not_hold", "{setting}");
        assert_eq!(self.report["holds"], false);
    }

    /// The setting is named as a risk, with a reason and a remedy.
    #[track_caller]
    fn risks(&self, promise: &str, setting: &str, reason: &str) {
        self.demand(promise, setting, reason, "at_risk");
    }

    #[track_caller]
    fn demand(&self, promise: &str, setting: &str, reason: &str, verdict: &str) {
        let found = self.of(setting);
        let is_it = |finding: &Value| {
            finding["verdict"] == verdict
                && finding["found"].as_str().unwrap().contains(reason)
                && !finding["do"].as_str().unwrap().is_empty()
        };
        let is_there = found.iter().any(|(of, finding)| *of == promise && is_it(finding));
        assert!(is_there, "{setting}: {found:#?} in {:#}", self.report);
    }

    /// Nothing is broken.
    #[track_caller]
    fn holds(&self) {
        assert_eq!(self.code, 0, "{:#} {}", self.report, self.errors);
        assert_eq!(self.report["holds"], true);
    }

    /// Nothing is even at risk, but for the files that this machine lets a process open.
    #[track_caller]
    fn is_sound(&self) {
        self.holds();
        let promises = self.report["promises"].as_array().unwrap();
        for finding in promises.iter().flat_map(|promise| promise["findings"].as_array().unwrap()) {
            let is_of_machine = finding["setting"] == "open files";
            assert!(is_of_machine || finding["verdict"] == "holds", "{finding}");
        }
    }
}
