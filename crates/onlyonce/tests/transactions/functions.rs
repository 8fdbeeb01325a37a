//! The functions themselves, as a program of any language calls them.

use tokio_postgres::{Client, NoTls};

use crate::lab::Lab;

async fn session(lab: &Lab) -> Client {
    let (client, connection) = tokio_postgres::connect(&lab.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Begins `key` with the fingerprint 01; the outcome, and the token if there is one.
async fn begin(client: &Client, key: &str) -> (String, Option<String>) {
    let begin = "SELECT outcome, token::text FROM onlyonce.begin('s', 'p', $1, '\\x01')";
    let row = client.query_one(begin, &[&key]).await.unwrap();
    (row.get(0), row.get(1))
}

async fn mine(client: &Client, key: &str) -> String {
    client.batch_execute("BEGIN").await.unwrap();
    let (outcome, token) = begin(client, key).await;
    assert_eq!(outcome, "mine");
    token.unwrap()
}

async fn complete(client: &Client, token: &str) {
    let complete =
        "SELECT onlyonce.complete($1::text::uuid, 201, '{\"location\": \"/1\"}', 'done')";
    client.execute(complete, &[&token]).await.unwrap();
}

async fn state_of(client: &Client, statements: &str) -> String {
    let error = client.batch_execute(statements).await.unwrap_err();
    error.code().unwrap().code().to_owned()
}

const CHARGE: &str = crate::lab::CHARGE;

// R125, R126
#[tokio::test]
async fn claim_work_and_answer_commit_together_and_are_replayed() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    let token = mine(&client, "k").await;
    client.batch_execute(CHARGE).await.unwrap();
    complete(&client, &token).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(begin(&client, "k").await.0, "replay");
    let kept = lab.sql("SELECT status, headers->>'location', convert_from(body, 'UTF8') FROM onlyonce.begin('s', 'p', 'k', '\\x01')");
    assert_eq!(kept, "201|/1|done");
    assert_eq!(lab.charges(), "1");
}

// R126
#[tokio::test]
async fn a_rollback_leaves_no_trace() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    let token = mine(&client, "k").await;
    client.batch_execute(CHARGE).await.unwrap();
    complete(&client, &token).await;
    client.batch_execute("ROLLBACK").await.unwrap();
    let all = "SELECT (SELECT count(*) FROM charge), (SELECT count(*) FROM onlyonce.transactional)";
    assert_eq!(lab.sql(all), "0|0");
    mine(&client, "k").await;
}

// R127
#[tokio::test]
async fn a_duplicate_never_waits_for_the_first() {
    let lab = Lab::start().await;
    let (first, second) = (session(&lab).await, session(&lab).await);
    second.batch_execute("SET statement_timeout = '10s'").await.unwrap();
    let token = mine(&first, "k").await;
    assert_eq!(begin(&second, "k").await.0, "in_progress");
    complete(&first, &token).await;
    assert_eq!(begin(&second, "k").await.0, "in_progress");
    first.batch_execute("COMMIT").await.unwrap();
    assert_eq!(begin(&second, "k").await.0, "replay");
}

/// Two replays in transactions that are both open: neither is told that the other is at it.
#[tokio::test]
async fn replays_never_meet_each_other() {
    let lab = Lab::start().await;
    let (one, two) = (session(&lab).await, session(&lab).await);
    let token = mine(&one, "k").await;
    complete(&one, &token).await;
    one.batch_execute("COMMIT").await.unwrap();
    for client in [&one, &two] {
        client.batch_execute("BEGIN").await.unwrap();
        assert_eq!(begin(client, "k").await.0, "replay");
    }
}

/// A transaction that is still on its way is neither done nor not done.
#[tokio::test]
async fn whoever_asks_what_became_of_a_commit_waits_for_it() {
    let lab = Lab::start().await;
    let (first, asking) = (session(&lab).await, session(&lab).await);
    let token = mine(&first, "k").await;
    complete(&first, &token).await;
    let resolve = format!("SELECT status FROM onlyonce.resolve('{token}', '\\x01')");
    assert_eq!(state_of(&asking, &resolve).await, "55P03");
    first.batch_execute("COMMIT").await.unwrap();
    assert_eq!(lab.sql(&resolve), "201");
    // The answer to another request says nothing about this one.
    let other = format!("SELECT count(*) FROM onlyonce.resolve('{token}', '\\x02')");
    assert_eq!(lab.sql(&other), "0");
    // A snapshot from before the wait would not see the commit.
    asking.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    assert_eq!(state_of(&asking, &resolve).await, "OO008");
}

