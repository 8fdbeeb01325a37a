//! Paths with places that are filled in: `/v1/charges/{id}`, `/files/{*rest}`.

use std::fmt;
use std::str::FromStr;

use onlyonce::scope::{folded_path, is_settled_path, normal_path};

/// A path whose segments are fixed, or stand for one (`{name}`) or for one or more (`{*rest}`, at the end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPattern(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Fixed(String),
    One(String),
    Rest(String),
}

impl PathPattern {
    /// Whether this path, which is normal already, is one of those.
    pub(super) fn matches(&self, path: &str) -> bool {
        let Some(mut left) = path.strip_prefix('/').map(Some) else {
            return false;
        };
        for segment in &self.0 {
            let Some(text) = left else { return false };
            let (first, after) = match text.split_once('/') {
                Some((first, after)) => (first, Some(after)),
                None => (text, None),
            };
            match segment {
                Segment::Rest(_) => return !text.is_empty(),
                Segment::Fixed(fixed) if fixed == first => left = after,
                Segment::One(_) if !first.is_empty() => left = after,
                Segment::Fixed(_) | Segment::One(_) => return false,
            }
        }
        left.is_none()
    }

    /// The path as this pattern writes it, if a service may take it for one of those: letter case, the final slash, and an
    /// extension of the last segment may differ.
    pub(super) fn spelled(&self, path: &str) -> Option<String> {
        let mut left: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let is_last_empty = |segments: &[&str]| segments.last().is_some_and(|last| last.is_empty());
        while is_last_empty(&left) {
            left.pop();
        }
        let mut left = left.into_iter().peekable();
        let mut spelled = String::new();
        for segment in &self.0 {
            spelled.push('/');
            match segment {
                // The slash at the end, or the root.
                Segment::Fixed(fixed) if fixed.is_empty() && left.peek().is_none() => {}
                Segment::Fixed(fixed) => {
                    let sent = left.next()?;
                    if !is_read_as(sent, fixed, left.peek().is_none()) {
                        return None;
                    }
                    spelled += fixed;
                }
                Segment::One(_) => spelled += left.next().filter(|sent| !sent.is_empty())?,
                Segment::Rest(_) => {
                    let rest: Vec<_> = left.by_ref().collect();
                    spelled += Some(rest.join("/")).filter(|rest| !rest.is_empty())?.as_str();
                }
            }
        }
        left.next().is_none().then_some(spelled)
    }

    /// Whether its fixed segments are already what ids have of them.
    pub(super) fn is_settled(&self) -> bool {
        let path = self.0.iter().map(|segment| match segment {
            Segment::Fixed(fixed) => format!("/{fixed}"),
            Segment::One(_) | Segment::Rest(_) => "/x".to_owned(),
        });
        is_settled_path(&path.collect::<String>())
    }

    /// What each place holds in a path that matches, by its name.
    pub(super) fn places<'a>(&'a self, path: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut left = path.strip_prefix('/').unwrap_or(path);
        let mut places = Vec::new();
        for segment in &self.0 {
            let (first, after) = left.split_once('/').unwrap_or((left, ""));
            match segment {
                Segment::Fixed(_) => {}
                Segment::One(name) => places.push((name.as_str(), first)),
                Segment::Rest(name) => places.push((name.as_str(), left)),
            }
            left = after;
        }
        places
    }

    pub(super) fn place_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Fixed(_) => None,
            Segment::One(name) | Segment::Rest(name) => Some(name.as_str()),
        })
    }

    /// Whether every path that matches `other` matches this.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let (mut mine, mut others) = (self.0.iter(), other.0.iter());
        loop {
            match (mine.next(), others.next()) {
                (None, None) => return true,
                (Some(Segment::Rest(_)), Some(Segment::Fixed(fixed))) => {
                    return !fixed.is_empty() || others.next().is_some();
                }
                (Some(Segment::Rest(_)), Some(_)) => return true,
                (Some(Segment::Fixed(a)), Some(Segment::Fixed(b))) if a == b => {}
                (Some(Segment::One(_)), Some(Segment::Fixed(fixed))) if !fixed.is_empty() => {}
                (Some(Segment::One(_)), Some(Segment::One(_))) => {}
                _ => return false,
            }
        }
    }
}

impl FromStr for PathPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let segments = text.strip_prefix('/').ok_or(PatternError::NoSlash)?;
        if let Some(character) = text.chars().find(|character| !is_of_path(*character)) {
            return Err(PatternError::Character(character));
        }
        let segments: Vec<_> = segments.split('/').map(segment).collect::<Result<_, _>>()?;
        match segments.split_last() {
            Some((_, before)) if before.iter().any(|one| matches!(one, Segment::Rest(_))) => {
                Err(PatternError::RestNotLast)
            }
            _ => Ok(Self(segments)),
        }
    }
}

/// Whether a service may read a segment that was sent as the one that a pattern has.
fn is_read_as(sent: &str, fixed: &str, is_last: bool) -> bool {
    let [sent, fixed] = [sent, fixed].map(|segment| format!("/{segment}"));
    let (sent, fixed) = (folded_path(&sent), folded_path(&fixed));
    let stem = sent.rsplit_once('.').filter(|_| is_last).map(|(stem, _)| stem);
    sent == fixed || stem == Some(&fixed)
}

fn is_of_path(character: char) -> bool {
    character.is_ascii_graphic()
        && !matches!(character, '?' | '#' | '"' | '<' | '>' | '\\' | '^' | '`' | '|')
}

