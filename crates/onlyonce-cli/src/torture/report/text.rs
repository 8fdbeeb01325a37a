//! For a terminal.

use super::Report;
use crate::torture::findings::{Standing, Verdict};

/// The report as text.
pub(super) fn rendered(report: &Report, is_coloured: bool) -> String {
    let paint = Paint(is_coloured);
    let verdict = report.found.verdict.name().to_uppercase();
    let colour = match report.found.verdict {
        Verdict::Violated => RED,
        Verdict::NotObserved => GREEN,
        Verdict::Inconclusive => YELLOW,
    };
    let mut text = format!("\n{}  {}\n\n", paint.with(colour, &verdict), report.sentence());
    for target in &report.targets {
        text += &format!("  target      {target}\n");
    }
    text += &format!("  executions  {}\n", report.oracle);
    text += &format!("  seed        {}   ({:.1} s)\n\nProperties\n", report.seed, report.seconds);
    for (property, standing) in &report.found.standings {
        let colour = match standing {
            Standing::Violated { .. } => RED,
            Standing::NotObserved { .. } => GREEN,
            _ => YELLOW,
        };
        let name = paint.with(colour, &format!("{:<13}", standing.name()));
        text += &format!(
            "  {name}  {}\n{:17}{}\n",
            property.sentence(),
            "",
            paint.with(DIM, &standing.told())
        );
    }
    text += &findings(report, paint);
    text += "\nSemantics discovered\n";
    text += &paint
        .with(DIM, &format!("  {:<30} {:<40} {:<28} {}\n", "", "seen", "IETF draft 07", "Stripe"));
    for line in &report.card {
        let (first, rest) = wrapped(&line.seen);
        text +=
            &format!("  {:<30} {first:<40} {:<28} {}\n", line.question, line.draft, line.stripe);
        for more in rest {
            text += &format!("  {:<30} {more}\n", "");
        }
    }
    text += "\nWhat was done\n";
    for (name, count) in report.counts.named().iter().filter(|(_, count)| *count > 0) {
        text += &format!("  {count:>6}  {name}\n");
    }
    text += &left_out(report);
    text
}

fn findings(report: &Report, paint: Paint) -> String {
    let mut text = String::new();
    for (at, finding) in report.found.findings.iter().enumerate() {
        let title = format!("Finding {}  {}: {}", at + 1, finding.property.name(), finding.summary);
        text += &format!("\n{}\n", paint.with(RED, &title));
        text += &format!(
            "  {} {}, {} trials\n\n",
            finding.program,
            finding.program.title(),
            finding.trials
        );
        if let Some(earlier) = report.same_as(at) {
            text += &format!("  The same trial as finding {earlier}.\n");
            continue;
        }
        text += &indented(&finding.timeline);
        for execution in &finding.executions {
            text += &format!("  {execution}\n");
        }
        text += &format!("\n  Reproduce it:\n{}", indented(&finding.reproducer));
    }
    text
}

fn left_out(report: &Report) -> String {
    let left: Vec<_> =
        report.left_out().iter().map(|(names, why)| format!("  {names}: {why}\n")).collect();
    if left.is_empty() { String::new() } else { format!("\nLeft out\n{}", left.join("")) }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Lines of a cell.
fn wrapped(text: &str) -> (String, Vec<String>) {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one line at least");
        if !last.is_empty() && last.chars().count() + word.chars().count() >= CELL {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    let first = lines.remove(0);
    (first, lines)
}

#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn with(self, colour: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

const CELL: usize = 40;
const RED: &str = "1;31";
const GREEN: &str = "1;32";
const YELLOW: &str = "1;33";
const DIM: &str = "2";
