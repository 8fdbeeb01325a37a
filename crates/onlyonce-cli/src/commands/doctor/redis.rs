//! A Redis: what would a crash, a failover or a lack of memory forget?

use onlyonce::store::redis::{RedisFacts, inspect};

use super::report::{Finding, Promise};
use super::{judge_clock, told};

pub(super) async fn examine(url: &str) -> Result<Vec<Finding>, String> {
    let facts = inspect(url).await.map_err(|error| told(&error))?;
    Ok(judge(&facts))
}

/// A filter decides nothing: whatever it is like, only latency changes.
pub(super) async fn examine_filter(url: &str) -> Finding {
    let (promise, setting) = (Promise::Capacity, "filter");
    match inspect(url).await {
        Ok(_) => {
            Finding::holds(promise, setting, "it answers; whatever it forgets, Postgres decides")
        }
        Err(error) => Finding::at_risk(
            promise,
            setting,
            format!("{}; retries are answered by Postgres alone", told(&error)),
            "start it, or remove `filter`",
        ),
    }
}

fn judge(facts: &RedisFacts) -> Vec<Finding> {
    let mut findings = vec![judge_use(facts), judge_role(facts), judge_replicas(facts)];
    match facts.setting("appendonly") {
        None => findings.push(Finding::broken(
            Promise::Durable,
            "CONFIG GET",
            "Redis does not let us read its settings, so that nobody knows what a crash forgets",
            "allow this user the command CONFIG GET (ACL SETUSER … +config|get)",
        )),
        Some(appendonly) => findings.extend(judge_file(facts, appendonly)),
    }
    findings.push(judge_eviction(facts));
    findings.extend(judge_memory(facts));
    findings.push(judge_clock(facts.clock_ahead_ms));
    findings
}

fn judge_use(facts: &RedisFacts) -> Finding {
    let (promise, setting, version) = (Promise::Usable, "server", facts.info("redis_version"));
    match () {
        () if facts.info("cluster_enabled") == "1" => Finding::broken(
            promise,
            setting,
            "it is a cluster, which is not supported",
            "use a Redis with one primary",
        ),
        () if facts.is_too_old() => Finding::broken(
            promise,
            setting,
            format!("Redis {version} is too old"),
            "upgrade it to 6.2 or later",
        ),
        () if facts.has_older_format => Finding::broken(
            promise,
            setting,
            "it has records of an earlier build, which this one does not read",
            "use another database of it, or delete its keys once no retry of their operations can come any more",
        ),
        () => Finding::holds(promise, setting, format!("Redis {version}")),
    }
}

fn judge_role(facts: &RedisFacts) -> Finding {
    let (promise, setting) = (Promise::Authority, "role");
    match facts.info("role") {
        "slave" => Finding::broken(
            promise,
            setting,
            "it is a replica, which takes no writes",
            "give the address of the primary",
        ),
        _ => Finding::holds(promise, setting, "it is a primary"),
    }
}

fn judge_replicas(facts: &RedisFacts) -> Finding {
    let (promise, setting) = (Promise::Failover, "replicas");
    match facts.info("connected_slaves") {
        "" | "0" => {
            Finding::holds(promise, setting, "none is connected: there is nothing to fail over to")
        }
        replicas => Finding::broken(
            promise,
            setting,
            format!(
                "{replicas} are connected: Redis answers before they have a write, so that one that is promoted may lack the last moments"
            ),
            "use postgres:// with a synchronous standby, or do not fail over",
        ),
    }
}

fn judge_file(facts: &RedisFacts, appendonly: &str) -> Vec<Finding> {
    let promise = Promise::Durable;
    let fix = "set appendonly yes and appendfsync always";
    if appendonly != "yes" {
        let saves = facts.setting("save").is_some_and(|save| !save.is_empty());
        let forgets = match saves {
            true => "a crash forgets everything since the last snapshot (save)",
            false => "nothing is on disk (save is empty), and a restart forgets every key",
        };
        return vec![Finding::broken(
            promise,
            "appendonly",
            format!("{appendonly}: {forgets}"),
            fix,
        )];
    }
    let mut findings = vec![Finding::holds(promise, "appendonly", "yes")];
    findings.push(match facts.setting("appendfsync").unwrap_or_default() {
        "always" => Finding::holds(promise, "appendfsync", "always"),
        found @ "everysec" => Finding::broken(
            promise,
            "appendfsync",
            format!("{found}: a crash forgets about the last second"),
            fix,
        ),
        found => Finding::broken(
            promise,
            "appendfsync",
            format!("{found}: a crash of the machine forgets the last half minute or more"),
            fix,
        ),
    });
    if facts.setting("no-appendfsync-on-rewrite") == Some("yes") {
        findings.push(Finding::broken(
            promise,
            "no-appendfsync-on-rewrite",
            "yes: while the file is rewritten nothing is synced",
            "set no-appendfsync-on-rewrite no",
        ));
    }
    if facts.info("aof_last_write_status") == "err" {
        findings.push(Finding::broken(
            promise,
            "append-only file",
            "the last write to it failed",
            "make room on its disk, and read the log of Redis",
        ));
    }
    findings
}

fn judge_eviction(facts: &RedisFacts) -> Finding {
    let (promise, setting) = (Promise::Kept, "maxmemory-policy");
    match facts.setting(setting) {
        Some("noeviction") => Finding::holds(promise, setting, "noeviction"),
        Some(found) => Finding::broken(
            promise,
            setting,
            format!("{found}: when memory is short Redis deletes keys that are still needed"),
            "set maxmemory-policy noeviction",
        ),
        None => Finding::broken(
            promise,
            setting,
            "it cannot be read",
            "allow this user the command CONFIG GET",
        ),
    }
}

fn judge_memory(facts: &RedisFacts) -> Option<Finding> {
    let (promise, setting) = (Promise::Capacity, "maxmemory");
    let max: u64 = facts.setting(setting)?.parse().ok()?;
    let used: u64 = facts.info("used_memory").parse().ok()?;
    let told = format!("{} of {} MiB are used", used >> 20, max >> 20);
    Some(match max {
        0 => Finding::holds(promise, setting, format!("no limit; {} MiB are used", used >> 20)),
        _ if used > max / 10 * 9 => Finding::broken(
            promise,
            setting,
            format!("{told}: a full Redis refuses every request with a key"),
            "raise maxmemory; `onlyonce plan` says how much it needs",
        ),
        _ => Finding::holds(promise, setting, told),
    })
}
