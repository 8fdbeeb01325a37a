//! 3. Fingerprint.

use crate::client::Ask;
use crate::gzip::gzip;
use crate::profile::{D, Profile, S, Set};
use crate::reply::Reply;
use crate::subject::{Kind, Subject};
use crate::{B1, B2, K1, on_both, within};

on_both! {
    fpr_01, fpr_02, fpr_03, fpr_05, fpr_06, fpr_07, fpr_09, fpr_10, fpr_11, fpr_13, fpr_14, fpr_15,
    fpr_17, fpr_18, fpr_19, fpr_21, fpr_22, fpr_23, fpr_25, fpr_26, fpr_27, fpr_29, fpr_31, fpr_33,
    fpr_34, fpr_35, read_otherwise,
}

/// All of them are one request: the first is executed, the others are replays of it.
async fn are_the_same(on: Kind, profile: Profile<'_>, asks: &[Ask]) {
    let t = on.start(profile).await;
    let first = t.send(&asks[0].clone().key(K1)).await.fresh(201);
    for ask in &asks[1..] {
        t.send(&ask.clone().key(K1)).await.replays(&first);
        assert_eq!(t.n(), 1, "{ask:?}");
    }
}

/// None of the others is the first, which still replays.
async fn differ(on: Kind, profile: Profile<'_>, asks: &[Ask]) {
    let t = on.start(profile).await;
    let first = t.send(&asks[0].clone().key(K1)).await.fresh(201);
    for ask in &asks[1..] {
        let answer = t.send(&ask.clone().key(K1)).await;
        let problem = answer.problem(422, "idempotency_key_reused");
        assert_eq!(problem["retry"], "new-key");
        assert_eq!(t.n(), 1, "{ask:?}");
    }
    t.send(&asks[0].clone().key(K1)).await.replays(&first);
}

fn bodies<const N: usize>(bodies: [&str; N]) -> [Ask; N] {
    bodies.map(Ask::post)
}

// threat G13
async fn fpr_01(on: Kind) {
    let t = on.start(D).await;
    let first = t.post(K1, B1).await.fresh(201);
    let answer = t.post(K1, B2).await;
    let problem = answer.problem(422, "idempotency_key_reused");
    assert_eq!(problem["title"], "Idempotency-Key is already used");
    assert_eq!(problem["retry"], "new-key");
    // Nothing of the first is told, and nothing of the key.
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    for secret in ["7998", "rnd", K1] {
        assert!(!text.contains(secret), "{text}");
    }
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1);
}

async fn fpr_02(on: Kind) {
    let t = on.start(&[Set::Conflict]).await;
    let first = t.post(K1, B1).await.fresh(201);
    let answer = t.post(K1, B2).await;
    let problem = answer.problem(409, "idempotency_key_reused");
    assert_eq!(problem["retry"], "new-key");
    assert!(answer.all("retry-after").is_empty());
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1);
}

// R95
async fn fpr_03(on: Kind) {
    let t = on.start(S).await;
    let first = t.post(K1, B1).await.fresh(201);
    let error = t.post(K1, B2).await.stripe(400, "idempotency_error");
    let message = error["message"].as_str().unwrap();
    let begin = "Keys for idempotent requests can only be used with the same parameters";
    assert!(message.starts_with(begin) && message.contains(K1), "{message}");
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1);
}

const PRETTY: &str = "{\r\n\t\"amount\" : 7998,\n  \"currency\" :\"usd\"\n}\n";
const SWAPPED: &str = r#"{"currency":"usd","amount":7998}"#;

async fn fpr_05(on: Kind) {
    are_the_same(on, D, &bodies([B1, PRETTY, SWAPPED])).await;
}

async fn fpr_06(on: Kind) {
    let trailing = format!("{B1} ");
    differ(on, &[Set::Raw], &bodies([B1, PRETTY, SWAPPED, &trailing])).await;
}

