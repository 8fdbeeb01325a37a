//! For build servers: a test case for each property.

use super::Report;
use super::html::escaped;
use crate::torture::findings::Standing;

/// The report as JUnit XML.
pub(super) fn rendered(report: &Report) -> String {
    let standings = &report.found.standings;
    let count = |wanted: fn(&Standing) -> bool| {
        standings.iter().filter(|(_, standing)| wanted(standing)).count()
    };
    let failures = count(|standing| matches!(standing, Standing::Violated { .. }));
    let skipped = count(|standing| {
        matches!(standing, Standing::NotSupported { .. } | Standing::Inconclusive { .. })
    });
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"onlyonce torture\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\" time=\"{:.1}\">\n",
        standings.len(),
        report.seconds
    );
    for (property, standing) in standings {
        text += &format!(
            "<testcase classname=\"onlyonce.torture\" name=\"{}\">",
            escaped(property.sentence())
        );
        text += &match standing {
            Standing::Violated { .. } => failure(report, *property, standing),
            Standing::NotObserved { .. } => {
                format!("<system-out>{}</system-out>", escaped(&standing.told()))
            }
            Standing::NotSupported { why } | Standing::Inconclusive { why } => {
                format!("<skipped message=\"{}: {}\"/>", standing.name(), escaped(why))
            }
        };
        text += "</testcase>\n";
    }
    text + "</testsuite>\n</testsuites>\n"
}

fn failure(
    report: &Report,
    property: crate::torture::judge::Property,
    standing: &Standing,
) -> String {
    let findings = report.found.findings.iter().filter(|finding| finding.property == property);
    let told: Vec<_> = findings
        .map(|finding| {
            format!(
                "{} {}\n{}\n{}",
                finding.program, finding.summary, finding.timeline, finding.reproducer
            )
        })
        .collect();
    let text: String = told.join("\n").chars().filter(|c| !c.is_control() || *c == '\n').collect();
    format!("<failure message=\"{}\">{}</failure>", escaped(&standing.told()), escaped(&text))
}
