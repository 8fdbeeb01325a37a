//! Answers that are not kept: they stream, and a retry is told so.

use crate::client::{Ask, Connection};
use crate::profile::{D, Set};
use crate::reply::{EVENT, Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, K1, on_both, within};

on_both! { rep_25, rep_26, an_answer_that_is_too_large_to_keep_is_410_for_a_retry }

/// A stream of which the first event has arrived, and the others wait for the gate.
async fn begun(on: Kind) -> (Subject, Gate, Connection) {
    let t = on.start(D).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::events(&gate)]);
    let mut connection = t.connect().await;
    connection.0.write(&Ask::post(B1).key(K1).bytes()).await.unwrap();
    let (_, status, headers) = within("the head", connection.head()).await.unwrap();
    assert_eq!((status, &headers["content-type"]), (200, &"text/event-stream".parse().unwrap()));
    let event = within("the first event", connection.0.chunk()).await.unwrap();
    assert_eq!(event.unwrap(), EVENT);
    (t, gate, connection)
}

/// The rest of the stream, to its proper end.
async fn rest(connection: &mut Connection) -> Vec<u8> {
    let mut rest = Vec::new();
    while let Some(chunk) = within("an event", connection.0.chunk()).await.unwrap() {
        rest.extend_from_slice(&chunk);
    }
    rest
}

async fn rep_25(on: Kind) {
    // The first event arrives while the upstream has not yet made the second.
    let (t, gate, mut connection) = begun(on).await;
    gate.open();
    assert_eq!(rest(&mut connection).await, [EVENT, EVENT].concat());
    assert_eq!(t.n(), 1);
}

async fn rep_26(on: Kind) {
    let (t, gate, mut connection) = begun(on).await;
    for is_over in [false, true] {
        let answer = t.post(K1, B1).await;
        let problem = answer.problem(410, "idempotency_response_unavailable");
        assert_eq!(
            (&problem["original_status"], &problem["retry"]),
            (&200.into(), &"never".into())
        );
        if !is_over {
            gate.open();
            rest(&mut connection).await;
        }
    }
    assert_eq!(t.n(), 1);
}

async fn an_answer_that_is_too_large_to_keep_is_410_for_a_retry(on: Kind) {
    const KEPT: usize = 64 * 1024;
    for is_chunked in [false, true] {
        for (size, is_kept) in [(KEPT, true), (KEPT + 1, false), (20 * KEPT, false)] {
            let t = on.start(&[Set::ResponseBytesMax(KEPT)]).await;
            let reply = Reply::created().body(vec![b'x'; size]);
            t.u.plan("/t", [if is_chunked { reply.chunked() } else { reply }]);
            let first = t.post(K1, B1).await.fresh(201);
            assert_eq!(first.body, vec![b'x'; size]);
            let again = t.post(K1, B1).await;
            if is_kept {
                again.replays(&first);
            } else {
                let problem = again.problem(410, "idempotency_response_unavailable");
                assert_eq!(problem["original_status"], 201);
            }
            assert_eq!(t.n(), 1);
        }
    }
}
