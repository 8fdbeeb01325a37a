//! Every cell of the table, and the page that shows it.

use super::*;

/// The table, once more and by hand: a changed cell must be changed twice.
const CELLS: [(RecordEvent, [&str; 6]); 12] = [
    //                  absent     running      unknown      released     completed  expired
    (RecordEvent::Claim, ["running", "", "", "running", "", "running"]),
    (RecordEvent::Settle, ["", "completed", "completed", "completed", "", ""]),
    (RecordEvent::Release, ["", "back", "back", "", "", ""]),
    (RecordEvent::MarkUnknown, ["", "unknown", "", "", "", ""]),
    (RecordEvent::Renew, ["", "running", "", "", "", ""]),
    (RecordEvent::Reap, ["", "unknown", "", "", "", ""]),
    (RecordEvent::Redrive, ["", "", "running", "", "", ""]),
    (RecordEvent::SettleFor, ["", "", "completed", "", "", ""]),
    (RecordEvent::ReleaseFor, ["", "", "released", "", "", ""]),
    (RecordEvent::Forget, ["", "", "", "", "absent", ""]),
    (RecordEvent::Erase, ["", "", "", "", "completed", ""]),
    (RecordEvent::Sweep, ["", "", "", "", "", "absent"]),
];

fn word(to: Option<To>) -> String {
    to.map_or_else(String::new, |to| format!("{to:?}").to_lowercase())
}

#[test]
fn every_cell_is_as_the_design_says() {
    for (event, expected) in CELLS {
        let cells = Phase::ALL.map(|phase| word(step(phase, event)));
        assert_eq!(cells, expected, "{event:?}");
    }
}

// Rule 1 of the states: what each owner's guard names.
#[test]
fn an_owners_guard_names_the_states_of_the_table() {
    use StateKind::{Released, Running, Unknown};
    assert_eq!(RecordEvent::Settle.states(), StateSet::of(&[Running, Unknown, Released]));
    assert_eq!(RecordEvent::Release.states(), StateSet::of(&[Running, Unknown]));
    assert_eq!(RecordEvent::MarkUnknown.states(), StateSet::of(&[Running]));
    assert_eq!(RecordEvent::Renew.states(), StateSet::of(&[Running]));
}

// Rule 1: the outcome of a completed, unexpired record is never replaced. Only a person may have it forgotten, or its
// answer erased. R108
#[test]
fn nothing_but_forgetting_and_erasing_may_happen_to_a_completed_record() {
    for event in RecordEvent::ALL {
        let expected = match event {
            RecordEvent::Forget => Some(To::Absent),
            RecordEvent::Erase => Some(To::Completed),
            _ => None,
        };
        assert_eq!(step(Phase::Completed, event), expected, "{event:?}");
    }
}

// Rule 8: the page shows the table of the code.
#[test]
fn the_protocol_page_shows_this_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let shown =
        page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(t, _)| t.trim());
    assert_eq!(shown, Some(markdown().trim()), "put this into {path}:\n{}", markdown());
}

const BEGIN: &str = "<!-- table: checked by a test -->";
const END: &str = "<!-- end of table -->";

fn markdown() -> String {
    let mut lines =
        vec![row("event", Phase::ALL.map(|phase| format!("*{phase:?}*").to_lowercase()))];
    lines.push("|---|---|---|---|---|---|---|".to_owned());
    for event in RecordEvent::ALL {
        let cells = Phase::ALL
            .map(|phase| step(phase, event).map_or_else(|| "·".to_owned(), |to| word(Some(to))));
        lines.push(row(&spaced(event), cells));
    }
    lines.join("\n")
}

fn row(head: &str, cells: [String; 6]) -> String {
    format!("| {head} | {} |", cells.join(" | "))
}

fn spaced(event: RecordEvent) -> String {
    let name = format!("{event:?}");
    let words =
        name.chars().flat_map(|c| [c.is_uppercase().then_some(' '), Some(c.to_ascii_lowercase())]);
    words.flatten().collect::<String>().trim().to_owned()
}
