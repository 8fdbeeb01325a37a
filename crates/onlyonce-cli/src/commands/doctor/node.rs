//! This machine: how many files a gateway may have open.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::report::{Finding, Promise};
use super::sqlite;
use crate::config::{Config, StoreUrl};
use crate::files::needed;

/// By the limit of the gateway that has the store open, else by that of this process.
pub(super) fn examine(store: &StoreUrl, config: Option<&Config>) -> Finding {
    let owner = match store {
        StoreUrl::Sqlite(path) => sqlite::owner(path),
        _ => None,
    };
    let of_owner = owner.and_then(limit_of);
    let executing_max = config.map_or_else(|| Config::default().executing_max, |c| c.executing_max);
    match of_owner {
        Some(files) => judge(files, executing_max, "the running gateway"),
        // A gateway raises its own limit.
        None => {
            let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
            judge(files, executing_max, "a process started from here")
        }
    }
}

fn limit_of(pid: u32) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = line.split_whitespace().next()?;
    Some(soft.parse().unwrap_or(u64::MAX))
}

fn judge(files: u64, executing_max: usize, whose: &str) -> Finding {
    let (promise, setting) = (Promise::Capacity, "open files");
    let needed = needed(executing_max);
    let fix = format!("set LimitNOFILE={needed} in the systemd unit, or ulimit -n {needed}");
    match files {
        ..FILES_MIN => {
            let told = format!(
                "{whose} may open {files} files: it serves only a few dozen connections at once"
            );
            Finding::broken(promise, setting, told, fix)
        }
        _ if files < needed => {
            let told = format!(
                "{whose} may open {files} files, which is fewer than two for each of the {executing_max} operations at once that `executing_max` allows"
            );
            Finding::at_risk(promise, setting, told, fix)
        }
        _ => Finding::holds(promise, setting, format!("{whose} may open {files} files")),
    }
}

const FILES_MIN: u64 = 256;
