//! The scripts: a few requests each, and what must come of them whatever happens to the gateway or the service.

mod answers;
mod callers;
mod processes;
mod sending;
mod time;

use crate::gateway::Settings;
use crate::lab::Lab;

/// What was seen that must not be; nothing, if all was well.
type Seen = Result<(), String>;

/// A script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    AnswerIsCut,
    AnswerIsLarge,
    AskedLater,
    ClientHangsUp,
    ClockIsSet,
    EmptyCredential,
    KilledAfterItsAnswer,
    KilledAtWork,
    OtherBody,
    OwnerComesBack,
    PartsThatReadAlike,
    Retried,
    RetriedAtTheEndOfItsTime,
    RunsForLong,
    SentAgain,
    SentAtOnce,
    ServiceDies,
    ServiceFails,
    StoppedAtWork,
    Swept,
    TwoCallers,
    TwoKeys,
    WaitedFor,
}

impl Script {
    /// All of them, the longest first.
    pub(crate) const ALL: &[Self] = &[
        Self::StoppedAtWork,
        Self::RetriedAtTheEndOfItsTime,
        Self::RunsForLong,
        Self::ClockIsSet,
        Self::OwnerComesBack,
        Self::Swept,
        Self::AnswerIsCut,
        Self::AnswerIsLarge,
        Self::AskedLater,
        Self::ClientHangsUp,
        Self::EmptyCredential,
        Self::KilledAfterItsAnswer,
        Self::KilledAtWork,
        Self::OtherBody,
        Self::PartsThatReadAlike,
        Self::Retried,
        Self::SentAgain,
        Self::SentAtOnce,
        Self::ServiceDies,
        Self::ServiceFails,
        Self::TwoCallers,
        Self::TwoKeys,
        Self::WaitedFor,
    ];

    /// The defaults, but for what the script is about.
    pub(crate) fn settings(self) -> Settings {
        let policy = |policy| Settings { policy, ..Settings::default() };
        match self {
            Self::AskedLater => Settings { route: RECONCILED, ..Settings::default() },
            Self::ClockIsSet => Settings {
                top: "sweep = \"200ms\"",
                policy: "lease = \"1s\"\nttl = \"1h\"",
                has_own_clock: true,
                ..Settings::default()
            },
            Self::EmptyCredential => policy("anonymous = \"reject\""),
            Self::RetriedAtTheEndOfItsTime => policy("ttl = \"6s\""),
            Self::RunsForLong => policy("lease = \"1s\"\nttl = \"1s\""),
            Self::SentAgain => policy("recovery = \"redrive\""),
            Self::Swept => Settings { top: "sweep = \"200ms\"", ..Settings::default() },
            Self::WaitedFor => policy("in_flight = \"wait\"\nwait = \"300ms\""),
            _ => Settings::default(),
        }
    }

    pub(crate) async fn play(self, lab: &mut Lab) -> Seen {
        match self {
            Self::AnswerIsCut => answers::is_cut(lab).await,
            Self::AnswerIsLarge => answers::is_large(lab).await,
            Self::Retried => answers::is_replayed(lab).await,
            Self::ServiceFails => answers::is_an_error(lab).await,
            Self::OtherBody => callers::other_body(lab).await,
            Self::TwoCallers => callers::two_callers(lab).await,
            Self::TwoKeys => callers::two_keys(lab).await,
            Self::EmptyCredential => callers::empty_credential(lab).await,
            Self::PartsThatReadAlike => callers::parts_that_read_alike(lab).await,
            Self::KilledAfterItsAnswer => processes::killed_after_its_answer(lab).await,
            Self::KilledAtWork => processes::killed_at_work(lab).await,
            Self::StoppedAtWork => processes::stopped_at_work(lab).await,
            Self::ClientHangsUp => processes::client_hangs_up(lab).await,
            Self::AskedLater => sending::asked_later(lab).await,
            Self::SentAgain => sending::sent_again(lab).await,
            Self::SentAtOnce => sending::sent_at_once(lab).await,
            Self::ServiceDies => sending::service_dies(lab).await,
            Self::WaitedFor => sending::waited_for(lab).await,
            Self::ClockIsSet => time::clock_is_set(lab).await,
            Self::OwnerComesBack => time::owner_comes_back(lab).await,
            Self::RetriedAtTheEndOfItsTime => time::retried_at_the_end_of_its_time(lab).await,
            Self::RunsForLong => time::runs_for_long(lab).await,
            Self::Swept => time::swept(lab).await,
        }
    }
}

const RECONCILED: &str = r#"
[[route]]
match = "POST /dies"
recovery = "reconcile"
forward_key = "derive"
reconcile = { ask = "GET /found?key={key}", found = "/0/id" }
"#;
