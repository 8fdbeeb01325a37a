//! What a journal holds, as a table or as JSON: never headers, bodies or the query of a URL.

use std::io::Write;

use onlyonce::client::journal::Open;
use serde_json::json;

use super::report::Format;

/// Prints one line for each operation, the oldest first.
pub(super) fn print(entries: &[Open], format: Format) {
    let lines = match format {
        Format::Text => table(entries),
        Format::Json => entries.iter().map(summary).collect(),
    };
    // Nobody reads what is left if the pipe was closed.
    drop(std::io::stdout().write_all(lines.as_bytes()));
}

fn table(entries: &[Open]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let width = entries.iter().map(|entry| entry.key.as_str().len()).max().unwrap_or(0).max(3);
    let heading = ("KEY", "FIRST SENT", "ATTEMPTS", "STATE", "REQUEST");
    let mut table = line(width, heading);
    for entry in entries {
        let attempts = entry.attempts.to_string();
        let target = entry.target.as_deref().unwrap_or("sealed");
        let cells =
            (entry.key.as_str(), &*entry.first_sent_utc(), &*attempts, state(entry), target);
        table += &line(width, cells);
    }
    table
}

fn line(width: usize, cells: (&str, &str, &str, &str, &str)) -> String {
    let (key, first_sent, attempts, state, request) = cells;
    format!("{key:<width$}  {first_sent:<24}  {attempts:>8}  {state:<17}  {request}\n")
}

fn summary(entry: &Open) -> String {
    let summary = json!({
        "key": entry.key.as_str(),
        "first_sent": entry.first_sent_utc(),
        "attempts": entry.attempts,
        "state": state(entry).replace(' ', "_"),
        "request": entry.target,
    });
    format!("{summary}\n")
}

/// In the words of the help.
fn state(entry: &Open) -> &'static str {
    match (entry.needs_reconciling, entry.is_in_doubt) {
        (true, _) => "needs reconciling",
        (false, true) => "in doubt",
        (false, false) => "not executed",
    }
}
