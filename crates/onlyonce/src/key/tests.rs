//! The keys that are taken, and those that are refused.

use proptest::prelude::*;

use super::*;

const UUID: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";

// R2, R3, R4, R6: SYN-01, SYN-02, SYN-06, SYN-25, SYN-27, SYN-30, SYN-35. threat G3
#[test]
fn field_values_that_carry_a_key() {
    let cases = [
        ("\"8e03978e-40d5\"", "8e03978e-40d5"),
        ("8e03978e-40d5", "8e03978e-40d5"),
        ("\"k1\";v=1", "k1"),
        ("\"k1\"; v=\"x\";w=?0", "k1"),
        ("  \"k1\" \t", "k1"),
        ("\tk1 ", "k1"),
        (r#""foo \"bar\" \\ baz""#, r#"foo "bar" \ baz"#),
        ("\" k1\"", " k1"),
        ("'single-quoted-key'", "'single-quoted-key'"),
        ("\"'; DROP TABLE x;--\"", "'; DROP TABLE x;--"),
        ("a=b&c:d/e?f{}", "a=b&c:d/e?f{}"),
    ];
    for (line, text) in cases {
        assert_eq!(lenient(line.as_bytes()).unwrap().as_str(), text, "{line}");
    }
}

// R5, R7, R8, R9: SYN-09, SYN-10, SYN-11, SYN-14, SYN-15, SYN-21, SYN-22, SYN-23, SYN-26, SYN-35. threat G3
#[test]
fn field_values_that_carry_none() {
    let cases: [(&[u8], KeyError); 22] = [
        (b"", KeyError::Empty),
        (b" \t ", KeyError::Empty),
        (b"\"\"", KeyError::Empty),
        (b"\"   \"", KeyError::Empty),
        (b"\"a12345678901234\", \"b12345678901234\"", KeyError::NotQuoted),
        (b"\"a\",\"a\"", KeyError::NotQuoted),
        (b"abc,def", KeyError::Several),
        (b"abc, abc", KeyError::Several),
        (b"abc;v=1", KeyError::NotBare),
        (b"'; DROP TABLE x;--", KeyError::NotBare),
        (b"a b", KeyError::NotBare),
        (b"a\"b", KeyError::NotBare),
        (b"a\\b", KeyError::NotBare),
        (b"a\x00b", KeyError::NotBare),
        (b"a\r\nb", KeyError::NotBare),
        ("füü".as_bytes(), KeyError::NotBare),
        (b"f\xfc", KeyError::NotPrintable),
        ("\"füü-1234567890123\"".as_bytes(), KeyError::NotQuoted),
        (b"\"a\tb\"", KeyError::NotQuoted),
        (b"\"bad \\, escape\"", KeyError::NotQuoted),
        (b"\"open", KeyError::NotQuoted),
        (b"\"k\";", KeyError::NotQuoted),
    ];
    for (line, error) in cases {
        assert_eq!(lenient(line), Err(error), "{}", line.escape_ascii());
    }
}

// R2, R9: SYN-03, SYN-25
#[test]
fn strict_syntax_takes_quoted_strings_only() {
    let rules = KeyRules { syntax: KeySyntax::Strict, ..KeyRules::default() };
    let strict = |line: &str| Key::from_field_lines([line.as_bytes()], &rules);
    assert!(strict("\"k1\"").is_ok_and(|key| key.is_some()));
    for line in [UUID, "k1", "'k1'", "1", "1.5", "?1", ":YQ==:", "@1", "%\"k1\"", "(\"k1\")"] {
        assert_eq!(strict(line), Err(KeyError::NotQuoted), "{line}");
    }
    assert_eq!(strict(""), Err(KeyError::Empty));
}

// R7: SYN-13. threat G3
#[test]
fn two_lines_are_refused_even_if_they_are_equal() {
    let rules = KeyRules::default();
    assert_eq!(Key::from_field_lines([&b"k1"[..], b"k1"], &rules), Err(KeyError::Several));
    assert_eq!(Key::from_field_lines([&b""[..], b""], &rules), Err(KeyError::Several));
    assert_eq!(Key::from_field_lines([], &rules), Ok(None));
}

// R11, R12: SYN-17, SYN-18, SYN-19, SYN-34. threat G4
#[test]
fn length_is_counted_after_decoding_and_bounded() {
    let length = |length| KeyError::Length { length, min: 1, max: 255 };
    assert!(lenient(&[b'k'; 255]).is_ok());
    assert_eq!(lenient(&[b'k'; 256]), Err(length(256)));
    let escaped = format!("\"{}{}\"", "\\\"".repeat(10), "k".repeat(245));
    assert_eq!(lenient(escaped.as_bytes()).unwrap().as_str().len(), 255);
    assert_eq!(lenient(&vec![b'k'; 1 << 20]), Err(length(1 << 20)));
    let rules = KeyRules { length: (16, 255), ..KeyRules::default() };
    let short = Key::from_field_lines([&b"\"abcd\""[..]], &rules);
    assert_eq!(short, Err(KeyError::Length { length: 4, min: 16, max: 255 }));
}

// R13: SYN-33
#[test]
fn a_route_may_ask_for_uuids() {
    let rules = KeyRules { format: KeyFormat::Uuid, ..KeyRules::default() };
    let upper = UUID.to_uppercase();
    for text in [UUID, &upper] {
        assert_eq!(Key::from_text(text, &rules).unwrap().as_str(), text);
    }
    for text in [
        "clkyoesmbgybucifusbbtdsbohtyuuwz",
        &UUID.replace('-', ""),
        &UUID.replace('8', "g"),
        "-",
        "----",
    ] {
        let error = Key::from_text(text, &rules).unwrap_err();
        assert_eq!(error, KeyError::Format(KeyFormat::Uuid), "{text}");
        assert!(error.to_string().contains("uuid"), "the answer names the format");
    }
}

// R14
#[test]
fn constants_can_be_refused() {
    let rules =
        KeyRules { denied: KeyRules::CONSTANTS.map(Into::into).to_vec(), ..KeyRules::default() };
    for text in ["null", "NULL", "undefined", "test", "00000000-0000-0000-0000-000000000000"] {
        assert_eq!(Key::from_text(text, &rules), Err(KeyError::Denied), "{text}");
        assert!(
            Key::from_text(text, &KeyRules::default()).is_ok(),
            "nothing is refused by default"
        );
    }
    assert!(Key::from_text("test-1", &rules).is_ok());
}

// R10: SYN-31
#[test]
fn keys_are_compared_byte_for_byte() {
    assert_ne!(lenient(b"\" k1\""), lenient(b"\"k1\""));
    assert_ne!(lenient(b"k1"), lenient(b"K1"));
}

// R8, R9
#[test]
fn text_is_taken_as_it_is() {
    let key = |text| Key::from_text(text, &KeyRules::default());
    assert_eq!(key("\"k\", x;\\").unwrap().as_str(), "\"k\", x;\\");
    for (text, error) in [
        ("", KeyError::Empty),
        (" ", KeyError::Empty),
        ("é", KeyError::NotPrintable),
        ("a\tb", KeyError::NotPrintable),
    ] {
        assert_eq!(key(text), Err(error), "{text:?}");
    }
}

// threat Q20
#[test]
fn no_key_is_shown_by_debug_or_by_errors() {
    let rules = KeyRules { length: (1, 5), ..KeyRules::default() };
    let shown = [
        format!("{:?}", Key::from_text("canar", &rules)),
        format!("{:?}", Key::from_text("canary", &rules)),
        Key::from_text("canary", &rules).unwrap_err().to_string(),
        lenient(b"canary,canary").unwrap_err().to_string(),
    ];
    assert!(shown.iter().all(|text| !text.contains("canar")), "{shown:?}");
}

proptest! {
    // R9, threats G3 and G4
    #[test]
    fn no_bytes_make_the_parser_panic_or_break_its_promise(line: Vec<u8>, is_strict: bool) {
        let syntax = if is_strict { KeySyntax::Strict } else { KeySyntax::Lenient };
        let rules = KeyRules { syntax, ..KeyRules::default() };
        if let Ok(Some(key)) = Key::from_field_lines([&line[..]], &rules) {
            prop_assert!((1..=255).contains(&key.as_str().len()));
            prop_assert!(key.as_str().bytes().all(|byte| matches!(byte, b' '..=b'~')));
        }
    }

    // R3, R4, R5, threat G3
    #[test]
    fn a_bare_key_and_its_quoted_form_are_one(text in "[!#-+\\--:<-\\[\\]-~]{1,255}") {
        let quoted = format!("\"{text}\"");
        let bare = lenient(text.as_bytes()).unwrap();
        prop_assert_eq!(bare.as_str(), &text);
        prop_assert_eq!(bare, lenient(quoted.as_bytes()).unwrap());
    }

    // R2, R10
    #[test]
    fn quoting_loses_nothing(text in "[ -~]{0,20}[!-~][ -~]{0,20}") {
        let quoted = format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""));
        let key = lenient(quoted.as_bytes()).unwrap();
        prop_assert_eq!(key.as_str(), text);
    }
}

fn lenient(line: &[u8]) -> Result<Key, KeyError> {
    Key::from_field_lines([line], &KeyRules::default()).map(|key| key.expect("there is a line"))
}
