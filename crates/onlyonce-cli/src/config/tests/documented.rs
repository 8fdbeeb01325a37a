//! The docs say what the code does: the lists of names are written from it, the examples are read by it.
//!
//! `UPDATE_DOCS=1 cargo test -p onlyonce-cli --lib documented` writes the lists anew.

use std::fmt::Write as _;

use super::names::TABLES;
use super::preset::Preset;
use super::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");

#[test]
fn the_page_has_the_names_of_the_code() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let sections = [("top", &TOP)].into_iter().chain(TABLES);
    let written =
        sections.fold(page.clone(), |page, (title, section)| with_table(&page, title, section));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &written).unwrap();
    } else {
        assert!(page == written, "docs/configuration.md is stale; see the top of this file");
    }
}

fn with_table(page: &str, title: &str, section: &Section) -> String {
    let begin = format!("<!-- names: {title} -->\n");
    let (before, rest) = page.split_once(&begin).expect("the page has a place for each list");
    let (_, after) = rest.split_once("<!-- end -->").expect("each place has an end");
    format!("{before}{begin}{}<!-- end -->{after}", table(title, section))
}

fn table(title: &str, section: &Section) -> String {
    let mut text = "| name | is | default | decides |\n|---|---|---|---|\n".to_owned();
    let is_own = |name: &&Name| title != "route" || POLICY.find(name.name).is_none();
    for name in section.names().filter(is_own) {
        let default = match name.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let values = match name.is_later() {
            true => "*not built yet; refused*",
            false => name.values,
        };
        writeln!(text, "| `{}` | {values} | {default} | {} |", name.name, name.meaning).unwrap();
    }
    text
}

#[test]
fn the_examples_of_all_pages_are_good() {
    // What the examples include is there.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("routes")).unwrap();
    let included = "[[route]]\nmatch = \"POST /included\"\n";
    std::fs::write(folder.path().join("routes/payments.toml"), included).unwrap();
    let mut count = 0;
    for (page, example) in examples() {
        let file = folder.path().join(page);
        let config = Config::parse_with(&example, &file, &environment);
        assert_eq!(config.unwrap_or_else(|error| panic!("{error}")).warnings, []);
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

/// Each ```toml of the docs, with the name of its page.
pub(super) fn examples() -> impl Iterator<Item = (String, String)> {
    let pages = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).unwrap();
    let pages = pages.map(|page| page.unwrap().path());
    pages.filter(|page| page.extension().is_some_and(|kind| kind == "md")).flat_map(|page| {
        let text = std::fs::read_to_string(&page).unwrap();
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let rests = text.split("```toml\n").skip(1);
        let examples = rests.filter_map(|rest| rest.split("```").next());
        examples.map(|example| (name.clone(), example.to_owned())).collect::<Vec<_>>()
    })
}

/// Every variable that an example names is set.
fn environment(name: &str) -> Option<String> {
    match name {
        "DATABASE_URL" => Some("postgres://localhost/onlyonce".to_owned()),
        _ if name.contains("SEAL") => Some("ab".repeat(32)),
        _ if name.contains("HOOK") => Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()),
        _ => Some(format!("{name:0>32}")),
    }
}

#[test]
fn the_messages_of_the_page_are_those_of_the_code() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let text = "\n".repeat(11)
        + "[[route]]\nmatch = \"POST /v1/charges\"\nttll = \"48h\"\nkey = \"requierd\"\n";
    let messages = parse(&text).unwrap_err().to_string();
    assert!(page.contains(&messages), "{messages}");
}

#[test]
fn the_warning_of_the_page_is_that_of_the_code() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let text = "\n".repeat(6)
        + "[[route]]\nmatch = \"POST /orders\"\nkey_from = [\"json:/order_number\"]\n";
    let warning = good(&text).warnings[0].as_warning();
    assert!(page.contains(&warning), "{warning}");
}

#[test]
fn the_presets_of_the_page_are_those_of_the_code() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (_, table) = page.split_once("| preset | sets |").unwrap();
    for (preset, _) in Preset::ALL {
        let row = table.lines().find(|line| line.starts_with(&format!("| `{preset}` |"))).unwrap();
        let sets: Vec<_> = row.split('`').skip(3).step_by(2).collect();
        let policy = |rules: &str| {
            let config = good(&format!("[[route]]\nmatch = \"POST /\"\n{rules}"));
            format!("{:?}", config.routes[0].policy)
        };
        assert_eq!(policy(&sets.join("\n")), policy(&format!("preset = {preset:?}")));
    }
}

#[test]
fn every_default_is_the_default() {
    for (table, section) in [("", &TOP), ("[policy]", &POLICY)] {
        for name in section.names().filter(|name| !name.default.is_empty()) {
            let config = good(&format!("{table}\n{} = {}", name.name, name.default));
            assert!(is_default(&config), "{}", name.name);
        }
    }
    let admin = good("[admin]\nlisten = \"127.0.0.1:8081\"");
    assert_eq!(format!("{admin:?}"), format!("{:?}", good("[admin]")));
    let audit = good("[audit]\nkeep = \"400d\"");
    assert_eq!(format!("{audit:?}"), format!("{:?}", good("[audit]")));
    let asks = "ask = \"GET /{key}\", found = \"\"";
    let policy = |more: &str| {
        let text = format!("[policy]\nrecovery = \"reconcile\"\nreconcile = {{ {asks} {more} }}");
        format!("{:?}", good(&text))
    };
    assert_eq!(policy(""), policy(", absent = \"hold\", quiet = \"10m\""));
}

#[test]
fn the_default_text_says_every_name() {
    for section in [&TOP, &ADMIN, &TLS, &UPSTREAM_TLS, &AUDIT, &OTLP, &ROUTE] {
        for name in section.names().filter(|name| !name.is_later()) {
            let (said, name) = (Config::default_text(), name.name);
            let line = |line: &str| {
                let line = line.trim_start_matches("# ");
                [format!("{name} = "), format!("[{name}]"), format!("[[{name}]]")]
                    .iter()
                    .any(|start| line.starts_with(start))
            };
            assert!(said.lines().any(line), "{name}");
        }
    }
}

// What a name may be, and what the reader takes for it, are two lists of words: they must be the same.
#[test]
fn every_word_that_is_offered_is_taken() {
    let rules = POLICY.names().map(|name| ("[policy]", name));
    let route = ROUTE.find("preset").map(|name| ("[[route]]\nmatch = \"POST /\"", name));
    let mut words = 0;
    for (table, name) in rules.chain(route).filter(|(_, name)| !name.is_later()) {
        for word in words_of(name.values) {
            let (name, details) = (name.name, "reconcile = { ask = \"GET /{key}\", found = \"\" }");
            let text = match (name, word) {
                ("scope", _) => format!("{table}\n{name} = [\"{word}\"]"),
                (_, "reconcile") => format!("{table}\n{name} = \"{word}\"\n{details}"),
                ("tokens", _) => format!("secret = \"{LONG}\"\n{table}\n{name} = \"{word}\""),
                _ => format!("{table}\n{name} = \"{word}\""),
            };
            good(&text);
            words += 1;
        }
    }
    assert!(words > 30, "the words are found at all");
}

/// A secret that is long enough.
const LONG: &str = "0123456789abcdef";

/// The quoted words of a sentence that gives no example.
fn words_of(values: &'static str) -> Vec<&'static str> {
    match values.contains("such as") {
        true => Vec::new(),
        false => values.split('"').skip(1).step_by(2).collect(),
    }
}
