//! What is wrong with a wrong store.

use http::{HeaderMap, HeaderValue};
use onlyonce::record::{Kept, NotKept, Response};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    ClaimPanics,
    ClaimHangs,
    ClaimChecksThenInserts,
    ClaimReplacesExpired,
    ClaimReplacesReleased,
    ClaimReplacesUnknown,
    ClaimRepeatedIsNotMine,
    ClaimIsAlwaysMine,
    ClaimIgnoresNotAfter,
    ClaimEndsTooSoon,
    ClaimForgetsTheRoute,
    IdsAreHalved,
    TakeIgnoresNotAfter,
    TakeForgetsItsOrigin,
    LoadRemembersAbsent,
    LoadHidesExpired,
    OwnerNeedsNoToken,
    OwnerNeedsNoState,
    RevisionIsTheCount,
    SwapChecksThenWrites,
    SwapWritesThoughStale,
    SwapMakesWhatIsAbsent,
    WriteForgetsTheAttempt,
    ReapTakesTheToken,
    SettlerIsForgotten,
    UnknownIsSinceTheClaim,
    TimeWraps,
    RepeatIsStale,
    ReturnIsSinceNow,
    RenewNeedsNoToken,
    RenewKeepsTheRevision,
    RenewKeepsTheLease,
    RenewRevives,
    BeatsComeSorted,
    TtlCountsFromClaim,
    TimeRunsBackward,
    BodyIsCut,
    BodyIsText,
    HeadersAreJoined,
    HeadersLoseRepeats,
    TrailersAreDropped,
    ReasonIsForgotten,
    SweepIgnoresTheState,
    SweepChecksThenDeletes,
    SweepIgnoresItsLimit,
    SweepIgnoresExpiry,
    SweepSparesReleased,
    SweepNeverSaysMore,
    SweepAsksTheClock,
    ScanSkipsARow,
    PrefixSkipsTheLast,
    CensusCountsReleased,
    WatchSubscribesWhenPolled,
    WatchWakesOne,
    WatchMissesRelease,
    CheckValueIsReplaced,
    CheckValueNeedsNoGuard,
    CheckValueChecksThenWrites,
    CrashForgetsCheckValues,
    CrashLosesUnknown,
    CrashLosesRunning,
    CrashRevivesDeleted,
    DamagedIsAbsent,
}

impl Defect {
    /// What it makes of a response that is to be kept.
    pub(super) fn spoil(self, response: &Response) -> Response {
        let mut spoilt = response.clone();
        match (self, &mut spoilt.body) {
            (Self::BodyIsCut, Kept::Bytes { body, .. }) => body.truncate(BODY_COLUMN_BYTES),
            (Self::BodyIsText, Kept::Bytes { body, .. }) => {
                *body = String::from_utf8_lossy(body).into_owned().into();
            }
            (Self::TrailersAreDropped, Kept::Bytes { trailers, .. }) => *trailers = None,
            (Self::ReasonIsForgotten, Kept::No(why)) => *why = NotKept::Refused,
            (Self::HeadersAreJoined, _) => spoilt.headers = joined(&response.headers),
            (Self::HeadersLoseRepeats, _) => {
                spoilt.headers = HeaderMap::new();
                for (name, value) in &response.headers {
                    spoilt.headers.insert(name, value.clone());
                }
            }
            _ => {}
        }
        spoilt
    }
}

fn joined(headers: &HeaderMap) -> HeaderMap {
    let mut joined = HeaderMap::new();
    for name in headers.keys() {
        let values: Vec<_> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        joined.insert(
            name,
            HeaderValue::from_bytes(&values.join(&b", "[..])).expect("joined values are a value"),
        );
    }
    joined
}

const BODY_COLUMN_BYTES: usize = 65_536;
