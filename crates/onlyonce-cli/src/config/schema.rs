//! The JSON Schema of a configuration, for editors: made from the list of names, like the docs.
//!
//! Draft 7, which the language servers for TOML understand. It knows names, kinds of values, words and defaults; what
//! contradicts what, and what variables and files hold, only `onlyonce config check` knows.

use serde_json::{Map, Value, json};
use toml::de::{DeTable, DeValue};

use super::names::{Choice, Kind, Name, Section, TABLES, TOP};
use super::units;

/// The schema of a whole file.
pub(super) fn schema() -> Value {
    let mut schema = table(&TOP);
    schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    schema["title"] = format!("The configuration of onlyonce {}", env!("CARGO_PKG_VERSION")).into();
    schema
}

fn table(section: &Section) -> Value {
    let names = || section.names().filter(|name| !name.is_later());
    let properties: Map<_, _> =
        names().map(|name| (name.name.to_owned(), property(name))).collect();
    let needed: Vec<_> = names().filter(|name| name.is_needed()).map(|name| name.name).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": false,
    })
}

fn property(name: &Name) -> Value {
    let mut property = match name.kind() {
        Some(kind) => of_kind(&kind, name),
        None => json!({}),
    };
    let (first, rest) = name.meaning.split_at(name.meaning.ceil_char_boundary(1));
    property["description"] =
        format!("{}{rest}.\n\nIt is {}.", first.to_uppercase(), name.values).into();
    if let Some(default) = value_of(name.default) {
        // A table that may be left empty needs nothing.
        if let Some(needed) = property.get("required").filter(|_| default == json!({})) {
            property["anyOf"] = json!([{ "maxProperties": 0 }, { "required": needed }]);
            property["required"] = json!([]);
        }
        property["default"] = default;
    }
    property
}

fn of_kind(kind: &Kind, name: &Name) -> Value {
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Pointer => json!({ "type": "string", "pattern": "^(/|$)" }),
        Kind::Duration { is_above_zero } => {
            json!({ "type": "string", "pattern": units::duration_pattern(*is_above_zero) })
        }
        Kind::Size { is_above_zero } => {
            json!({ "type": "string", "pattern": units::bytes_pattern(*is_above_zero) })
        }
        Kind::Number { least, most: Some(most) } => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Kind::Number { least, most: None } => json!({ "type": "integer", "minimum": least }),
        Kind::Pair => json!({
            "type": "array",
            "items": { "type": "integer", "minimum": 0 },
            "minItems": 2,
            "maxItems": 2,
        }),
        Kind::Choice(choices) => one_of(choices),
        Kind::Table => table_of(name),
        Kind::List { of, most: Some(most) } => {
            json!({ "type": "array", "items": of_kind(of, name), "maxItems": most })
        }
        Kind::List { of, most: None } => json!({ "type": "array", "items": of_kind(of, name) }),
        Kind::OneOrList(one) => {
            let one = of_kind(one, name);
            json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
        }
    }
}

fn table_of(name: &Name) -> Value {
    let found = TABLES.iter().find(|(title, _)| *title == name.name);
    found.map_or_else(|| json!({ "type": "object" }), |(_, section)| table(section))
}

fn one_of(choices: &[Choice]) -> Value {
    let words = choices.iter().filter_map(|choice| match choice {
        Choice::Word(word) => Some(Value::from(word.as_str())),
        Choice::Number(number) => Some(Value::from(*number)),
        Choice::Range(..) | Choice::Prefix(_) => None,
    });
    let words: Vec<_> = words.collect();
    let others = choices.iter().filter_map(|choice| match choice {
        Choice::Range(least, most) => {
            Some(json!({ "type": "integer", "minimum": least, "maximum": most }))
        }
        Choice::Prefix(prefix) => {
            Some(json!({ "type": "string", "pattern": format!("^{prefix}") }))
        }
        Choice::Word(_) | Choice::Number(_) => None,
    });
    let mut all: Vec<_> = others.collect();
    if !words.is_empty() {
        all.insert(0, json!({ "enum": words }));
    }
    match all.len() {
        1 => all.remove(0),
        _ => json!({ "anyOf": all }),
    }
}

/// What a default, which is written as TOML, is in JSON.
fn value_of(default: &str) -> Option<Value> {
    let line = format!("default = {default}");
    let table = DeTable::parse(&line).ok()?;
    let value = table.get_ref().values().next().map(|value| json_of(value.get_ref()));
    value.flatten()
}

fn json_of(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::String(text) => Some(text.as_ref().into()),
        DeValue::Integer(number) => number.as_str().parse::<u64>().ok().map(Value::from),
        DeValue::Boolean(is_true) => Some((*is_true).into()),
        DeValue::Array(members) => members.iter().map(|member| json_of(member.get_ref())).collect(),
        DeValue::Table(table) if table.is_empty() => Some(json!({})),
        DeValue::Table(_) | DeValue::Float(_) | DeValue::Datetime(_) => None,
    }
}
