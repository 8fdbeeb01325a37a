//! For an issue, a pull request or a wiki.

use super::Report;

/// The report as Markdown.
pub(super) fn rendered(report: &Report) -> String {
    let verdict = report.found.verdict.name().to_uppercase();
    let mut text = format!("# onlyonce torture: {verdict}\n\n{}\n\n", sentence(&report.sentence()));
    for target in &report.targets {
        text += &format!("- Target: `{target}`\n");
    }
    text += &format!("- Executions: {}\n- Seed: `{}`\n\n", report.oracle, report.seed);
    text += "| property | verdict | |\n|---|---|---|\n";
    for (property, standing) in &report.found.standings {
        text += &format!(
            "| {} | **{}** | {} |\n",
            property.sentence(),
            standing.name(),
            cell(&standing.told())
        );
    }
    for (at, finding) in report.found.findings.iter().enumerate() {
        text += &format!("\n## {}. {}\n\n", at + 1, finding.summary);
        text += &format!(
            "Property `{}`, program {} ({}), {} trials.\n\n",
            finding.property.name(),
            finding.program,
            finding.program.title(),
            finding.trials
        );
        if let Some(earlier) = report.same_as(at) {
            text += &format!("The same trial as finding {earlier}.\n");
            continue;
        }
        text += &format!("```\n{}```\n\n", finding.timeline);
        for execution in &finding.executions {
            text += &format!("- {execution}\n");
        }
        text += &format!("\n```sh\n{}```\n", finding.reproducer);
    }
    text += "\n## Semantics discovered\n\n| | seen | IETF draft 07 | Stripe |\n|---|---|---|---|\n";
    for line in &report.card {
        text += &format!(
            "| {} | {} | {} | {} |\n",
            line.question,
            cell(&line.seen),
            line.draft,
            line.stripe
        );
    }
    text += "\n## What was done\n\n| | |\n|---|--:|\n";
    for (name, count) in report.counts.named().iter().filter(|(_, count)| *count > 0) {
        text += &format!("| {name} | {count} |\n");
    }
    for (names, why) in report.left_out() {
        text += &format!("\nLeft out: {names} ({why}).\n");
    }
    text
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
