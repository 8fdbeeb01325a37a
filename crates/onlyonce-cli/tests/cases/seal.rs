//! `[seal]`: what is in the store cannot be read without its key, and what erasing leaves.

use std::path::Path;
use std::process::Output;

use servers::{Postgres, Redis};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::block_in_place;

use crate::client::Ask;
use crate::profile::Set;
use crate::reply::Reply;
use crate::subject::{Kind, Subject};
use crate::{B1, B2, K1, K2, on_gateway, until, within};

on_gateway! {
    r184_nothing_secret_is_in_a_sqlite_file_or_a_log,
    r184_nothing_secret_is_in_the_files_of_postgres_and_its_filter,
    r184_nothing_secret_is_in_the_files_of_redis,
    r184_without_its_key_an_answer_is_not_kept_and_nothing_runs_again,
    r184_answers_that_were_exchanged_in_the_database_do_not_open,
    r184_an_erased_answer_is_gone_and_its_outcome_is_not,
    r184_an_erased_answer_is_gone_from_the_filter_too,
    r183_keys_are_found_by_their_text_under_seal_and_secret,
}

/// Keys in files of a folder.
struct Keys(TempDir);

impl Keys {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("one"), "11".repeat(32)).unwrap();
        let base64 = "IiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiI=";
        std::fs::write(folder.path().join("two"), format!("{base64}\n")).unwrap();
        Self(folder)
    }

    /// The last setting of a profile: nothing of `[policy]` may follow.
    fn seal(&self, names: &[&str]) -> Set {
        let paths: Vec<_> = names
            .iter()
            .map(|name| format!("file:{}", self.0.path().join(name).display()))
            .collect();
        Set::Toml(format!("[seal]\nkeys = {paths:?}").leak())
    }
}

