//! What will be sent: a list of trials, made from the seed and the options alone.
//!
//! The same seed and options make the same list, so a run can be repeated and `--dry-run` tells the truth. Places to cut
//! are parts of a thousand, because the length of an answer and the time of the service are only known later.

mod draft;

use std::fmt;

use super::shim::Misbehaviour;

pub(crate) use self::draft::{Draft, Options, marker_prefix, probe};

/// One attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Program {
    T1,
    T2,
    T3,
    T4,
    T5,
    T6,
    T7,
    T8,
    T9,
    T10,
    T11,
    T12,
    T13,
    T15,
}

impl Program {
    /// In the order in which they run. The hot key is last: it is the one that a service may not survive.
    pub(crate) const ALL: [Self; 14] = [
        Self::T1,
        Self::T2,
        Self::T3,
        Self::T4,
        Self::T5,
        Self::T6,
        Self::T7,
        Self::T8,
        Self::T9,
        Self::T11,
        Self::T13,
        Self::T10,
        Self::T12,
        Self::T15,
    ];

    /// Reads `T2` or `t2`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let found =
            Self::ALL.into_iter().find(|program| text.eq_ignore_ascii_case(&program.to_string()));
        found.ok_or_else(|| format!("there is no program {text}; there are T1 to T13 and T15"))
    }

    /// What it does, in a few words.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::T1 => "the same request again and again",
            Self::T2 => "the same request at the same instant",
            Self::T3 => "connections cut at every place",
            Self::T4 => "retries while the first still runs",
            Self::T5 => "impatient clients that retry",
            Self::T6 => "another request under the same key",
            Self::T7 => "odd keys",
            Self::T8 => "another caller with the same key",
            Self::T9 => "requests that fail, then retries",
            Self::T10 => "the service is killed or stopped",
            Self::T11 => "a bad network, before and behind",
            Self::T12 => "the store is restarted or emptied",
            Self::T13 => "HTTP/2 streams that are reset",
            Self::T15 => "a crowd with one key",
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One key, and everything that is done with it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trial {
    pub(crate) program: Program,
    /// What is special about it, such as "burst of 8".
    pub(crate) label: String,
    pub(crate) kind: Kind,
    pub(crate) key: String,
    /// Found in the request, and asked for at the oracle.
    pub(crate) marker: String,
    /// Of a request that is changed; it must never be executed.
    pub(crate) other_marker: String,
    /// What the shim does when the request first arrives.
    pub(crate) misbehaviour: Option<Misbehaviour>,
    pub(crate) steps: Vec<Step>,
}

/// What is expected of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One request of one caller, sent several times.
    Duplicates,
    /// The request, then another one under its key.
    Changed,
    /// The request, then another one under a key that is nearly the same.
    NearKey,
    /// Two callers, one key: two operations.
    Callers,
    /// A request that fails at first.
    Failing,
    /// A key that a service may ignore or refuse: only noted on the card.
    OddKey,
    /// A harmless change: only noted on the card.
    Noted,
    /// A plain request with a new key: how often does the target fail by itself?
    Fresh,
    /// As many at once as a crowd.
    Hot,
}

/// A step of a trial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Sends, and waits for what becomes of it.
    One(Shot),
    /// All but the last byte of each; then all last bytes at once.
    Burst(Vec<Shot>),
    /// Each begins at its part of the service time.
    Staggered(Vec<(u32, Shot)>),
    /// Sends until there is an answer that will not change by waiting, a bounded number of times.
    Insist(Shot),
    /// Sends `CONFIRM_MAX` times more, if the answer to a retry broke off: by chance, or each time?
    Confirm(Shot),
    /// Waits for this part of the service time, and for `NOTICE_MIN` at least, until the target has noticed a cut.
    Wait(u32),
    /// Runs a command of the user while the request is on its way, at this part of the service time.
    During(Hook, u32, Shot),
    /// Runs a command of the user.
    Run(Hook),
}

/// A command of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// `--kill-cmd`, then `--start-cmd`.
    KillAndStart,
    /// Stops `--pid` for longer than `--lease`, then lets it go on.
    StopAndContinue,
    RestartStore,
    FlushStore,
}

/// One request, and what is done to it on its way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shot {
    pub(crate) caller: Caller,
    /// Which URL, counted around.
    pub(crate) node: usize,
    pub(crate) variant: Variant,
    /// The lines of the key's header.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) cut: Cut,
    pub(crate) over: Over,
}

/// Whose credentials are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    A,
    B,
}

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Http1,
    Http2,
}

/// How the request differs from the one of the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Same,
    /// Another marker, so another body, and a count of its own.
    OtherMarker,
    /// A member more at the end of a long body, and a longer text in it.
    LongTail(u8),
    /// The same JSON with other spaces.
    Respaced,
    /// Another media type.
    OtherType,
    /// A parameter more in the query.
    OtherQuery,
    /// What the service refuses: `--fail-json`, or JSON that does not end.
    Refused,
}

/// What happens to a request on its way, in parts of a thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing.
    Whole,
    /// The connection ends after this part of the request.
    Request(End, u32),
    /// The connection ends after this part of the answer.
    Response(End, u32),
    /// The connection ends after this part of the service time.
    After(End, u32),
    /// The request comes in small pieces.
    Pieces,
    /// After this part of the service time the client says that it will send no more, but listens.
    HalfClosed(u32),
}

