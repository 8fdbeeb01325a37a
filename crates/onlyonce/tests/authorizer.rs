//! `OnceLayer::with_authorizer`: who lost its rights is answered by the authorizer, and never from a record.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Request, StatusCode};
use onlyonce::record::{Kept, Response};
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Once, Permission, Policy};
use support::{Answer, caller, created, post};
use tower::ServiceExt;

const KEY: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";
const BODY: &str = r#"{"amount":7998}"#;

/// A service whose authorizer says what the test wants.
#[derive(Clone)]
struct Authorized {
    app: Router,
    once: Once,
    says: Arc<Mutex<Says>>,
    asked: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum Says {
    This(fn() -> Permission),
    Nothing,
}

impl Authorized {
    fn new() -> Self {
        let once = Once::new(MemoryStore::new());
        let says = Arc::new(Mutex::new(Says::This(|| Permission::Granted)));
        let asked = Arc::new(AtomicUsize::new(0));
        let (told, count) = (says.clone(), asked.clone());
        let authorizer = move |_: &Parts| {
            let (told, count) = (told.clone(), count.clone());
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                let says = *told.lock().unwrap();
                match says {
                    Says::This(permission) => permission(),
                    Says::Nothing => std::future::pending().await,
                }
            }
        };
        let policy = Policy::default().with_upstream_timeout(Duration::from_millis(200));
        let layer = once.layer(caller, policy).with_authorizer(authorizer);
        let app = Router::new().fallback(|| created(1)).layer(layer);
        Self { app, once, says, asked }
    }

    fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    async fn send(&self, body: &'static str) -> Answer {
        let request: Request<Body> = post(KEY, body);
        Answer::read(self.app.clone().oneshot(request).await.unwrap()).await
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn revoked() -> Permission {
    let challenge = (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Permission::Refused(Arc::new(Response {
        status: StatusCode::UNAUTHORIZED,
        headers: HeaderMap::from_iter([challenge]),
        body: Kept::Bytes { body: Bytes::from_static(b"no"), trailers: None },
    }))
}

// R180; threat G11
#[tokio::test]
async fn a_revoked_caller_gets_what_the_authorizer_says() {
    let t = Authorized::new();
    let first = t.send(BODY).await;
    assert_eq!((first.status, t.asked()), (StatusCode::CREATED, 0), "nobody is asked about it");
    t.send(BODY).await.assert_replays(&first);
    assert_eq!(t.asked(), 1);
    t.say(Says::This(revoked));
    for body in [BODY, r#"{"amount":1}"#] {
        let refused = t.send(body).await;
        assert_eq!((refused.status, &refused.body[..]), (StatusCode::UNAUTHORIZED, &b"no"[..]));
        assert_eq!(refused.headers[WWW_AUTHENTICATE], "Bearer");
        assert!(!refused.is_replay() && refused.headers.get("location").is_none());
    }
    let counts = t.once.counts();
    assert_eq!((counts.executed, counts.replayed, counts.reused), (1, 1, 0));
    assert_eq!(counts.unauthorized, 2);
    t.say(Says::This(|| Permission::Granted));
    t.send(BODY).await.assert_replays(&first);
}

// R180
#[tokio::test]
async fn what_the_authorizer_does_not_know_is_never_replayed() {
    let t = Authorized::new();
    t.send(BODY).await;
    for says in [Says::This(|| Permission::Unknown), Says::Nothing] {
        t.say(says);
        let answer = t.send(BODY).await;
        assert_eq!(answer.problem(), "authorization_unknown");
        assert_eq!((answer.status, answer.retry().as_str()), (StatusCode::BAD_GATEWAY, "same-key"));
        assert_eq!(answer.headers["retry-after"], "1");
    }
    assert_eq!(t.once.counts().executed, 1);
}

// R26
#[tokio::test]
async fn a_key_that_comes_again_from_another_caller_is_counted() {
    let t = Authorized::new();
    let from = |who: &'static str, key: &str| {
        let mut request = post(key, BODY);
        request.headers_mut().insert("x-api-key", who.parse().unwrap());
        t.app.clone().oneshot(request)
    };
    for (who, key, expected) in [
        ("ann", KEY, 0),
        ("ann", KEY, 0),
        ("bob", "another-key", 0),
        ("bob", KEY, 1),
        ("bob", KEY, 1),
        ("eve", KEY, 2),
    ] {
        from(who, key).await.unwrap();
        assert_eq!(t.once.counts().changed_principal, expected, "{who} {key}");
    }
}
