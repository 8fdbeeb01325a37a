//! What the server may say instead of an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onlyonce::clock::StoreTime;
use onlyonce::record::{State, StateKind, StateSet, Token};
use onlyonce::store::redis::{RedisOpenError, RedisOptions, RedisStore};
use onlyonce::store::{
    Draft, Fault, Guard, Maintain, Next, Scan, Store, StoreError, Swap, Takeover,
};
use servers::Redis;
use tokio::task::JoinSet;

use crate::lab::{
    completed, done, draft, id, is_not_done, key, once_up, open, raw, settled, won, write,
};

// threat D6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_the_server_forgets_under_load_are_sent_again() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut connection, over) = (raw(&server), is_over.clone());
    let flusher = std::thread::spawn(move || {
        let mut flushes = 0;
        while !over.load(Ordering::Relaxed) {
            redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
            flushes += 1;
        }
        flushes
    });
    let mut lanes = JoinSet::new();
    for number in 0..400 {
        let store = store.clone();
        lanes.spawn(async move { settled(&store, &draft(number), "kept").await });
    }
    let records = lanes.join_all().await;
    is_over.store(true, Ordering::Relaxed);
    assert!(flusher.join().unwrap() > 0);
    assert!(records.iter().all(|record| record.state.kind() == StateKind::Completed));
}

// threats D2, D6
#[tokio::test]
async fn a_primary_that_was_demoted_neither_writes_nor_reads() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let before = settled(&store, &draft(1), "before").await;
    let mut replicaof = redis::cmd("REPLICAOF");
    replicaof.arg("127.0.0.1").arg(1).exec(&mut raw(&server)).unwrap();
    for _ in 0..3 {
        assert!(is_not_done(&store.load(draft(1).id).await), "a replica may be behind");
        assert!(is_not_done(&store.claim(draft(2)).await));
        assert!(is_not_done(&write(&store, &draft(1), completed("again")).await));
    }
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut raw(&server)).unwrap();
    let seen = once_up(async || store.load(draft(1).id).await).await;
    assert_eq!(seen.record, Some(before));
    assert_eq!(store.load(id(2)).await.unwrap().record, None);
}

// threat D2
#[tokio::test]
async fn a_replica_is_not_opened() {
    let server = Redis::start(&["--replicaof", "127.0.0.1", "1"]);
    let refused = RedisStore::open(&server.url()).await;
    assert!(matches!(refused, Err(RedisOpenError::Replica)), "{refused:?}");
}

#[tokio::test]
async fn a_cluster_is_not_opened() {
    let server = Redis::start(&["--cluster-enabled", "yes"]);
    let refused = RedisStore::open(&server.url()).await;
    assert!(matches!(refused, Err(RedisOpenError::Cluster)), "{refused:?}");
}

#[tokio::test]
async fn what_is_no_redis_or_is_not_there_is_not_opened() {
    let mut server = Redis::start(&[]);
    server.kill();
    let refused = RedisStore::open(&server.url()).await;
    assert!(matches!(refused, Err(RedisOpenError::Unreachable(_))), "{refused:?}");
    let refused = RedisStore::open("no address").await;
    assert!(matches!(refused, Err(RedisOpenError::Address(_))), "{refused:?}");
}

/// Killed while many write: what was answered is there, and what was not is resolved by repeating it.
// R123, R124; threats D1, D6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_answered_is_lost_when_redis_is_killed() {
    let mut server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = open(&server).await;
    assert!(store.promise().is_durable());
    for round in 0..3 {
        let mut lanes = JoinSet::new();
        for lane in 0..16 {
            lanes.spawn(settle_until_down(store.clone(), round * 1_000_000 + lane * 10_000));
        }
        while lanes.is_empty()
            || store.load(id(round * 1_000_000 + 20)).await.unwrap().record.is_none()
        {}
        server.kill();
        let lanes = lanes.join_all().await;
        server.start_again();
        for lane in lanes {
            for settled in lane.settled {
                let seen = once_up(async || store.load(settled.id).await).await;
                let record = seen.record.expect("what was answered is there");
                assert!(matches!(record.state, State::Completed { .. }));
            }
            let seen = once_up(async || store.claim(lane.last.clone()).await).await;
            let record = seen.record.expect("a claim leaves a record");
            assert_eq!(
                record.token, lane.last.token,
                "it is ours, by the first copy or the second"
            );
            done(&store, &lane.last, completed("kept")).await;
        }
    }
}

struct Lane {
    settled: Vec<Draft>,
    /// Claimed or settled without an answer, or not at all.
    last: Draft,
}

