//! Every state of Redis with every state of the authority: it ends as the authority says, but for a
//! completed entry within its own lifetime, which replays.

use std::time::Duration;

use onlyonce::engine::{Asked, Decision, decide};
use onlyonce::fingerprint::Fingerprint;
use onlyonce::policy::Recovery;
use onlyonce::record::Token;
use onlyonce::store::conformance::ManualClock;
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::{Draft, Next, Seen, Store};
use servers::Redis;

use crate::filter::{Memory, copied, entry, entry_key, node, put};
use crate::lab::{completed, done, draft, raw, response, until, won};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Filter {
    Absent,
    SameAttempt,
    OlderAttempt,
    OtherFingerprint,
    Expired,
    Garbage,
    OtherVersion,
    Forgotten,
    Hung,
}

const FILTERS: [Filter; 9] = [
    Filter::Absent,
    Filter::SameAttempt,
    Filter::OlderAttempt,
    Filter::OtherFingerprint,
    Filter::Expired,
    Filter::Garbage,
    Filter::OtherVersion,
    Filter::Forgotten,
    Filter::Hung,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Authority {
    Absent,
    Running,
    Unknown,
    Released,
    Completed,
    CompletedOther,
    OtherFingerprint,
    Expired,
}

const AUTHORITIES: [Authority; 8] = [
    Authority::Absent,
    Authority::Running,
    Authority::Unknown,
    Authority::Released,
    Authority::Completed,
    Authority::CompletedOther,
    Authority::OtherFingerprint,
    Authority::Expired,
];

// threat D7
#[tokio::test]
async fn every_pair_ends_as_the_authority_says_but_for_a_living_entry_which_replays() {
    let server = Redis::start(&[]);
    let mut replays = 0;
    for filter in FILTERS {
        for (number, authority) in (1..).zip(AUTHORITIES) {
            let number = filter as u32 * 100 + number;
            let decision = pair(&server, filter, authority, number).await;
            replays += usize::from(decision == Decision::Replay(response("copied")));
        }
    }
    assert_eq!(replays, 2 * AUTHORITIES.len() + 7, "two filters always, the others where it is so");
}

async fn pair(server: &Redis, filter: Filter, authority: Authority, number: u32) -> Decision {
    let what = format!("{filter:?} before {authority:?}");
    let clock = ManualClock::new();
    let (store, alone) = (node(server, &clock).await, MemoryStore::with_clock(clock.clone()));
    let owner = Draft { token: Token::from_bytes([5; 16]), ..draft(number) };
    for memory in [store.authority(), &alone] {
        prepare(memory, authority, &owner).await;
    }
    fill(server, &clock, filter, &owner).await;
    clock.advance(Duration::from_secs(20));
    let now = store.load(draft(0).id).await.unwrap().now;
    let asked = Draft { not_after: now.plus_ms(10_000), ..draft(number) };
    if filter == Filter::Hung {
        server.pause();
    }
    let seen = store.claim(asked.clone()).await.unwrap();
    let expected = alone.claim(asked.clone()).await.unwrap();
    let decision = decided(&seen, &asked);
    if matches!(filter, Filter::SameAttempt | Filter::OlderAttempt) {
        assert_eq!(decision, Decision::Replay(response("copied")), "{what}");
        let left = store.authority().load(asked.id).await.unwrap().record;
        assert!(
            left.is_none_or(|record| record.token != asked.token),
            "{what}: nothing was claimed"
        );
    } else {
        assert_eq!(decision, decided(&expected, &asked), "{what}");
        assert_eq!(seen, expected, "{what}");
        let is_execute = matches!(decision, Decision::Execute { .. });
        assert_eq!(is_execute, authority == Authority::Absent, "{what}");
    }
    loads(&store, &alone, filter, &asked, &what).await;
    server.resume();
    decision
}

/// A load sees the living entry, whatever the request was; else what the authority has.
async fn loads(store: &Memory, alone: &MemoryStore, filter: Filter, asked: &Draft, what: &str) {
    let seen = store.load(asked.id).await.unwrap();
    assert!(!seen.mine);
    match filter {
        Filter::SameAttempt | Filter::OlderAttempt | Filter::OtherFingerprint => {
            let record = seen.record.unwrap();
            assert_eq!(record.response(), Some(&response("copied")), "{what}");
        }
        _ => assert_eq!(seen, alone.load(asked.id).await.unwrap(), "{what}"),
    }
}

fn decided(seen: &Seen, asked: &Draft) -> Decision {
    decide(seen, Asked { draft: asked, recovery: Recovery::Hold })
}

/// Brings the authority to its state; its clock has not moved since.
async fn prepare(store: &MemoryStore, authority: Authority, owner: &Draft) {
    let settle = |draft: Draft, text| async move {
        won(store, &draft).await;
        done(store, &draft, completed(text)).await;
    };
    match authority {
        Authority::Absent => {}
        Authority::Running => won(store, owner).await,
        Authority::Unknown => {
            won(store, owner).await;
            done(store, owner, Next::Unknown { since: None }).await;
        }
        Authority::Released => {
            won(store, owner).await;
            done(store, owner, Next::Released { expires_at: None }).await;
        }
        Authority::Completed => settle(owner.clone(), "copied").await,
        Authority::CompletedOther => {
            settle(Draft { token: Token::from_bytes([6; 16]), ..owner.clone() }, "another").await;
        }
        Authority::OtherFingerprint => {
            settle(Draft { fingerprint: OTHER, ..owner.clone() }, "another").await;
        }
        Authority::Expired => settle(Draft { ttl_ms: 1_000, ..owner.clone() }, "another").await,
    }
}

/// Brings Redis to its state, by a node of another deployment where an entry is needed.
async fn fill(server: &Redis, clock: &ManualClock, filter: Filter, owner: &Draft) {
    let token = Token::from_bytes([4; 16]);
    let copy = match filter {
        Filter::Absent => return,
        Filter::Garbage => return put(server, owner.id, b"garbage of some length"),
        Filter::Forgotten => return put(server, owner.id, b"oF\0"),
        Filter::SameAttempt | Filter::OtherVersion | Filter::Hung => owner.clone(),
        Filter::OlderAttempt => Draft { token, ..owner.clone() },
        Filter::OtherFingerprint => Draft { fingerprint: OTHER, ..owner.clone() },
        Filter::Expired => Draft { ttl_ms: 5_000, ..owner.clone() },
    };
    let writer = node(server, clock).await;
    copied(&writer, server, &copy, "copied").await;
    until(async || entry(server, owner.id).is_some_and(|entry| entry.len() > 3)).await;
    let mut bytes = entry(server, owner.id).unwrap();
    if filter == Filter::OtherVersion {
        bytes[2] = 2;
    }
    put(server, owner.id, &bytes);
    let ttl: i64 = redis::cmd("PTTL").arg(entry_key(owner.id)).query(&mut raw(server)).unwrap();
    assert_eq!(ttl, -1, "it does not expire by itself while the test looks at it");
}

const OTHER: Fingerprint = Fingerprint { version: 1, canonical: [70; 32], raw: [80; 32] };
