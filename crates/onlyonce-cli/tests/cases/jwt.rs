//! Callers that are told apart by bearer tokens, whose signature the gateway verifies.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use onlyonce::clock::{Clock, SystemClock};
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair as RsaKeyPair, PublicKeyComponents};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Ask;
use crate::profile::Set;
use crate::reply::Reply;
use crate::subject::{Kind, Subject};
use crate::upstream::Upstream;
use crate::{B1, B2, K1, K2, on_gateway, within};

on_gateway! {
    scp_19,
    r26_what_is_not_verified_is_refused_and_leaves_the_key_alone,
    r26_every_algorithm_is_verified,
    r26_a_key_may_be_a_pem_file,
    r26_a_secret_verifies_tokens_too,
    r26_several_claims_name_a_caller,
    r26_keys_at_an_address_are_fetched_and_rotate,
    r26_withdrawn_keys_are_not_used_and_only_judged_tokens_fetch_keys,
    r26_a_credential_that_is_no_bearer_token_is_not_nobodys,
    r27_a_caller_without_a_token_is_nobody,
    a_file_that_has_no_keys_is_told_at_the_start,
}

/// Signs tokens.
enum Signer {
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

struct Issuer {
    signer: Signer,
    kid: &'static str,
}

impl Issuer {
    fn rsa(kid: &'static str) -> Self {
        let key = RsaKeyPair::from_pkcs8(include_bytes!("jwt_rsa_test_key.der")).unwrap();
        Self { signer: Signer::Rsa(Box::new(key)), kid }
    }

    fn ec(kid: &'static str) -> Self {
        let (random, by) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let key = EcdsaKeyPair::generate_pkcs8(by, &random).unwrap();
        Self {
            signer: Signer::Ec(EcdsaKeyPair::from_pkcs8(by, key.as_ref(), &random).unwrap()),
            kid,
        }
    }

    fn ed(kid: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { signer: Signer::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap()), kid }
    }

    fn algorithm(&self) -> &'static str {
        match self.signer {
            Signer::Rsa(_) => "RS256",
            Signer::Ec(_) => "ES256",
            Signer::Ed(_) => "EdDSA",
        }
    }

    fn public(&self) -> Vec<u8> {
        match &self.signer {
            Signer::Rsa(key) => key.public_key().as_ref().to_vec(),
            Signer::Ec(key) => key.public_key().as_ref().to_vec(),
            Signer::Ed(key) => key.public_key().as_ref().to_vec(),
        }
    }

    fn jwk(&self) -> Value {
        let public = self.public();
        let mut jwk = match &self.signer {
            Signer::Rsa(key) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                let [n, e] = [n, e].map(|number| b64(&number));
                json!({ "kty": "RSA", "n": n, "e": e })
            }
            Signer::Ec(_) => {
                let (x, y) = public[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "x": b64(x), "y": b64(y) })
            }
            Signer::Ed(_) => json!({ "kty": "OKP", "crv": "Ed25519", "x": b64(&public) }),
        };
        jwk["kid"] = self.kid.into();
        jwk["alg"] = self.algorithm().into();
        jwk
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.signer {
            Signer::Rsa(key) => {
                let mut signed = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signed).unwrap();
                signed
            }
            Signer::Ec(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Signer::Ed(key) => key.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with these claims, and an end of its own where they have none.
    fn token(&self, claims: &Value) -> String {
        let header = json!({ "alg": self.algorithm(), "kid": self.kid, "typ": "JWT" });
        self.token_with(&header, claims)
    }

    fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        format!("{message}.{}", b64(&self.sign(message.as_bytes())))
    }
}

fn message(header: &Value, claims: &Value) -> String {
    let mut claims = claims.clone();
    if claims.get("exp").is_none() {
        claims["exp"] = in_seconds(3_600).into();
    }
    format!("{}.{}", b64(header.to_string().as_bytes()), b64(claims.to_string().as_bytes()))
}

fn hmac_token(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = message(header, claims);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    format!("{message}.{}", b64(ring::hmac::sign(&key, message.as_bytes()).as_ref()))
}

fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn in_seconds(seconds: i64) -> i64 {
    SystemClock.wall().as_ms() / 1_000 + seconds
}