async fn settle_until_down(store: RedisStore, first: u32) -> Lane {
    let mut settled = Vec::new();
    for number in first.. {
        let last = draft(number);
        let Ok(seen) = store.claim(last.clone()).await else {
            return Lane { settled, last };
        };
        assert!(seen.mine);
        if write(&store, &last, completed("kept")).await.is_err() {
            return Lane { settled, last };
        }
        settled.push(last);
    }
    unreachable!("numbers do not end before the server does")
}

/// It is documented: a Redis that is flushed has forgotten, and the store is best effort.
// threat D9
#[tokio::test]
async fn a_redis_that_is_flushed_has_forgotten() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    settled(&store, &draft(1), "before").await;
    redis::cmd("FLUSHALL").exec(&mut raw(&server)).unwrap();
    assert_eq!(store.load(id(1)).await.unwrap().record, None);
    won(&store, &draft(1)).await;
}

// threat D3
#[tokio::test]
async fn without_memory_nothing_is_claimed_and_what_is_there_is_kept() {
    let server = Redis::start(&["--maxmemory-policy", "noeviction"]);
    let store = open(&server).await;
    let (running, kept) = (draft(1), draft(2));
    won(&store, &running).await;
    let record = settled(&store, &kept, "kept").await;
    set(&server, "maxmemory", "1");
    let claim = store.claim(draft(3)).await;
    assert!(is_not_done(&claim), "{claim:?}");
    let settle = write(&store, &running, completed("late")).await;
    assert!(is_not_done(&settle), "{settle:?}");
    assert_eq!(store.load(kept.id).await.unwrap().record, Some(record));
    done(&store, &running, Next::Absent).await;
    set(&server, "maxmemory", "0");
    assert_eq!(store.load(id(3)).await.unwrap().record, None, "what was refused was not done");
    won(&store, &draft(3)).await;
}

// threat D6
#[tokio::test]
async fn a_server_that_is_busy_with_a_script_does_nothing_of_ours() {
    let server = Redis::start(&["--busy-reply-threshold", "20"]);
    let store = open(&server).await;
    let mut busy = raw(&server);
    let endless = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut busy)
    });
    let mut number = 1;
    let refused = loop {
        match store.claim(draft(number)).await {
            Ok(seen) => assert!(seen.mine),
            refused => break refused,
        }
        number += 1;
    };
    // Busy is not unreachable: with `store_down = "pass"` the request would run unguarded.
    assert!(matches!(refused, Err(Fault::NotDone(StoreError::Busy))), "{refused:?}");
    redis::cmd("SCRIPT").arg("KILL").exec(&mut raw(&server)).unwrap();
    assert!(endless.join().unwrap().is_err());
    assert_eq!(once_up(async || store.load(id(number)).await).await.record, None);
}

// R64
#[tokio::test]
async fn a_key_that_holds_something_else_is_unreadable_and_not_absent() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let draft = draft(1);
    let mut connection = raw(&server);
    redis::cmd("RPUSH").arg(key(draft.id)).arg("a list").exec(&mut connection).unwrap();
    unreadable(store.load(draft.id).await);
    unreadable(store.claim(draft.clone()).await);
    unreadable(write(&store, &draft, completed("no")).await);
    unreadable(write(&store, &draft, Next::Absent).await);
    redis::cmd("DEL").arg(key(draft.id)).exec(&mut connection).unwrap();
    for value in [&b""[..], b"\x02newer", &[0xff; 300]] {
        redis::cmd("SET").arg(key(draft.id)).arg(value).exec(&mut connection).unwrap();
        unreadable(store.load(draft.id).await);
        unreadable(store.claim(draft.clone()).await);
        unreadable(write(&store, &draft, Next::Absent).await);
    }
}

/// Every byte of a value, each flipped in its turn.
// R64, threat J11
#[tokio::test]
async fn no_flipped_byte_is_ever_read_or_written_over() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let draft = draft(1);
    settled(&store, &draft, "a whole answer").await;
    let mut connection = raw(&server);
    let whole: Vec<u8> = redis::cmd("GET").arg(key(draft.id)).query(&mut connection).unwrap();
    for at in 0..whole.len() {
        let mut value = whole.clone();
        value[at] ^= 1 << (at % 8);
        redis::cmd("SET").arg(key(draft.id)).arg(&value).exec(&mut connection).unwrap();
        unreadable(store.load(draft.id).await);
        unreadable(write(&store, &draft, completed("a whole answer")).await);
        unreadable(write(&store, &draft, Next::Absent).await);
        let left: Vec<u8> = redis::cmd("GET").arg(key(draft.id)).query(&mut connection).unwrap();
        assert_eq!(left, value, "byte {at}");
    }
}

