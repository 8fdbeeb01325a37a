//! gRPC: its status is in the trailers, and they are replayed as well.

use crate::client::Ask;
use crate::profile::D;
use crate::reply::Reply;
use crate::subject::Kind;
use crate::{K1, on_both};

on_both! { rep_23 }

async fn rep_23(on: Kind) {
    let message = b"\0\0\0\0\x02\x08\x01";
    for (status, text) in [("0", ""), ("9", "balance too low")] {
        let t = on.start(D).await;
        let reply =
            Reply::status(200).header("Content-Type", "application/grpc").body(&message[..]);
        t.u.plan(
            "/pay.Pay/Charge",
            [reply.trailer("grpc-status", status).trailer("grpc-message", text)],
        );
        let call = Ask::post(&message[..])
            .to("/pay.Pay/Charge")
            .media("application/grpc")
            .header("te", "trailers")
            .header("idempotency-key", K1);
        let first = t.send_http2(&call).await.fresh(200);
        assert_eq!(first.trailers["grpc-status"], status);
        let again = t.send_http2(&call).await.replays(&first);
        assert_eq!(again.trailers, first.trailers);
        assert_eq!(t.u.count("/pay.Pay/Charge"), 1);
    }
}