#[tokio::test]
async fn the_same_key_with_another_fingerprint_principal_or_scope() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    let token = mine(&client, "k").await;
    complete(&client, &token).await;
    client.batch_execute("COMMIT").await.unwrap();
    let outcome = |call: &str| {
        lab.sql(&format!(
            "BEGIN; SELECT outcome, body IS NULL FROM onlyonce.begin({call}); ROLLBACK"
        ))
    };
    assert!(outcome("'s', 'p', 'k', '\\x02'").contains("reused|t"), "nothing of the first is told");
    assert!(outcome("'s', 'q', 'k', '\\x01'").contains("mine"));
    assert!(outcome("'t', 'p', 'k', '\\x01'").contains("mine"));
    let ids =
        "SELECT onlyonce.operation_id('a', 'bc', 'd') <> onlyonce.operation_id('ab', 'c', 'd')";
    assert_eq!(lab.sql(ids), "t");
}

/// Without this, a program that forgets `complete` would leave a charge that its retry makes again.
#[tokio::test]
async fn a_commit_without_an_answer_is_refused() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    mine(&client, "k").await;
    client.batch_execute(CHARGE).await.unwrap();
    assert_eq!(state_of(&client, "COMMIT").await, "OO005");
    assert_eq!(lab.charges(), "0");
    // The same outside a transaction.
    let alone = "SELECT onlyonce.begin('s', 'p', 'k', '\\x01')";
    assert_eq!(state_of(&client, alone).await, "OO005");
}

#[tokio::test]
async fn a_decline_undoes_the_work_and_keeps_the_answer() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    let token = mine(&client, "k").await;
    client.batch_execute("SAVEPOINT work").await.unwrap();
    client.batch_execute(CHARGE).await.unwrap();
    client.batch_execute("ROLLBACK TO work").await.unwrap();
    complete(&client, &token).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!((begin(&client, "k").await.0.as_str(), lab.charges().as_str()), ("replay", "0"));
}

#[tokio::test]
async fn what_is_called_out_of_order_is_refused_by_name() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    let token = mine(&client, "k").await;
    assert_eq!(state_of(&client, "SELECT onlyonce.begin('s', 'p', 'k', '\\x01')").await, "OO003");
    client.batch_execute("ROLLBACK").await.unwrap();
    let late = format!("SELECT onlyonce.complete('{token}', 200)");
    assert_eq!(state_of(&client, &late).await, "OO004", "a token outlives no transaction");
    let message = format!("SELECT onlyonce.outbox('{token}', 't', 'k', 'p')");
    assert_eq!(state_of(&client, &message).await, "OO004");
    let twice = mine(&client, "k").await;
    complete(&client, &twice).await;
    assert_eq!(
        state_of(&client, &format!("SELECT onlyonce.complete('{twice}', 200)")).await,
        "OO004"
    );
    client.batch_execute("ROLLBACK").await.unwrap();
    let other = "SELECT onlyonce.begin('s', 'p', 'k', '\\x01', version => 99)";
    assert_eq!(state_of(&client, other).await, "OO002");
    for wrong in [
        "NULL, 'p', 'k', '\\x01'",
        "'s', 'p', '', '\\x01'",
        "'s', '', 'k', '\\x01'",
        "'s', 'p', 'k', NULL",
        "'s', 'p', 'k', '\\x01', '0'",
        "'s', 'p', 'k', '\\x01', '-1 hour'",
        "'s', 'p', repeat('k', 4096), '\\x01'",
    ] {
        let begin = format!("SELECT onlyonce.begin({wrong})");
        assert_eq!(state_of(&client, &begin).await, "OO001", "{wrong}");
    }
}