fn unreadable<T: std::fmt::Debug>(answer: Result<T, Fault>) {
    assert!(matches!(answer, Err(Fault::NotDone(StoreError::Unreadable(_)))), "{answer:?}");
}

/// The index is written before the record: if it cannot be, the record is not.
#[tokio::test]
async fn a_claim_whose_index_cannot_be_written_is_not_done() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let draft = draft(1);
    redis::cmd("SET").arg("oo:running").arg("text").exec(&mut raw(&server)).unwrap();
    let claim = store.claim(draft.clone()).await;
    assert!(is_not_done(&claim), "{claim:?}");
    assert_eq!(store.load(draft.id).await.unwrap().record, None);
    redis::cmd("DEL").arg("oo:running").exec(&mut raw(&server)).unwrap();
    won(&store, &draft).await;
    redis::cmd("DEL").arg("oo:running").exec(&mut raw(&server)).unwrap();
    redis::cmd("SET").arg("oo:running").arg("text").exec(&mut raw(&server)).unwrap();
    let before = store.load(draft.id).await.unwrap().record;
    let settle = write(&store, &draft, completed("no")).await;
    assert!(is_not_done(&settle), "{settle:?}");
    assert_eq!(store.load(draft.id).await.unwrap().record, before);
}

/// A write against the revision that is there is a write, though the record is already in that state.
#[tokio::test]
async fn a_write_that_changes_nothing_but_the_revision_changes_that() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let draft = draft(1);
    won(&store, &draft).await;
    done(&store, &draft, Next::Unknown { since: None }).await;
    let unknown = store.load(draft.id).await.unwrap().record.unwrap();
    let guard = Guard::Unchanged(unknown.revision());
    let to = Next::Unknown { since: None };
    let first = store.swap(draft.id, guard, to.clone()).await.unwrap();
    let Swap::Done(revision) = first else { panic!("{first:?}") };
    assert_eq!((revision.token, revision.count), (draft.token, unknown.count + 1));
    let again = store.swap(draft.id, guard, to).await.unwrap();
    assert_eq!(again, Swap::Done(revision), "a repeat of it is done already");
}

/// Running and unknown records never expire; completed and released ones do, unless their time to live is endless.
// R111, R112, threat I6
#[tokio::test]
async fn only_records_that_have_ended_have_a_time_to_live() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let ttl_of = |draft: &Draft| -> i64 {
        redis::cmd("PTTL").arg(key(draft.id)).query(&mut raw(&server)).unwrap()
    };
    let a_day = 86_300_000..=86_400_000;
    let (ended, endless) = (draft(1), Draft { ttl_ms: i64::MAX, ..draft(2) });
    for owned in [&ended, &endless] {
        won(&store, owned).await;
        assert_eq!(ttl_of(owned), -1);
        done(&store, owned, Next::Unknown { since: None }).await;
        assert_eq!(ttl_of(owned), -1);
        done(&store, owned, Next::Released { expires_at: None }).await;
        assert_eq!(a_day.contains(&ttl_of(owned)), owned.id == ended.id);
        done(&store, owned, completed("kept")).await;
        assert_eq!(a_day.contains(&ttl_of(owned)), owned.id == ended.id);
    }
    let taken = retaken(&store, &ended).await;
    assert_eq!(ttl_of(&taken), -1, "the new attempt runs");
    for name in ["oo:running", "oo:unknown"] {
        let ttl: i64 = redis::cmd("PTTL").arg(name).query(&mut raw(&server)).unwrap();
        assert!(ttl < 0, "{name}");
    }
    let far = StoreTime::from_ms(i64::MAX - 1);
    done(&store, &taken, Next::Released { expires_at: Some(far) }).await;
    assert_eq!(ttl_of(&taken), -1, "Redis would refuse a moment so late");
}

/// A new attempt of the record of `owned`.
async fn retaken(store: &RedisStore, owned: &Draft) -> Draft {
    let record = store.load(owned.id).await.unwrap().record.unwrap();
    let draft = Draft { token: Token::random(), ..owned.clone() };
    let attempt =
        Takeover { draft: draft.clone(), attempt: 2, taken_from: None, first_claimed_at: None };
    let guard = Guard::Unchanged(record.revision());
    let to = Next::Running(Box::new(attempt));
    let swap = store.swap(owned.id, guard, to).await;
    assert!(matches!(swap, Ok(Swap::Done(_))), "{swap:?}");
    draft
}

