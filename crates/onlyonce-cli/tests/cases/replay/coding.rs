//! Replays suit every client, whatever coding the first one liked.

use crate::answer::Answer;
use crate::client::Ask;
use crate::gzip::gunzip;
use crate::profile::D;
use crate::reply::{Content, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, K1, on_both};

on_both! { rep_14, rep_15 }

const TEXT: &str = "{\"text\":\"well worth compressing\"}";

async fn coding(on: Kind) -> Subject {
    let t = on.start(D).await;
    t.u.plan("/t", [Reply::created().content(Content::Coded(TEXT))]);
    t
}

fn accepting(codings: &str) -> Ask {
    Ask::post(B1).key(K1).header("Accept-Encoding", codings)
}

/// The text, by a coding that the client understands.
fn decoded(answer: &Answer, accepts_gzip: bool) -> Vec<u8> {
    match answer.all("content-encoding")[..] {
        [] | ["identity"] => answer.body.to_vec(),
        ["gzip"] if accepts_gzip => {
            assert!(answer.all("vary").concat().to_lowercase().contains("accept-encoding"));
            gunzip(&answer.body)
        }
        _ => panic!("an unwanted coding in {answer:?}"),
    }
}

// threat F8
async fn rep_14(on: Kind) {
    let t = coding(on).await;
    let first = t.send(&accepting("gzip, br")).await.fresh(201);
    assert_eq!(decoded(&first, true), TEXT.as_bytes());
    let again = t.send(&Ask::post(B1).key(K1)).await;
    assert_eq!(again.all("idempotent-replayed"), ["true"]);
    assert_eq!(decoded(&again, false), TEXT.as_bytes());
    assert_eq!(decoded(&t.send(&accepting("gzip;q=0")).await, false), TEXT.as_bytes());
    assert_eq!(t.n(), 1);
}

async fn rep_15(on: Kind) {
    let t = coding(on).await;
    t.send(&Ask::post(B1).key(K1)).await.fresh(201);
    let again = t.send(&accepting("gzip")).await;
    assert_eq!(again.all("idempotent-replayed"), ["true"]);
    assert_eq!(decoded(&again, true), TEXT.as_bytes());
    assert_eq!(t.n(), 1);
}
