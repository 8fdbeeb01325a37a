//! A reader that has seen enough and closed the pipe, such as `head`, is no failure.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use proof::client::post;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::gateway::Gateway;
use crate::upstream::{QUICK, Upstream};
use crate::{BODY, within};

/// The command, whose output nobody reads.
fn unread(arguments: &[&str]) -> Command {
    let (writer, reader) = UnixStream::pair().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(arguments).stdout(OwnedFd::from(writer)).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

#[tokio::test]
async fn a_report_that_nobody_reads_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("none.db").display());
    let config = folder.path().join("onlyonce.toml").display().to_string();
    std::fs::write(&config, "[[route]]\nmatch = \"POST /a\"\n").unwrap();
    let mut codes = Vec::new();
    for arguments in [
        &["plan", "--rate", "1/s", "--ttl", "1h"][..],
        &["plan", "--rate", "1/s", "--ttl", "1h", "--format", "json"],
        &["doctor", "--store", &store],
        &["doctor", "--store", &store, "--format", "json"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["man"],
        &["config", "default"],
        &["config", "schema"],
        &["config", "check", &config],
        &["openapi", "overlay", "--config", &config],
    ] {
        let output = within("the report", unread(arguments).spawn().unwrap().wait_with_output())
            .await
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors, "", "{arguments:?}");
        codes.push(output.status.code().unwrap());
    }
    assert!(codes.iter().all(|code| matches!(code, 0 | 1)), "{codes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_ends_when_nobody_reads_it() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), Upstream::start().await);
    let gateway = Gateway::start(folder.path(), upstream.address).await;
    let mut tail = unread(&["tail", "--admin", &gateway.admin_url()]).spawn().unwrap();
    let mut errors = BufReader::new(tail.stderr.take().unwrap());
    let mut told = String::new();
    within("the first line", errors.read_line(&mut told)).await.unwrap();
    assert!(told.contains("listening"), "{told}");
    post(gateway.address, QUICK, "operation-0000000000000001", BODY).await.unwrap();
    let ended = within("the end of tail", tail.wait()).await.unwrap();
    within("the last line", errors.read_to_string(&mut told)).await.unwrap();
    assert_eq!((ended.code(), told.lines().count()), (Some(0), 1), "{told}");
}
