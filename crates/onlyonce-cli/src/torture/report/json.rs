//! For machines.

use serde_json::{Map, Value, json};

use super::Report;
use crate::torture::findings::Standing;

/// The report as JSON.
pub(super) fn rendered(report: &Report) -> String {
    let counts: Map<_, _> =
        report.counts.named().iter().map(|(name, count)| (snake(name), json!(count))).collect();
    let card: Map<_, _> =
        report.card.iter().map(|line| (line.name.to_owned(), json!(line.seen))).collect();
    let compared: Vec<_> = report
        .card
        .iter()
        .map(|line| {
            json!({ "name": line.name, "question": line.question, "seen": line.seen, "draft": line.draft, "stripe": line.stripe })
        })
        .collect();
    let value = json!({
        "verdict": report.found.verdict.name(),
        "why": report.sentence(),
        "targets": report.targets,
        "oracle": report.oracle,
        "seed": report.seed.to_string(),
        "seconds": (report.seconds * 10.0).round() / 10.0,
        "properties": properties(report),
        "findings": findings(report),
        "counts": counts,
        "card": card,
        "card_compared": compared,
        "programs": programs(report),
    });
    format!("{value:#}\n")
}

fn properties(report: &Report) -> Vec<Value> {
    let standings = report.found.standings.iter().map(|(property, standing)| {
        let trials = match standing {
            Standing::Violated { of, .. } => Some(*of),
            Standing::NotObserved { trials } => Some(*trials),
            _ => None,
        };
        json!({
            "property": property.name(),
            "sentence": property.sentence(),
            "standing": standing.name().to_lowercase(),
            "told": standing.told(),
            "trials": trials,
            "bound_95": trials.map(|trials| (3.0 / trials as f64).min(1.0))
                .filter(|_| matches!(standing, Standing::NotObserved { .. })),
        })
    });
    standings.collect()
}

fn findings(report: &Report) -> Vec<Value> {
    let findings = report.found.findings.iter().map(|finding| {
        json!({
            "program": finding.program.to_string(),
            "property": finding.property.name(),
            "summary": finding.summary,
            "trials": finding.trials,
            "reproducer": finding.reproducer,
            "timeline": finding.timeline,
            "executions": finding.executions,
        })
    });
    findings.collect()
}

fn programs(report: &Report) -> Vec<Value> {
    let programs = report.programs.iter().map(|line| {
        json!({
            "program": line.program.to_string(),
            "title": line.program.title(),
            "trials": line.trials,
            "requests": line.requests,
            "violated": line.violated,
            "left_out": line.left_out,
            "skipped": line.skipped.map_or(0, |skipped| skipped.trials),
            "skipped_for": line.skipped.map(|skipped| skipped.why),
        })
    });
    programs.collect()
}

fn snake(name: &str) -> String {
    let letters =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    let name: String = letters.collect();
    name.split('_').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
}
