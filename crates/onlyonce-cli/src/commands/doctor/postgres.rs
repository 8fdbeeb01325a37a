//! A Postgres server: does it keep what it commits, here and on its standbys?

use onlyonce::store::postgres::{PostgresFacts, SchemaFound, inspect};

use super::report::{Finding, Promise};
use super::{judge_clock, steps, told};

pub(super) async fn examine(url: &str) -> Result<Vec<Finding>, String> {
    let facts = inspect(url).await.map_err(|error| told(&error))?;
    let mut findings = judge(&facts);
    if matches!(facts.schema, SchemaFound::Ours { .. }) && !facts.is_pooled {
        findings.push(steps::examine(url).await);
    }
    Ok(findings)
}

fn judge(facts: &PostgresFacts) -> Vec<Finding> {
    let mut findings = vec![judge_version(facts), judge_role(facts), judge_pooler(facts)];
    findings.extend(SWITCHES.iter().map(|switch| switch.judge(facts)));
    findings.push(judge_commit(facts));
    findings.push(judge_standbys(facts));
    findings.push(judge_wal(facts));
    findings.push(judge_connections(facts));
    findings.push(judge_vacuum(facts));
    findings.push(judge_age(facts.transaction_age));
    findings.extend(judge_schema(&facts.schema));
    findings.push(judge_clock(facts.clock_ahead_ms));
    if facts.is_unverified {
        let told = "the connection is encrypted, and nobody checks who answers";
        findings.push(Finding::at_risk(
            Promise::Private,
            "sslmode",
            told,
            "use sslmode=verify-full",
        ));
    }
    findings
}

fn judge_version(facts: &PostgresFacts) -> Finding {
    let (promise, setting, major) = (Promise::Usable, "version", facts.version / 10_000);
    if facts.is_too_old() {
        let told = format!("Postgres {major} is too old");
        return Finding::broken(
            promise,
            setting,
            told,
            "upgrade the server to Postgres 14 or later",
        );
    }
    Finding::holds(promise, setting, format!("Postgres {major}"))
}

fn judge_role(facts: &PostgresFacts) -> Finding {
    let (promise, setting) = (Promise::Authority, "role");
    if facts.is_standby {
        let told = "the server is a standby, which takes no writes";
        let fix = "give the address of the primary; with several hosts, target_session_attrs=read-write finds it";
        return Finding::broken(promise, setting, told, fix);
    }
    Finding::holds(promise, setting, "the server is a primary")
}

fn judge_pooler(facts: &PostgresFacts) -> Finding {
    let (promise, setting) = (Promise::Usable, "pooler");
    if facts.is_pooled {
        let told = "a pooler in transaction mode is in between: prepared statements, limits and notifications do not survive it";
        let fix = "connect to the server itself, or set pool_mode = session in pgbouncer";
        return Finding::broken(promise, setting, told, fix);
    }
    Finding::holds(promise, setting, "a connection is one session")
}

/// A setting that must have one value.
struct Switch {
    name: &'static str,
    right: &'static str,
    why: &'static str,
    fix: &'static str,
}

impl Switch {
    fn judge(&self, facts: &PostgresFacts) -> Finding {
        let (promise, found) = (Promise::Durable, facts.setting(self.name));
        if found == self.right {
            return Finding::holds(promise, self.name, found);
        }
        Finding::broken(promise, self.name, format!("{found}: {}", self.why), self.fix)
    }
}

const SWITCHES: [Switch; 4] = [
    Switch {
        name: "fsync",
        right: "on",
        why: "a crash of the machine loses committed records, and their retries run again",
        fix: "set fsync = on in postgresql.conf and restart the server",
    },
    Switch {
        name: "full_page_writes",
        right: "on",
        why: "unless the file system never tears a page, a power cut may damage records",
        fix: "set full_page_writes = on in postgresql.conf and reload the server",
    },
    Switch {
        name: "zero_damaged_pages",
        right: "off",
        why: "a damaged page reads as empty: its keys are absent, and their retries run again",
        fix: "set zero_damaged_pages = off",
    },
    Switch {
        name: "ignore_checksum_failure",
        right: "off",
        why: "damaged records are read as if they were sound",
        fix: "set ignore_checksum_failure = off",
    },
];

/// Our sessions set it themselves; other users of the database do not.
fn judge_commit(facts: &PostgresFacts) -> Finding {
    let (promise, setting) = (Promise::Durable, "synchronous_commit");
    match facts.setting(setting) {
        found @ ("on" | "remote_apply") => Finding::holds(promise, setting, found),
        found => {
            let told = format!(
                "{found} by default; the gateway sets it to on in its own sessions, other writers of this database do not"
            );
            let fix = format!("set synchronous_commit = on, unless you know who relies on {found}");
            Finding::at_risk(promise, setting, told, fix)
        }
    }
}

