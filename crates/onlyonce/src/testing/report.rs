//! What went wrong under duplicates, for people.

use std::collections::HashSet;
use std::fmt;

use http::StatusCode;

/// What became of a service under duplicates: see [`twice`](super::twice). Print it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many operations were tried, each with a key of its own.
    pub operations: usize,
    /// How many requests were sent for them.
    pub requests: usize,
    /// What went wrong, in the order of the trials.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether every operation had one effect and one answer.
    pub fn is_once(&self) -> bool {
        self.findings.is_empty()
    }

    /// # Panics
    /// If something happened twice, was lost, or got another answer: with the whole report.
    #[track_caller]
    pub fn assert_once(&self) {
        assert!(self.is_once(), "{self}");
    }

    /// Whether something went wrong in this trial.
    pub fn has(&self, trial: Trial) -> bool {
        self.findings.iter().any(|finding| finding.trial == trial)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, requests, findings } = self;
        if findings.is_empty() {
            return write!(
                f,
                "once: {operations} operations in {requests} requests, one effect and one answer each"
            );
        }
        let wrong: HashSet<_> = findings.iter().map(|finding| finding.operation).collect();
        let wrong = wrong.len();
        write!(
            f,
            "not once: {wrong} of {operations} operations went wrong, in {requests} requests"
        )?;
        for trial in Trial::ALL.into_iter().filter(|trial| self.has(*trial)) {
            write!(f, "\n\n{trial}:")?;
            for finding in findings.iter().filter(|finding| finding.trial == trial) {
                write!(f, "\n  - {}", finding.what)?;
            }
            write!(f, "\n  {}", trial.advice())?;
        }
        Ok(())
    }
}

/// An operation that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which operation of all, from 1.
    pub operation: usize,
    /// In which trial.
    pub trial: Trial,
    /// What happened.
    pub what: What,
}

/// How the duplicates of an operation were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trial {
    /// One after the other.
    InSequence,
    /// All at the same time.
    AtOnce,
    /// After a client that hung up.
    HangUp,
    /// After a request whose body broke off.
    BrokenBody,
    /// After an execution that failed.
    Failure,
}

impl Trial {
    const ALL: [Self; 5] =
        [Self::InSequence, Self::AtOnce, Self::HangUp, Self::BrokenBody, Self::Failure];

    fn advice(self) -> &'static str {
        match self {
            Self::InSequence => "Does the service look at the key, and keep its answer?",
            Self::AtOnce => {
                "Does it look for the key, and write it only after the work? Claim the key first, in one step that only \
                 one caller can win."
            }
            Self::HangUp => {
                "Is the work cancelled with the client, between its effect and the note of it? Do both in one \
                 transaction, or in a task of its own."
            }
            Self::BrokenBody => "Is a key claimed, or an effect made, before the body is there?",
            Self::Failure => "Is a failed execution half done, or its key never free again?",
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InSequence => "duplicates one after the other",
            Self::AtOnce => "duplicates at the same time",
            Self::HangUp => "a retry after the client hung up",
            Self::BrokenBody => "a retry after a body that broke off",
            Self::Failure => "a retry after a failure",
        })
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The effect happened more than once.
    Repeated {
        /// How often.
        effects: u64,
        /// Where the client hung up, counted in polls of its request.
        at_poll: Option<usize>,
    },
    /// The service answered with success, and there is no effect.
    Lost {
        /// The answer.
        status: StatusCode,
        /// Where the client hung up, counted in polls of its request.
        at_poll: Option<usize>,
    },
    /// A duplicate got another answer than the first.
    Differs {
        /// The status and the beginning of the body.
        first: String,
        /// The same, of the duplicate.
        later: String,
    },
    /// Effects came when those of the operation were counted already, and before the next one was sent.
    Late {
        /// How many.
        effects: u64,
    },
    /// Of all operations together, none had an effect: nothing was tested. Is the request right, and the count?
    NoEffect {
        /// The last answer.
        last: String,
    },
    /// No attempt got an answer: refusals to the end.
    NoAnswer {
        /// The last one.
        last: String,
        /// Where the client hung up, counted in polls of its request.
        at_poll: Option<usize>,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repeated { effects, at_poll } => {
                write!(f, "one key, {effects} effects{}", At(*at_poll))
            }
            Self::Lost { status, at_poll } => {
                write!(f, "answered {status}, and there is no effect{}", At(*at_poll))
            }
            Self::Differs { first, later } => {
                write!(f, "one answer was {first}, another one {later}")
            }
            Self::Late { effects } => {
                write!(f, "{effects} more effects after every duplicate was answered")
            }
            Self::NoEffect { last } => {
                write!(
                    f,
                    "no operation had an effect, the last was answered {last}: is the request right?"
                )
            }
            Self::NoAnswer { last, at_poll } => {
                write!(f, "no retry was answered, the last got {last}{}", At(*at_poll))
            }
        }
    }
}

struct At(Option<usize>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(poll) => write!(f, " (the client hung up after poll {poll})"),
            None => Ok(()),
        }
    }
}
