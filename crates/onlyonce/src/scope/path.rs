//! Paths that mean the same, written the same.

use std::borrow::Cow;

use crate::hex;

/// The path with its percent-encoded unreserved characters decoded; nothing else is touched.
///
/// `%2F` stays what it is, as do dot segments, doubled and trailing slashes: an upstream may tell them
/// apart. A path with a broken percent sequence is left alone altogether, because decoding around
/// the break could make a sequence that was not there.
///
/// ```
/// use onlyonce::scope::normal_path;
///
/// assert_eq!(normal_path("/t%41%7E"), "/tA~");
/// assert_eq!(normal_path("/a%2Fb/../c/"), "/a%2Fb/../c/");
/// ```
pub fn normal_path(path: &str) -> Cow<'_, str> {
    if !path.contains('%') || !sequences(path).any(is_unreserved) || is_broken(path) {
        return Cow::Borrowed(path);
    }
    Cow::Owned(decoded(path))
}

/// What the path's percent sequences stand for; the broken ones are passed over.
fn sequences(path: &str) -> impl Iterator<Item = u8> {
    path.as_bytes().windows(3).filter_map(sequence)
}

fn sequence(three: &[u8]) -> Option<u8> {
    match three {
        [b'%', high, low] => hex::pair(*high, *low),
        _ => None,
    }
}

fn is_broken(path: &str) -> bool {
    let percents = path.bytes().filter(|byte| *byte == b'%').count();
    percents != sequences(path).count()
}

fn decoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, from) = rest.split_at(at);
        let (three, after) = from.split_at(3);
        text.push_str(before);
        match sequence(three.as_bytes()).filter(|byte| is_unreserved(*byte)) {
            Some(byte) => text.push(char::from(byte)),
            None => text.push_str(three),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // threat G12
    #[test]
    fn only_unreserved_characters_are_decoded() {
        let cases = [
            ("/t%41", "/tA"),
            ("/%7e%2D%5f%2E", "/~-_."),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%2fb%41", "/a%2fbA"),
            ("/a/../b", "/a/../b"),
            ("/a/%2E%2e/b", "/a/../b"),
            ("/a//b/", "/a//b/"),
            ("/%2541", "/%2541"),
            ("/é%C3%A9", "/é%C3%A9"),
            ("", ""),
        ];
        for (sent, normal) in cases {
            assert_eq!(normal_path(sent), normal, "{sent}");
        }
    }

    // threat G12
    #[test]
    fn a_path_with_a_broken_sequence_is_left_alone() {
        for path in ["/%", "/%4", "/%4%31", "/%%341", "/%41%zz", "/%41/%+1"] {
            assert_eq!(normal_path(path), path);
        }
    }

    #[test]
    fn a_path_without_work_is_borrowed() {
        assert!(matches!(normal_path("/charges"), Cow::Borrowed(_)));
        assert!(matches!(normal_path("/a%2Fb"), Cow::Borrowed(_)));
    }

    proptest! {
        // threat G12
        #[test]
        fn normalising_twice_changes_nothing_more(path in "(/|%|[0-9a-fA-F]|é|%[0-9a-fA-F]{2}){0,12}") {
            let once = normal_path(&path).into_owned();
            prop_assert_eq!(normal_path(&once), once.as_str());
        }
    }
}
