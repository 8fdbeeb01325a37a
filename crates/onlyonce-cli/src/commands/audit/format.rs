//! Entries as text, JSON and CSV.

use onlyonce::By;
use onlyonce::store::audit::{Entry, Head, Verified};
use serde_json::{Map, Value, json};

use crate::words::plain;

/// How entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// A line for each entry, for people
    Text,
    /// A JSON document for each line
    Json,
    /// For spreadsheets; no cell is taken for a formula
    Csv,
}

impl Format {
    /// What comes before the first entry.
    pub(super) fn head(self) -> Option<String> {
        (self == Self::Csv).then(|| COLUMNS.join(","))
    }

    /// One entry, without the end of its line.
    pub(super) fn entry(self, entry: &Value) -> String {
        match self {
            Self::Text => text(entry),
            Self::Json => entry.to_string(),
            Self::Csv => csv(entry),
        }
    }

    pub(super) fn heads(self, heads: &[Head]) -> Vec<String> {
        match self {
            Self::Text | Self::Csv => heads.iter().map(ToString::to_string).collect(),
            Self::Json => heads.iter().map(|head| head_value(head).to_string()).collect(),
        }
    }

    /// What a verification found, for stdout.
    pub(super) fn verified(self, verified: &Value) -> Vec<String> {
        if self == Self::Json {
            return vec![verified.to_string()];
        }
        let faults = verified["faults"].as_array().into_iter().flatten();
        let text = |fault: &Value, name: &str| fault[name].as_str().map(plain).unwrap_or_default();
        faults
            .map(|it| {
                format!("{} entry {}: {}", text(it, "writer"), it["sequence"], text(it, "what"))
            })
            .collect()
    }
}

/// The answer of a verification, as the admin API has it too.
pub(crate) fn verified_value(verified: &Verified) -> Value {
    let faults: Vec<_> = verified
        .broken
        .iter()
        .map(|it| json!({ "writer": it.writer.to_string(), "sequence": it.sequence, "what": it.what }))
        .collect();
    json!({
        "ok": verified.is_whole(), "writers": verified.writers, "entries": verified.entries, "faults": faults,
    })
}

/// A head as the admin API tells it.
pub(crate) fn head_value(head: &Head) -> Value {
    let (last, from) = (head.last, head.from);
    json!({
        "writer": head.writer.to_string(), "sequence": last.sequence, "hash": hex(&last.hash), "from": from.sequence,
    })
}

/// An entry as the admin API tells it.
pub(crate) fn entry_value(entry: &Entry) -> Value {
    let (note, about) = (&entry.note, &entry.note.about);
    let ids: Map<_, _> =
        about.ids.iter().map(|id| (id.pointer.clone(), Value::from(id.value.as_str()))).collect();
    json!({
        "at": entry.at.rfc3339(),
        "kind": note.kind.name(),
        "id": note.id.map(|id| id.to_string()),
        "key": null,
        "route": &*about.route,
        "principal": about.principal.as_ref().map(|principal| hex(principal.as_bytes())),
        "attempt": about.attempt,
        "status": note.status,
        "who": about.by.as_ref().map(By::who),
        "why": about.by.as_ref().map(By::why),
        "ids": if ids.is_empty() { Value::Null } else { Value::Object(ids) },
        "count": note.count,
        "seq": entry.sequence,
        "writer": entry.writer.to_string(),
        "hash": hex(&entry.hash),
    })
}

/// When, what, which operation, where; then what there is to say of it.
fn text(entry: &Value) -> String {
    let word = |name: &str| entry[name].as_str().map(plain);
    let number = |name: &str| entry[name].as_u64().map(|number| number.to_string());
    let id = word("id").unwrap_or_else(|| "-".repeat(32));
    let [at, kind, route] = ["at", "kind", "route"].map(|name| word(name).unwrap_or_default());
    let mut line = format!("{at}  {kind:<17}  {id}  {route}");
    let mut say = |what: &str, value: Option<String>| {
        if let Some(value) = value {
            line.push_str(&format!("  {what} {value}"));
        }
    };
    say("attempt", number("attempt"));
    say("status", number("status"));
    say("entries", number("count"));
    for (pointer, value) in entry["ids"].as_object().into_iter().flatten() {
        say(&plain(pointer), value.as_str().map(plain));
    }
    say("by", word("who"));
    say("because", word("why").map(|why| format!("{why:?}")));
    line
}

fn csv(entry: &Value) -> String {
    COLUMNS.map(|column| cell(&entry[column])).join(",")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Object(_) => quoted(&value.to_string()),
        other => other.to_string(),
    }
}

/// A spreadsheet takes a cell that begins so for a formula, and runs it. Control characters are spelt out.
fn quoted(text: &str) -> String {
    let mark = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{mark}{}\"", plain(text).replace('"', "\"\""))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const COLUMNS: [&str; 14] = [
    "at",
    "kind",
    "id",
    "route",
    "principal",
    "attempt",
    "status",
    "who",
    "why",
    "ids",
    "count",
    "writer",
    "seq",
    "hash",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_or_breaks_its_line() {
        for text in ["=1+1", "+1", "-1", "@A1", "\tx", "\rx"] {
            assert!(quoted(text).starts_with("\"'"), "{text:?}");
        }
        assert_eq!(quoted("a\",\"b\r\nc"), "\"a\"\",\"\"b\\u{d}\\u{a}c\"");
        assert_eq!(cell(&json!({ "/id": "=1" })), "\"{\"\"/id\"\":\"\"=1\"\"}\"");
    }
}
