//! A JWKS at an address: fetched at the start, every five minutes, and when a token names a key that is not known.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::{Request, Uri};
use http_body_util::{BodyExt, Limited};
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::http::Body;
use onlyonce::store::BoxError;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::super::upstream::{Terms, Upstream};
use super::key_set::{KeySet, KeySetError};
use crate::tls::Outward;

/// The keys as they were last fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    shared: Arc<Shared>,
    fetching: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    uri: Uri,
    keys: RwLock<Arc<KeySet>>,
    /// When they were fetched, on this node's boot clock.
    fetched_at: Mutex<Duration>,
    /// How many fetches have ended.
    ended: watch::Sender<u64>,
    /// When the last one began.
    begun_at: Mutex<Instant>,
    wanted: Notify,
}

impl Fetched {
    /// Fetches the keys, and goes on doing so. Waits for the first fetch, and not for long.
    pub(super) async fn start(uri: &Uri) -> Result<Self, BoxError> {
        let upstream = Upstream::new(&origin(uri)?, &Outward::of_this_machine())?;
        let shared = Arc::new(Shared::new(uri.clone()));
        let fetching = tokio::spawn(shared.clone().run(upstream)).abort_handle();
        let _ = timeout(FETCH_WAIT, shared.ended.subscribe().wait_for(|ended| *ended > 0)).await;
        Ok(Self { shared, fetching })
    }

    pub(super) fn keys(&self) -> Arc<KeySet> {
        self.shared.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the keys anew, unless that was done just before: so many unknown keys cost no more than one.
    pub(super) async fn fetch_again(&self) {
        let shared = &self.shared;
        let begun_at = *shared.begun_at.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = shared.ended.subscribe();
        let before = *ended.borrow_and_update();
        if begun_at.elapsed() >= PAUSE {
            shared.wanted.notify_one();
            let _ = timeout(FETCH_WAIT, ended.wait_for(|ended| *ended > before)).await;
        }
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        self.fetching.abort();
    }
}

impl Shared {
    fn new(uri: Uri) -> Self {
        Self {
            uri,
            keys: RwLock::default(),
            fetched_at: Mutex::default(),
            ended: watch::Sender::new(0),
            begun_at: Mutex::new(Instant::now()),
            wanted: Notify::new(),
        }
    }

    async fn run(self: Arc<Self>, upstream: Upstream) {
        let mut is_failing = false;
        loop {
            *self.begun_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            let fetched = timeout(FETCH_WAIT, fetch(&upstream, &self.uri)).await;
            let fetched = fetched.unwrap_or_else(|elapsed| Err(elapsed.into()));
            self.tell(&mut is_failing, fetched.as_ref().err());
            self.take(fetched.ok(), SystemClock.boot());
            self.ended.send_modify(|ended| *ended += 1);
            sleep(PAUSE).await;
            if !is_failing {
                let _ = timeout(EVERY, self.wanted.notified()).await;
            }
        }
    }

    /// Takes over what was fetched, at `now` on the boot clock. Keys that nobody confirms for too long are given up: they
    /// may have been withdrawn since.
    fn take(&self, fetched: Option<KeySet>, now: Duration) {
        let mut fetched_at = self.fetched_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_too_old = now.saturating_sub(*fetched_at) >= UNCONFIRMED_MAX;
        let keys = match fetched {
            Some(keys) => {
                *fetched_at = now;
                keys
            }
            None if is_too_old => KeySet::default(),
            None => return,
        };
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    fn tell(&self, is_failing: &mut bool, error: Option<&BoxError>) {
        match (std::mem::replace(is_failing, error.is_some()), error) {
            (false, Some(error)) => {
                warn!(keys = %self.uri, %error, "cannot fetch the keys of bearer tokens; the keys that are known stay in use, for at most a day");
            }
            (true, None) => info!(keys = %self.uri, "the keys of bearer tokens are fetched again"),
            _ => {}
        }
    }
}

async fn fetch(upstream: &Upstream, uri: &Uri) -> Result<KeySet, BoxError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path).body(Body::default())?;
    let host = uri.authority().ok_or("the address has no host")?.as_str();
    request.headers_mut().insert(http::header::HOST, host.parse()?);
    let terms = Terms::new(FETCH_WAIT, Duration::ZERO);
    let (head, body) = upstream.send(request, terms).await?.into_parts();
    if !head.status.is_success() {
        return Err(format!("it answered {}", head.status).into());
    }
    let text = Limited::new(body, BYTES_MAX).collect().await?.to_bytes();
    match KeySet::of_text(&text) {
        // The issuer has withdrawn all of its keys.
        Err(KeySetError::Empty) => Ok(KeySet::default()),
        keys => Ok(keys?),
    }
}

/// The address without its path.
fn origin(uri: &Uri) -> Result<Uri, BoxError> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some("/".parse()?);
    Ok(Uri::from_parts(parts)?)
}

const EVERY: Duration = Duration::from_secs(5 * 60);
/// The least between two fetches.
const PAUSE: Duration = Duration::from_secs(5);
const FETCH_WAIT: Duration = Duration::from_secs(3);
const BYTES_MAX: usize = 1024 * 1024;
/// How long keys are used that cannot be fetched again.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn keys() -> KeySet {
        KeySet::of_text(KEY.as_bytes()).unwrap()
    }

    fn has_key(shared: &Shared) -> bool {
        !shared.keys.read().unwrap().is_empty()
    }

    // R26
    #[test]
    fn keys_that_nobody_confirms_are_used_for_a_day_and_no_longer() {
        let (shared, hour) = (Shared::new(Uri::from_static("http://id.test/")), 3_600);
        let at = |hours: u64| Duration::from_secs(hours * hour);
        shared.take(Some(keys()), at(10));
        for (hours, is_there) in [(11, true), (33, true), (34, false), (35, false)] {
            shared.take(None, at(hours));
            assert_eq!(has_key(&shared), is_there, "{hours}");
        }
        shared.take(Some(keys()), at(40));
        shared.take(None, at(41));
        assert!(has_key(&shared), "fetched again");
    }

    // R26
    #[test]
    fn keys_that_the_issuer_withdraws_are_given_up_at_once() {
        let shared = Shared::new(Uri::from_static("http://id.test/"));
        shared.take(Some(keys()), Duration::ZERO);
        shared.take(Some(KeySet::default()), Duration::from_secs(1));
        assert!(!has_key(&shared));
    }
}
