use super::*;
use crate::clock::as_ms;
use crate::steps::StepsState;
use crate::steps::rules::Rules;

fn open(directory: &tempfile::TempDir) -> Connection {
    let db = Connection::open(directory.path().join("shop.db")).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
    db
}

fn draft() -> Draft {
    Draft {
        id: "11111111-1111-1111-1111-111111111111".to_owned(),
        name: "charge".to_owned(),
        scope: "POST /charges".to_owned(),
        principal: "acct_1".to_owned(),
        key: "order-4711".to_owned(),
        fingerprint: b"same".to_vec(),
        ttl_ms: 60_000.0,
        request: "null".to_owned(),
        revision: 7,
    }
}

fn taken_by(token: Token) -> Chosen {
    let next = Next {
        state: StepsState::Running,
        token: Some(token),
        due_ms: Some(as_ms(Rules::DEFAULT.lease)),
        attempts: 2,
        calling: None,
        quiet_ms: 0,
        error: None,
    };
    Chosen { next, taken: Some(token) }
}

#[tokio::test]
async fn an_owner_that_renews_its_lease_before_it_is_taken_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let shop = SqliteDatabase::new(open(&directory)).unwrap();
    let (owner, other) = (Token::random(), Token::random());
    assert!(shop.insert(&draft(), owner, 0, None).await.unwrap());
    let names = ["charge".to_owned()];
    let renewed = |held: &Held| {
        assert!(tables::renew(&open(&directory), &held.id, owner, 60_000).is_ok_and(|kept| kept));
        Some(taken_by(other))
    };
    assert!(shop.take_due(&names, Vec::new(), 1, renewed).await.unwrap().taken.is_empty());
    // Late again, and silent.
    assert!(shop.renew(&draft().id, owner, 0).await.unwrap());
    let due = shop.take_due(&names, Vec::new(), 1, |_| Some(taken_by(other))).await.unwrap();
    assert_eq!(due.taken.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_comes_back_is_not_waited_for_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let shop = SqliteDatabase::new(open(&directory)).unwrap();
    let _kept = shop.connection.lock().await;
    let hour = Duration::from_secs(3600);
    let loaded = timeout(hour, shop.load(&draft().id)).await.expect("it waits");
    assert!(matches!(loaded, Err(StepsError::Database(_))), "{loaded:?}");
    let begun = timeout(hour, shop.begin(&draft().id, 0)).await.expect("it waits");
    assert!(matches!(begun, Err(Reason::Failed(_))));
}
