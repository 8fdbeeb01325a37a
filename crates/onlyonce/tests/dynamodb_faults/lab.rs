//! Drafts, writes, and a store behind a network that can fail.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use onlyonce::clock::StoreTime;
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{Kept, KeyText, Response, SettledBy, StateKind, StateSet, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::dynamodb::DynamoStore;
use onlyonce::store::{Draft, Fault, Guard, Lease, Next, Store, Swap};
use servers::{DynamoDb, DynamoWire, WireFault};

use crate::emulator::{make, open};

/// An emulator, a network in front of it, and a store behind that.
pub(crate) struct Lab {
    pub(crate) wire: DynamoWire,
    pub(crate) store: DynamoStore,
    pub(crate) server: DynamoDb,
}

impl Lab {
    /// `None` where the emulator is not installed.
    pub(crate) async fn start(settings: &str) -> Option<Self> {
        let server = DynamoDb::start()?;
        make(&server.url()).await;
        let wire = DynamoWire::before(&server, |_| WireFault::None);
        let store = open(&wire.url(), settings).await;
        wire.forget();
        Some(Self { wire, store, server })
    }

    /// Another node, past the network.
    pub(crate) async fn other_node(&self) -> DynamoStore {
        open(&self.server.url(), "").await
    }

    /// The next call of `action` meets this fault.
    pub(crate) fn fail_next(&self, action: &'static str, fault: WireFault) {
        let mut is_due = true;
        self.wire.change(move |called| match called == action && std::mem::take(&mut is_due) {
            true => fault,
            false => WireFault::None,
        });
    }
}

pub(crate) fn draft(number: u32) -> Draft {
    let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Draft {
        id: OperationId::from_bytes(spread.to_be_bytes()),
        token: Token::random(),
        key: KeyText::new(format!("{number:08}-0000-4000-8000-000000000000")),
        fingerprint: Fingerprint { version: 1, canonical: [7; 32], raw: [8; 32] },
        principal: Principal::from_bytes([9; 32]),
        route: "POST /v1/charges".into(),
        target: "h1".into(),
        lease: Lease::new(Duration::from_secs(30)),
        quiet_ms: 60_000,
        ttl_ms: 86_400_000,
        not_after: StoreTime::MAX,
    }
}

pub(crate) fn completed(body: impl Into<Bytes>) -> Next {
    let body = Kept::Bytes { body: body.into(), trailers: None };
    let headers = HeaderMap::from_iter([(
        "content-type".parse().unwrap(),
        "application/json".parse().unwrap(),
    )]);
    let response = Arc::new(Response { status: StatusCode::CREATED, headers, body });
    Next::Completed { settled_by: SettledBy::Owner, response, token: None }
}

/// What the owner of `draft` writes, from any state that is not final.
pub(crate) async fn write(store: &DynamoStore, draft: &Draft, to: Next) -> Result<Swap, Fault> {
    let states = StateSet::of(&[StateKind::Running, StateKind::Unknown, StateKind::Released]);
    store.swap(draft.id, Guard::Owner { token: draft.token, states }, to).await
}

pub(crate) async fn done(store: &DynamoStore, draft: &Draft, to: Next) {
    let swap = write(store, draft, to).await;
    assert!(matches!(swap, Ok(Swap::Done(_))), "{swap:?}");
}

pub(crate) async fn won(store: &DynamoStore, draft: &Draft) {
    let seen = store.claim(draft.clone()).await.unwrap();
    assert!(seen.mine, "{seen:?}");
}
