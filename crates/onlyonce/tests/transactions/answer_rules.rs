//! What the database takes for an answer, from a program and from a person who writes to the table by hand.

use crate::lab::Lab;

const BEGIN: &str = "SELECT outcome FROM onlyonce.begin('s', 'p', 'k', '\\x01')";
const COMPLETED: &str = "
    BEGIN;
    SELECT onlyonce.complete((SELECT token FROM onlyonce.begin('s', 'p', 'k', '\\x01')), 201, '{}', 'done');
    COMMIT";

/// The SQLSTATE of the error by which these statements end.
async fn state_of(lab: &Lab, statements: &str) -> String {
    let (client, connection) =
        tokio_postgres::connect(&lab.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let error = client.batch_execute(statements).await.unwrap_err();
    // The server tells the error before it gives up the locks of the transaction.
    client.batch_execute("ROLLBACK").await.unwrap();
    error.code().unwrap().code().to_owned()
}

#[tokio::test]
async fn what_is_no_answer_is_refused_before_the_commit() {
    let lab = Lab::start().await;
    for (answer, state) in
        [("99", "23514"), ("600", "23514"), ("200, '[]'", "23514"), ("NULL", "OO001")]
    {
        let complete = format!(
            "BEGIN; SELECT onlyonce.complete((SELECT token FROM onlyonce.begin('s', 'p', 'k', '\\x01')), {answer})"
        );
        assert_eq!(state_of(&lab, &complete).await, state, "{answer}");
    }
    assert_eq!(lab.sql("SELECT count(*) FROM onlyonce.transactional"), "0");
}

#[tokio::test]
async fn an_answer_that_a_person_writes_follows_the_same_rules() {
    let lab = Lab::start().await;
    lab.sql(COMPLETED);
    for wrong in ["status = 99", "headers = '[]'"] {
        let write = format!("UPDATE onlyonce.transactional SET {wrong}");
        assert_eq!(state_of(&lab, &write).await, "23514", "{wrong}");
    }
    assert_eq!(lab.sql(BEGIN), "replay");
}

/// A part of an answer is never replayed, and the operation is not run again.
#[tokio::test]
async fn a_part_of_an_answer_is_told_to_a_person() {
    let lab = Lab::start().await;
    for column in ["status", "headers", "body", "expires_at"] {
        lab.sql("DELETE FROM onlyonce.transactional");
        lab.sql(COMPLETED);
        lab.sql(&format!("UPDATE onlyonce.transactional SET {column} = NULL"));
        assert_eq!(state_of(&lab, BEGIN).await, "OO006", "{column}");
    }
}