fn jwks(issuers: &[&Issuer]) -> String {
    let keys: Vec<_> = issuers.iter().map(|issuer| issuer.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

/// The settings: these in `[policy]`, and these in `[jwt]`.
fn settings(policy: &str, jwt: &str) -> Set {
    Set::Toml(format!("{policy}\n[jwt]\n{jwt}").leak())
}

fn by_subject(keys: &Path) -> Set {
    let jwt = format!("keys = {keys:?}\nissuer = \"https://id.test\"\naudience = \"charges\"");
    settings("principal = \"jwt:sub\"\nanonymous = \"reject\"", &jwt)
}

/// A gateway that takes the tokens of these, and a folder that must be kept.
async fn trusting(on: Kind, issuers: &[&Issuer]) -> (Subject, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    std::fs::write(&file, jwks(issuers)).unwrap();
    (on.start(&[by_subject(&file)]).await, folder)
}

fn ann() -> Value {
    json!({ "sub": "ann", "iss": "https://id.test", "aud": "charges", "jti": fastrand::u64(..) })
}

fn with(mut claims: Value, name: &str, value: impl Into<Value>) -> Value {
    claims[name] = value.into();
    claims
}

fn bearing(token: &str, key: &str) -> Ask {
    Ask::post(B1).key(key).header("Authorization", format!("Bearer {token}"))
}

// R26
async fn scp_19(on: Kind) {
    let issuer = Issuer::ec("one");
    let (t, _folder) = trusting(on, &[&issuer]).await;
    let first = t.send(&bearing(&issuer.token(&ann()), K1)).await.fresh(201);
    let refreshed = issuer.token(&ann());
    t.send(&bearing(&refreshed, K1)).await.replays(&first);
    t.send(&bearing(&refreshed, K1).saying(B2)).await.problem(422, "idempotency_key_reused");
    // R31: another subject, the same key.
    let bob = issuer.token(&with(ann(), "sub", "bob"));
    t.send(&bearing(&bob, K1)).await.fresh(201);
    assert_eq!(t.n(), 2);
}

async fn r26_what_is_not_verified_is_refused_and_leaves_the_key_alone(on: Kind) {
    let (issuer, stranger) = (Issuer::rsa("one"), Issuer::ec("one"));
    let (t, _folder) = trusting(on, &[&issuer]).await;
    let good = issuer.token(&ann());
    let [head, said, signed] = good.split('.').collect::<Vec<_>>()[..] else { panic!("{good}") };
    let none = message(&json!({ "alg": "none" }), &ann());
    let hmac = json!({ "alg": "HS256", "kid": "one" });
    let bob = b64(with(ann(), "sub", "bob").to_string().as_bytes());
    let unknown = json!({ "alg": "RS256", "kid": "two" });
    let critical = json!({ "alg": "RS256", "kid": "one", "crit": ["exp"], "exp": 1 });
    let wrong = [
        ("signed by another key", stranger.token(&ann())),
        ("unsigned", format!("{none}.")),
        ("unsigned, with a signature", format!("{none}.{signed}")),
        ("signed with the public key as a secret", hmac_token(&issuer.public(), &hmac, &ann())),
        ("with other claims", format!("{head}.{bob}.{signed}")),
        ("cut", format!("{head}.{said}.{}", &signed[..20])),
        ("without a signature", format!("{head}.{said}.")),
        ("expired", issuer.token(&with(ann(), "exp", in_seconds(-120)))),
        ("without an end", issuer.token(&with(ann(), "exp", Value::Null))),
        ("not valid yet", issuer.token(&with(ann(), "nbf", in_seconds(600)))),
        ("for another service", issuer.token(&with(ann(), "aud", "refunds"))),
        ("for nobody", issuer.token(&with(ann(), "aud", Value::Null))),
        ("of another issuer", issuer.token(&with(ann(), "iss", "https://evil.test"))),
        ("of no issuer", issuer.token(&with(ann(), "iss", Value::Null))),
        ("of an unknown key", issuer.token_with(&unknown, &ann())),
        ("without a subject", issuer.token(&with(ann(), "sub", Value::Null))),
        ("with an odd subject", issuer.token(&with(ann(), "sub", json!(["ann"])))),
        ("with a subject that is rounded", issuer.token(&with(ann(), "sub", 1e25))),
        ("with a critical extension", issuer.token_with(&critical, &ann())),
        ("no token", "tok_A".to_owned()),
    ];
    for (what, token) in &wrong {
        let refused = t.send(&bearing(token, K1)).await;
        assert_eq!(refused.status, 401, "{what}");
        assert_eq!(refused.problem(401, "principal_invalid")["retry"], "same-key", "{what}");
    }
    let twice = bearing(&good, K1).header("Authorization", format!("Bearer {good}"));
    t.send(&twice).await.problem(400, "principal_unclear");
    assert_eq!(t.n(), 0);
    let first = t.send(&bearing(&good, K1)).await.fresh(201);
    // R180: the answer is there, and is not told.
    for (what, token) in &wrong {
        assert_eq!(t.send(&bearing(token, K1)).await.status, 401, "{what}");
    }
    t.send(&bearing(&good, K1)).await.replays(&first);
    assert_eq!(t.n(), 1);
}

async fn r26_every_algorithm_is_verified(on: Kind) {
    let issuers = [Issuer::rsa("rsa"), Issuer::ec("ec"), Issuer::ed("ed")];
    let (t, _folder) = trusting(on, &issuers.each_ref()).await;
    let mut first = None;
    for issuer in &issuers {
        let answer = t.send(&bearing(&issuer.token(&ann()), K1)).await;
        match &first {
            None => first = Some(answer.fresh(201)),
            Some(first) => drop(answer.replays(first)),
        }
    }
    assert_eq!(t.n(), 1);
}

async fn r26_a_key_may_be_a_pem_file(on: Kind) {
    let issuer = Issuer::ed("any");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    // The fixed beginning of a SubjectPublicKeyInfo with an Ed25519 key (RFC 8410).
    let mut der = vec![0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
    der.extend(issuer.public());
    let pem =
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
    std::fs::write(&file, pem).unwrap();
    let t = on.start(&[by_subject(&file)]).await;
    t.send(&bearing(&issuer.token(&ann()), K1)).await.fresh(201);
    let stranger = Issuer::ed("any").token(&ann());
    t.send(&bearing(&stranger, K2)).await.problem(401, "principal_invalid");
    assert_eq!(t.n(), 1);
}

/// The process has this variable.
async fn r26_a_secret_verifies_tokens_too(on: Kind) {
    let t =
        on.start(&[settings("principal = \"jwt:sub\"", "keys = \"env:ONLYONCE_SECRET\"")]).await;
    let header = json!({ "alg": "HS256" });
    let token = hmac_token(crate::subject::SECRET.as_bytes(), &header, &ann());
    t.send(&bearing(&token, K1)).await.fresh(201);
    let forged = hmac_token(b"guessed", &header, &ann());
    t.send(&bearing(&forged, K2)).await.problem(401, "principal_invalid");
}

async fn r26_several_claims_name_a_caller(on: Kind) {
    let issuer = Issuer::ec("one");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    std::fs::write(&file, jwks(&[&issuer])).unwrap();
    let policy = "principal = [\"jwt:tenant,sub\", \"header:X-Account\"]";
    let t = on.start(&[settings(policy, &format!("keys = {file:?}"))]).await;
    let of = |tenant: &str, sub: &str| {
        issuer.token(&json!({ "tenant": tenant, "sub": sub, "jti": fastrand::u64(..) }))
    };
    let first = t.send(&bearing(&of("a", "ann"), K1)).await.fresh(201);
    t.send(&bearing(&of("b", "ann"), K1)).await.fresh(201);
    t.send(&bearing(&of("a", "bob"), K1)).await.fresh(201);
    t.send(&bearing(&of("a", "ann"), K1)).await.replays(&first);
    // The next source, where there is no bearer token.
    t.send(&Ask::post(B1).key(K1).header("X-Account", "ann")).await.fresh(201);
    t.send(&bearing("forged", K1).header("X-Account", "ann"))
        .await
        .problem(401, "principal_invalid");
    assert_eq!(t.n(), 4);
}

async fn r26_keys_at_an_address_are_fetched_and_rotate(on: Kind) {
    let (old, new) = (Issuer::ec("old"), Issuer::ec("new"));
    let id = Upstream::start().await;
    let answer = |issuers: &[&Issuer]| Reply::status(200).body(jwks(issuers));
    id.plan("/keys", [answer(&[&old])]);
    let jwt = format!("keys = \"http://{}/keys\"", id.address);
    let t = on.start(&[settings("principal = \"jwt:sub\"", &jwt)]).await;
    let first = t.send(&bearing(&old.token(&ann()), K1)).await.fresh(201);
    // A key that is not known is asked for, and not more often than every few seconds.
    for _ in 0..5 {
        t.send(&bearing(&new.token(&ann()), K1)).await.problem(401, "principal_invalid");
    }
    assert!(id.count("/keys") <= 2, "{}", id.count("/keys"));
    id.plan("/keys", [answer(&[&old, &new])]);
    within("the new key to be looked for again", async {
        while t.send(&bearing(&new.token(&ann()), K1)).await.status == 401 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
    t.send(&bearing(&new.token(&ann()), K1)).await.replays(&first);
    // A token of a key that nobody has named before is not refused for what strangers have named.
    let newest = Issuer::ec("newest");
    t.send(&bearing(&Issuer::ec("none").token(&ann()), K2)).await.problem(401, "principal_invalid");
    id.plan("/keys", [answer(&[&old, &new, &newest])]);
    t.send(&bearing(&newest.token(&ann()), K1)).await.replays(&first);
    // An issuer that is down: what is known goes on, and nobody knows of the rest.
    id.plan("/keys", [Reply::status(503)]);
    let unverified = t.send(&bearing(&Issuer::ec("newer").token(&ann()), K2)).await;
    assert_eq!(unverified.problem(503, "authorization_unknown")["retry"], "same-key");
    assert_eq!(unverified.retry_after_s(), 1);
    t.send(&bearing(&old.token(&ann()), K1)).await.replays(&first);
    assert_eq!(t.n(), 1);
}

// R26
async fn r26_withdrawn_keys_are_not_used_and_only_judged_tokens_fetch_keys(on: Kind) {
    let (known, unknown) = (Issuer::ec("known"), Issuer::ec("unknown"));
    let id = Upstream::start().await;
    id.plan(
        "/keys",
        [Reply::status(200).body(jwks(&[&known])), Reply::status(200).body(jwks(&[]))],
    );
    let jwt = format!("keys = \"http://{}/keys\"", id.address);
    let policy = "[[route]]\nmatch = \"POST /jwt\"\nprincipal = \"jwt:sub\"";
    let t = on.start(&[settings(policy, &jwt)]).await;
    let good = bearing(&known.token(&ann()), K1).to("/jwt");
    let first = t.send(&good).await.fresh(201);
    t.send(&good).await.replays(&first);
    let token = unknown.token(&ann());
    let authorization = format!("Bearer {token}");
    let unjudged = [
        bearing(&token, K1),
        Ask::bare("GET", "/jwt").header("Authorization", &authorization),
        Ask::bare("GET", "/.well-known/idempotency").header("Authorization", &authorization),
    ];
    // Keys are fetched at most every few seconds: right before a judged token has them fetched, no other has.
    within("the keys to be fetched again", async {
        while id.count("/keys") == 1 {
            for ask in unjudged.iter().cycle().take(15) {
                t.send(ask).await;
                assert_eq!(id.count("/keys"), 1, "{ask:?}");
            }
            let judged = bearing(&token, K2).to("/jwt");
            t.send(&judged).await.problem(401, "principal_invalid");
        }
    })
    .await;
    t.send(&good).await.problem(401, "principal_invalid");
    let posts =
        t.u.seen().into_iter().filter(|seen| seen.method == "POST" && seen.target == "/jwt");
    assert_eq!(posts.count(), 1);
}

// R26: two callers whom the service knows by another scheme would be one, and one would get the other's answer.
async fn r26_a_credential_that_is_no_bearer_token_is_not_nobodys(on: Kind) {
    let t =
        on.start(&[settings("principal = \"jwt:sub\"", "keys = \"env:ONLYONCE_SECRET\"")]).await;
    for value in ["Basic YTpi", "DPoP eyJ0", "Bearer\teyJ0", "eyJ0"] {
        let ask = Ask::post(B1).key(K1).header("Authorization", value);
        t.send(&ask).await.problem(400, "principal_unclear");
    }
    assert_eq!(t.n(), 0);
    t.send(&Ask::post(B1).key(K1)).await.fresh(201);
    let empty = Ask::post(B1).key(K1).header("Authorization", "Bearer ");
    assert_eq!((t.send(&empty).await.status, t.n()), (201, 1));
}

// R27
async fn r27_a_caller_without_a_token_is_nobody(on: Kind) {
    let issuer = Issuer::ec("one");
    let (t, _folder) = trusting(on, &[&issuer]).await;
    t.send(&Ask::post(B1).key(K1)).await.problem(401, "principal_missing");
    let basic = Ask::post(B1).key(K1).header("Authorization", "Basic YTpi");
    t.send(&basic).await.problem(401, "principal_missing");
    assert_eq!(t.n(), 0);
}

async fn a_file_that_has_no_keys_is_told_at_the_start(_: Kind) {
    let folder = tempfile::tempdir().unwrap();
    for (text, expected) in [
        ("{\"keys\":[]}", "it has no key that tokens can be verified with"),
        ("hello", "it has no key that tokens can be verified with"),
        ("{}", "it is neither a JWKS nor a public key as PEM"),
    ] {
        let (keys, file) = (folder.path().join("jwks.json"), folder.path().join("gateway.toml"));
        std::fs::write(&keys, text).unwrap();
        let config = format!(
            "upstream = \"http://127.0.0.1:9\"\nlisten = \"127.0.0.1:0\"\n[policy]\nprincipal = \"jwt:sub\"\n[jwt]\nkeys = {keys:?}"
        );
        std::fs::write(&file, config).unwrap();
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .args(["serve", "--config"])
            .arg(&file)
            .current_dir(folder.path())
            .output();
        let output = within("the end", output).await.unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(expected) && told.contains("jwks.json"), "{told}");
        assert_eq!(output.status.code(), Some(2), "{told}");
    }
}
