//! One page that needs nothing else: no script, no font, no picture.

use super::Report;
use crate::torture::findings::{Finding, Standing, Verdict};

/// The report as a page.
pub(super) fn rendered(report: &Report) -> String {
    let verdict = report.found.verdict;
    let (name, class) = (verdict.name().to_uppercase(), class_of(verdict));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n<title>{name}: onlyonce torture</title>\n<style>{STYLE}</style></head><body><main>\n"
    );
    page += &format!(
        "<header class=\"{class}\"><p>onlyonce torture</p><h1>{name}</h1><p>{}</p></header>\n",
        escaped(&report.sentence())
    );
    page += &facts(report);
    page += &properties(report);
    for (at, finding) in report.found.findings.iter().enumerate() {
        page += &finding_section(at + 1, finding, report.same_as(at));
    }
    page += &card(report);
    page += &counts(report);
    page + "</main></body></html>\n"
}

fn facts(report: &Report) -> String {
    let targets: Vec<_> =
        report.targets.iter().map(|target| format!("<code>{}</code>", escaped(target))).collect();
    format!(
        "<dl><dt>Target</dt><dd>{}</dd><dt>Executions counted by</dt><dd>{}</dd><dt>Seed</dt><dd><code>{}</code></dd><dt>Took</dt><dd>{:.1} s, {} requests</dd></dl>\n",
        targets.join("<br>"),
        escaped(&report.oracle),
        report.seed,
        report.seconds,
        report.counts.sent
    )
}

fn properties(report: &Report) -> String {
    let mut section = "<h2>Properties</h2>\n<div class=\"scroll\"><table>".to_owned();
    for (property, standing) in &report.found.standings {
        let class = match standing {
            Standing::Violated { .. } => "bad",
            Standing::NotObserved { .. } => "good",
            Standing::Inconclusive { .. } | Standing::NotSupported { .. } => "open",
        };
        section += &format!(
            "<tr><td><b class=\"word {class}\">{}</b></td><td>{}<br><small>{}</small></td></tr>\n",
            standing.name(),
            escaped(property.sentence()),
            escaped(&standing.told())
        );
    }
    section + "</table></div>\n"
}

fn finding_section(number: usize, finding: &Finding, same_as: Option<usize>) -> String {
    let mut section = format!(
        "<section class=\"finding\"><h2><span class=\"number\">{number}</span> {}</h2>\n<p><code>{}</code> by {} ({}), in {} trials</p>\n",
        coded(&finding.summary),
        finding.property.name(),
        finding.program,
        finding.program.title(),
        finding.trials,
    );
    if let Some(earlier) = same_as {
        return section + &format!("<p>The same trial as finding {earlier}.</p></section>\n");
    }
    let executions: Vec<_> =
        finding.executions.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
    section += &format!(
        "<h3>What happened</h3><pre>{}</pre><ul>{}</ul>\n",
        escaped(&finding.timeline),
        executions.join("")
    );
    let script = escaped(&finding.reproducer);
    section += &format!(
        "<details open><summary>Script that repeats it</summary><pre>{script}</pre></details>"
    );
    section + "</section>\n"
}

/// What stands between backquotes is code.
fn coded(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match at % 2 {
        0 => escaped(part),
        _ => format!("<code>{}</code>", escaped(part)),
    });
    parts.collect()
}

fn card(report: &Report) -> String {
    let mut section = "<h2>Semantics discovered</h2>\n<div class=\"scroll\"><table><thead><tr><th></th><th>Seen</th><th>IETF draft 07</th><th>Stripe</th></tr></thead>".to_owned();
    for line in &report.card {
        section += &format!(
            "<tr><td>{}</td><td><b>{}</b></td><td>{}</td><td>{}</td></tr>\n",
            escaped(line.question),
            escaped(&line.seen).replace("; ", "<br>"),
            escaped(line.draft),
            escaped(line.stripe)
        );
    }
    section + "</table></div>\n"
}

fn counts(report: &Report) -> String {
    let mut section = "<h2>What was done</h2>\n<ul class=\"figures\">".to_owned();
    for (name, count) in report.counts.named().iter().filter(|(_, count)| *count > 0) {
        section += &format!("<li><b>{count}</b> {name}</li>");
    }
    section += "</ul>\n<div class=\"scroll\"><table><thead><tr><th>Program</th><th></th><th>Trials</th><th>Requests</th><th>Violated</th></tr></thead>";
    for line in &report.programs {
        let title = escaped(line.program.title());
        section += &match &line.left_out {
            Some(why) => format!(
                "<tr class=\"left-out\"><td>{}</td><td>{title}</td><td colspan=\"3\">left out: {}</td></tr>\n",
                line.program,
                escaped(why)
            ),
            None => {
                let short =
                    line.shortened().map(|why| format!("<br><small>{}</small>", escaped(&why)));
                format!(
                    "<tr><td>{}</td><td>{title}{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                    line.program,
                    short.unwrap_or_default(),
                    line.trials,
                    line.requests,
                    line.violated
                )
            }
        };
    }
    section + "</table></div>\n"
}

fn class_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Violated => "bad",
        Verdict::NotObserved => "good",
        Verdict::Inconclusive => "open",
    }
}

/// For HTML and XML.
pub(super) fn escaped(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;").replace('\'', "&#39;")
}

const STYLE: &str = "
:root { color-scheme: light dark; --back: #fff; --ink: #1c2127; --soft: #5c6670; --line: #dde2e7; --box: #f5f7f9;
  --bad: #b3261e; --bad-back: #fdecea; --good: #1b6e3c; --good-back: #e8f5ec; --open: #8a5a00; --open-back: #fff4de; }
@media (prefers-color-scheme: dark) { :root { --back: #14181c; --ink: #e4e8ec; --soft: #9aa5b0; --line: #2c333a; --box: #1c2228;
  --bad: #ff8a80; --bad-back: #3a1a18; --good: #7fd6a0; --good-back: #14301f; --open: #ffcc70; --open-back: #33270d; } }
* { box-sizing: border-box } body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem }
header { border-radius: 10px; padding: 1rem 1.5rem; margin-bottom: 1.5rem } header p { margin: 0 } h1 { margin: .1rem 0; font-size: 2rem; letter-spacing: .02em }
header.bad { background: var(--bad-back) } header.good { background: var(--good-back) } header.open { background: var(--open-back) }
.bad h1, .word.bad { color: var(--bad) } .good h1, .word.good { color: var(--good) } .open h1, .word.open { color: var(--open) }
h2 { font-size: 1.15rem; margin: 2rem 0 .6rem } h3 { font-size: .95rem; margin: 1rem 0 .3rem } small, .left-out { color: var(--soft) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0 } dt { color: var(--soft) } dd { margin: 0; overflow-wrap: anywhere }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .45rem .8rem .45rem 0; border-bottom: 1px solid var(--line) }
th { color: var(--soft); font-weight: 500 } .word { white-space: nowrap; font-size: .85rem }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto; font: 13px/1.45 ui-monospace, monospace; margin: .4rem 0 }
code { font-family: ui-monospace, monospace; font-size: .92em } .finding { border-left: 4px solid var(--bad); padding-left: 1.2rem; margin-top: 2rem } .finding h2 { margin-top: 0 }
.number { display: inline-block; min-width: 1.7rem; text-align: center; background: var(--bad); color: var(--back); border-radius: 5px } summary { cursor: pointer; font-weight: 600 }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .3rem 1rem; list-style: none; padding: 0 } .figures b { display: inline-block; min-width: 3rem; text-align: right; padding-right: .4rem }
";
