//! The cycle of a store: a claim of a new key, and its settle with an answer of 300 bytes.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use onlyonce::clock::StoreTime;
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{Kept, KeyText, Response, SettledBy, StateKind, StateSet, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::{Draft, Guard, Lease, Next, Store, Swap};

use crate::load::Cycle;

/// Cycles of a store, each with a key of its own.
#[derive(Debug)]
pub struct Operations<S> {
    store: S,
    drafts: Drafts,
    answer: Arc<Response>,
}

impl<S: Store> Operations<S> {
    /// Keys that follow from `seed`: another seed, other keys.
    pub fn new(store: S, seed: u64) -> Self {
        let headers = HeaderMap::from_iter([(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )]);
        let body = Kept::Bytes { body: vec![b'x'; BODY_BYTES].into(), trailers: None };
        let answer = Arc::new(Response { status: StatusCode::CREATED, headers, body });
        Self { store, drafts: Drafts::new(seed), answer }
    }
}

/// Claims of keys that nobody used before.
#[derive(Debug)]
pub struct Drafts {
    route: Arc<str>,
    seed: Cell<u64>,
}

impl Drafts {
    /// Another seed, other keys.
    pub fn new(seed: u64) -> Self {
        Self { route: "POST /v1/charges".into(), seed: Cell::new(seed << 40) }
    }

    /// The next claim.
    pub fn next(&self) -> Draft {
        let number = self.seed.get() + 1;
        self.seed.set(number);
        let (a, b) = (mix(number), mix(number ^ 0x5555_5555));
        let digest =
            |n: u64| [a ^ n, b ^ n, a.rotate_left(9) ^ n, b].map(u64::to_le_bytes).concat();
        let digest = |n| digest(n).try_into().expect("four numbers of eight bytes");
        let mut id = [0; 16];
        id[..8].copy_from_slice(&a.to_le_bytes());
        id[8..].copy_from_slice(&b.to_le_bytes());
        Draft {
            id: OperationId::from_bytes(id),
            token: Token::random(),
            key: KeyText::new(format!("{a:016x}-{b:016x}-{:02x}", a & 0xff)),
            fingerprint: Fingerprint { version: 1, canonical: digest(1), raw: digest(2) },
            principal: Principal::from_bytes(digest(3)),
            route: self.route.clone(),
            target: "api.test/charges".into(),
            lease: Lease::new(Duration::from_secs(30)),
            quiet_ms: 60_000,
            ttl_ms: 86_400_000,
            not_after: StoreTime::MAX,
        }
    }
}

impl<S: Store> Cycle for Operations<S> {
    type Claimed = (OperationId, Token);

    async fn claim(&self) -> (OperationId, Token) {
        let draft = self.drafts.next();
        let claimed = (draft.id, draft.token);
        let seen = self.store.claim(draft).await.expect("the store answers");
        assert!(seen.mine, "a key was used before");
        claimed
    }

    async fn settle(&self, (id, token): (OperationId, Token)) {
        let guard = Guard::Owner { token, states: StateSet::of(&StateKind::ALL[..3]) };
        let to = Next::Completed {
            settled_by: SettledBy::Owner,
            response: self.answer.clone(),
            token: None,
        };
        let swap = self.store.swap(id, guard, to).await;
        assert!(matches!(swap, Ok(Swap::Done(_))), "the settle was not taken");
    }
}

/// splitmix64.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The answer of every cycle.
pub const BODY_BYTES: usize = 300;