/// How a connection that is cut ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By a reset (RST): the client crashed, or the network was lost.
    Reset,
    /// In order (FIN): the client gave up.
    Close,
}

impl Cut {
    /// How the connection ends, if the plan cuts it.
    pub(crate) fn end(self) -> Option<End> {
        match self {
            Self::Request(end, _) | Self::Response(end, _) | Self::After(end, _) => Some(end),
            Self::Whole | Self::Pieces | Self::HalfClosed(_) => None,
        }
    }
}

impl End {
    pub(crate) const ALL: [Self; 2] = [Self::Reset, Self::Close];
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "reset",
            Self::Close => "closed in order",
        })
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => write!(f, "the request"),
            Self::OtherMarker => write!(f, "another request"),
            Self::LongTail(end) => write!(f, "a long request that ends in {end}"),
            Self::Respaced => write!(f, "the request with another space in its JSON"),
            Self::OtherType => write!(f, "the request with another content type"),
            Self::OtherQuery => write!(f, "the request with a parameter more in the query"),
            Self::Refused => write!(f, "a request that the service refuses"),
        }
    }
}

/// Thousandths, for people.
pub(crate) fn percent(thousandths: u32) -> String {
    match thousandths % 10 {
        0 => format!("{} %", thousandths / 10),
        tenth => format!("{}.{tenth} %", thousandths / 10),
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => write!(f, "whole"),
            Self::Request(end, part) => write!(f, "{end} after {} of the request", percent(*part)),
            Self::Response(end, part) => write!(f, "{end} after {} of the answer", percent(*part)),
            Self::After(end, part) => {
                write!(f, "{end} after {} of the service time", percent(*part))
            }
            Self::Pieces => write!(f, "in small pieces"),
            Self::HalfClosed(0) => write!(f, "half-closed"),
            Self::HalfClosed(part) => {
                write!(f, "half-closed after {} of the service time", percent(*part))
            }
        }
    }
}

impl Shot {
    /// The request of the trial, whole, from the first caller.
    pub(crate) fn plain(key: &str) -> Self {
        Self {
            caller: Caller::A,
            node: 0,
            variant: Variant::Same,
            keys: vec![key.as_bytes().to_vec()],
            cut: Cut::Whole,
            over: Over::Http1,
        }
    }

    pub(crate) fn at(self, node: usize) -> Self {
        Self { node, ..self }
    }

    pub(crate) fn cut(self, cut: Cut) -> Self {
        Self { cut, ..self }
    }

    pub(crate) fn of(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    pub(crate) fn changed(self, variant: Variant) -> Self {
        Self { variant, ..self }
    }

    pub(crate) fn over(self, over: Over) -> Self {
        Self { over, ..self }
    }
}

impl Step {
    /// How many requests it sends at most.
    pub(crate) fn requests_max(&self) -> usize {
        match self {
            Self::One(_) | Self::During(..) => 1,
            Self::Burst(shots) => shots.len(),
            Self::Staggered(shots) => shots.len(),
            Self::Insist(_) => INSIST_MAX,
            Self::Confirm(_) => CONFIRM_MAX,
            Self::Run(_) | Self::Wait(_) => 0,
        }
    }

    /// Whether it runs a command of the user.
    pub(crate) fn has_hook(&self) -> bool {
        matches!(self, Self::During(..) | Self::Run(_))
    }

    /// The requests in it.
    pub(crate) fn shots(&self) -> Vec<&Shot> {
        match self {
            Self::One(shot)
            | Self::Insist(shot)
            | Self::Confirm(shot)
            | Self::During(_, _, shot) => vec![shot],
            Self::Burst(shots) => shots.iter().collect(),
            Self::Staggered(shots) => shots.iter().map(|(_, shot)| shot).collect(),
            Self::Run(_) | Self::Wait(_) => Vec::new(),
        }
    }
}

impl Trial {
    /// A plain request before the attacks.
    pub(crate) fn is_probe(&self) -> bool {
        self.marker.contains("-p-")
    }

    /// How many requests it sends at most.
    pub(crate) fn requests_max(&self) -> usize {
        self.steps.iter().map(Step::requests_max).sum()
    }
}

/// How often a request is sent until its answer will not change by waiting.
pub(crate) const INSIST_MAX: usize = 5;
/// How often a retry whose answer broke off is sent once more.
pub(crate) const CONFIRM_MAX: usize = 12;
/// Plain requests before the attacks that must succeed one after the other; then two at the same instant.
pub(crate) const PLAIN: usize = 3;
/// So many plain requests of a caller may fail before the run ends.
pub(crate) const PLAIN_FAILED_MAX: usize = 5;
/// So often two plain requests are sent at the same instant, until both succeed.
pub(crate) const PAIRS_MAX: usize = 3;
/// Plain requests at most, with those of a second caller.
pub(crate) const PLAIN_MAX: usize = PLAIN + 2 * PLAIN_FAILED_MAX + 2 * PAIRS_MAX;
