//! The findings, by promise, as text and as JSON.

use serde_json::{Value, json};

/// Everything that was found about one store.
#[derive(Debug)]
pub(super) struct Report {
    store: String,
    findings: Vec<Finding>,
    /// Why the store could not be asked.
    pub(super) error: Option<String>,
}

/// One setting, and what follows from it.
#[derive(Debug)]
pub(super) struct Finding {
    promise: Promise,
    setting: &'static str,
    verdict: Verdict,
    told: String,
    fix: String,
}

/// What a user relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    Usable,
    Durable,
    Failover,
    Authority,
    Kept,
    Capacity,
    Guarded,
    Private,
}

/// What a finding means for its promise. The worst one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Holds,
    /// It holds now, and something is not as it should be.
    AtRisk,
    Broken,
}

impl Report {
    pub(super) fn new(store: String) -> Self {
        Self { store, findings: Vec::new(), error: None }
    }

    pub(super) fn add(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
    }

    /// Whether no promise is broken.
    pub(super) fn holds(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict < Verdict::Broken)
    }

    /// Whether the store keeps what it answered.
    pub(super) fn is_durable(&self) -> bool {
        self.verdict(Promise::Durable) < Some(Verdict::Broken)
    }

    /// `None` if nothing was found about it.
    fn verdict(&self, promise: Promise) -> Option<Verdict> {
        self.of(promise).map(|finding| finding.verdict).max()
    }

    fn of(&self, promise: Promise) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.promise == promise)
    }

    fn judged(&self) -> impl Iterator<Item = (Promise, Verdict)> {
        Promise::ALL.into_iter().filter_map(|promise| Some((promise, self.verdict(promise)?)))
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("store {}\n", self.store);
        for (promise, verdict) in self.judged() {
            text += &format!("\n{}: {}\n", promise.sentence(), verdict.word());
            for finding in self.of(promise) {
                text += &finding.text();
            }
        }
        let broken = self.judged().filter(|(_, verdict)| *verdict == Verdict::Broken).count();
        text + &match (broken, &self.error) {
            (0, Some(_)) => "\nThe store could not be asked.\n".to_owned(),
            (0, None) => "\nEvery promise holds.\n".to_owned(),
            (1, _) => "\n1 promise does not hold.\n".to_owned(),
            (broken, _) => format!("\n{broken} promises do not hold.\n"),
        }
    }

    pub(super) fn json(&self) -> Value {
        let promises = self.judged().map(|(promise, verdict)| {
            json!({
                "promise": promise.name(),
                "sentence": promise.sentence(),
                "verdict": verdict.name(),
                "findings": self.of(promise).map(Finding::json).collect::<Value>(),
            })
        });
        json!({
            "store": self.store,
            "holds": self.holds() && self.error.is_none(),
            "error": self.error,
            "promises": promises.collect::<Value>(),
        })
    }
}

impl Finding {
    pub(super) fn holds(promise: Promise, setting: &'static str, told: impl Into<String>) -> Self {
        Self { promise, setting, verdict: Verdict::Holds, told: told.into(), fix: String::new() }
    }

    pub(super) fn at_risk(
        promise: Promise,
        setting: &'static str,
        told: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (told, fix) = (told.into(), fix.into());
        Self { promise, setting, verdict: Verdict::AtRisk, told, fix }
    }

    pub(super) fn broken(
        promise: Promise,
        setting: &'static str,
        told: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Broken, ..Self::at_risk(promise, setting, told, fix) }
    }

    fn text(&self) -> String {
        let mark = match self.verdict {
            Verdict::Holds => "ok  ",
            Verdict::AtRisk => "warn",
            Verdict::Broken => "BAD ",
        };
        let line = format!("  {mark} {}: {}\n", self.setting, self.told);
        match self.fix.as_str() {
            "" => line,
            fix => format!("{line}       do: {fix}\n"),
        }
    }

    fn json(&self) -> Value {
        let fix = (!self.fix.is_empty()).then_some(&self.fix);
        json!({ "setting": self.setting, "verdict": self.verdict.name(), "found": self.told, "do": fix })
    }
}

impl Promise {
    const ALL: [Self; 8] = [
        Self::Usable,
        Self::Durable,
        Self::Failover,
        Self::Authority,
        Self::Kept,
        Self::Capacity,
        Self::Guarded,
        Self::Private,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Durable => "durable",
            Self::Failover => "failover",
            Self::Authority => "authority",
            Self::Kept => "kept",
            Self::Capacity => "capacity",
            Self::Guarded => "guarded",
            Self::Private => "private",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Usable => "This build can use the store as it is",
            Self::Durable => "An answer that was given survives a crash",
            Self::Failover => "An answer that was given survives a failover",
            Self::Authority => "One store decides about each key",
            Self::Kept => "A key is kept for its time to live",
            Self::Capacity => "The store can go on taking writes",
            Self::Guarded => "Every request with a key is executed at most once",
            Self::Private => "Keys and answers are read only by those who may",
        }
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Holds => "OK",
            Self::AtRisk => "OK, with a warning",
            Self::Broken => "DOES NOT HOLD",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::AtRisk => "at_risk",
            Self::Broken => "does_not_hold",
        }
    }
}
