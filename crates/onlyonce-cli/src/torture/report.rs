//! The report, in the forms in which people and machines read it.

mod html;
mod json;
mod junit;
mod markdown;
mod text;

use super::card::Line;
use super::findings::{Finding, Found};
use super::observed::Counts;
use super::plan::Program;

/// All that a report tells.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) found: Found,
    pub(crate) counts: Counts,
    pub(crate) card: Vec<Line>,
    pub(crate) oracle: String,
    /// Methods and addresses.
    pub(crate) targets: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) programs: Vec<ProgramLine>,
}

/// What a program did.
#[derive(Clone, Debug)]
pub(crate) struct ProgramLine {
    pub(crate) program: Program,
    pub(crate) trials: usize,
    pub(crate) requests: usize,
    pub(crate) violated: usize,
    /// Why it did nothing.
    pub(crate) left_out: Option<String>,
    /// Trials that were not carried out, or not to their end.
    pub(crate) skipped: Option<Skipped>,
}

/// Trials that were not carried out, or not to their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skipped {
    pub(crate) trials: usize,
    /// What came first.
    pub(crate) why: &'static str,
}

impl ProgramLine {
    /// Why it did less than was planned.
    fn shortened(&self) -> Option<String> {
        let Skipped { trials, why } = self.skipped?;
        Some(match self.trials {
            0 => format!("did not run: {why} came first"),
            _ => format!("{trials} of its trials did not run to their end: {why} came first"),
        })
    }
}

/// The forms of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Markdown,
    Html,
    Json,
    Junit,
}

impl Format {
    /// By the ending of a file's name.
    pub(crate) fn of_file(name: &str) -> Option<Self> {
        match name.rsplit_once('.')?.1 {
            "txt" => Some(Self::Text),
            "md" => Some(Self::Markdown),
            "html" | "htm" => Some(Self::Html),
            "json" => Some(Self::Json),
            "xml" => Some(Self::Junit),
            _ => None,
        }
    }
}

impl Report {
    /// The report in a form. `is_coloured` is for text on a terminal.
    pub(crate) fn rendered(&self, format: Format, is_coloured: bool) -> String {
        match format {
            Format::Text => text::rendered(self, is_coloured),
            Format::Markdown => markdown::rendered(self),
            Format::Html => html::rendered(self),
            Format::Json => json::rendered(self),
            Format::Junit => junit::rendered(self),
        }
    }

    /// The finding before this one that has the same evidence, counted from one.
    fn same_as(&self, at: usize) -> Option<usize> {
        let findings = &self.found.findings;
        let same = |earlier: &Finding| earlier.timeline == findings[at].timeline;
        findings[..at].iter().position(same).map(|earlier| earlier + 1)
    }

    /// Programs that did nothing or less than was planned, and why; programs with the same reason are one line.
    fn left_out(&self) -> Vec<(String, String)> {
        let mut told: Vec<(String, String)> = Vec::new();
        for line in &self.programs {
            let Some(why) = line.left_out.clone().or_else(|| line.shortened()) else { continue };
            let name = line.program.to_string();
            match told.iter_mut().find(|(_, earlier)| *earlier == why) {
                Some((names, _)) => *names += &format!(" {name}"),
                None => told.push((name, why)),
            }
        }
        told.sort_by_key(|(_, why)| why == "not chosen");
        told
    }

    /// The verdict in one sentence.
    pub(crate) fn sentence(&self) -> String {
        use super::findings::Verdict;
        match (self.found.verdict, &self.found.why) {
            (Verdict::Violated, _) => {
                let count = self.found.findings.len();
                let plural = if count == 1 { "finding" } else { "findings" };
                format!("{count} {plural}; each has a script that repeats it")
            }
            (Verdict::NotObserved, _) => format!(
                "no violation in {} trials with {} requests; that is evidence, not proof",
                self.counts.trials, self.counts.sent
            ),
            (Verdict::Inconclusive, why) => {
                why.clone().unwrap_or_else(|| "nothing was proved".to_owned())
            }
        }
    }
}
