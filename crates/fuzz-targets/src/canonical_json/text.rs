//! A reader of JSON that is as plain as can be: RFC 8259, without doubled names, no deeper than 64.

use std::collections::BTreeMap;

use super::value::Value;

/// `None` where the text is no JSON, or ambiguous.
pub(super) fn read(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader { rest: std::str::from_utf8(bytes).ok()? };
    let value = reader.value(0)?;
    reader.space();
    reader.rest.is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.space();
        for (word, value) in
            [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))]
        {
            if self.eat(word) {
                return Some(value);
            }
        }
        match self.rest.chars().next()? {
            '"' => self.text().map(Value::Text),
            '[' => self.list(depth + 1),
            '{' => self.object(depth + 1),
            _ => self.number(),
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        let mut values = Vec::new();
        self.all(depth, "[", "]", |reader| {
            values.push(reader.value(depth)?);
            Some(())
        })?;
        Some(Value::List(values))
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut members = BTreeMap::new();
        self.all(depth, "{", "}", |reader| {
            reader.space();
            let name = reader.text()?;
            reader.space();
            let value = if reader.eat(":") { reader.value(depth)? } else { return None };
            members.insert(name, value).is_none().then_some(())
        })?;
        Some(Value::Object(members))
    }

    fn all(
        &mut self,
        depth: usize,
        open: &str,
        close: &str,
        mut one: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if depth > 64 || !self.eat(open) {
            return None;
        }
        self.space();
        if self.eat(close) {
            return Some(());
        }
        loop {
            one(self)?;
            self.space();
            if self.eat(close) {
                return Some(());
            }
            if !self.eat(",") {
                return None;
            }
        }
    }

    fn text(&mut self) -> Option<String> {
        if !self.eat("\"") {
            return None;
        }
        let mut units = Vec::new();
        loop {
            let next = self.rest.chars().next()?;
            self.rest = &self.rest[next.len_utf8()..];
            match next {
                '"' => return String::from_utf16(&units).ok(),
                '\\' => units.push(self.escaped()?),
                '\0'..' ' => return None,
                plain => units.extend_from_slice(plain.encode_utf16(&mut [0; 2])),
            }
        }
    }

    fn escaped(&mut self) -> Option<u16> {
        let known = [
            ("\"", '"'),
            ("\\", '\\'),
            ("/", '/'),
            ("b", '\u{8}'),
            ("f", '\u{c}'),
            ("n", '\n'),
            ("r", '\r'),
            ("t", '\t'),
        ];
        if let Some((_, meant)) = known.iter().find(|(written, _)| self.eat(written)) {
            return Some(*meant as u16);
        }
        if !self.eat("u") {
            return None;
        }
        let digits =
            self.rest.get(..4).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        self.rest = &self.rest[4..];
        u16::from_str_radix(digits, 16).ok()
    }

    fn number(&mut self) -> Option<Value> {
        let is_negative = self.eat("-");
        let whole = self.digits()?;
        if whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        let fraction = if self.eat(".") { self.digits()? } else { "" };
        let mut power = 0;
        if self.eat("e") || self.eat("E") {
            let is_down = self.eat("-");
            let _ = !is_down && self.eat("+");
            // Far more than 64 bits, and no matter how much.
            let digits = self.digits()?;
            let many = match digits.trim_start_matches('0') {
                "" => 0,
                digits => digits.parse().unwrap_or(i128::MAX >> 8),
            };
            power = if is_down { -many } else { many };
        }
        let digits = [whole, fraction].concat();
        Some(Value::number(is_negative, &digits, power - fraction.len() as i128))
    }

    fn digits(&mut self) -> Option<&'a str> {
        let end = self.rest.find(|one: char| !one.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!digits.is_empty()).then_some(digits)
    }
}
