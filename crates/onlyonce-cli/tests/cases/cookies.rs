//! Cookies that an HTTP/2 client sends in crumbs: RFC 9113 section 8.2.3.

use crate::client::Ask;
use crate::profile::Set;
use crate::subject::Kind;
use crate::{B1, K1, on_gateway};

on_gateway! { cookie_crumbs_are_one_line_to_the_upstream_and_to_the_principal }

async fn cookie_crumbs_are_one_line_to_the_upstream_and_to_the_principal(on: Kind) {
    let t = on.start(&[Set::Principal("header:Cookie")]).await;
    let ask = Ask::post(B1).key(K1);
    let crumbs = ["session=1", "theme=dark; lang=en", "last=0"]
        .iter()
        .fold(ask.clone(), |ask, crumb| ask.header("Cookie", crumb));
    let whole = "session=1; theme=dark; lang=en; last=0";
    let first = t.send_http2(&crumbs).await.fresh(201);
    assert_eq!(t.u.seen()[0].header("cookie"), Some(whole));
    t.send(&ask.header("Cookie", whole)).await.replays(&first);
    assert_eq!(t.n(), 1);
}
