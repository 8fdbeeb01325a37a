//! T7: odd keys. What is refused is refused; what is accepted must be honoured, and never be taken for another key.

use crate::torture::plan::{Draft, Kind, Shot, Step, Variant};

pub(super) fn write(draft: &mut Draft<'_>) {
    for (label, key) in honoured(draft.options.seed) {
        draft.trial(Kind::Duplicates, label, |_| twice(vec![key]));
    }
    for (label, keys) in noted(draft.options.seed) {
        draft.trial(Kind::OddKey, label, |_| twice(keys));
    }
    for (label, first, second) in near(draft.options.seed) {
        draft.trial(Kind::NearKey, label, |_| {
            let with = |key: Vec<u8>| Shot { keys: vec![key], ..Shot::plain("") };
            let changed = with(second).changed(Variant::OtherMarker);
            vec![Step::One(with(first)), Step::One(changed)]
        });
    }
}

fn twice(keys: Vec<Vec<u8>>) -> Vec<Step> {
    let shot = Shot { keys, ..Shot::plain("") };
    vec![Step::One(shot.clone()), Step::One(shot)]
}

/// A key of this length that no other run has.
fn long(seed: u64, length: usize, end: char) -> Vec<u8> {
    let start = format!("l{seed:x}-{length}-");
    format!("{start}{}{end}", "k".repeat(length.saturating_sub(start.len() + 1))).into_bytes()
}

/// Keys that are honoured wherever they are accepted.
fn honoured(seed: u64) -> Vec<(String, Vec<u8>)> {
    let one = char::from(b'a' + u8::try_from(seed % 26).unwrap_or_default());
    let mut keys = vec![
        ("key of 1 character".to_owned(), vec![one as u8]),
        ("key in quotes".to_owned(), format!("\"q{seed:x}\"").into_bytes()),
        ("key with a comma".to_owned(), format!("c{seed:x},d").into_bytes()),
        ("key with spaces inside".to_owned(), format!("s{seed:x} d").into_bytes()),
        ("key with a colon and a slash".to_owned(), format!("s{seed:x}:/../d").into_bytes()),
        ("key of Unicode letters".to_owned(), format!("ü{seed:x}é").into_bytes()),
    ];
    for length in [64, 128, 255, 256, 8192] {
        keys.push((format!("key of {length} characters"), long(seed, length, 'h')));
    }
    keys
}

/// Keys that a service may take for none.
fn noted(seed: u64) -> Vec<(String, Vec<Vec<u8>>)> {
    vec![
        ("no key".to_owned(), Vec::new()),
        ("empty key".to_owned(), vec![Vec::new()]),
        ("empty key in quotes".to_owned(), vec![b"\"\"".to_vec()]),
        (
            "two keys".to_owned(),
            vec![format!("one{seed:x}").into_bytes(), format!("two{seed:x}").into_bytes()],
        ),
        ("key with a control character".to_owned(), vec![format!("n{seed:x}\u{1}d").into_bytes()]),
    ]
}

/// Pairs of keys that are different, however little.
fn near(seed: u64) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let text = |text: &str| format!("{text}{seed:x}").into_bytes();
    let mut pairs = vec![("keys that differ in case".to_owned(), text("case-a"), text("CASE-A"))];
    for length in [65, 129, 256, 300] {
        let label = format!("keys that differ in character {length}");
        pairs.push((label, long(seed, length, 'a'), long(seed, length, 'b')));
    }
    pairs
}
