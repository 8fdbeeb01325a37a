//! A store file: is it whole, who owns it, and what is below it?

use std::path::Path;

use onlyonce::clock::{Clock, StoreTime, SystemClock};
use onlyonce::store::sqlite::{PagesChecked, SqliteFacts, SqliteOpenError, inspect};

use super::disk::Disk;
use super::locks::{self, Kind};
use super::report::{Finding, Promise};
use super::told;

pub(super) fn examine(path: &Path) -> Result<Vec<Finding>, String> {
    let owner = owner(path);
    let facts = inspect(path, owner.is_some()).map_err(|error| told(&error))?;
    let disk = Disk::of(&facts.path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut findings = judge(&facts, owner, SystemClock.wall());
    findings.extend(judge_others(&others(&facts.path, owner)));
    findings.extend(disk.judge());
    Ok(findings)
}

/// The process that owns the store.
pub(super) fn owner(path: &Path) -> Option<u32> {
    let lock = beside(path, "-lock")?;
    locks::holders(&lock, Kind::Flock).first().copied()
}

/// Processes that have the file open with SQLite and do not own it.
fn others(path: &Path, owner: Option<u32>) -> Vec<u32> {
    let files = [Some(path.to_owned()), beside(path, "-shm")].into_iter().flatten();
    let holders = files.flat_map(|file| locks::holders(&file, Kind::Posix));
    holders.filter(|pid| Some(*pid) != owner && *pid != std::process::id()).collect()
}

/// Beside the file that symbolic links lead to.
fn beside(path: &Path, suffix: &str) -> Option<std::path::PathBuf> {
    let mut name = std::fs::canonicalize(path).ok()?.into_os_string();
    name.push(suffix);
    Some(name.into())
}

fn judge(facts: &SqliteFacts, owner: Option<u32>, now: StoreTime) -> Vec<Finding> {
    let mut findings = vec![judge_use(facts), judge_owner(owner), judge_journal(facts)];
    let ahead_ms = facts.newest.map_or(0, |newest| newest.since_ms(now));
    findings.push(match ahead_ms {
        AHEAD_MS.. => Finding::broken(
            Promise::Kept,
            "clock",
            format!("the newest record is {} s in the future: the clock of this machine was ahead, or was set back", ahead_ms / 1000),
            "synchronise the clock (NTP)",
        ),
        _ => Finding::holds(Promise::Kept, "clock", "no record is in the future"),
    });
    findings
}

fn judge_use(facts: &SqliteFacts) -> Finding {
    let (promise, setting) = (Promise::Usable, "file");
    match (&facts.refusal, facts.exists) {
        (Some(SqliteOpenError::Busy { .. }), _) => Finding::at_risk(
            promise,
            setting,
            "another program has locked the file, so that it could not be read",
            "end that program and look again",
        ),
        (Some(refusal), _) => {
            let (promise, setting) = match refusal {
                SqliteOpenError::Linked { .. } | SqliteOpenError::Mounted { .. } => {
                    (Promise::Authority, "names")
                }
                _ => (promise, setting),
            };
            let told = told(refusal);
            let (what, todo) = told.split_once(": ").unwrap_or((&told, "restore it from a backup"));
            Finding::broken(promise, setting, what, todo)
        }
        (None, false) => {
            Finding::holds(promise, setting, "there is none yet; `onlyonce serve` makes it")
        }
        (None, true) => {
            let pages = match facts.pages {
                PagesChecked::All => "all pages are sound",
                PagesChecked::Some => "it is so large that not all pages were checked",
                _ => "its pages are not checked while a gateway runs",
            };
            Finding::holds(promise, setting, format!("format and tables are right; {pages}"))
        }
    }
}

fn judge_owner(owner: Option<u32>) -> Finding {
    let told = match owner {
        Some(pid) => {
            format!("process {pid} ({}) owns the file; no other can open it", locks::name(pid))
        }
        None => "no process of this machine owns the file now".to_owned(),
    };
    Finding::holds(Promise::Authority, "lock", told)
}

fn judge_journal(facts: &SqliteFacts) -> Finding {
    let (promise, setting) = (Promise::Durable, "journal mode and synchronous");
    if facts.is_wal {
        let told = "WAL and FULL: each commit is synced; both are set and verified at every start";
        return Finding::holds(promise, setting, told);
    }
    let told = "the journal mode is not WAL: another program has changed the file";
    let fix = "find that program and stop it: it may write without syncing; the next start of the gateway sets WAL again";
    Finding::broken(promise, setting, told, fix)
}

fn judge_others(others: &[u32]) -> Option<Finding> {
    let pid = *others.first()?;
    let told = format!(
        "process {pid} ({}) has the file open too: one that may write can remove the log, which may be the only copy of some records",
        locks::name(pid)
    );
    let fix = "end it, or let it read with `sqlite3 -readonly`";
    Some(Finding::at_risk(Promise::Authority, "other programs", told, fix))
}

/// More than a clock is off when it is synchronised.
const AHEAD_MS: i64 = 60_000;