/// Sends and receives canaries of one `kind`: fresh, replayed, and refused.
async fn sing(t: &Subject, kind: &str) {
    let body = format!(r#"{{"id":"{kind}-answer"}}"#);
    let minted = Reply::created().header("X-Own", &format!("{kind}-header")).body(body);
    t.u.plan("/t", [minted.header("Set-Cookie", &format!("s={kind}-cookie"))]);
    let ask = Ask::post(format!(r#"{{"card":"{kind}-request"}}"#)).key(format!("{kind}-key"));
    let ask = ask.replaced("Authorization", &format!("Bearer {kind}-credential"));
    let first = t.send(&ask).await.fresh(201);
    assert_eq!(first.all("set-cookie"), [format!("s={kind}-cookie")]);
    let retry = t.send(&ask).await;
    assert_eq!((retry.status, &retry.body), (201, &first.body));
    assert_eq!(retry.all("x-own"), [format!("{kind}-header")]);
    t.send(&ask.saying(B2)).await.problem(422, "idempotency_key_reused");
}

/// The last parts of the canaries that are kept for retries; those that nobody stores.
const KEPT: [&str; 3] = ["key", "answer", "header"];
const NEVER_KEPT: [&str; 3] = ["request", "credential", "cookie"];

/// None of the sealed canaries is there; of the clear ones those are that must be kept, so that the search is known to find.
fn judge(folder: &Path) {
    let has = |word: String| is_below(folder, &word);
    for part in KEPT {
        assert!(!has(format!("sealedcanary-{part}")), "{part} can be read in {folder:?}");
        assert!(has(format!("clearcanary-{part}")), "{part} is not looked for rightly");
    }
    for part in NEVER_KEPT {
        assert!(
            !has(format!("sealedcanary-{part}")) && !has(format!("clearcanary-{part}")),
            "{part}"
        );
    }
}

/// Whether the word is in any file below the folder. Not searched for here: without optimisation that takes long.
fn is_below(folder: &Path, word: &str) -> bool {
    let mut grep = std::process::Command::new("grep");
    let searched = grep.args(["-rqasF", "-D", "skip", "--", word]).arg(folder).status();
    searched.expect("grep runs").success()
}

// R184, threats H1, H5 and H6
async fn r184_nothing_secret_is_in_a_sqlite_file_or_a_log(on: Kind) {
    let (keys, both) = (Keys::new(), tempfile::tempdir().unwrap());
    for (kind, seal) in [("sealedcanary", Some(keys.seal(&["one"]))), ("clearcanary", None)] {
        let t = on.start(seal.as_slice()).await;
        sing(&t, kind).await;
        let stored = both.path().join(kind);
        std::fs::create_dir(&stored).unwrap();
        for name in ["onlyonce.db", "onlyonce.db-wal"] {
            std::fs::copy(t.folder().join(name), stored.join(name)).unwrap();
        }
        let logs = t.end_and_read_logs().await;
        assert!(!logs.contains("canary"), "{logs}");
    }
    judge(both.path());
}

// R184, threats H1 and H6
async fn r184_nothing_secret_is_in_the_files_of_postgres_and_its_filter(on: Kind) {
    let keys = Keys::new();
    let (postgres, redis) =
        block_in_place(|| (Postgres::start(), Redis::start(&["--appendonly yes"])));
    for (kind, seal) in [("sealedcanary", Some(keys.seal(&["one"]))), ("clearcanary", None)] {
        let store = [Set::Store(postgres.database()), Set::Filter(redis.url())];
        let t = on.start(&store.into_iter().chain(seal).collect::<Vec<_>>()).await;
        sing(&t, kind).await;
        let kept = async || t.metric("onlyonce_filter_kept_total").await > 0;
        within("a copy in the filter", async { while !kept().await {} }).await;
        let logs = t.end_and_read_logs().await;
        assert!(!logs.contains("canary"), "{logs}");
    }
    block_in_place(|| postgres.sql("postgres", "CHECKPOINT"));
    judge(&postgres.data());
    judge(saved(&redis));
}

// R184, threat H1
async fn r184_nothing_secret_is_in_the_files_of_redis(on: Kind) {
    let (keys, redis) = (Keys::new(), block_in_place(|| Redis::start(&["--appendonly yes"])));
    for (kind, seal) in [("sealedcanary", Some(keys.seal(&["one"]))), ("clearcanary", None)] {
        let store = Set::Store(redis.url());
        let t = on.start(&[store].into_iter().chain(seal).collect::<Vec<_>>()).await;
        sing(&t, kind).await;
    }
    judge(saved(&redis));
}

/// The folder of a Redis, with everything that it has in files: a dump beside its log of writes.
fn saved(redis: &Redis) -> &Path {
    assert_eq!(block_in_place(|| redis.command("SAVE")), "+OK");
    redis.folder()
}

// R184, threat H2
async fn r184_without_its_key_an_answer_is_not_kept_and_nothing_runs_again(on: Kind) {
    let keys = Keys::new();
    let mut t = on.start(&[keys.seal(&["one"])]).await;
    let first = t.post(K1, B1).await.fresh(201);
    for lost in [Some(keys.seal(&["two"])), None] {
        t.reconfigure(lost.as_slice()).await;
        let retry = t.post(K1, B1).await;
        let told = retry.problem(410, "idempotency_response_unavailable");
        assert_eq!(told["original_status"], 201);
        t.post(K1, B2).await.problem(422, "idempotency_key_reused");
        assert!(t.metric("onlyonce_unopened_total").await > 0);
    }
    t.reconfigure(&[keys.seal(&["two", "one"])]).await;
    t.post(K1, B1).await.replays(&first);
    let second = t.post(K2, B1).await.fresh(201);
    t.reconfigure(&[keys.seal(&["two"])]).await;
    t.post(K2, B1).await.replays(&second);
    assert_eq!(t.n(), 2);
}

// R184, threat H3
async fn r184_answers_that_were_exchanged_in_the_database_do_not_open(on: Kind) {
    let keys = Keys::new();
    let postgres = block_in_place(Postgres::start);
    let url = postgres.database();
    let profile = [Set::Store(url.clone()), keys.seal(&["one"])];
    let mut t = on.start(&profile).await;
    let first = t.post(K1, B1).await.fresh(201);
    t.post(K2, B1).await.fresh(201);
    t.post("order-3", B1).await.fresh(201);
    block_in_place(|| postgres.sql(&url, EXCHANGE));
    t.kill_and_restart().await;
    t.post(K2, B1).await.problem(410, "idempotency_response_unavailable");
    t.post("order-3", B1).await.problem(410, "idempotency_response_unavailable");
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 3);
}

/// Of the two operations that were claimed last.
const EXCHANGE: &str = "WITH last AS (SELECT id, body FROM onlyonce.record ORDER BY first_claimed_at DESC LIMIT 2)
    UPDATE onlyonce.record r SET body = other.body FROM last me, last other WHERE r.id = me.id AND me.id <> other.id";

/// Runs `onlyonce keys` on the gateway.
async fn keys(t: &Subject, arguments: &[&str]) -> Output {
    let admin = format!("http://{}", t.admin());
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.arg("keys").args(arguments).args(["--admin", &admin]);
    within("the command", command.output()).await.unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

// R184, threat H4
async fn r184_an_erased_answer_is_gone_and_its_outcome_is_not(on: Kind) {
    let mut t = on.start(&[Set::Toml("[audit]\nkeep = \"1d\"")]).await;
    sing(&t, "clearcanary").await;
    let ask = Ask::post(r#"{"card":"clearcanary-request"}"#).key("clearcanary-key");
    let ask = ask.replaced("Authorization", "Bearer clearcanary-credential");
    let shown = said(&keys(&t, &["show", "clearcanary-key", "--format", "json"]).await);
    let id = serde_json::from_str::<serde_json::Value>(&shown).unwrap()["id"].clone();
    let id = id.as_str().unwrap();
    let without_reason = keys(&t, &["erase", "clearcanary-key"]).await;
    assert_eq!(without_reason.status.code(), Some(2));
    let erased = said(&keys(&t, &["erase", "clearcanary-key", "--reason", "asked to"]).await);
    assert_eq!(erased, format!("erased: {id}\n"));
    let retry = t.send(&ask).await;
    assert_eq!(retry.problem(410, "idempotency_response_unavailable")["original_status"], 201);
    t.send(&ask.clone().saying(B2)).await.problem(422, "idempotency_key_reused");
    let shown = said(&keys(&t, &["show", id]).await);
    assert!(shown.contains("(erased)") && shown.contains("erased"), "{shown}");
    assert!(shown.contains("asked to"), "who and why are in the trail: {shown}");
    t.kill_and_restart().await;
    t.send(&ask).await.problem(410, "idempotency_response_unavailable");
    assert_eq!(t.n(), 1);
    let unknown = keys(&t, &["erase", "clearcanary-key", "--reason", "again"]).await;
    assert_eq!(unknown.status.code(), Some(1), "no key has this text any more");
}

// R184, threat H4
async fn r184_an_erased_answer_is_gone_from_the_filter_too(on: Kind) {
    let (postgres, redis) = block_in_place(|| (Postgres::start(), Redis::start(&[])));
    let profile = [Set::Store(postgres.database()), Set::Filter(redis.url())];
    let mut t = on.start(&profile).await;
    t.post(K1, B1).await.fresh(201);
    let is_kept = || block_in_place(|| redis.command("KEYS oo:filter/*")) != "*0";
    until("a copy in the filter", is_kept).await;
    said(&keys(&t, &["erase", K1, "--reason", "asked to"]).await);
    for _ in 0..2 {
        t.post(K1, B1).await.problem(410, "idempotency_response_unavailable");
        t.kill_and_restart().await;
    }
    assert_eq!(t.n(), 1);
}

// R183
async fn r183_keys_are_found_by_their_text_under_seal_and_secret(on: Kind) {
    let seal = Keys::new();
    let t = on.start(&[Set::Secret, seal.seal(&["one"])]).await;
    t.post(K1, B1).await.fresh(201);
    t.post(K2, B1).await.fresh(201);
    let shown = said(&keys(&t, &["show", K1]).await);
    assert!(shown.contains(K1), "{shown}");
    let listed = said(&keys(&t, &["list", "--key", K2]).await);
    assert!(listed.contains(K2) && !listed.contains(K1), "{listed}");
}
