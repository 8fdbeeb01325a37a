use servers::{Pgbouncer, Postgres};

use crate::{Told, doctor_of};

/// A server, and a database in it with our schema.
fn with_schema(postgres: &Postgres) -> String {
    let url = postgres.database();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = onlyonce::store::postgres::PostgresStore::open(&url).await.unwrap();
        store.close().await;
    });
    url
}

#[test]
fn a_good_server_holds_and_nothing_is_made() {
    let postgres = Postgres::start();
    let empty = postgres.database();
    doctor_of(&empty).is_sound();
    assert_eq!(
        postgres.sql(&empty, "SELECT count(*) FROM pg_namespace WHERE nspname = 'onlyonce'"),
        "0"
    );
    doctor_of(&with_schema(&postgres)).is_sound();
}

// threat K26
#[test]
fn operations_of_several_steps_that_cannot_be_read_are_named() {
    let postgres = Postgres::start();
    let url = with_schema(&postgres);
    let insert = |id: u32| {
        format!(
            "SELECT onlyonce.steps_insert('11111111-1111-1111-1111-{id:012}', 'charge', 's', 'p', 'k', '\\x00', 60000,
                                          '1', 1, gen_random_uuid(), 0, NULL)"
        )
    };
    for id in 1..=250 {
        postgres.sql(&url, &insert(id));
    }
    doctor_of(&url).is_sound();
    postgres.sql(
        &url,
        "ALTER TABLE onlyonce.steps DROP CONSTRAINT steps_state_check, DROP CONSTRAINT running_has_a_token,
           DROP CONSTRAINT open_is_due;
         UPDATE onlyonce.steps SET state = 'paused' WHERE id IN
           ('11111111-1111-1111-1111-000000000007', '11111111-1111-1111-1111-000000000240')",
    );
    let told = doctor_of(&url);
    told.breaks("usable", "steps", "2 of 250 open operations of several steps cannot be read");
}

#[test]
fn settings_that_lose_what_was_committed_are_named() {
    let postgres = Postgres::start_with(&[
        "fsync=off",
        "full_page_writes=off",
        "synchronous_commit=off",
        "zero_damaged_pages=on",
        "ignore_checksum_failure=on",
        "wal_level=minimal",
        "max_wal_senders=0",
        "autovacuum=off",
    ]);
    let told = doctor_of(&postgres.database());
    told.breaks("durable", "fsync", "off: a crash of the machine loses committed records");
    told.breaks("durable", "full_page_writes", "off");
    told.breaks("durable", "zero_damaged_pages", "on");
    told.breaks("durable", "ignore_checksum_failure", "on");
    told.risks("durable", "synchronous_commit", "off by default");
    told.risks("durable", "wal_level", "minimal");
    told.breaks("capacity", "autovacuum", "off");
}

#[test]
fn a_standby_and_a_primary_whose_standby_is_not_synchronous_are_named() {
    let postgres = Postgres::start();
    let url = with_schema(&postgres);
    let standby = postgres.standby("second");
    let name = url.rsplit('/').next().unwrap();
    let of_standby = format!("postgres://postgres@127.0.0.1:{}/{name}", standby.port());
    doctor_of(&of_standby).breaks("authority", "role", "standby");
    let told = doctor_of(&url);
    told.breaks(
        "failover",
        "synchronous_standby_names",
        "1 standbys are connected and none is synchronous",
    );
    postgres.sql(&url, "ALTER SYSTEM SET synchronous_standby_names = '*'");
    postgres.sql(&url, "SELECT pg_reload_conf()");
    wait_for(&postgres, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1");
    doctor_of(&url).is_sound();
    drop(standby);
    wait_for(&postgres, "SELECT count(*) FROM pg_stat_replication", "0");
    doctor_of(&url).breaks("capacity", "synchronous_standby_names", "none of them is connected");
}

fn wait_for(postgres: &Postgres, sql: &str, answer: &str) {
    let end = std::time::Duration::from_secs(30);
    let pause = std::time::Duration::from_millis(50);
    let is_there = (0..end.as_millis() / pause.as_millis()).any(|_| {
        let is_it = postgres.sql("postgres", sql) == answer;
        if !is_it {
            std::thread::sleep(pause);
        }
        is_it
    });
    assert!(is_there, "{sql} never became {answer}");
}

#[test]
fn a_pooler_in_transaction_mode_is_named_and_one_in_session_mode_is_not() {
    let postgres = Postgres::start();
    let url = with_schema(&postgres);
    let pooler = Pgbouncer::start(&postgres, "transaction");
    doctor_of(&pooler.url(&url)).breaks("usable", "pooler", "transaction mode");
    let pooler = Pgbouncer::start(&postgres, "session");
    doctor_of(&pooler.url(&url)).is_sound();
}

/// What is found after `statements` in a database with our schema.
fn after(postgres: &Postgres, statements: &str) -> Told {
    let url = with_schema(postgres);
    postgres.sql(&url, statements);
    doctor_of(&url)
}

#[test]
fn a_schema_that_this_build_does_not_use_is_named() {
    let postgres = Postgres::start();
    let told = after(&postgres, "UPDATE onlyonce.meta SET version = 99, oldest = 99");
    told.breaks("usable", "schema", "has version 99");
    let told = after(&postgres, "UPDATE onlyonce.meta SET version = 1, oldest = 1");
    told.breaks("usable", "schema", "has version 1 of an unreleased build");
    let told = after(&postgres, "UPDATE onlyonce.meta SET moved_to = 'elsewhere'");
    told.breaks("usable", "schema", "was moved to elsewhere");
    let told = after(&postgres, "DELETE FROM onlyonce.meta");
    told.breaks("usable", "schema", "its own row is gone");
    let told = after(&postgres, "DROP TABLE onlyonce.record CASCADE");
    told.breaks("usable", "schema", "no table record");
}

#[test]
fn tables_that_someone_has_altered_are_named() {
    let postgres = Postgres::start();
    let told = after(&postgres, "ALTER TABLE onlyonce.record SET UNLOGGED");
    told.breaks("durable", "table record", "unlogged");
    let uniques = "SELECT 'DROP INDEX ' || indexrelid::regclass FROM pg_index WHERE indrelid = 'onlyonce.record'::regclass AND indisunique";
    let url = with_schema(&postgres);
    let drop = postgres.sql(&url, uniques);
    postgres.sql(&url, &drop);
    doctor_of(&url).breaks("authority", "unique index", "no valid unique index");
    let told = after(&postgres, "ALTER TABLE onlyonce.record SET (autovacuum_enabled = false)");
    told.breaks("capacity", "autovacuum", "off for the table");
}

#[test]
fn a_user_with_too_few_connections_or_rights_is_named() {
    let postgres = Postgres::start();
    let url = postgres.database();
    postgres.sql(&url, "CREATE ROLE narrow LOGIN CONNECTION LIMIT 3");
    let told = doctor_of(&url.replace("postgres@", "narrow@"));
    told.breaks("capacity", "max_connections", "a gateway needs 5");
    told.breaks("usable", "schema", "may not make it");
}

#[test]
fn a_server_that_is_away_is_exit_code_3_without_its_password() {
    let told = doctor_of("postgres://me:hunter2@127.0.0.1:9/x");
    assert_eq!(told.code, 3, "{}", told.errors);
    assert!(told.errors.contains("cannot be reached") && !told.errors.contains("hunter2"));
    assert!(!told.report.to_string().contains("hunter2"));
    assert_eq!(told.report["holds"], false);
}
