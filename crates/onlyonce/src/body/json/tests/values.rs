//! JSON values of our own, so that equality is decided by no parser, and many ways to write each.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
    Array(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

/// Zero is no digits at all; else the digits neither begin nor end with zero.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decimal {
    is_negative: bool,
    digits: String,
    power: i64,
}

pub(super) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        decimal().prop_map(Value::Number),
        text().prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            btree_map(text(), inner, 0..4).prop_map(Value::Object),
        ]
    })
}

fn decimal() -> impl Strategy<Value = Decimal> {
    let digits = prop_oneof![Just(String::new()), "[1-3]", "[1-9][0-9]{0,20}[1-9]"];
    (any::<bool>(), digits, -20i64..20).prop_map(|(is_negative, digits, power)| match &*digits {
        "" => Decimal { is_negative: false, digits, power: 0 },
        _ => Decimal { is_negative, digits, power },
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,2}", "[ab\"\\\\/\u{0}\n\u{e9}\u{301}\u{ffff}\u{1f600}]{0,4}"]
}

/// The value with one leaf, or one empty container, turned into something else.
pub(super) fn different(value: &Value, which: usize) -> Value {
    match value {
        Value::Null => Value::Bool(false),
        Value::Bool(is) => Value::Bool(!is),
        Value::Number(number) => {
            Value::Number(Decimal { digits: format!("{}7", number.digits), ..number.clone() })
        }
        Value::Text(text) => Value::Text(format!("{text}a")),
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Object(members) if members.is_empty() => Value::Array(vec![]),
        Value::Array(items) => Value::Array(changed(items.clone(), which)),
        Value::Object(members) => {
            let items = changed(members.values().cloned().collect(), which);
            Value::Object(members.keys().cloned().zip(items).collect())
        }
    }
}

fn changed(mut items: Vec<Value>, which: usize) -> Vec<Value> {
    let at = which % items.len();
    items[at] = different(&items[at], which / items.len());
    items
}

/// One of the ways to write a value, as the seed says.
pub(super) fn render(value: &Value, seed: u64) -> String {
    Pen { seed: seed | 1, text: String::new() }.document(value)
}

struct Pen {
    seed: u64,
    text: String,
}

impl Pen {
    fn document(mut self, value: &Value) -> String {
        self.space();
        self.value(value);
        self.space();
        self.text
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.text.push_str("null"),
            Value::Bool(is) => self.text.push_str(&is.to_string()),
            Value::Number(number) => self.number(number),
            Value::Text(text) => self.string(text),
            Value::Array(items) => self.list('[', items, ']', |pen, item| pen.value(item)),
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                let turn = self.choose(members.len().max(1) as u64);
                members.rotate_left(turn as usize);
                self.list('{', &members, '}', |pen, member| pen.member(member));
            }
        }
    }

    fn list<T>(
        &mut self,
        open: char,
        items: &[T],
        close: char,
        mut write: impl FnMut(&mut Self, &T),
    ) {
        self.text.push(open);
        for (at, item) in items.iter().enumerate() {
            self.text.push_str(if at == 0 { "" } else { "," });
            self.space();
            write(self, item);
            self.space();
        }
        self.space();
        self.text.push(close);
    }

    fn member(&mut self, (name, value): &(&String, &Value)) {
        self.string(name);
        self.space();
        self.text.push(':');
        self.space();
        self.value(value);
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for character in text.chars() {
            let must = matches!(character, '"' | '\\' | '\0'..'\u{20}');
            match self.choose(3) {
                0 if !must => self.text.push(character),
                1 if matches!(character, '"' | '\\' | '/') => self.text.extend(['\\', character]),
                upper => self.code_units(character, upper == 2),
            }
        }
        self.text.push('"');
    }

    fn code_units(&mut self, character: char, is_upper: bool) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            self.text.push_str(&if is_upper {
                format!("\\u{unit:04X}")
            } else {
                format!("\\u{unit:04x}")
            });
        }
    }

    fn number(&mut self, number: &Decimal) {
        let zeros = "0".repeat(self.choose(3) as usize);
        let digits = format!("{}{zeros}", number.digits);
        let power = number.power - zeros.len() as i64;
        let sign = if number.is_negative || (number.digits.is_empty() && self.choose(2) == 1) {
            "-"
        } else {
            ""
        };
        let places = self.choose(digits.len() as u64 + 3) as usize;
        let padded = format!("{digits:0>width$}", width = places + 1);
        let (whole, fraction) = padded.split_at(padded.len() - places);
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let point = if fraction.is_empty() { "" } else { "." };
        let exponent = self.exponent(power + places as i64);
        self.text.push_str(&format!("{sign}{whole}{point}{fraction}{exponent}"));
    }

    fn exponent(&mut self, power: i64) -> String {
        match (power, self.choose(3)) {
            (0, 0) => String::new(),
            (0.., 1) => format!("E+0{power}"),
            _ => format!("e{power}"),
        }
    }

    fn space(&mut self) {
        let space = ["", "", " ", "\n\t", "\r\n"][self.choose(5) as usize];
        self.text.push_str(space);
    }

    /// Xorshift: enough to spread the choices.
    fn choose(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 33) % below
    }
}