/// A snapshot that is older than the first commit must not run the work again.
#[tokio::test]
async fn a_snapshot_from_before_the_first_commit_is_a_serialization_failure() {
    let lab = Lab::start().await;
    let (first, late) = (session(&lab).await, session(&lab).await);
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let token = mine(&first, isolation).await;
        late.batch_execute(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT 1")).await.unwrap();
        complete(&first, &token).await;
        first.batch_execute("COMMIT").await.unwrap();
        let begin = format!("SELECT onlyonce.begin('s', 'p', '{isolation}', '\\x01')");
        assert_eq!(state_of(&late, &begin).await, "40001");
        late.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn an_expired_operation_runs_again_and_is_swept() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    for key in ["again", "swept", "kept"] {
        let token = mine(&client, key).await;
        complete(&client, &token).await;
        client.batch_execute("COMMIT").await.unwrap();
    }
    lab.sql("UPDATE onlyonce.transactional SET expires_at = now() WHERE key <> 'kept'");
    let token = mine(&client, "again").await;
    complete(&client, &token).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(lab.sql("SELECT onlyonce.sweep_transactions()"), "1");
    let left = "SELECT string_agg(key, ' ' ORDER BY key) FROM onlyonce.transactional";
    assert_eq!(lab.sql(left), "again kept");
}

/// A commit that the server has not written yet is answered as done, and a crash takes it back.
#[tokio::test]
async fn a_session_that_does_not_wait_for_its_commits_waits_for_ours() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    for setting in ["off", "local"] {
        client.batch_execute(&format!("SET synchronous_commit = {setting}")).await.unwrap();
        let waits = async || -> String {
            client.query_one("SHOW synchronous_commit", &[]).await.unwrap().get(0)
        };
        mine(&client, setting).await;
        assert_eq!(waits().await, "on", "begin");
        client.batch_execute("ROLLBACK; BEGIN").await.unwrap();
        assert_eq!(waits().await, setting);
        let seen = format!("SELECT onlyonce.seen('mailer', '{setting}')");
        assert!(client.query_one(&seen, &[]).await.unwrap().get::<_, bool>(0));
        assert_eq!(waits().await, "on", "seen");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// A function that stays a call is parsed again in each transaction: half of the time of `begin`.
#[tokio::test]
async fn the_small_functions_are_part_of_the_plan_of_their_caller() {
    let lab = Lab::start().await;
    let calls = [
        "onlyonce.operation_id(amount::text, amount::text, amount::text)",
        "onlyonce.lock_of(operation)",
    ];
    for call in calls {
        let plan = lab.sql(&format!("EXPLAIN (VERBOSE, COSTS OFF) SELECT {call} FROM charge"));
        assert!(!plan.contains("onlyonce."), "{call} is a call of its own: {plan}");
    }
}

/// A function of the caller's search_path must not make two operations one.
#[tokio::test]
async fn functions_of_the_same_name_in_the_search_path_are_not_called() {
    let lab = Lab::start().await;
    lab.sql("CREATE FUNCTION public.convert_to(text, text) RETURNS bytea LANGUAGE sql IMMUTABLE AS 'SELECT ''same''::bytea'");
    let client = session(&lab).await;
    for key in ["one", "two"] {
        let token = mine(&client, key).await;
        complete(&client, &token).await;
        client.batch_execute("COMMIT").await.unwrap();
    }
}

/// Triggers that are off for a session, as replication tools have them, are on for this table.
#[tokio::test]
async fn an_answer_is_demanded_of_replication_roles_too() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    client.batch_execute("SET session_replication_role = replica").await.unwrap();
    mine(&client, "k").await;
    assert_eq!(state_of(&client, "COMMIT").await, "OO005");
}

/// A row without an answer, however it came to be, is nobody's to complete and never run over.
#[tokio::test]
async fn a_row_without_an_answer_is_told_and_kept() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    lab.sql("ALTER TABLE onlyonce.transactional DISABLE TRIGGER ALL");
    let token = mine(&client, "k").await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(state_of(&client, "SELECT onlyonce.begin('s', 'p', 'k', '\\x01')").await, "OO006");
    let complete = format!("SELECT onlyonce.complete('{token}', 418)");
    assert_eq!(state_of(&client, &complete).await, "OO004");
}

#[tokio::test]
async fn a_sweep_that_is_open_is_not_waited_for() {
    let lab = Lab::start().await;
    let (client, sweeping) = (session(&lab).await, session(&lab).await);
    let token = mine(&client, "k").await;
    complete(&client, &token).await;
    client.batch_execute("COMMIT").await.unwrap();
    lab.sql("UPDATE onlyonce.transactional SET expires_at = now()");
    sweeping.batch_execute("BEGIN; SELECT onlyonce.sweep_transactions()").await.unwrap();
    client.batch_execute("SET statement_timeout = '10s'").await.unwrap();
    assert_eq!(begin(&client, "k").await.0, "in_progress");
    sweeping.batch_execute("COMMIT").await.unwrap();
    mine(&client, "k").await;
}