fn segment(text: &str) -> Result<Segment, PatternError> {
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match inner.map(|inner| (inner, inner.strip_prefix('*'))) {
        None if text.contains(['{', '}']) => Err(PatternError::Braces(text.into())),
        None if is_foreign(text) => Err(PatternError::Foreign(text.into())),
        None => Ok(Segment::Fixed(normal_path(text).into_owned())),
        Some((_, Some(rest))) if is_name(rest) => Ok(Segment::Rest(rest.into())),
        Some((name, None)) if is_name(name) => Ok(Segment::One(name.into())),
        Some(_) => Err(PatternError::Braces(text.into())),
    }
}

/// Whether it is a wildcard of another router: taken literally, the route would guard nothing.
fn is_foreign(text: &str) -> bool {
    text.contains(['*', '[', ']']) || text.starts_with(':')
}

/// Whether a place may have this name.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| match segment {
            Segment::Fixed(text) => write!(f, "/{text}"),
            Segment::One(name) => write!(f, "/{{{name}}}"),
            Segment::Rest(name) => write!(f, "/{{*{name}}}"),
        })
    }
}

/// Why a text is no path to match. Write it as the message says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Begin with a slash.
    #[error("a path begins with a slash")]
    NoSlash,
    /// Take it out, or percent-encode it.
    #[error(
        "{0:?} cannot be in a path to match: write {{name}} for a segment that varies, and leave out the query"
    )]
    Character(char),
    /// Give the braces a whole segment.
    #[error(
        "{0:?} is no segment: {{name}} stands for a whole one, {{*rest}} for one or more at the end"
    )]
    Braces(String),
    /// Write the wildcard as this router has it.
    #[error(
        "{0:?} is no wildcard here: write {{name}} for one segment, or {{*rest}} for one or more at the end"
    )]
    Foreign(String),
    /// Move it to the end.
    #[error("{{*rest}} is the last segment of a path")]
    RestNotLast,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        text.parse().unwrap()
    }

    #[test]
    fn segments_match_as_they_say() {
        let cases = [
            ("/", "/", true),
            ("/", "/a", false),
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a/", "/a/", true),
            ("/a/", "/a", false),
            ("/a", "/A", false),
            ("/a", "//a", false),
            ("/{x}", "/a", true),
            ("/{x}", "/", false),
            ("/{x}", "/a/", false),
            ("/{x}", "/a/b", false),
            ("/a/{x}/c", "/a/b/c", true),
            ("/a/{x}/c", "/a//c", false),
            ("/{*r}", "/", false),
            ("/{*r}", "/a", true),
            ("/{*r}", "/a/b/", true),
            ("/a/{*r}", "/a", false),
            ("/a/{*r}", "/a/", false),
            ("/a/{*r}", "/a/b/c", true),
            ("/a", "*", false),
            ("/a", "", false),
        ];
        for (text, path, expected) in cases {
            assert_eq!(pattern(text).matches(path), expected, "{text} {path}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        assert_eq!("a".parse::<PathPattern>(), Err(PatternError::NoSlash));
        assert_eq!("/{*r}/a".parse::<PathPattern>(), Err(PatternError::RestNotLast));
        for text in ["/{}", "/{*}", "/{a", "/a}", "/{a}.json", "/{a-b}", "/{{a}}", "/{**a}"] {
            let error = text.parse::<PathPattern>().unwrap_err();
            assert!(matches!(error, PatternError::Braces(_)), "{text}: {error}");
        }
        for text in ["/*", "/**", "/a/*/b", "/files*", "/:id", "/a/:id/b", "/[id]", "/(.*)"] {
            let error = text.parse::<PathPattern>().unwrap_err();
            assert!(matches!(error, PatternError::Foreign(_)), "{text}: {error}");
        }
        // A colon within a segment is a custom verb of some APIs.
        assert!(pattern("/v1/orders:cancel").matches("/v1/orders:cancel"));
        for (text, character) in [("/a?b=c", '?'), ("/a b", ' '), ("/é", 'é'), ("/a#b", '#')] {
            assert_eq!(text.parse::<PathPattern>(), Err(PatternError::Character(character)));
        }
    }

    proptest! {
        #[test]
        fn what_covers_a_pattern_matches_its_paths(
            wide in patterns(), narrow in patterns(), path in "(/[ab]?){1,4}"
        ) {
            let (wide, narrow) = (pattern(&wide), pattern(&narrow));
            prop_assert!(wide.covers(&wide));
            if wide.covers(&narrow) && narrow.matches(&path) {
                prop_assert!(wide.matches(&path), "{} {} {}", wide, narrow, path);
            }
        }
    }

    // Both ways: what is not covered has a path that only the narrow pattern matches, so that its route is reached.
    proptest! {
        #[test]
        fn what_matches_every_path_of_a_pattern_covers_it(wide in patterns(), narrow in patterns()) {
            let (wide, narrow) = (pattern(&wide), pattern(&narrow));
            let is_wider = paths().all(|path| !narrow.matches(&path) || wide.matches(&path));
            prop_assert_eq!(wide.covers(&narrow), is_wider, "{} {}", wide, narrow);
        }
    }

    /// Every path of up to five segments, each of them empty, one that a pattern has, or another one.
    fn paths() -> impl Iterator<Item = String> {
        let segments = ["", "a", "b", "c"];
        (1..=5u32).flat_map(move |length| {
            (0..4usize.pow(length)).map(move |number| {
                let nth = |place: u32| segments[number / 4usize.pow(place) % 4];
                (0..length).map(|place| format!("/{}", nth(place))).collect()
            })
        })
    }

    fn patterns() -> impl Strategy<Value = String> {
        "(/([ab]?|\\{x\\})){1,3}(/\\{\\*r\\})?"
    }
}
