//! A JWKS at an address: fetched at the start, every five minutes, and when a token names a key that is not known.
//!
//! 1. A token of a key that is not known waits for a fetch that begins after it came: the issuer may have made the key just
//!    now. A fetch that runs already may bring it too.
//! 2. A key that such a fetch did not bring is not looked for again at once: a stranger can name any.
//! 3. Where no fetch ends well in time, nobody knows whether the token is good.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::{Request, Uri};
use http_body_util::{BodyExt, Limited};
use jsonwebtoken::Header;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::http::Body;
use onlyonce::store::BoxError;
use quick_cache::sync::Cache;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::super::upstream::{Terms, Upstream};
use super::key_set::{KeySet, KeySetError};
use crate::config::JwksUrl;
use crate::tls::Outward;

/// The keys as they were last fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    shared: Arc<Shared>,
    fetching: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    url: JwksUrl,
    keys: RwLock<Arc<KeySet>>,
    /// When they were fetched, on this node's boot clock.
    fetched_at: Mutex<Duration>,
    rounds: watch::Sender<Rounds>,
    /// That somebody waits for the next fetch.
    wanted: Notify,
    /// When a fetch did not bring a key that was looked for, by a digest of its name.
    missed: Cache<u64, Instant>,
    hasher: RandomState,
    waiters: Semaphore,
}

/// The fetches, which follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    begun: u64,
    ended: u64,
    /// Whether the last one to end brought a set of keys.
    is_good: bool,
}

/// What became of the search for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// It is known now.
    Found,
    /// The issuer does not have it.
    Absent,
    /// The issuer could not be asked.
    Unanswered,
}

impl Fetched {
    /// Fetches the keys, and goes on doing so. Waits for the first fetch, and not for long.
    pub(super) async fn start(url: &JwksUrl) -> Result<Self, BoxError> {
        let upstream = Upstream::new(&origin(url.uri())?, &Outward::of_this_machine())?;
        let shared = Arc::new(Shared::new(url.clone()));
        let fetching = tokio::spawn(shared.clone().run(upstream)).abort_handle();
        let mut rounds = shared.rounds.subscribe();
        let _ = timeout(FETCH_WAIT, rounds.wait_for(|rounds| rounds.ended > 0)).await;
        Ok(Self { shared, fetching })
    }

    pub(super) fn keys(&self) -> Arc<KeySet> {
        self.shared.keys()
    }

    /// Looks for a key that may have signed a token with this header.
    pub(super) async fn search(&self, header: &Header) -> Search {
        self.shared.search(header).await
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        self.fetching.abort();
    }
}

impl Shared {
    fn new(url: JwksUrl) -> Self {
        Self {
            url,
            keys: RwLock::default(),
            fetched_at: Mutex::default(),
            rounds: watch::Sender::default(),
            wanted: Notify::new(),
            missed: Cache::new(MISSED_MAX),
            hasher: RandomState::new(),
            waiters: Semaphore::new(WAITERS_MAX),
        }
    }

    fn keys(&self) -> Arc<KeySet> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has(&self, header: &Header) -> bool {
        self.keys().fitting(header).next().is_some()
    }

    async fn search(&self, header: &Header) -> Search {
        if self.has(header) {
            return Search::Found;
        }
        let name = self.hasher.hash_one((&header.kid, header.alg));
        let missed_at = self.missed.get(&name);
        if missed_at.is_some_and(|missed_at| missed_at.elapsed() < MISSED_FOR) {
            return Search::Absent;
        }
        let Ok(_place) = self.waiters.try_acquire() else { return Search::Unanswered };
        let search = timeout(SEARCH_WAIT, self.fetched_for(header)).await;
        let search = search.unwrap_or(Search::Unanswered);
        if search == Search::Absent {
            self.missed.insert(name, Instant::now());
        }
        search
    }

    /// Waits for a fetch that begins from now on, or for the key.
    async fn fetched_for(&self, header: &Header) -> Search {
        let mut rounds = self.rounds.subscribe();
        let before = rounds.borrow_and_update().begun;
        self.wanted.notify_one();
        loop {
            let now = *rounds.borrow_and_update();
            match () {
                () if self.has(header) => return Search::Found,
                () if now.ended <= before => {}
                () if now.is_good => return Search::Absent,
                () => return Search::Unanswered,
            }
            if rounds.changed().await.is_err() {
                return Search::Unanswered;
            }
        }
    }

    async fn run(self: Arc<Self>, upstream: Upstream) {
        let mut is_failing = false;
        loop {
            self.begin();
            let fetched = timeout(FETCH_WAIT, fetch(&upstream, self.url.uri())).await;
            let fetched = fetched.unwrap_or_else(|elapsed| Err(elapsed.into()));
            self.tell(&mut is_failing, fetched.as_ref().err());
            self.end(fetched.ok(), SystemClock.boot());
            sleep(PAUSE).await;
            let pause = if is_failing { EVERY_FAILING } else { EVERY };
            let _ = timeout(pause, self.wanted.notified()).await;
        }
    }

    fn begin(&self) {
        self.rounds.send_modify(|rounds| rounds.begun += 1);
    }

    /// Ends a fetch, at `now` on the boot clock.
    fn end(&self, fetched: Option<KeySet>, now: Duration) {
        let is_good = fetched.is_some();
        self.take(fetched, now);
        self.rounds
            .send_modify(|rounds| *rounds = Rounds { ended: rounds.begun, is_good, ..*rounds });
    }