#[tokio::test]
async fn two_schemas_of_one_database_know_nothing_of_each_other() {
    let lab = Lab::start().await;
    let other = format!("{}?schema=other", lab.url);
    onlyonce::store::postgres::PostgresStore::open(&other).await.unwrap().close().await;
    let (one, two) = (session(&lab).await, session(&lab).await);
    mine(&one, "k").await;
    two.batch_execute("BEGIN").await.unwrap();
    let begin = "SELECT outcome FROM other.begin('s', 'p', 'k', '\\x01')";
    assert_eq!(two.query_one(begin, &[]).await.unwrap().get::<_, String>(0), "mine");
}

// R136, R139
#[tokio::test]
async fn messages_are_hidden_until_the_commit_and_gone_with_a_rollback() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    let outbox = "SELECT onlyonce.outbox($1::text::uuid, 'charges', 'acct_1', 'paid')";
    for end in ["ROLLBACK", "COMMIT"] {
        let token = mine(&client, "k").await;
        client.execute(outbox, &[&token]).await.unwrap();
        complete(&client, &token).await;
        assert_eq!(lab.sql("SELECT count(*) FROM onlyonce.outbox"), "0");
        client.batch_execute(end).await.unwrap();
    }
    let shown = "SELECT count(*), min(topic), min(key), min(convert_from(payload, 'UTF8')) FROM onlyonce.outbox";
    assert_eq!(lab.sql(shown), "1|charges|acct_1|paid");
}

// R140
#[tokio::test]
async fn a_consumer_sees_a_message_once_with_its_effect() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    let seen = async |consumer: &str, end: &str| -> bool {
        client.batch_execute("BEGIN").await.unwrap();
        let seen = format!("SELECT onlyonce.seen('{consumer}', 'm1')");
        let seen = client.query_one(&seen, &[]).await.unwrap().get(0);
        client.batch_execute(end).await.unwrap();
        seen
    };
    assert!(seen("mailer", "ROLLBACK").await);
    assert!(seen("mailer", "COMMIT").await, "the effect was undone");
    assert!(!seen("mailer", "COMMIT").await);
    assert!(seen("printer", "/* from an ORM */ end").await, "another consumer");
    let at_once = "BEGIN; SELECT onlyonce.seen('mailer', 'm2'); COMMIT";
    assert_eq!(lab.sql(at_once), "t", "a whole transaction in one message");
}

/// Its mark would be committed before its effect, which a crash then leaves out for ever.
// threat K22
#[tokio::test]
async fn a_message_is_not_marked_outside_of_a_transaction_block() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    let seen = "SELECT onlyonce.seen('mailer', 'm1')";
    // As a text, as a statement of its own, and as one that is prepared before.
    assert_eq!(state_of(&client, seen).await, "OO010");
    let typed = client.query_typed(seen, &[]).await.unwrap_err();
    assert_eq!(typed.code().unwrap().code(), "OO010");
    let prepared = client.prepare(seen).await.unwrap();
    let prepared = client.query(&prepared, &[]).await.unwrap_err();
    assert_eq!(prepared.code().unwrap().code(), "OO010");
    assert_eq!(lab.sql("SELECT count(*) FROM onlyonce.inbox"), "0");
}

/// An empty id is that of no message: the second one would be taken for a duplicate of the first, and lost.
// R140
#[tokio::test]
async fn a_message_without_an_id_or_a_consumer_is_refused() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    for (consumer, message_id) in
        [("''", "'m1'"), ("'mailer'", "''"), ("NULL", "'m1'"), ("'mailer'", "NULL")]
    {
        let deliver = format!("SELECT onlyonce.seen({consumer}, {message_id})");
        let error = client.query_one(&deliver, &[]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "OO001", "{deliver}");
    }
    assert_eq!(lab.sql("SELECT count(*) FROM onlyonce.inbox"), "0");
}

/// The rows that a sweep reads are those that it deletes, however many are kept.
#[tokio::test]
async fn a_sweep_reads_no_rows_that_it_keeps() {
    let lab = Lab::start().await;
    lab.sql(
        "INSERT INTO onlyonce.transactional
           SELECT gen_random_uuid(), 's', 'p', 'k', '', '1 day', now(), '1', 200, '{}', '', now() + n * interval '1 h'
             FROM generate_series(-2, 2000) n;
         INSERT INTO onlyonce.inbox
           SELECT 'mailer', n::text, now() - n * interval '1 s' FROM generate_series(1, 2000) n;
         INSERT INTO onlyonce.inbox SELECT 'old', n::text, now() - interval '31 days' FROM generate_series(1, 3) n;
         ANALYZE onlyonce.transactional, onlyonce.inbox",
    );
    let read = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes
                 WHERE indexrelname IN ('transactional_expiry', 'inbox_age')";
    let scans =
        "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN ('transactional', 'inbox')";
    let before = lab.sql(scans);
    let swept = "SELECT onlyonce.sweep_transactions(); SELECT pg_stat_force_next_flush()";
    assert_eq!(lab.sql(swept).lines().next(), Some("6"));
    assert_eq!(lab.sql(scans), before, "no table is read from end to end");
    let read: u64 = lab.sql(read).parse().unwrap();
    assert!(read < 100, "{read} entries of the indexes were read");
}

