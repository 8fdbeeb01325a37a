//! A reader of canonical bytes: that there is one shows that no two values share theirs.

use std::collections::BTreeMap;

use super::value::Value;

/// `None` where the bytes are no canonical form.
pub(super) fn read(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader(bytes);
    let value = reader.value()?;
    reader.0.is_empty().then_some(value)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.0.first() == Some(&byte);
        self.0 = &self.0[usize::from(is_next)..];
        is_next
    }

    fn value(&mut self) -> Option<Value> {
        match self.byte()? {
            b'n' => Some(Value::Null),
            b't' => Some(Value::Bool(true)),
            b'f' => Some(Value::Bool(false)),
            b'"' => self.text().map(Value::Text),
            b'#' => self.number(),
            b'[' => {
                let mut values = Vec::new();
                while !self.eat(b']') {
                    values.push(self.value()?);
                }
                Some(Value::List(values))
            }
            b'{' => self.object(),
            _ => None,
        }
    }

    /// Names come in order, so that there is one order only.
    fn object(&mut self) -> Option<Value> {
        let mut members = BTreeMap::new();
        while !self.eat(b'}') {
            let name = if self.eat(b'"') { self.text()? } else { return None };
            if members.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return None;
            }
            let value = self.value()?;
            members.insert(name, value);
        }
        Some(Value::Object(members))
    }

    fn text(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == 0xFF)?;
        let text = String::from_utf8(self.0[..end].to_vec()).ok()?;
        self.0 = &self.0[end + 1..];
        Some(text)
    }

    fn number(&mut self) -> Option<Value> {
        if self.eat(b'0') {
            return Some(Value::number(false, "", 0));
        }
        let is_negative = self.eat(b'-');
        let end = self.0.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        let power = match self.eat(b'e') {
            true => {
                let (power, rest) = self.0.split_first_chunk::<8>()?;
                self.0 = rest;
                i64::from_be_bytes(*power)
            }
            false => 0,
        };
        let digits = std::str::from_utf8(digits).ok()?;
        let is_plain = !digits.starts_with('0') && !digits.ends_with('0') && !digits.is_empty();
        is_plain.then(|| Value::number(is_negative, digits, power.into()))
    }
}