    /// Takes over what was fetched. Keys that nobody confirms for too long are given up: they may have been withdrawn since.
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
                warn!(keys = %self.url, %error, "cannot fetch the keys of bearer tokens; the keys that are known stay in use, for at most a day");
            }
            (true, None) => info!(keys = %self.url, "the keys of bearer tokens are fetched again"),
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
/// While the issuer does not answer.
const EVERY_FAILING: Duration = Duration::from_secs(4);
/// The least between two fetches, however many keys are looked for.
const PAUSE: Duration = Duration::from_secs(1);
const FETCH_WAIT: Duration = Duration::from_secs(3);
/// How long a token waits for its key: for the end of a fetch, and a quick one after it.
const SEARCH_WAIT: Duration = Duration::from_secs(5);
/// Requests that wait for a key at the same time.
const WAITERS_MAX: usize = 1_000;
/// How long a key is not looked for again that the issuer did not have.
const MISSED_FOR: Duration = Duration::from_secs(5);
/// The keys that are remembered as such: a stranger can name many.
const MISSED_MAX: usize = 1_000;
const BYTES_MAX: usize = 1024 * 1024;
/// How long keys are used that cannot be fetched again.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::JoinHandle;

    use super::*;

    const KEY: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"one","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn keys() -> KeySet {
        KeySet::of_text(KEY.as_bytes()).unwrap()
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared::new("https://id.test/keys?code=secret".parse().unwrap()))
    }

    /// A gateway that has fetched a set without keys, and nobody is waiting.
    fn idle() -> Arc<Shared> {
        let shared = shared();
        shared.begin();
        shared.end(Some(KeySet::default()), Duration::ZERO);
        shared
    }

    fn header(kid: &str) -> Header {
        Header { kid: Some(kid.to_owned()), ..Header::new(jsonwebtoken::Algorithm::EdDSA) }
    }

    /// A search that waits by now.
    async fn searching(shared: &Arc<Shared>, kid: &str) -> JoinHandle<Search> {
        let (shared, header) = (shared.clone(), header(kid));
        let search = tokio::spawn(async move { shared.search(&header).await });
        tokio::task::yield_now().await;
        assert!(!search.is_finished());
        search
    }

    fn is_wanted(shared: &Shared) -> bool {
        shared.wanted.notified().now_or_never().is_some()
    }

    // threat K15
    #[tokio::test(start_paused = true)]
    async fn a_token_waits_for_the_fetch_that_runs_and_for_the_next_one() {
        let shared = idle();
        shared.begin();
        let search = searching(&shared, "one").await;
        shared.end(Some(keys()), Duration::ZERO);
        assert_eq!(search.await.unwrap(), Search::Found);
        // What runs may have been answered before the issuer made the key.
        let shared = idle();
        shared.begin();
        let search = searching(&shared, "one").await;
        shared.end(Some(KeySet::default()), Duration::ZERO);
        tokio::task::yield_now().await;
        assert!(!search.is_finished() && is_wanted(&shared));
        shared.begin();
        shared.end(Some(keys()), Duration::ZERO);
        assert_eq!(search.await.unwrap(), Search::Found);
    }

    // threat K15
    #[tokio::test(start_paused = true)]
    async fn a_strangers_key_is_not_looked_for_again_at_once_and_another_one_is() {
        let shared = idle();
        let stranger = searching(&shared, "none").await;
        assert!(is_wanted(&shared));
        shared.begin();
        shared.end(Some(KeySet::default()), Duration::ZERO);
        assert_eq!(stranger.await.unwrap(), Search::Absent);
        assert_eq!(shared.search(&header("none")).await, Search::Absent);
        assert!(!is_wanted(&shared), "it was just looked for");
        let valid = searching(&shared, "one").await;
        assert!(is_wanted(&shared), "nobody has looked for this one");
        shared.begin();
        shared.end(Some(keys()), Duration::ZERO);
        assert_eq!(valid.await.unwrap(), Search::Found);
        tokio::time::advance(MISSED_FOR).await;
        let later = searching(&shared, "none").await;
        assert!(is_wanted(&shared));
        later.abort();
    }

    // threat K15
    #[tokio::test(start_paused = true)]
    async fn a_key_is_not_called_absent_by_an_issuer_that_does_not_answer() {
        let shared = idle();
        let search = searching(&shared, "one").await;
        shared.begin();
        shared.end(None, Duration::ZERO);
        assert_eq!(search.await.unwrap(), Search::Unanswered);
        // Nor by one that never ends its answer.
        shared.begin();
        assert_eq!(shared.search(&header("one")).await, Search::Unanswered);
    }

    // threat K15
    #[tokio::test(start_paused = true)]
    async fn what_strangers_look_for_is_bounded() {
        let shared = idle();
        let mut searches = Vec::new();
        for number in 0..WAITERS_MAX {
            searches.push(searching(&shared, &number.to_string()).await);
        }
        assert_eq!(shared.search(&header("one more")).await, Search::Unanswered);
        for number in 0..3 * MISSED_MAX {
            shared.missed.insert(number as u64, Instant::now());
        }
        assert!(shared.missed.len() <= MISSED_MAX);
    }

    // threat K16
    #[test]
    fn the_address_of_keys_is_shown_without_its_query() {
        let shown = format!("{:?} {}", shared(), shared().url);
        assert!(shown.contains("https://id.test/keys") && !shown.contains("secret"), "{shown}");
    }

    fn has_key(shared: &Shared) -> bool {
        !shared.keys.read().unwrap().is_empty()
    }

    // R26
    #[test]
    fn keys_that_nobody_confirms_are_used_for_a_day_and_no_longer() {
        let (shared, hour) = (shared(), 3_600);
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
        let shared = shared();
        shared.take(Some(keys()), Duration::ZERO);
        shared.take(Some(KeySet::default()), Duration::from_secs(1));
        assert!(!has_key(&shared));
    }
}
