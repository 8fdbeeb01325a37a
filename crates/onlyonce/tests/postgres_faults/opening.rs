//! What a store refuses to be opened on, in a sentence, and what it works with.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use onlyonce::store::postgres::{Import, PostgresOpenError, PostgresStore};
use onlyonce::store::{Fault, Store};
use servers::{Pgbouncer, Postgres};
use tokio_postgres::SimpleQueryMessage;

use crate::lab::{completed, draft, is_closed, open, session, until, until_gone, won};

async fn refused(url: &str) -> PostgresOpenError {
    PostgresStore::open(url).await.expect_err("it is refused")
}

// threat C4
#[tokio::test]
async fn a_standby_is_refused() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let standby = postgres.standby("follower");
    let name = url.rsplit('/').next().unwrap();
    let theirs = format!("postgres://postgres@127.0.0.1:{}/{name}", standby.port());
    assert!(matches!(refused(&theirs).await, PostgresOpenError::Standby { .. }));
    let both = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), postgres.port());
    let both = format!("postgres://postgres@{both}/{name}?target_session_attrs=read-write");
    let warned = open(&both).await;
    completed(&warned, &draft(1)).await;
    assert!(store.load(draft(1).id).await.unwrap().record.is_some(), "it is the primary");
    assert_eq!(
        warned.warnings().len(),
        1,
        "the standby is not synchronous: {:?}",
        warned.warnings()
    );
}

// threat C13
#[tokio::test]
async fn a_newer_schema_is_refused_and_the_next_one_is_not() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let running = open(&url).await;
    won(&running, &draft(1)).await;
    let next = "ALTER TABLE onlyonce.record ADD shard integer NOT NULL DEFAULT 7;
                CREATE TABLE onlyonce.extra (); UPDATE onlyonce.meta SET version = 10, oldest = 9";
    postgres.sql(&url, next);
    completed(&running, &draft(2)).await;
    completed(&open(&url).await, &draft(3)).await;
    postgres.sql(&url, "UPDATE onlyonce.meta SET version = 11, oldest = 10");
    let error = refused(&url).await;
    assert!(matches!(error, PostgresOpenError::Newer(_, 11)), "{error}");
}

/// Version 3 had no audit trail, version 2 a clock that was held, and version 1 neither targets nor check values.
// threat C13
#[tokio::test]
async fn a_schema_of_the_build_before_is_refused_and_left_as_it_was() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    completed(&store, &draft(1)).await;
    store.close().await;
    let third = "DROP TABLE onlyonce.audit, onlyonce.audit_head; UPDATE onlyonce.meta SET version = 3, oldest = 3";
    let second = "DROP VIEW onlyonce.operation; ALTER TABLE onlyonce.meta ADD highest bigint;
                  UPDATE onlyonce.meta SET version = 2, oldest = 2";
    for (older, version) in
        [(third, 3), (second, 2), ("ALTER TABLE onlyonce.meta DROP generation", 2)]
    {
        postgres.sql(&url, older);
        let before = postgres.sql(&url, WHOLE);
        let (one, two) = tokio::join!(refused(&url), refused(&url));
        for error in [one, two, Import::begin(&url, "elsewhere").await.unwrap_err()] {
            assert_eq!(
                error.to_string(),
                format!(
                    "schema \"onlyonce\" has version {version} of an unreleased build, which this build does not read: \
                     use a new one, as in ?schema=NAME. Retries of keys in the old one will be executed again"
                )
            );
        }
        assert_eq!(postgres.sql(&url, WHOLE), before);
        let error = refused(&url).await;
        assert!(
            matches!(error, PostgresOpenError::Older(_, found) if found == version),
            "{error:?}"
        );
    }
}

/// The columns of a schema, its own row and its records, with the transactions that wrote them.
const WHOLE: &str = "
    SELECT (SELECT string_agg(table_name || '.' || column_name, ' ' ORDER BY table_name, ordinal_position)
              FROM information_schema.columns WHERE table_schema = 'onlyonce'),
           (SELECT string_agg(m.xmin || m::text, ' ') FROM onlyonce.meta m),
           (SELECT string_agg(r.xmin || r::text, ' ') FROM onlyonce.record r)";

#[tokio::test]
async fn a_schema_that_was_moved_takes_nothing_more() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let (store, other) = (open(&url).await, open(&url).await);
    won(&store, &draft(1)).await;
    store.mark_moved("postgres://elsewhere/db").await.unwrap();
    assert!(is_closed(&other.claim(draft(2)).await));
    assert!(is_closed(&crate::lab::settle(&other, &draft(1)).await));
    assert!(is_closed(&other.load(draft(1).id).await));
    let error = refused(&url).await;
    assert_eq!(
        error.to_string(),
        "schema \"onlyonce\" was moved to postgres://elsewhere/db: open that one"
    );
    assert_eq!(postgres.sql(&url, "SELECT count(*) FROM onlyonce.record"), "1");
}

