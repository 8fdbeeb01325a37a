//! `onlyonce demo`, which is left running after its story.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

/// `onlyonce demo`, which is left running after its story.
pub(crate) struct Demo {
    pub(crate) gateway: SocketAddr,
    /// The shop window.
    pub(crate) stage: String,
    /// The operator's page.
    pub(crate) admin: String,
    process: Child,
    /// One demo at a time: two that start at the same moment would share the usual port.
    _alone: std::fs::File,
    /// Kept open: a process whose output nobody reads any more dies of it.
    _stdout: BufReader<ChildStdout>,
}

impl Demo {
    pub(crate) fn start() -> Self {
        let alone = concat!(env!("CARGO_TARGET_TMPDIR"), "/demo.lock");
        let alone = std::fs::File::create(alone).unwrap();
        alone.lock().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .arg("demo")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let running = line_with(&mut stdout, "Still running");
        let address = running.split("http://").nth(1).unwrap().split(',').next().unwrap();
        let gateway = address.parse().unwrap();
        let page = |line: String| line.split_whitespace().next().unwrap().to_owned();
        let stage = page(line_with(&mut stdout, "the same bank without"));
        let admin = page(line_with(&mut stdout, "the operator's page"));
        Self { gateway, stage, admin, process, _alone: alone, _stdout: stdout }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The first line that has this in it.
pub(crate) fn line_with(stdout: &mut impl BufRead, text: &str) -> String {
    let line = stdout.lines().map(Result::unwrap).find(|line| line.contains(text));
    line.unwrap_or_else(|| panic!("it ended without saying {text:?}"))
}