/// What is rolled back with a savepoint is undone together: the claim, the work and the answer that came in it.
#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_what_came_in_it() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    client.batch_execute("BEGIN; SAVEPOINT s").await.unwrap();
    let (_, token) = begin(&client, "k").await;
    client.batch_execute(CHARGE).await.unwrap();
    client.batch_execute("ROLLBACK TO s").await.unwrap();
    // The operation is not begun any more, whatever the program goes on with.
    let late = format!("SELECT onlyonce.complete('{}', 201)", token.unwrap());
    assert_eq!(state_of(&client, &late).await, "OO004");
    client.batch_execute("ROLLBACK").await.unwrap();
    let token = mine(&client, "k").await;
    client.batch_execute("SAVEPOINT s").await.unwrap();
    complete(&client, &token).await;
    client.batch_execute("ROLLBACK TO s").await.unwrap();
    assert_eq!(state_of(&client, "COMMIT").await, "OO005", "the answer is gone");
    // One that is released is as if it had not been.
    client.batch_execute("BEGIN; SAVEPOINT s").await.unwrap();
    let (_, token) = begin(&client, "k").await;
    client.batch_execute("RELEASE s").await.unwrap();
    complete(&client, &token.unwrap()).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!((begin(&client, "k").await.0.as_str(), lab.charges().as_str()), ("replay", "0"));
}

/// The checks of COMMIT are made at once then: before there is an answer they fail, and nothing is committed.
#[tokio::test]
async fn constraints_that_are_made_immediate_are_refused_before_there_is_an_answer() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    client.batch_execute("BEGIN; SET CONSTRAINTS ALL IMMEDIATE").await.unwrap();
    assert_eq!(state_of(&client, "SELECT onlyonce.begin('s', 'p', 'k', '\\x01')").await, "OO005");
    client.batch_execute("ROLLBACK").await.unwrap();
    mine(&client, "k").await;
    assert_eq!(state_of(&client, "SET CONSTRAINTS ALL IMMEDIATE").await, "OO005");
    client.batch_execute("ROLLBACK").await.unwrap();
    let token = mine(&client, "k").await;
    complete(&client, &token).await;
    client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE; COMMIT").await.unwrap();
    assert_eq!(begin(&client, "k").await.0, "replay");
    client
        .batch_execute(
            "BEGIN; SELECT onlyonce.seen('mailer', 'm1'); SET CONSTRAINTS ALL IMMEDIATE; COMMIT",
        )
        .await
        .unwrap();
}

/// A role without rights to our tables can neither complete nor commit what another one has begun.
#[tokio::test]
async fn a_role_that_the_transaction_takes_needs_the_rights_too() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    lab.sql("CREATE ROLE clerk; GRANT INSERT ON charge TO clerk");
    let token = mine(&client, "k").await;
    client.batch_execute(&format!("SET LOCAL ROLE clerk; {CHARGE}")).await.unwrap();
    let without_rights = format!("SELECT onlyonce.complete('{token}', 201)");
    assert_eq!(state_of(&client, &without_rights).await, "42501");
    client.batch_execute("ROLLBACK").await.unwrap();
    let token = mine(&client, "k").await;
    complete(&client, &token).await;
    client.batch_execute(&format!("SET LOCAL ROLE clerk; {CHARGE}")).await.unwrap();
    let committed = client.batch_execute("COMMIT").await;
    // From Postgres 18 on the checks of COMMIT are made by the role that began the operation.
    match committed {
        Ok(()) => assert_eq!(
            (begin(&client, "k").await.0.as_str(), lab.charges().as_str()),
            ("replay", "1")
        ),
        Err(error) => {
            assert_eq!((error.code().unwrap().code(), lab.charges().as_str()), ("42501", "0"))
        }
    }
    let token = mine(&client, "other").await;
    client.batch_execute(&format!("SET LOCAL ROLE clerk; {CHARGE}; RESET ROLE")).await.unwrap();
    complete(&client, &token).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(begin(&client, "other").await.0, "replay");
}