/// A claim that began before the mark is done before it, or not at all.
#[tokio::test]
async fn a_schema_is_not_marked_as_moved_while_a_write_is_under_way() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let (store, other) = (open(&url).await, open(&url).await);
    postgres.sql(
        &url,
        "CREATE FUNCTION onlyonce.wait() RETURNS trigger LANGUAGE plpgsql
           AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
         CREATE TRIGGER waits BEFORE INSERT ON onlyonce.record FOR EACH ROW EXECUTE FUNCTION onlyonce.wait()",
    );
    let (holds, watcher) = (session(&url).await, session(&url).await);
    holds.batch_execute("SELECT pg_advisory_lock(7)").await.unwrap();
    let waiting = |count: usize| {
        format!("SELECT count(*) = {count} FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    };
    let claims = tokio::spawn(async move { won(&other, &draft(1)).await });
    until(&watcher, &waiting(1)).await;
    let marks = store.clone();
    let marks = tokio::spawn(async move { marks.mark_moved("postgres://elsewhere/db").await });
    until(&watcher, &waiting(2)).await;
    holds.batch_execute("SELECT pg_advisory_unlock(7)").await.unwrap();
    claims.await.unwrap();
    marks.await.unwrap().unwrap();
    assert!(is_closed(&store.claim(draft(2)).await));
}

#[tokio::test]
async fn a_table_whose_columns_are_in_another_order_is_read_by_their_names() {
    let postgres = Postgres::start();
    let url = postgres.database();
    open(&url).await.close().await;
    for rename in ["lease_ms TO quiet", "quiet_ms TO lease_ms", "quiet TO quiet_ms"] {
        postgres.sql(&url, &format!("ALTER TABLE onlyonce.record RENAME {rename}"));
    }
    let (store, draft) = (open(&url).await, draft(1));
    completed(&store, &draft).await;
    let record = store.load(draft.id).await.unwrap().record.unwrap();
    assert_eq!((record.lease_ms, record.quiet_ms), (draft.lease.as_ms(), draft.quiet_ms));
}

/// What a person sees with `psql`.
#[tokio::test]
async fn the_view_tells_what_became_of_each_operation() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    completed(&store, &draft(1)).await;
    won(&store, &draft(2)).await;
    let view = "SELECT string_agg(concat_ws(' ', state, key, route, attempt, retries, status, settled_by,
                  first_claimed_at > now() - interval '1 minute', expires_at > now()), '; ' ORDER BY key)
                  FROM onlyonce.operation";
    let shown =
        "completed key 1 POST /charges 1 0 201 owner t t; running key 2 POST /charges 1 0 t";
    assert_eq!(postgres.sql(&url, view), shown);
}

#[tokio::test]
async fn a_schema_without_its_own_row_is_damaged() {
    let postgres = Postgres::start();
    let url = postgres.database();
    open(&url).await.close().await;
    postgres.sql(&url, "DELETE FROM onlyonce.meta");
    assert!(matches!(refused(&url).await, PostgresOpenError::Damaged { .. }));
}

#[tokio::test]
async fn who_may_not_is_told_so() {
    let postgres = Postgres::start();
    let url = postgres.database();
    postgres.sql(&url, "CREATE ROLE guest LOGIN PASSWORD 'right'; CREATE ROLE owner LOGIN");
    let guest = url.replace("postgres@", "guest@");
    let error = refused(&guest).await;
    assert!(matches!(error, PostgresOpenError::NoPermission { .. }), "{error}");
    postgres.sql(&url, "CREATE SCHEMA onlyonce AUTHORIZATION owner");
    completed(&open(&url.replace("postgres@", "owner@")).await, &draft(1)).await;
    let hosts = postgres.data().join("pg_hba.conf");
    fs::write(hosts, "host all guest all scram-sha-256\nhost all all all trust\n").unwrap();
    postgres.sql(&url, "SELECT pg_reload_conf()");
    let wrong = url.replace("postgres@", "guest:wrong@");
    let error = refused(&wrong).await;
    assert!(matches!(error, PostgresOpenError::WrongPassword { .. }), "{error}");
    assert!(!error.to_string().contains("wrong@"));
    let gone = format!("{url}_gone");
    assert!(matches!(refused(&gone).await, PostgresOpenError::NoDatabase { .. }));
}

#[tokio::test]
async fn a_server_that_is_not_there_or_not_durable_is_refused() {
    let mut postgres = Postgres::start_with(&["fsync=off"]);
    let error = refused(&postgres.url()).await;
    assert!(matches!(error, PostgresOpenError::NotDurable(_)), "{error}");
    postgres.stop();
    let error = refused(&postgres.url()).await;
    assert!(matches!(error, PostgresOpenError::Unreachable { .. }), "{error}");
    let postgres = Postgres::start_with(&["full_page_writes=off", "synchronous_commit=off"]);
    let store = open(&postgres.url()).await;
    assert_eq!(store.warnings().len(), 1);
    let commits = "SELECT setting FROM pg_settings WHERE name = 'synchronous_commit'";
    assert_eq!(postgres.sql("postgres", commits), "off", "for others; ours waits for the disk");
}

