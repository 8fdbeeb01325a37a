//! A JSON value with exact numbers.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// Digits without zeros at either end, and a power of ten; no digits are zero.
    Number {
        is_negative: bool,
        digits: String,
        power: i128,
    },
    Text(String),
    List(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

impl Value {
    /// The number with these digits times ten to the `power`.
    pub(super) fn number(is_negative: bool, digits: &str, power: i128) -> Self {
        let led = digits.trim_start_matches('0');
        let digits = led.trim_end_matches('0');
        if digits.is_empty() {
            return Self::Number { is_negative: false, digits: String::new(), power: 0 };
        }
        let power = power + (led.len() - digits.len()) as i128;
        Self::Number { is_negative, digits: digits.into(), power }
    }

    /// Whether it has a number with a power of ten near the bounds of 64 bits, or beyond them.
    pub(super) fn is_extreme(&self) -> bool {
        match self {
            Self::Number { power, .. } => power.unsigned_abs() > (1 << 63) - (1 << 32),
            Self::List(values) => values.iter().any(Self::is_extreme),
            Self::Object(members) => members.values().any(Self::is_extreme),
            _ => false,
        }
    }

    /// A text that means the same and looks as different as can be.
    pub(super) fn respelt(&self) -> String {
        match self {
            Self::Null => " null".into(),
            Self::Bool(value) => format!("\t{value} "),
            Self::Number { digits, .. } if digits.is_empty() => "-0.00E+7".into(),
            Self::Number { is_negative, digits, power } => {
                format!("{}{digits}00E{:+}", if *is_negative { "-" } else { "" }, power - 2)
            }
            Self::Text(text) => respelt_text(text),
            Self::List(values) => {
                let values: Vec<_> = values.iter().map(Self::respelt).collect();
                format!("[ {} ]", values.join("\r\n,"))
            }
            Self::Object(members) => {
                let member = |(name, value): (&String, &Self)| {
                    format!("{} :{}", respelt_text(name), value.respelt())
                };
                let members: Vec<_> = members.iter().rev().map(member).collect();
                format!("{{\n{}}}", members.join(" , "))
            }
        }
    }

    /// A value that is another one, if that can be made by a small change.
    pub(super) fn changed(&self) -> Option<Self> {
        match self {
            Self::Null => Some(Self::Bool(false)),
            Self::Bool(value) => Some(Self::Bool(!value)),
            Self::Number { digits, .. } if digits.is_empty() => Some(Self::Text("0".into())),
            Self::Number { is_negative, digits, power } => Some(Self::Number {
                is_negative: !is_negative,
                digits: digits.clone(),
                power: *power,
            }),
            Self::Text(text) => Some(Self::Text(format!("{text}\u{0}"))),
            Self::List(values) => {
                let mut other = values.clone();
                other.reverse();
                (other != *values).then_some(Self::List(other))
            }
            Self::Object(members) => {
                let mut other = members.clone();
                let (name, value) = other.pop_last()?;
                other.insert(format!("{name}x"), value);
                Some(Self::Object(other))
            }
        }
    }
}

fn respelt_text(text: &str) -> String {
    let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
    format!("\"{}\"", units.collect::<String>())
}
