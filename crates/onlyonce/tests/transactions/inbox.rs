//! Messages that are consumed once.

use onlyonce::transaction::{Consumed, MessageId, TransactionError, Transactions};
use sqlx::PgConnection;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::lab::{CHARGE, Lab, tiered};

async fn charge(connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query(CHARGE).execute(connection).await?.rows_affected())
}

// R140; threat J7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_delivered_many_times_at_once_has_one_effect() {
    let lab = Lab::start().await;
    let pool = lab.pool(4).await;
    for round in 0..tiered(50) {
        let mut deliveries = JoinSet::new();
        for _ in 0..8 {
            let pool = pool.clone();
            let id = MessageId::of_kafka_record("t1", "orders", 0, round as i64);
            deliveries.spawn(async move {
                let work = async |connection: &mut PgConnection| charge(connection).await;
                Transactions::new().consume(&pool, "mailer", &id, work).await.unwrap()
            });
        }
        let consumed = deliveries.join_all().await;
        assert_eq!(consumed.iter().filter(|it| **it == Consumed::Done(1)).count(), 1);
        assert_eq!(consumed.iter().filter(|it| **it == Consumed::Duplicate).count(), 7);
        assert_eq!(lab.charges(), (round + 1).to_string());
    }
}

// R140
#[tokio::test]
async fn a_message_whose_work_failed_is_done_by_the_next_delivery() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    let id = MessageId::of_cloud_event("/orders", "1");
    let failed = transactions.consume(&pool, "mailer", &id, async |connection| {
        charge(connection).await?;
        Err::<(), _>(sqlx::Error::WorkerCrashed)
    });
    assert!(matches!(failed.await, Err(TransactionError::NotDone(_))));
    assert_eq!(lab.charges(), "0");
    let done = transactions.consume(&pool, "mailer", &id, charge).await.unwrap();
    assert_eq!((done, lab.charges()), (Consumed::Done(1), "1".to_owned()));
    // R144: the same id of another source is another message, and so is the same message for another consumer.
    let other = MessageId::of_cloud_event("/refunds", "1");
    assert_eq!(
        transactions.consume(&pool, "mailer", &other, charge).await.unwrap(),
        Consumed::Done(1)
    );
    assert_eq!(
        transactions.consume(&pool, "ledger", &id, charge).await.unwrap(),
        Consumed::Done(1)
    );
    assert_eq!(lab.charges(), "3");
}

/// COMMIT after an error is a rollback, and Postgres calls that a success.
// R140
#[tokio::test]
async fn work_that_hides_an_error_or_ends_its_transaction_is_not_acknowledged() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    for hidden in ["SELECT 1 / 0", "ROLLBACK", "ROLLBACK; BEGIN"] {
        let consumed = transactions.consume(&pool, "mailer", "m", async |connection| {
            charge(connection).await?;
            let _ = sqlx::raw_sql(hidden).execute(connection).await;
            Ok::<_, sqlx::Error>(())
        });
        assert!(consumed.await.is_err(), "{hidden}");
        assert_eq!(lab.charges(), "0");
    }
    assert_eq!(
        transactions.consume(&pool, "mailer", "m", charge).await.unwrap(),
        Consumed::Done(1)
    );
}

// R140
#[tokio::test]
async fn a_message_without_an_id_is_refused_and_one_with_any_id_is_taken() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    for (consumer, id) in [("mailer", ""), ("", "m")] {
        let refused = transactions.consume(&pool, consumer, id, charge).await;
        assert!(matches!(refused, Err(TransactionError::NotDone(_))), "{refused:?}");
    }
    // Postgres has no text with a NUL in it.
    let id = MessageId::of_webhook("shop", "m\0");
    for expected in [Consumed::Done(1), Consumed::Duplicate] {
        assert_eq!(transactions.consume(&pool, "mailer", &id, charge).await.unwrap(), expected);
    }
    assert_eq!(lab.charges(), "1");
}

// R140
#[tokio::test]
async fn over_tokio_postgres_a_second_delivery_has_no_effect() {
    let lab = Lab::start().await;
    let (mut client, connection) = tokio_postgres::connect(&lab.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let transactions = Transactions::new();
    // R147: both attempts of an activity are one message.
    let id = MessageId::of_activity("run-1", "charge");
    for expected in [Consumed::Done(1), Consumed::Duplicate] {
        let consumed = transactions
            .consume_on(&mut client, "mailer", &id, async |tx| tx.execute(CHARGE, &[]).await)
            .await;
        assert_eq!(consumed.unwrap(), expected);
    }
    let hidden = transactions.consume_on(&mut client, "mailer", "other", async |tx| {
        let _ = tx.execute("SELECT 1 / 0", &[]).await;
        Ok::<_, tokio_postgres::Error>(())
    });
    assert!(hidden.await.is_err());
    assert_eq!(lab.charges(), "1");
}

// R140
#[cfg(feature = "sqlite")]
#[test]
fn over_rusqlite_a_second_delivery_has_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let mut db = rusqlite::Connection::open(folder.path().join("shop.db")).unwrap();
    let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON";
    db.execute_batch(settings).unwrap();
    db.execute_batch("CREATE TABLE charge (amount INTEGER)").unwrap();
    let transactions = Transactions::new();
    transactions.prepare(&db).unwrap();
    // R146
    let id = MessageId::of_kafka_header("orders", "4711");
    let charge = |db: &rusqlite::Connection| db.execute("INSERT INTO charge VALUES (7998)", []);
    let rolled_back = transactions.consume_in(&mut db, "mailer", &id, |db| {
        charge(db)?;
        db.execute_batch("ROLLBACK")
    });
    assert!(matches!(rolled_back, Err(TransactionError::EndedByWork(_))), "{rolled_back:?}");
    for expected in [Consumed::Done(1), Consumed::Duplicate] {
        let consumed = transactions.consume_in(&mut db, "mailer", &id, charge);
        assert_eq!(consumed.unwrap(), expected);
    }
    let failed = transactions.consume_in(&mut db, "mailer", "other", |db| {
        charge(db)?;
        Err::<(), _>(rusqlite::Error::QueryReturnedNoRows)
    });
    assert!(failed.is_err());
    for (consumer, id) in [("mailer", ""), ("", "m")] {
        let refused = transactions.consume_in(&mut db, consumer, id, charge);
        assert!(matches!(refused, Err(TransactionError::NotDone(_))), "{refused:?}");
    }
    let charges: i64 = db.query_row("SELECT count(*) FROM charge", [], |row| row.get(0)).unwrap();
    assert_eq!(charges, 1);
}