// threat C8
#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_and_one_in_session_mode_is_not() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let pooler = Pgbouncer::start(&postgres, "transaction");
    for _ in 0..3 {
        let error = refused(&pooler.url(&url)).await;
        assert!(matches!(error, PostgresOpenError::Pooled { .. }), "{error}");
    }
    // The sessions of the pooler go to others now: they are as they were.
    let other = session(&pooler.url(&url)).await;
    let kept =
        "SELECT current_setting('search_path') || ' ' || current_setting('statement_timeout')";
    for _ in 0..3 {
        let said = other.simple_query(kept).await.unwrap();
        let row = said.iter().find_map(|said| match said {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(row, Some("\"$user\", public 0"));
    }
    let pooler = Pgbouncer::start(&postgres, "session");
    let store = open(&pooler.url(&url)).await;
    completed(&store, &draft(1)).await;
    assert!(store.load(draft(1).id).await.unwrap().record.is_some());
}

#[tokio::test]
async fn a_line_is_encrypted_and_the_server_verified_as_asked() {
    let mut postgres = Postgres::start();
    let url = postgres.database().replace("127.0.0.1", "localhost");
    assert!(matches!(
        refused(&format!("{url}?sslmode=require")).await,
        PostgresOpenError::NoTls { .. }
    ));
    let certificate = certify(&postgres.data());
    postgres.stop();
    let settings = "ssl = on\n";
    let file = postgres.data().join("postgresql.auto.conf");
    fs::write(&file, settings).unwrap();
    postgres.start_again();
    let required = open(&format!("{url}?sslmode=require")).await;
    completed(&required, &draft(1)).await;
    // The last connections are made while the first already work.
    let ssl =
        "SELECT count(*) = 5 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                WHERE application_name = 'onlyonce'";
    until(&session(&url).await, ssl).await;
    assert_eq!(required.warnings().len(), 1, "nobody checked who answers");
    let verified = format!("{url}?sslmode=verify-full&sslrootcert={}", certificate.display());
    let verified = open(&verified).await;
    completed(&verified, &draft(2)).await;
    assert!(verified.warnings().is_empty());
    let stranger = format!("{url}?sslmode=verify-full");
    assert!(PostgresStore::open(&stranger).await.is_err(), "no one vouches for it");
    let misnamed = url.replace("localhost", "127.0.0.1");
    let misnamed = format!("{misnamed}?sslmode=verify-full&sslrootcert={}", certificate.display());
    assert!(PostgresStore::open(&misnamed).await.is_err(), "the certificate is for another name");
}

/// A certificate for `localhost` that vouches for itself.
fn certify(data: &Path) -> std::path::PathBuf {
    let (key, certificate) = (data.join("server.key"), data.join("server.crt"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    let made = made.expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(data).unwrap());
    for file in [&key, &certificate] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
        chown(file, Some(owner), None).unwrap();
    }
    certificate
}

#[tokio::test]
async fn a_closed_store_takes_nothing_and_has_finished_what_was_asked() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let claims: Vec<_> = (0..40)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(draft(number)).await })
        })
        .collect();
    tokio::task::yield_now().await;
    store.close().await;
    for claim in claims {
        assert!(claim.await.unwrap().unwrap().mine);
    }
    let late = store.claim(draft(200)).await;
    assert!(matches!(late, Err(Fault::NotDone(onlyonce::store::StoreError::Closed))), "{late:?}");
    // It has said goodbye; the server takes a moment to hear it.
    until_gone(&session(&url).await).await;
}

/// It says so, instead of that it cannot be opened.
#[tokio::test]
async fn a_schema_without_a_column_or_a_table_is_damaged() {
    for missing in
        ["ALTER TABLE onlyonce.record DROP lease_ms", "DROP TABLE onlyonce.record CASCADE"]
    {
        let postgres = Postgres::start();
        let url = postgres.database();
        open(&url).await.close().await;
        postgres.sql(&url, missing);
        let error = refused(&url).await;
        assert!(matches!(error, PostgresOpenError::Damaged { .. }), "{missing}: {error}");
    }
}

/// After an upgrade of its libraries a server warns at every connection that the version of a collation has changed.
#[tokio::test]
async fn a_warning_at_connecting_makes_no_write_unsure() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let name = url.rsplit('/').next().unwrap();
    let stale = format!("UPDATE pg_database SET datcollversion = '1.0' WHERE datname = '{name}'");
    postgres.sql("postgres", &stale);
    let (client, mut connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let warning = std::future::poll_fn(|context| connection.poll_message(context)).await;
    let is_warned = matches!(warning, Some(Ok(tokio_postgres::AsyncMessage::Notice(_))));
    assert!(is_warned, "the server warns, or this test shows nothing");
    drop(client);
    let store = open(&url).await;
    completed(&store, &draft(1)).await;
}
