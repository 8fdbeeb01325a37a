//! Documents that are equal, documents that are not, and those that are left to their bytes.

mod values;

use proptest::prelude::*;

use super::*;
use values::{different, render, value};

// R37: FPR-05, FPR-07, FPR-10
#[test]
fn spellings_of_one_value_are_equal() {
    let spellings = [
        (r#"{"a":1,"b":2}"#, " {\n\"b\" : 2 ,\t\"a\" : 1 }\r\n"),
        (r#"{"a":10}"#, r#"{"a":10.0}"#),
        (r#"{"a":10}"#, r#"{"a":1e1}"#),
        (r#"{"a":"\u0041"}"#, r#"{"a":"A"}"#),
        (r#"{"\u0061":1}"#, r#"{"a":1}"#),
        (r#""\/\b\f\n\r\t\"\\""#, r#""/\u0008\u000C\u000a\u000d\u0009\u0022\u005c""#),
        (r#""\ud83d\ude00""#, r#""😀""#),
        ("[ ]", "[]"),
        ("{ }", "{}"),
    ];
    for (one, two) in spellings {
        assert_eq!(form(one).unwrap(), form(two).unwrap(), "{one} {two}");
    }
}

// R37, R38: never through doubles
#[test]
fn numbers_are_equal_as_exact_decimals() {
    let spellings: [&[&str]; 8] = [
        &["1", "1.0", "10e-1", "0.1e1", "1E0", "1e+00", "0.001e3", "1000e-3"],
        &["0", "-0", "0.0", "-0.000e5", "0e99999999999999999999"],
        &["-1.5", "-15e-1", "-0.15E+1"],
        &["1e400", "10e399", "0.1e401"],
        &["100", "1e2", "100.000"],
        &["0.00120", "12e-4"],
        &["101", "1.01e2"],
        &["9007199254740993", "9007199254740993.0"],
    ];
    for same in spellings {
        for other in same {
            assert_eq!(form(same[0]).unwrap(), form(other).unwrap(), "{} {other}", same[0]);
        }
    }
}

// R37, R38, R40: FPR-09, FPR-11, FPR-13, FPR-15. threat G14
#[test]
fn different_values_never_meet() {
    let values = [
        "9007199254740993",
        "9007199254740992",
        "0.1",
        "0.1000000000000000055511151231257827",
        "1",
        "-1",
        "12",
        "1e1",
        "[1,2]",
        "[2,1]",
        "[12]",
        "[[1],2]",
        "[[1,2]]",
        "[]",
        "{}",
        "[{}]",
        "null",
        "true",
        "false",
        "0",
        "\"\"",
        "\"1\"",
        "\"null\"",
        "[null]",
        r#"{"a":null}"#,
        r#"{"a":{}}"#,
        r#"{"a":1,"b":2}"#,
        r#"{"a":"1","b":2}"#,
        r#"{"a":{"b":2}}"#,
        r#"{"ab":2}"#,
        "\"é\"",
        "\"e\u{301}\"",
        "\"\\u0000\"",
        "\" \"",
        "1e-1000",
        "-1e400",
    ];
    for (at, one) in values.iter().enumerate() {
        for two in &values[at + 1..] {
            assert_ne!(form(one).unwrap(), form(two).unwrap(), "{one} {two}");
        }
    }
}

// R39: FPR-14, FPR-19. threat G14
#[test]
fn what_is_ambiguous_or_malformed_is_odd() {
    let odd = [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":1}"#,
        r#"{"b":1,"a":2,"b":3}"#,
        r#"[{"a":{"x":1,"x":1}}]"#,
        r#""\ud800""#,
        r#""\ude00""#,
        r#""\ud800\u0041""#,
        r#""\ud800x""#,
        r#""\u12""#,
        r#""\u+123""#,
        r#""\x""#,
        "\"\u{1}\"",
        "\"\t\"",
        "\"",
        "\"\\\"",
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,]",
        "[,1]",
        "[1 2]",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{a:1}"#,
        "{1:1}",
        r#"{"a" 1}"#,
        "{]",
        "[}",
        "nul",
        "nulll",
        "True",
        "NaN",
        "Infinity",
        "-",
        "+1",
        ".5",
        "5.",
        "01",
        "-01",
        "1e",
        "1e+",
        "1.e1",
        "0x1",
        "1 1",
        "{} x",
        "// c\n1",
        "'a'",
        "\u{feff}{}",
        "1\u{a0}",
        "\u{c}1",
    ];
    for text in odd {
        assert_eq!(form(text), Err(Odd), "{text}");
    }
    assert_eq!(canonical(b"\"\xff\"", &[], &[]), Err(Odd));
    assert_eq!(canonical(b"\"\xed\xa0\x80\"", &[], &[]), Err(Odd));
}

// R39, threat B8: powers of ten that do not fit into 64 bits
#[test]
fn exponents_beyond_64_bits_are_odd() {
    for text in [
        "1e9223372036854775808",
        "1e-9223372036854775809",
        "0.1e-9223372036854775808",
        "10e9223372036854775807",
    ] {
        assert_eq!(form(text), Err(Odd), "{text}");
    }
    assert_ne!(form("1e9223372036854775807").unwrap(), form("1e-9223372036854775808").unwrap());
}

// R39
#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(form(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(form(&nested(DEPTH_MAX + 1)), Err(Odd));
    assert_eq!(form(&"[".repeat(1_000_000)), Err(Odd));
    assert_eq!(form(&r#"{"a":"#.repeat(DEPTH_MAX + 1)), Err(Odd));
}

// R41: FPR-27
#[test]
fn excluded_values_do_not_count_and_may_be_absent() {
    let form = |text| selected(text, &[], &["/ts", "/meta/trace", "/items/0"]).unwrap();
    let plain = form(r#"{"amount":1,"meta":{},"items":[]}"#);
    assert_eq!(plain, form(r#"{"ts":2,"amount":1,"items":[7],"meta":{"trace":{"x":[1]}}}"#));
    assert_eq!(plain, form(r#"{"meta":{},"items":[8],"ts":null,"amount":1.0}"#));
    assert_ne!(plain, form(r#"{"amount":2,"meta":{},"items":[]}"#));
    assert_ne!(plain, form(r#"{"amount":1,"meta":{"ts":1},"items":[]}"#));
    assert_ne!(plain, form(r#"{"amount":1,"meta":{},"items":[7,8]}"#));
}

// R39, R41
#[test]
fn an_excluded_name_that_comes_twice_is_still_odd() {
    assert_eq!(selected(r#"{"ts":1,"ts":2}"#, &[], &["/ts"]), Err(Odd));
}

// R41
#[test]
fn only_included_values_count_and_absent_is_not_null() {
    let form = |text| selected(text, &["/amount", "/to/iban"], &[]).unwrap();
    let plain = form(r#"{"amount":1}"#);
    assert_eq!(plain, form(r#"{"to":{"name":"x"},"x":1,"amount":1.0}"#));
    assert_eq!(plain, form(r#"{"to":7,"amount":1}"#));
    assert_ne!(plain, form(r#"{"amount":2}"#));
    assert_ne!(plain, form(r#"{"amount":1,"to":{"iban":null}}"#));
    assert_ne!(plain, form(r#"{}"#));
    assert_ne!(form(r#"{"amount":1,"to":{"iban":2}}"#), form(r#"{"amount":2,"to":{"iban":1}}"#));
}

// R41
#[test]
fn what_is_included_and_excluded_is_excluded() {
    let [inner, outer] = [("/a", "/a/ts"), ("/a/ts", "/a")]
        .map(|(include, exclude)| move |text| selected(text, &[include], &[exclude]).unwrap());
    assert_eq!(inner(r#"{"a":{"ts":1,"x":1}}"#), inner(r#"{"a":{"x":1}}"#));
    assert_ne!(inner(r#"{"a":{"ts":1,"x":1}}"#), inner(r#"{"a":{"x":2}}"#));
    assert_eq!(outer(r#"{"a":{"ts":1}}"#), outer("{}"));
}

// R41
#[test]
fn the_order_of_the_pointers_means_nothing() {
    let text = r#"{"a":1,"b":2}"#;
    assert_eq!(selected(text, &["/a", "/b"], &[]), selected(text, &["/b", "/a", "/b"], &[]));
    assert_ne!(selected(text, &["/a"], &[]), selected(text, &["/b"], &[]));
    assert_ne!(selected(text, &[""], &[]), form(text), "a selection is never taken for a document");
}

// R17
#[test]
fn a_pointer_finds_text_as_it_was_meant_and_numbers_as_they_were_written() {
    let body = br#"{"s":"\u0061b","n":[1.0,-2e3],"":true,"o":{},"z":null}"#;
    let at = |pointer: &str| find(body, &pointer.parse().unwrap()).unwrap();
    let text = |text: &str| Some(Found::Text(text.into()));
    assert_eq!([at("/s"), at("/n/0"), at("/n/1")], [text("ab"), text("1.0"), text("-2e3")]);
    for pointer in ["/", "/o", "/z", "/n", ""] {
        assert_eq!(at(pointer), Some(Found::NotText), "{pointer}");
    }
    for pointer in ["/x", "/n/2", "/n/00", "/n/+1", "/n/-", "/s/0", "/o/s"] {
        assert_eq!(at(pointer), None, "{pointer}");
    }
    assert_eq!(find(b"{", &"/s".parse().unwrap()), Err(Odd));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // R37, R38, threat G14
    #[test]
    fn renderings_of_one_value_are_equal(value in value(), one: u64, two: u64) {
        let (one, two) = (render(&value, one), render(&value, two));
        prop_assert_eq!(form(&one).unwrap(), form(&two).unwrap(), "{} {}", one, two);
    }

    // R37, R38, threat G14
    #[test]
    fn values_are_equal_exactly_when_their_forms_are(one in value(), two in value(), seed: u64) {
        let forms = [&one, &two].map(|value| form(&render(value, seed)).unwrap());
        prop_assert_eq!(forms[0] == forms[1], one == two);
    }

    // R37, threat G14
    #[test]
    fn one_changed_leaf_changes_the_form(value in value(), which: usize, seed: u64) {
        let changed = different(&value, which);
        prop_assert_ne!(&changed, &value);
        prop_assert_ne!(form(&render(&value, seed)).unwrap(), form(&render(&changed, seed)).unwrap());
    }

    // R39: nothing is taken for JSON that a parser of good repute refuses.
    #[test]
    fn whatever_has_a_form_is_json(value in value(), seed: u64, at: usize, byte: u8) {
        let mut bytes = render(&value, seed).into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        if canonical(&bytes, &[], &[]).is_ok() {
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok());
        }
    }

    // threat G14
    #[test]
    fn no_bytes_make_it_panic(bytes in r#"([\[\]{}:,"\\u\-+.eE0-9dtfn ]|true|null|\\ud83d){0,24}"#) {
        let _ = selected(&bytes, &["/0", "/a"], &["/1", ""]);
    }
}

fn form(text: &str) -> Result<Vec<u8>, Odd> {
    canonical(text.as_bytes(), &[], &[])
}

fn selected(text: &str, include: &[&str], exclude: &[&str]) -> Result<Vec<u8>, Odd> {
    let [include, exclude] = [include, exclude]
        .map(|texts| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Pointer>>());
    canonical(text.as_bytes(), &include, &exclude)
}
