//! From what happened to a verdict: findings with evidence, and a word for each property.

mod reproducer;
mod timeline;

use std::collections::BTreeMap;

use super::fresh::Fresh;
use super::hunt::Skip;
use super::judge::{Facts, Judgement, Property, judge};
use super::observed::Observed;
use super::plan::{Kind, Program};
use super::target::Target;
use super::{Hunt, oracle::Oracle};

/// The word at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Violated,
    NotObserved,
    Inconclusive,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Violated => "violated",
            Self::NotObserved => "not observed",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// The word for one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// In so many of so many trials.
    Violated {
        trials: usize,
        of: usize,
    },
    /// In none of so many trials.
    NotObserved {
        trials: usize,
    },
    Inconclusive {
        why: String,
    },
    NotSupported {
        why: String,
    },
}

impl Standing {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Violated { .. } => "VIOLATED",
            Self::NotObserved { .. } => "NOT OBSERVED",
            Self::Inconclusive { .. } => "INCONCLUSIVE",
            Self::NotSupported { .. } => "NOT SUPPORTED",
        }
    }

    /// What stands behind the word.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Violated { trials, of } => format!("in {trials} of {of} trials"),
            Self::NotObserved { trials } if *trials <= BOUND_TRIALS => {
                format!("{trials} trials, too few for a bound")
            }
            Self::NotObserved { trials } => {
                let bound = 300.0 / *trials as f64;
                format!("{trials} trials; at 95 % confidence below {bound:.1} % of such trials")
            }
            Self::Inconclusive { why } | Self::NotSupported { why } => why.clone(),
        }
    }
}

/// One way in which a property was violated.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) program: Program,
    pub(crate) property: Property,
    pub(crate) summary: String,
    /// In so many trials of the program.
    pub(crate) trials: usize,
    /// A shell script.
    pub(crate) reproducer: String,
    /// A drawing.
    pub(crate) timeline: String,
    /// What is known of the executions, a line each.
    pub(crate) executions: Vec<String>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) verdict: Verdict,
    /// Why it is inconclusive.
    pub(crate) why: Option<String>,
    pub(crate) standings: Vec<(Property, Standing)>,
    pub(crate) findings: Vec<Finding>,
}

/// Judges everything.
pub(crate) fn found(
    hunt: &Hunt,
    facts: &Facts,
    left_out: &BTreeMap<Program, &'static str>,
) -> Found {
    let judged: Vec<_> =
        hunt.observed.iter().map(|observed| (observed, judge(observed, facts))).collect();
    let findings = findings(&judged, hunt);
    let standings: Vec<_> = Property::ALL
        .iter()
        .map(|property| (*property, standing(*property, &judged, hunt, facts, left_out)))
        .collect();
    let (verdict, why) = verdict(&standings, hunt);
    Found { verdict, why, standings, findings }
}

fn verdict(standings: &[(Property, Standing)], hunt: &Hunt) -> (Verdict, Option<String>) {
    let is_violated =
        |(_, standing): &(Property, Standing)| matches!(standing, Standing::Violated { .. });
    if standings.iter().any(is_violated) {
        return (Verdict::Violated, None);
    }
    if hunt.counts.skipped_for_stop > 0 {
        return (Verdict::Inconclusive, Some("it was interrupted".to_owned()));
    }
    if let Some(why) = cut_short(hunt) {
        return (Verdict::Inconclusive, Some(why));
    }
    if hunt.counts.hooks_failed > 0 {
        return (Verdict::Inconclusive, Some("a command that was given failed".to_owned()));
    }
    let open = standings.iter().find_map(|(property, standing)| match standing {
        Standing::Inconclusive { why } if property.needs_counts() => {
            Some(format!("{}: {why}", property.sentence()))
        }
        _ => None,
    });
    let is_tested =
        |(_, standing): &(Property, Standing)| matches!(standing, Standing::NotObserved { .. });
    match open {
        Some(why) => (Verdict::Inconclusive, Some(why)),
        None if !standings.iter().any(is_tested) => {
            (Verdict::Inconclusive, Some("no property was put to the test".to_owned()))
        }
        None => (Verdict::NotObserved, None),
    }
}