fn judge_standbys(facts: &PostgresFacts) -> Finding {
    let (promise, setting) = (Promise::Failover, "synchronous_standby_names");
    let is_named = !facts.setting(setting).is_empty();
    match (is_named, facts.standbys) {
        (true, (_, Some(0))) => Finding::broken(
            Promise::Capacity,
            setting,
            "it names standbys and none of them is connected: no commit returns, and every request with a key is refused",
            "start the standby, or correct synchronous_standby_names",
        ),
        (true, (all, Some(synchronous))) => Finding::holds(
            promise,
            setting,
            format!("{synchronous} of {all} standbys are synchronous"),
        ),
        (true, (_, None)) => Finding::at_risk(
            promise,
            setting,
            "it is set, and this user may not see whether a standby is connected",
            "GRANT pg_monitor to this user, and look again",
        ),
        (false, (0, _)) => Finding::holds(
            promise,
            setting,
            "no standby is connected: there is nothing to fail over to",
        ),
        (false, (all, _)) => Finding::broken(
            promise,
            setting,
            format!(
                "{all} standbys are connected and none is synchronous: one that is promoted lacks the last moments, and their retries run again"
            ),
            "set synchronous_standby_names, for example to 'ANY 1 (*)'",
        ),
    }
}

fn judge_wal(facts: &PostgresFacts) -> Finding {
    let (promise, setting) = (Promise::Durable, "wal_level");
    match facts.setting(setting) {
        "minimal" => Finding::at_risk(
            promise,
            setting,
            "minimal: the server can have no standby and no point-in-time recovery, so that a lost disk loses every key",
            "set wal_level = replica and restart the server",
        ),
        found => Finding::holds(promise, setting, found),
    }
}

fn judge_connections(facts: &PostgresFacts) -> Finding {
    let (promise, setting) = (Promise::Capacity, "max_connections");
    let (free, ours, max) =
        (facts.connections_free.max(0), facts.connections_ours, facts.setting(setting));
    let told = format!(
        "{free} connections are free for this user in this database (max_connections is {max}, and gateways have {ours})"
    );
    let fix = "raise max_connections, or the CONNECTION LIMIT of the role or the database, to at least ten for each node";
    match free {
        ..CONNECTIONS_NEEDED if ours == 0 => {
            let told = format!("{told}; a gateway needs {CONNECTIONS_NEEDED}");
            Finding::broken(promise, setting, told, fix)
        }
        ..CONNECTIONS_NEEDED => Finding::at_risk(promise, setting, told, fix),
        _ => Finding::holds(promise, setting, told),
    }
}

fn judge_vacuum(facts: &PostgresFacts) -> Finding {
    let (promise, setting) = (Promise::Capacity, "autovacuum");
    let is_off_here = matches!(facts.schema, SchemaFound::Ours { is_vacuumed: false, .. });
    let why = match () {
        () if facts.setting("autovacuum") != "on" => "off",
        () if facts.setting("track_counts") != "on" => "without track_counts it does nothing",
        () if is_off_here => "off for the table record",
        () => return Finding::holds(promise, setting, "on"),
    };
    let told = format!(
        "{why}: every record leaves a dead row, so that the table grows and claims become slower until the disk is full"
    );
    Finding::broken(
        promise,
        setting,
        told,
        "turn autovacuum and track_counts on, for the table too",
    )
}

fn judge_age(age: i64) -> Finding {
    let (promise, setting) = (Promise::Capacity, "transaction ids");
    let told = format!("the oldest is {} million transactions old", age / 1_000_000);
    let fix =
        "VACUUM FREEZE this database, and end transactions and replication slots that are stuck";
    match age {
        AGE_BROKEN.. => {
            let told = format!("{told}; near 2,000 million the server stops taking writes");
            Finding::broken(promise, setting, told, fix)
        }
        AGE_RISK.. => Finding::at_risk(promise, setting, told, fix),
        _ => Finding::holds(promise, setting, told),
    }
}

fn judge_schema(schema: &SchemaFound) -> Vec<Finding> {
    let (promise, setting) = (Promise::Usable, "schema");
    let &SchemaFound::Ours { is_logged, is_unique, .. } = schema else {
        return vec![match schema {
            SchemaFound::Refused(why) => Finding::broken(
                promise,
                setting,
                why,
                "run the version that wrote it, give the right ?schema=NAME, or restore it from a backup",
            ),
            SchemaFound::Nothing { may_make: false } => Finding::broken(
                promise,
                setting,
                "there is none, and this user may not make it",
                "GRANT CREATE ON DATABASE to this user, or make the schema and give it to this user",
            ),
            _ => Finding::holds(promise, setting, "there is none yet; `onlyonce serve` makes it"),
        }];
    };
    let mut findings = vec![Finding::holds(promise, setting, "its version is that of this build")];
    findings.push(match is_logged {
        true => Finding::holds(Promise::Durable, "table record", "it is logged"),
        false => Finding::broken(
            Promise::Durable,
            "table record",
            "it is unlogged: a crash of the server empties it, and every retry runs again",
            "ALTER TABLE onlyonce.record SET LOGGED",
        ),
    });
    findings.push(match is_unique {
        true => Finding::holds(Promise::Authority, "unique index", "one record for each id"),
        false => Finding::broken(
            Promise::Authority,
            "unique index",
            "the table record has no valid unique index of its ids: nothing keeps an id from having two records",
            "restore the index: CREATE UNIQUE INDEX record_id ON onlyonce.record (id)",
        ),
    });
    findings
}

/// Of one gateway: see docs/stores.md.
const CONNECTIONS_NEEDED: i64 = 5;
const AGE_RISK: i64 = 500_000_000;
const AGE_BROKEN: i64 = 1_500_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_transaction_ids_are_told_before_the_server_stops() {
        let word = |age| format!("{:?}", judge_age(age));
        assert!(word(1_000).contains("Holds"));
        assert!(word(AGE_RISK).contains("AtRisk"));
        assert!(word(AGE_BROKEN).contains("Broken"));
    }
}
