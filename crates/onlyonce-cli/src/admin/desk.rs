//! A request's way: who asks, what for, and who answers.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use onlyonce::Once;
use onlyonce::clock::{Clock, StoreTime, SystemClock};
use onlyonce::store::Census;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::answer::{Answer, Problem, json, of_type, secure, text};
use super::asked::Asked;
use super::auth::{Keeper, Role};
use super::recent::Recent;
use super::router::{Endpoint, Found, find};
use super::samples::{Sample, Samples};
use super::{audit, body, bulk, csv_in, csv_out, events, openapi, operations, page, summary};
use crate::connections::Slot;
use crate::gateway::{About, Stage, metrics};

/// Answers operators. A clone is the same desk.
#[derive(Clone, Debug)]
pub(crate) struct Desk(Arc<Inside>);

/// What a desk is told when it is set up.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) once: Once,
    pub(crate) about: About,
    pub(crate) keeper: Keeper,
    pub(crate) stage: watch::Receiver<Stage>,
    /// Where clients connect; nowhere for a command that works on a store.
    pub(crate) listen: Option<String>,
    /// What is in force, as the API tells it.
    pub(crate) policy: PolicyInForce,
}

/// Tells the policy that is in force now: a gateway may have read its configuration again.
#[derive(Clone)]
pub(crate) struct PolicyInForce(pub(crate) Arc<dyn Fn() -> Value + Send + Sync>);

impl std::fmt::Debug for PolicyInForce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PolicyInForce(..)")
    }
}

#[derive(Debug)]
pub(crate) struct Inside {
    setting: Setting,
    pub(super) started_at: StoreTime,
    pub(super) census: Asked<Census>,
    /// How many entries the audit trail has.
    pub(super) entries: Asked<u64>,
    pub(super) listeners: Arc<Semaphore>,
    pub(super) bulks: Arc<Semaphore>,
    /// One at a time reads the whole audit trail.
    pub(super) verifying: Semaphore,
    /// The moving parts of the summary, each second while someone listens.
    pub(super) moving: watch::Sender<Arc<str>>,
    recent: Mutex<Recent>,
    samples: Mutex<Samples>,
}

impl Desk {
    pub(crate) fn new(setting: Setting) -> Self {
        let started_at = SystemClock.wall();
        let samples = Samples::new(started_at, Sample::take(&setting.once));
        let recent = Mutex::new(Recent::new(setting.once.sampled_events()));
        Self(Arc::new(Inside {
            setting,
            started_at,
            census: Asked::new(CENSUS_FRESH),
            entries: Asked::new(ENTRIES_FRESH),
            listeners: Arc::new(Semaphore::new(events::LISTENERS_MAX)),
            bulks: Arc::new(Semaphore::new(bulk::BULKS_MAX)),
            verifying: Semaphore::new(1),
            moving: watch::Sender::default(),
            recent,
            samples: Mutex::new(samples),
        }))
    }

    /// Answers a request on the connection that has this slot.
    pub(super) async fn answer(&self, request: Request<Incoming>, slot: &Slot) -> Answer {
        slot.state().ask();
        let (head, body) = request.into_parts();
        secure(self.admitted(&head, body, slot).await.unwrap_or_else(Problem::answer))
    }

    async fn admitted(&self, head: &Parts, body: Incoming, slot: &Slot) -> Result<Answer, Problem> {
        let is_look = matches!(head.method, Method::GET | Method::HEAD);
        if let Some(asset) = page::asset(head.uri.path()).filter(|_| is_look) {
            self.keeper.admit_to_page(head)?;
            return Ok(of_type(asset.media_type, StatusCode::OK, asset.bytes));
        }
        let (endpoint, place) = match find(&head.method, head.uri.path()) {
            Found::Endpoint(endpoint, place) => (endpoint, place),
            Found::OtherMethod(methods) => return Ok(other_method(&methods)),
            Found::Nothing => return Err(Problem::not_found(NOTHING)),
        };
        let role = match self.keeper.admit(head, endpoint) {
            Ok(role) => role,
            Err(problem) => return Ok(challenged(problem)),
        };
        // Anybody may ask for health.
        if !endpoint.is_open() {
            slot.vouch();
        }
        let body = match endpoint.has_body() {
            true => body::whole(body, endpoint).await?,
            false => Bytes::new(),
        };
        self.act(role, endpoint, place, head, body).await
    }

