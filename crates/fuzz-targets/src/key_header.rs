//! The header of a key: lines of bytes in, one key or a refusal out.

use onlyonce::key::{Key, KeyError, KeyRules, KeySyntax};

/// The data are field lines, divided by line feeds.
pub fn target(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    for syntax in [KeySyntax::Lenient, KeySyntax::Strict] {
        let rules = KeyRules { syntax, ..KeyRules::default() };
        let read = Key::from_field_lines(lines.iter().copied(), &rules);
        match read {
            Ok(key) => demand_key(&key.expect("a line is a key or an error"), &lines, &rules),
            Err(_) if lines.len() > 1 => assert_eq!(read, Err(KeyError::Several)),
            Err(_) => {}
        }
    }
}

fn demand_key(key: &Key, lines: &[&[u8]], rules: &KeyRules) {
    let [line] = lines else { panic!("a key of {} lines", lines.len()) };
    let text = key.as_str();
    assert!((1..=255).contains(&text.len()), "{} characters", text.len());
    assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text:?} is not printable");
    assert!(!text.trim().is_empty(), "a blank key");
    assert_eq!(text, independent(line), "another reader sees another key");
    // However a key is spelt, it is the same key.
    let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    assert_eq!(Key::from_field_lines([quoted.as_bytes()], rules).as_ref(), Ok(&Some(key.clone())));
    let strict = KeyRules { syntax: KeySyntax::Strict, ..KeyRules::default() };
    assert_eq!(
        Key::from_field_lines([quoted.as_bytes()], &strict).as_ref(),
        Ok(&Some(key.clone()))
    );
    assert_eq!(Key::from_text(text, rules).as_ref(), Ok(key));
}

/// The key in a line that is known to have one: the text between quotes with its escapes undone, or the line.
fn independent(line: &[u8]) -> String {
    let line = line.trim_ascii();
    let Some(quoted) = line.strip_prefix(b"\"") else {
        return String::from_utf8_lossy(line).into_owned();
    };
    let (mut text, mut bytes) = (String::new(), quoted.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => text.extend(bytes.next().map(|byte| char::from(*byte))),
            byte => text.push(char::from(*byte)),
        }
    }
    text
}