/// The sorted sets list what is running and what is unknown, by the moments that an operator looks for.
#[tokio::test]
async fn the_sets_list_running_and_unknown_records_and_nothing_else() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let owned = draft(1);
    let listed = |set: &str| -> Vec<(String, i64)> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(set).arg(0).arg(-1).arg("WITHSCORES").query(&mut raw(&server)).unwrap()
    };
    let name = key(owned.id).split_off(3);
    won(&store, &owned).await;
    let State::Running { lease_until } = store.load(owned.id).await.unwrap().record.unwrap().state
    else {
        panic!("it runs");
    };
    assert_eq!(listed("oo:running"), [(name.clone(), lease_until.as_ms())]);
    done(&store, &owned, Next::Unknown { since: Some(StoreTime::from_ms(5)) }).await;
    assert_eq!((listed("oo:running"), listed("oo:unknown")), (vec![], vec![(name, 5)]));
    done(&store, &owned, completed("kept")).await;
    assert_eq!((listed("oo:running"), listed("oo:unknown")), (vec![], vec![]));
}

/// Thousands of them, claimed in few milliseconds: many share the end of their lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_scan_lists_each_record_once_and_drops_ids_without_a_record() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let claims = (0..3_000).map(|number| store.claim(draft(number)));
    assert!(futures_util::future::join_all(claims).await.iter().all(Result::is_ok));
    redis::cmd("DEL").arg(key(id(7))).exec(&mut raw(&server)).unwrap();
    for (states, limit) in [(&[StateKind::Running][..], 37), (&StateKind::ALL, 500)] {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let query = Scan { states: StateSet::of(states), after, limit };
            let page = store.scan(query).await.unwrap();
            assert!(page.records.len() <= limit);
            found.extend(page.records.into_iter().map(|(id, _)| id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        found.sort();
        let mut expected: Vec<_> = (0..3_000).filter(|n| *n != 7).map(id).collect();
        expected.sort();
        assert_eq!(found.len(), expected.len());
        assert!(found == expected, "each once");
    }
    let left: u32 = redis::cmd("ZCARD").arg("oo:running").query(&mut raw(&server)).unwrap();
    assert_eq!(left, 2_999);
}

/// Millions of foreign keys are no reason to give up without having got anywhere.
#[tokio::test]
async fn a_page_ends_after_so_many_keys_that_are_not_wanted() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let foreign = "for i = 1, 40000 do redis.call('SET', 'foreign:' .. i, '') end";
    redis::cmd("EVAL").arg(foreign).arg(0).exec(&mut raw(&server)).unwrap();
    settled(&store, &draft(1), "kept").await;
    let states = StateSet::of(&[StateKind::Completed]);
    let (mut found, mut empty, mut after) = (Vec::new(), 0, None);
    loop {
        let page = store.scan(Scan { states, after, limit: 10 }).await.unwrap();
        empty += usize::from(page.records.is_empty() && page.next.is_some());
        found.extend(page.records);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(empty >= 1, "the keys are far more than one page looks at");
    assert_eq!(found.len(), 1);
}

/// Its records have other names: they would be absent, and their operations would run again.
#[tokio::test]
async fn a_database_of_an_earlier_build_is_refused_with_a_sentence() {
    for marker in ["oo:{0}:beat", "oo:{0}:clock", "oo:{0}:check"] {
        let server = Redis::start(&[]);
        redis::cmd("SET").arg(marker).arg("0 0 0").exec(&mut raw(&server)).unwrap();
        let refused = RedisStore::open(&server.url()).await;
        let Err(error @ RedisOpenError::OlderFormat { .. }) = refused else {
            panic!("{marker}: {refused:?}");
        };
        assert!(error.to_string().contains("the format of an earlier build"), "{error}");
        let other = RedisOptions::new().with_prefix("other");
        assert!(RedisStore::open_with(&server.url(), other).await.is_ok());
        let names: Vec<String> = redis::cmd("KEYS").arg("oo:*").query(&mut raw(&server)).unwrap();
        assert_eq!(names, [marker], "nothing in it was changed");
    }
}

#[tokio::test]
async fn a_closed_store_takes_nothing_more() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    settled(&store, &draft(1), "before").await;
    store.clone().close().await;
    let closed = store.load(id(1)).await;
    assert!(matches!(closed, Err(Fault::NotDone(StoreError::Closed))), "{closed:?}");
    let query = Scan { states: StateSet::of(&[StateKind::Running]), after: None, limit: 1 };
    assert!(store.scan(query).await.is_err());
    assert!(open(&server).await.load(id(1)).await.unwrap().record.is_some());
}

fn set(server: &Redis, name: &str, value: &str) {
    redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(&mut raw(server)).unwrap();
}