    /// What a command asks of a store without a listener in between: the same as over one, as an operator.
    pub(crate) async fn ask(&self, head: &Parts, body: Bytes) -> Answer {
        let asked = match find(&head.method, head.uri.path()) {
            Found::Endpoint(endpoint, place) => {
                self.act(Role::Operator, endpoint, place, head, body).await
            }
            _ => Err(Problem::not_found(NOTHING)),
        };
        asked.unwrap_or_else(Problem::answer)
    }

    async fn act(
        &self,
        role: Role,
        endpoint: Endpoint,
        place: &str,
        head: &Parts,
        body: Bytes,
    ) -> Result<Answer, Problem> {
        let query = head.uri.query().unwrap_or_default();
        match endpoint {
            Endpoint::Live => Ok(text(StatusCode::OK, "live\n")),
            Endpoint::Ready => Ok(self.readiness().await),
            Endpoint::Gateway => Ok(json(&self.gateway())),
            Endpoint::Metrics => {
                let page = metrics::text(&self.once, &self.about);
                Ok(of_type(METRICS, StatusCode::OK, page))
            }
            Endpoint::Summary => Ok(json(&summary::of(self, role).await)),
            Endpoint::Operations => operations::list(self, query).await,
            Endpoint::OperationsCsv => csv_out::stream(self, query).await,
            Endpoint::Operation => operations::show(self, place).await,
            Endpoint::Settle | Endpoint::Release | Endpoint::Forget | Endpoint::Erase => {
                let change = body::object(&head.headers, &body)?;
                operations::change(self, place, endpoint, change).await
            }
            Endpoint::Bulk => bulk::run(self, body::object(&head.headers, &body)?).await,
            Endpoint::BulkCsv => csv_in::run(self, query, &head.headers, &body).await,
            Endpoint::Audit => audit::list(self, query).await,
            Endpoint::AuditHeads => audit::heads(self, query).await,
            Endpoint::AuditVerify => audit::verify(self, query, &[]).await,
            Endpoint::AuditCompare => {
                let kept = audit::kept_heads(body::object(&head.headers, &body)?)?;
                audit::verify(self, query, &kept).await
            }
            Endpoint::Events => events::stream(self, query).await,
            Endpoint::Policy => Ok(json(&(self.policy.0)())),
            Endpoint::Sweep => operations::sweep(self, body::object(&head.headers, &body)?).await,
            Endpoint::OpenApi => Ok(of_type("application/json", StatusCode::OK, openapi::TEXT)),
        }
    }

    /// What listens here, and for which gateway.
    fn gateway(&self) -> Value {
        serde_json::json!({ "service": ADMIN_LISTENER, "serves": self.listen })
    }

    async fn readiness(&self) -> Answer {
        match self.is_draining() {
            true => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            false if self.once.is_ready().await => text(StatusCode::OK, "ready\n"),
            false => text(StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n"),
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        *self.stage.borrow() >= Stage::Draining
    }

    /// With everything that has happened up to now.
    pub(super) fn recent(&self) -> MutexGuard<'_, Recent> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.catch_up();
        recent
    }

    pub(super) fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Desk {
    type Target = Inside;

    fn deref(&self) -> &Inside {
        &self.0
    }
}

impl Deref for Inside {
    type Target = Setting;

    fn deref(&self) -> &Setting {
        &self.setting
    }
}

fn other_method(methods: &[&'static str]) -> Answer {
    let allowed = methods.join(", ");
    let detail = format!("this address takes {allowed}");
    let mut answer =
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).answer();
    let allowed = HeaderValue::from_str(&allowed).expect("names of methods fit into a header");
    answer.headers_mut().insert(header::ALLOW, allowed);
    answer
}

fn challenged(problem: Problem) -> Answer {
    let is_unknown = problem.status == StatusCode::UNAUTHORIZED;
    let mut answer = problem.answer();
    if is_unknown {
        let challenge = HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    answer
}

/// How an admin listener of ours names itself.
pub(crate) const ADMIN_LISTENER: &str = "onlyonce admin";
const NOTHING: &str =
    "nothing is here; the page is at /, the API's description at /api/v1/openapi.json";
/// How old the numbers may be that a page shows. Those of the trail are read chain by chain.
const CENSUS_FRESH: Duration = Duration::from_secs(1);
const ENTRIES_FRESH: Duration = Duration::from_secs(10);
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