/// Programs that did not run to their end, and why.
fn cut_short(hunt: &Hunt) -> Option<String> {
    [Skip::Time, Skip::Ceiling].into_iter().find_map(|skip| {
        let short = hunt.skipped.iter().filter(|(_, whys)| whys.contains(&skip));
        let names: Vec<_> = short.map(|(program, _)| program.to_string()).collect();
        let why = format!("{} came before the end of {}", skip.told(), names.join(", "));
        (!names.is_empty()).then_some(why)
    })
}

fn standing(
    property: Property,
    judged: &[(&Observed, Judgement)],
    hunt: &Hunt,
    facts: &Facts,
    left_out: &BTreeMap<Program, &'static str>,
) -> Standing {
    let tested =
        judged.iter().filter(|(_, judgement)| judgement.tested.contains(&property)).count();
    let violated = judged
        .iter()
        .filter(|(_, judgement)| {
            judgement.violations.iter().any(|violation| violation.property == property)
        })
        .count();
    if violated > 0 {
        return Standing::Violated { trials: violated, of: tested };
    }
    if let Some(why) = all_left_out(property, left_out) {
        return Standing::NotSupported { why };
    }
    if property.needs_counts() && !hunt.oracle.counts() {
        let why = "nobody counts executions: give --upstream-shim, --count-url, --count-cmd or --count-sql";
        return Standing::Inconclusive { why: why.to_owned() };
    }
    let failed = judged.iter().find_map(|(observed, _)| observed.count_error.clone());
    if let (true, Some(error)) = (property.needs_counts(), failed) {
        return Standing::Inconclusive { why: format!("executions could not be counted: {error}") };
    }
    if let (Property::AtMostOnce, Some(why)) = (property, hardly_executed(judged)) {
        return Standing::Inconclusive { why };
    }
    match tested {
        0 => Standing::Inconclusive { why: empty(property, hunt, facts) },
        trials => Standing::NotObserved { trials },
    }
}

/// Trials in which nothing was executed put nothing to the test: whoever refuses a kind of attack altogether has not
/// withstood it.
fn hardly_executed(judged: &[(&Observed, Judgement)]) -> Option<String> {
    let (mut all, mut executed) = (0, 0);
    for program in EXECUTING {
        let is_repeated = |observed: &Observed| {
            observed.trial.program == program
                && observed.events.len() > 1
                && matches!(observed.trial.kind, Kind::Duplicates | Kind::Hot)
        };
        let trials = judged.iter().filter(|(observed, _)| is_repeated(observed));
        let tested: Vec<_> =
            trials.map(|(_, judgement)| judgement.tested.contains(&Property::AtMostOnce)).collect();
        let count = tested.iter().filter(|is_tested| **is_tested).count();
        if count == 0 && !tested.is_empty() {
            return Some(format!("no trial of {program} executed anything"));
        }
        (all, executed) = (all + tested.len(), executed + count);
    }
    (executed * 2 < all).then(|| format!("only {executed} of {all} trials executed anything"))
}

/// Why there was no trial, where every program that tests the property was left out.
fn all_left_out(property: Property, left_out: &BTreeMap<Program, &'static str>) -> Option<String> {
    let programs = programs_of(property);
    let whys: Option<Vec<_>> = programs.iter().map(|program| left_out.get(program)).collect();
    whys.and_then(|whys| whys.first().map(|why| format!("{}: {why}", programs[0])))
}

/// Programs that test the property.
fn programs_of(property: Property) -> &'static [Program] {
    match property {
        Property::Isolation => &[Program::T8],
        Property::Mismatch => &[Program::T6, Program::T7],
        Property::ErrorsStay => &[Program::T9],
        Property::HotKey => &[Program::T15],
        Property::AtMostOnce | Property::SameAnswer => &DUPLICATING,
        Property::SuccessExecuted => &[],
    }
}