async fn fpr_07(on: Kind) {
    let tens = [r#"{"a":10}"#, r#"{"a":10.0}"#, r#"{"a":1e1}"#, r#"{"a":1E+1}"#, r#"{"a":100e-1}"#];
    are_the_same(on, D, &bodies(tens)).await;
    differ(on, D, &bodies([r#"{"a":10}"#, r#"{"a":"10"}"#, r#"{"a":-10}"#, r#"{"a":1e2}"#])).await;
}

async fn fpr_09(on: Kind) {
    let tenths = [r#"{"a":0.1}"#, r#"{"a":0.1000000000000000055511151231257827}"#];
    differ(on, D, &bodies(tenths)).await;
    let large =
        [r#"{"a":9007199254740992}"#, r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992.5}"#];
    differ(on, D, &bodies(large)).await;
}

async fn fpr_10(on: Kind) {
    are_the_same(on, D, &bodies([r#"{"a":"\u0041"}"#, r#"{"a":"A"}"#, r#"{"\u0061":"A"}"#])).await;
    are_the_same(on, D, &bodies([r#"{"a":"\/\n\ud83d\ude00"}"#, "{\"a\":\"/\\u000a\u{1f600}\"}"]))
        .await;
}

async fn fpr_11(on: Kind) {
    differ(on, D, &bodies(["{\"a\":\"\u{e9}\"}", "{\"a\":\"e\u{301}\"}"])).await;
    differ(on, D, &bodies(["{\"\u{e9}\":1}", "{\"e\u{301}\":1}"])).await;
}

async fn fpr_13(on: Kind) {
    differ(on, D, &bodies(["[1,2]", "[2,1]", "[1,2,2]", "[[1,2]]"])).await;
}

async fn fpr_14(on: Kind) {
    let others =
        [r#"{"a":1,"a":2}"#, r#"{"a":2}"#, r#"{"a":1}"#, r#"{"a":2,"a":1}"#, r#"{"a":1, "a":2}"#];
    differ(on, D, &bodies(others)).await;
    differ(on, D, &bodies([r#"{"a":2}"#, r#"{"a":1,"a":2}"#])).await;
}

async fn fpr_15(on: Kind) {
    differ(on, D, &bodies([r#"{"a":null}"#, "{}", "null", r#"{"a":""}"#, r#"{"a":false}"#])).await;
}

async fn fpr_17(on: Kind) {
    let of = |media: &str| Ask::post(B1).media(media);
    let others = [
        of("application/json"),
        of("text/plain"),
        of("application/xml"),
        of("application/vnd.api+json"),
    ];
    differ(on, D, &others).await;
}

async fn fpr_18(on: Kind) {
    let of = |media: &str| Ask::post(B1).media(media);
    let same = [
        of("Application/JSON"),
        of("application/json"),
        of("application/json; charset=utf-8"),
        of("application/json ;x=y"),
    ];
    are_the_same(on, D, &same).await;
}

async fn fpr_19(on: Kind) {
    for body in ["{\"amount\":", "{\"a\":1,}", "nul", "[1 2]"] {
        let t = on.start(D).await;
        t.u.plan(
            "/t",
            [Reply::status(400)
                .header("Content-Type", "application/json")
                .body("{\"error\":\"no JSON\"}")],
        );
        let first = t.post(K1, body).await.fresh(400);
        t.post(K1, body).await.replays(&first);
        t.post(K1, B1).await.problem(422, "idempotency_key_reused");
        assert_eq!(t.n(), 1);
    }
}

async fn fpr_21(on: Kind) {
    let whole = Ask::post(B1);
    let chunked = [1, 3, 7, 1000].map(|size| whole.clone().chunked(size));
    are_the_same(on, D, &[std::slice::from_ref(&whole), &chunked].concat()).await;
    are_the_same(on, D, &[chunked[1].clone(), whole]).await;
}

async fn fpr_22(on: Kind) {
    let t = on.start(D).await;
    let first = t.post(K1, B1).await.fresh(201);
    t.send_http2(&Ask::post(B1).key(K1)).await.replays(&first);
    t.send_http2(&Ask::post(B2).key(K1)).await.problem(422, "idempotency_key_reused");
    let first = t.send_http2(&Ask::post(B1).key(K1).to("/2")).await.fresh(201);
    t.send(&Ask::post(B1).key(K1).to("/2")).await.replays(&first);
    assert_eq!(t.u.total(), 2);
}

fn multipart(boundary: &str, parts: &[(&str, &str)]) -> Ask {
    let part = |(name, value): &(&str, &str)| {
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        )
    };
    let parts: String = parts.iter().map(part).collect();
    Ask::post(format!("{parts}--{boundary}--\r\n"))
        .media(&format!("multipart/form-data; boundary={boundary}"))
}

async fn fpr_23(on: Kind) {
    let parts = [("amount", "1000"), ("file", "a\r\nb")];
    are_the_same(on, D, &[multipart("one", &parts), multipart("--another-0815", &parts)]).await;
    let others = [
        multipart("one", &parts),
        multipart("two", &[("amount", "1001"), ("file", "a\r\nb")]),
        multipart("two", &[("amount", "1000"), ("file", "a\nb")]),
        multipart("two", &[("amount", "1000")]),
        multipart("two", &[("amount2", "1000"), ("file", "a\r\nb")]),
    ];
    differ(on, D, &others).await;
}

async fn fpr_25(on: Kind) {
    let form = |body: &str| Ask::post(body).media("application/x-www-form-urlencoded");
    let same = [
        form("amount=1000&currency=usd"),
        form("currency=usd&amount=1000"),
        form("curr%65ncy=usd&amount=%31000"),
    ];
    are_the_same(on, S, &same).await;
    are_the_same(on, D, &same).await;
    are_the_same(on, D, &[form("a=x+y"), form("a=x%20y")]).await;
    let others = [
        form("amount=1000&currency=usd"),
        form("amount=1001&currency=usd"),
        form("amount=1000"),
        form("amount=1000&currency=usd&currency=usd"),
    ];
    differ(on, D, &others).await;
    differ(on, D, &[form("a=1&a=2"), form("a=2&a=1")]).await;
}

async fn fpr_26(on: Kind) {
    let other = Ask::post(B1)
        .header("User-Agent", "other/2.0")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("Date", "Tue, 15 Nov 1994 08:12:31 GMT")
        .header("Accept-Language", "de")
        .header("Accept", "application/json")
        .header("X-Request-Id", "2")
        .header("Cache-Control", "no-cache");
    are_the_same(on, D, &[Ask::post(B1).header("User-Agent", "one/1.0"), other, Ask::post(B1)])
        .await;
}

async fn fpr_27(on: Kind) {
    let one = r#"{"amount":1,"ts":1}"#;
    are_the_same(
        on,
        &[Set::Exclude("/ts")],
        &bodies([one, r#"{"amount":1,"ts":2}"#, r#"{"ts":[3],"amount":1}"#]),
    )
    .await;
    differ(
        on,
        &[Set::Exclude("/ts")],
        &bodies([one, r#"{"amount":2,"ts":1}"#, r#"{"amount":1,"ts":1,"x":{"ts":1}}"#]),
    )
    .await;
    are_the_same(on, &[Set::Include("/amount")], &bodies([one, r#"{"amount":1,"ts":2,"x":1}"#]))
        .await;
    differ(on, &[Set::Include("/amount")], &bodies([one, r#"{"amount":2,"ts":1}"#, r#"{"ts":1}"#]))
        .await;
}

async fn fpr_29(on: Kind) {
    are_the_same(on, &[Set::NoFingerprint], &bodies([B1, B2, "not even JSON", ""])).await;
}

const MIB: usize = 1024 * 1024;

async fn fpr_31(on: Kind) {
    let t = on.start(&[Set::RequestBytesMax(MIB)]).await;
    too_large_by_its_length(&t).await;
    too_large_chunk_by_chunk(&t).await;
    assert_eq!(t.n(), 0);
    let fits = Ask::post(vec![b' '; 1024]).key(K1);
    let first = t.send(&fits).await.fresh(201);
    t.send(&fits).await.replays(&first);
    let largest = Ask::post(vec![b' '; MIB]).key("largest");
    t.send(&largest).await.fresh(201);
    assert_eq!(t.n(), 2);
}

/// What is announced as too large need not be sent to be refused.
async fn too_large_by_its_length(t: &Subject) {
    let ask = Ask::post(vec![b' '; 2 * MIB]).key(K1);
    let mut connection = t.connect().await;
    connection.0.write(&ask.head()).await.unwrap();
    connection.answer(&ask).await.unwrap().problem(413, "request_too_large");
    // Sent in one go, the refusal may be lost with the connection; nothing else may happen.
    if let Ok(answer) = t.try_send(&ask).await {
        answer.problem(413, "request_too_large");
    }
}

async fn too_large_chunk_by_chunk(t: &Subject) {
    let ask = Ask::post("").key(K1).chunked(1);
    let mut connection = t.connect().await;
    connection.0.write(&ask.head()).await.unwrap();
    for _ in 0..64 {
        connection.0.write(b"4000\r\n").await.unwrap();
        connection.0.write(&[b' '; 0x4000]).await.unwrap();
        connection.0.write(b"\r\n").await.unwrap();
    }
    connection.0.write(b"1\r\n ").await.unwrap();
    connection.answer(&ask).await.unwrap().problem(413, "request_too_large");
}

async fn fpr_33(on: Kind) {
    let ask = Ask::post(B1);
    let trailing = |value: &str| ask.clone().trailer("X-Checksum", value);
    are_the_same(on, D, &[trailing("1"), trailing("2"), ask.clone().chunked(7), ask.clone()]).await;
}

async fn fpr_34(on: Kind) {
    let coded = |block| Ask::post(gzip(B1.as_bytes(), block)).header("Content-Encoding", "gzip");
    differ(on, D, &[coded(8), coded(100), Ask::post(B1)]).await;
    are_the_same(on, D, &[coded(8), coded(8)]).await;
}

async fn fpr_35(on: Kind) {
    for is_chunked in [false, true] {
        let t = on.start(D).await;
        let ask = match is_chunked {
            false => Ask::post(B1).key(K1),
            true => Ask::post(B1).key(K1).chunked(9),
        };
        let bytes = ask.bytes();
        let half = &bytes[..bytes.len() - B1.len() / 2];
        let mut polite = t.connect().await;
        polite.0.write(half).await.unwrap();
        polite.0.finish().await.unwrap();
        if let Ok(answer) = polite.answer(&ask).await {
            assert_eq!(answer.status, 400, "{answer:?}");
        }
        let mut rude = t.connect().await;
        rude.0.write(half).await.unwrap();
        rude.0.reset();
        assert_eq!(t.n(), 0);
        within("a whole request", t.send(&ask)).await.fresh(201);
        assert_eq!(t.n(), 1);
    }
}

// threat G13
async fn read_otherwise(on: Kind) {
    let json = |charset: &str| Ask::post(B1).media(&format!("application/json{charset}"));
    let parts = |boundary: &str| {
        Ask::post(PARTS).media(&format!("multipart/form-data; boundary={boundary}"))
    };
    for profile in [D, &[Set::Raw]] {
        let overridden = [
            json("").header("X-HTTP-Method-Override", "DELETE"),
            json("").header("X-HTTP-Method", "DELETE"),
            json("").header("X-Method-Override", "DELETE"),
        ];
        differ(on, profile, &[&[json("")], &overridden[..]].concat()).await;
        differ(on, profile, &[json("; charset=utf-8"), json("; charset=utf-16")]).await;
        differ(on, profile, &[parts("a"), parts("ab"), parts("c")]).await;
    }
}

/// One part, and two where another boundary divides them.
const PARTS: &str =
    "--a\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n--ab\r\n\r\n2\r\n--a--\r\n";
