//! Services and clients in Python, with the packages that scripts/test installs.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::within;

/// A program beside this file that has two roles: `serve` prints its port, `call ADDRESS` calls it.
#[derive(Debug)]
pub(crate) struct Program {
    python: PathBuf,
    file: PathBuf,
}

impl Program {
    /// `None` if the package is not installed, so that the test is skipped.
    pub(crate) fn find(file: &str, package: &str) -> Option<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = here.join("../../target/languages/python/bin/python");
        let import = format!("import {package}");
        let found = std::process::Command::new(&python).args(["-c", &import]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            println!("SKIPPED: {package} is not installed; scripts/test installs it");
            return None;
        }
        Some(Self { python, file: here.join("tests/cases").join(file) })
    }

    /// The service, until it is dropped, and its port.
    pub(crate) async fn serve(&self) -> (Child, u16) {
        let mut service = self.command(&["serve"]);
        let mut service = service.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(service.stdout.take().unwrap()).lines();
        let port = within("its port", lines.next_line()).await.unwrap().unwrap();
        (service, port.parse().unwrap())
    }

    /// What the client printed, in lines.
    pub(crate) async fn call(&self, address: &str) -> Vec<String> {
        let output = within("the calls", self.command(&["call", address]).output()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout).lines().map(str::to_owned).collect()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(&self.file).args(arguments).kill_on_drop(true);
        command
    }
}