/// Why a property with trials was never put to the test.
fn empty(property: Property, hunt: &Hunt, facts: &Facts) -> String {
    let skipped = programs_of(property).iter().find_map(|program| {
        let why = hunt.skipped.get(program)?.first()?;
        Some(format!("{} came before the end of {program}", why.told()))
    });
    let why = match property {
        Property::HotKey if facts.fresh.after.of > 0 => {
            let Fresh { before, after, .. } = &facts.fresh;
            return format!(
                "requests with new keys failed before the crowd ({before}) and after it ({after}): too few to tell them apart"
            );
        }
        Property::SameAnswer => "no key got two 2xx answers",
        Property::ErrorsStay => {
            "no request failed at first: give a body that the service refuses with --fail-json"
        }
        Property::Mismatch => "no changed request got an answer",
        Property::Isolation => "the second caller got no answer",
        _ => "no trial put it to the test",
    };
    skipped.unwrap_or_else(|| why.to_owned())
}

/// One finding for each program and property: of the trial with the fewest requests.
fn findings(judged: &[(&Observed, Judgement)], hunt: &Hunt) -> Vec<Finding> {
    let mut smallest: BTreeMap<(Property, Program), (usize, &Observed, String)> = BTreeMap::new();
    for (observed, judgement) in judged {
        for violation in &judgement.violations {
            let key = (violation.property, observed.trial.program);
            let found =
                smallest.entry(key).or_insert_with(|| (0, observed, violation.summary.clone()));
            found.0 += 1;
            if observed.events.len() < found.1.events.len() {
                (found.1, found.2) = (observed, violation.summary.clone());
            }
        }
    }
    let found =
        smallest.into_iter().map(|((property, program), (trials, observed, summary))| Finding {
            program,
            property,
            summary,
            trials,
            reproducer: reproducer::script(observed, &hunt.target, &hunt.oracle),
            timeline: timeline::drawn(observed, hunt),
            executions: executions(observed, &hunt.oracle),
        });
    found.collect()
}

fn executions(observed: &Observed, oracle: &Oracle) -> Vec<String> {
    if observed.arrivals.is_empty() {
        let of = |marker: &str, count: Option<u64>| {
            let by = oracle.name();
            count.map(|count| format!("executions with marker {marker}: {count}, by the {by}"))
        };
        let trial = &observed.trial;
        let told =
            [of(&trial.marker, observed.count), of(&trial.other_marker, observed.other_count)];
        return told.into_iter().flatten().collect();
    }
    let told = observed.arrivals.iter().take(EXECUTIONS_MAX).enumerate().map(|(at, arrival)| {
        let did = if arrival.is_executed { "executed" } else { "arrived, not executed" };
        format!("{}. {} {did}, marker {}", at + 1, arrival.told, arrival.marker)
    });
    told.collect()
}

/// The method, and where it goes.
pub(crate) fn targets(target: &Target) -> Vec<String> {
    let urls = target.nodes.iter().map(|node| node.url(&node.path));
    urls.map(|url| format!("{} {}", target.method, super::secrets::shown_url(&url))).collect()
}

/// Programs that send one request several times.
const DUPLICATING: [Program; 12] = [
    Program::T1,
    Program::T2,
    Program::T3,
    Program::T4,
    Program::T5,
    Program::T7,
    Program::T9,
    Program::T10,
    Program::T11,
    Program::T12,
    Program::T13,
    Program::T15,
];

/// Programs whose requests a sound service executes at last; an odd key may be refused, and a request that fails may stay so.
const EXECUTING: [Program; 10] = [
    Program::T1,
    Program::T2,
    Program::T3,
    Program::T4,
    Program::T5,
    Program::T10,
    Program::T11,
    Program::T12,
    Program::T13,
    Program::T15,
];

/// A key for a person.
pub(crate) fn shortened_key(key: &[u8]) -> String {
    timeline::shortened(&String::from_utf8_lossy(key))
}

/// With so many trials, the bound of 3/n says nothing.
const BOUND_TRIALS: usize = 3;
/// Lines of executions in a finding.
const EXECUTIONS_MAX: usize = 8;

#[cfg(test)]
mod tests;
