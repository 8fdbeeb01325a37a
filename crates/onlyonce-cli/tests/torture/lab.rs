//! Runs the real binary, and reads its report.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// What a run printed, and its exit code.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    /// Properties with findings, once each.
    pub(crate) fn violated(&self) -> Vec<String> {
        let report = self.json();
        let findings = report["findings"].as_array().unwrap().clone();
        let mut found: Vec<_> = findings
            .iter()
            .map(|finding| finding["property"].as_str().unwrap().to_owned())
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// What is said of one property.
    pub(crate) fn standing(&self, property: &str) -> String {
        let report = self.json();
        let properties = report["properties"].as_array().unwrap();
        let found = properties.iter().find(|found| found["property"] == property).unwrap();
        found["standing"].as_str().unwrap().to_owned()
    }
}

/// The real binary.
pub(crate) fn onlyonce() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `torture`; without blocking the servers of the test.
pub(crate) async fn torture(arguments: &[&str]) -> Said {
    let mut command = onlyonce();
    command.arg("torture").args(arguments);
    let run = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output { status, stdout, stderr } = run.await.unwrap();
    Said {
        code: status.code().unwrap(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// An address that nobody listens at now.
pub(crate) fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
