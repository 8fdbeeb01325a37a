//! The id rule of each route, and which requests get another one when the list of routes changes.
//!
//! 1. A request has the id rule (scope and principal) of the first route that matches it; the last one is `[policy]`, which
//!    matches everything.
//! 2. So an id also changes when a route is added, removed or moved: the request then matches a route with another rule.
//! 3. In doubt two routes match the same request, and no route hides another: the answer may be a move that no request
//!    makes, but never misses one.

use std::fmt;

use ring::digest;

/// A route, and what the ids of its requests are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteRule {
    /// Methods, a space and a path; [`EVERYTHING`] for `[policy]`.
    name: String,
    rule: String,
}

impl RouteRule {
    pub(super) fn new(name: String, rule: String) -> Self {
        Self { name, rule }
    }

    fn read(line: &str) -> Option<Self> {
        let (name, rule) = line.split_once(NAMED)?;
        Some(Self::new(name.to_owned(), rule.to_owned()))
    }

    /// The methods that requests of both may have; [`ANY`] where both take all.
    fn common_methods<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let (narrow, wide) = match self.has_method(ANY) {
            true => (other, self),
            false => (self, other),
        };
        narrow.methods().filter(|method| wide.has_method(method))
    }

    fn has_method(&self, method: &str) -> bool {
        self.methods().any(|named| named == ANY || named == method)
    }

    fn methods(&self) -> impl Iterator<Item = &str> {
        self.name.split(' ').take(1).flat_map(|methods| methods.split(','))
    }

    /// Whether some path matches both, in doubt.
    fn overlaps(&self, other: &Self) -> bool {
        let (Some(mut mine), Some(mut others)) = (self.segments(), other.segments()) else {
            return true;
        };
        loop {
            match (mine.next(), others.next()) {
                (None, None) => return true,
                (None, Some(_)) | (Some(_), None) => return false,
                (Some(Segment::Rest), _) | (_, Some(Segment::Rest)) => return true,
                (Some(Segment::Fixed(a)), Some(Segment::Fixed(b))) if a != b => return false,
                (Some(_), Some(_)) => {}
            }
        }
    }

    /// Whether every request of `other` with this method matches `self`, without doubt.
    fn covers(&self, other: &Self, method: &str) -> bool {
        if !self.has_method(method) {
            return false;
        }
        let (mut mine, mut others) = match (self.segments(), other.segments()) {
            (None, _) => return true,
            (Some(_), None) => return false,
            (Some(mine), Some(others)) => (mine, others),
        };
        loop {
            match (mine.next(), others.next()) {
                (None, None) => return true,
                (Some(Segment::Rest), Some(first)) => return first != Segment::Fixed(""),
                (Some(Segment::One), Some(Segment::One)) => {}
                (Some(Segment::One), Some(Segment::Fixed(text))) if !text.is_empty() => {}
                (Some(Segment::Fixed(a)), Some(Segment::Fixed(b))) if a == b => {}
                _ => return false,
            }
        }
    }

    fn line(&self) -> String {
        format!("{}{NAMED}{}\n", self.name, self.rule)
    }

    fn segments(&self) -> Option<impl Iterator<Item = Segment<'_>>> {
        let (_, path) = self.name.split_once(" /")?;
        Some(path.split('/').map(Segment::of))
    }
}

impl fmt::Display for RouteRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            EVERYTHING => write!(f, "[policy] ({})", self.rule),
            name => write!(f, "the route {name:?} ({})", self.rule),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment<'a> {
    Fixed(&'a str),
    One,
    Rest,
}

impl<'a> Segment<'a> {
    fn of(text: &'a str) -> Self {
        match text {
            _ if text.starts_with("{*") => Self::Rest,
            _ if text.starts_with('{') => Self::One,
            _ => Self::Fixed(text),
        }
    }
}

/// An old and a new route: some requests of the old one match the new one instead, and get another id.
pub(super) type Move<'a> = (&'a RouteRule, &'a RouteRule);

/// Every move between two lists, each in its order and with `[policy]` at its end.
pub(super) fn moves<'a>(
    before: &'a [RouteRule],
    now: &'a [RouteRule],
) -> impl Iterator<Item = Move<'a>> {
    let pairs = (0..before.len()).flat_map(|old| (0..now.len()).map(move |new| (old, new)));
    let moved = pairs.filter(|(at_old, at_new)| {
        let (old, new) = (&before[*at_old], &now[*at_new]);
        // An earlier route takes the requests away from one of the two.
        let is_hidden = |method: &str| {
            before[..*at_old].iter().any(|earlier| earlier.covers(new, method))
                || now[..*at_new].iter().any(|earlier| earlier.covers(old, method))
        };
        old.rule != new.rule
            && old.overlaps(new)
            && old.common_methods(new).any(|method| !is_hidden(method))
    });
    moved.map(|(old, new)| (&before[old], &now[new]))
}

/// The routes of a text as [`to_text`] writes it. Older versions have not written `[policy]`: then it is that of `now`, the
/// scope and the principal of which are compared by themselves.
pub(super) fn kept(text: &str, now: &[RouteRule]) -> Vec<RouteRule> {
    let mut routes: Vec<_> = text.lines().filter_map(RouteRule::read).collect();
    if routes.last().is_none_or(|last| last.name != EVERYTHING) {
        routes.extend(now.last().cloned());
    }
    routes
}

/// A line for each route that has another rule than `[policy]`, or that takes requests away from such a route; the last
/// one is `[policy]`, the last of the list. Older versions read it too: they look at the lines in their order.
pub(super) fn to_text(routes: &[RouteRule]) -> String {
    let Some((policy, routes)) = routes.split_last() else {
        return String::new();
    };
    let is_own = |route: &RouteRule| route.rule != policy.rule;
    let mut lines = Vec::new();
    for (at, route) in routes.iter().enumerate() {
        let mut later = routes[at + 1..].iter().filter(|later| is_own(later));
        if is_own(route) || later.any(|later| route.overlaps(later)) {
            lines.push(route.line());
        }
    }
    let end = policy.line();
    let room = TEXT_BYTES_MAX.saturating_sub(end.len() + CUT.len() + 2 * DIGEST_BYTES + 1);
    let mut bytes = 0;
    let fits = |line: &&String| {
        bytes += line.len();
        bytes <= room
    };
    let text: String = lines.iter().take_while(fits).map(String::as_str).collect();
    match bytes <= room {
        true => text + &end,
        false => format!("{text}{CUT}{}\n{end}", digest(&lines)),
    }
}

/// Whether a text lacks routes, because they were too many.
pub(super) fn is_cut(text: &str) -> bool {
    text.lines().any(|line| line.starts_with(CUT))
}

fn digest(lines: &[String]) -> String {
    let digest = digest::digest(&digest::SHA256, lines.concat().as_bytes());
    digest.as_ref()[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of what every request matches.
const EVERYTHING: &str = ANY;
const ANY: &str = "*";
/// Between the name of a route and its rule. No name has it: a path has no space.
const NAMED: &str = ": ";
/// Routes beyond so many bytes are not in the text. An item of DynamoDB has at most 400 KiB.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// In the place of those, with a digest of all, so that a change of any is a change of the text. Nobody reads it as a route.
const CUT: &str = "and more ";
const DIGEST_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use http::Method;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::config::Match;

    /// Routes as `name=rule`, and `[policy]` with the rule `p` after them.
    fn list(routes: &[&str]) -> Vec<RouteRule> {
        let route = |text: &&str| {
            let (name, rule) = text.rsplit_once('=').unwrap();
            RouteRule::new(name.to_owned(), rule.to_owned())
        };
        routes.iter().chain(&["*=p"]).map(route).collect()
    }

    fn moved(before: &[&str], now: &[&str]) -> Vec<String> {
        let (before, now) = (list(before), list(now));
        moves(&before, &now).map(|(old, new)| format!("{old} -> {new}")).collect()
    }

    #[test]
    fn a_route_with_another_rule_before_a_wider_one_moves_requests() {
        let (before, now) = (["POST /v1/{*rest}=x"], ["POST /v1/charges=p", "POST /v1/{*rest}=x"]);
        let told = "the route \"POST /v1/{*rest}\" (x) -> the route \"POST /v1/charges\" (p)";
        assert_eq!(moved(&before, &now), [told]);
        assert_eq!(moved(&now, &before).len(), 1, "and back");
    }

    #[test]
    fn overlapping_routes_that_change_places_move_requests() {
        let (first, second) = ("POST /{a}/b=x", "POST /a/{b}=y");
        assert_eq!(moved(&[first, second], &[second, first]).len(), 1);
        assert!(moved(&[first, "POST /c/d=y"], &["POST /c/d=y", first]).is_empty());
        assert!(moved(&[first, "PUT /a/{b}=y"], &["PUT /a/{b}=y", first]).is_empty());
    }

    #[test]
    fn a_rule_that_changes_comes_or_goes_moves_requests() {
        assert_eq!(moved(&["POST /a=x"], &["POST /a=y"]).len(), 1);
        assert_eq!(moved(&["POST /a=x"], &[]), ["the route \"POST /a\" (x) -> [policy] (p)"]);
        assert_eq!(moved(&[], &["POST /a=x"]), ["[policy] (p) -> the route \"POST /a\" (x)"]);
    }

    #[test]
    fn requests_that_keep_their_rule_do_not_move() {
        let wide = "POST,PUT /v1/{*rest}=x";
        let same: [(&[&str], &[&str]); 6] = [
            (&[wide, "POST /a=y"], &[wide, "POST /a=y"]),
            (&[], &["POST /a=p", "* /b/{c}=p"]),
            (&[wide], &["POST /v1/charges=x", wide]),
            (&[wide], &[wide, "POST /v1/charges=y"]),
            (&[wide], &["POST /v1/{*rest}=x", "PUT /v1/{*rest}=x"]),
            (&[wide, "POST /a=y"], &["POST /a=y", "POST /b=p", wide]),
        ];
        for (before, now) in same {
            assert!(moved(before, now).is_empty(), "{:?}", moved(before, now));
        }
    }

    #[test]
    fn only_routes_that_matter_are_kept() {
        let routes =
            list(&["POST /a=p", "POST /b=x", "POST /c/d=p", "POST /c/{e}=y", "POST /c/f=p"]);
        let text = to_text(&routes);
        assert_eq!(text, "POST /b: x\nPOST /c/d: p\nPOST /c/{e}: y\n*: p\n");
        let last = routes.last().cloned();
        let expected: Vec<_> = routes[1..4].iter().cloned().chain(last).collect();
        assert_eq!(kept(&text, &[]), expected);
        let by_older_versions = text.strip_suffix("*: p\n").unwrap();
        assert_eq!(kept(by_older_versions, &routes), expected);
    }

    #[test]
    fn what_is_kept_of_the_routes_is_bounded() {
        let route = |n: usize| RouteRule::new(format!("POST /{n}"), "x".repeat(50));
        let many: Vec<_> = (0..9_000).map(route).chain(list(&[])).collect();
        let text = to_text(&many);
        assert!((TEXT_BYTES_MAX - 100..=TEXT_BYTES_MAX).contains(&text.len()));
        assert!(is_cut(&text) && !is_cut(&to_text(&many[8_000..])));
        let mut others = many.clone();
        others[8_999].rule = "y".to_owned();
        assert_ne!(to_text(&others), text, "also a change of what is not there");
        assert_eq!(kept(&text, &[]).last(), many.last());
    }

    /// The rule by which a gateway with these routes makes the id.
    fn rule_of<'a>(routes: &'a [RouteRule], method: &Method, path: &str) -> &'a str {
        let matches = |route: &&RouteRule| {
            route.name == EVERYTHING || route.name.parse::<Match>().unwrap().matches(method, path)
        };
        &routes.iter().find(matches).unwrap().rule
    }

    proptest! {
        #[test]
        fn without_a_move_every_request_keeps_its_rule(
            before in lists(), now in lists(), paths in vec("(/[ab]?){1,4}", 20)
        ) {
            let has_moved = moves(&before, &now).next().is_some();
            for (method, path) in requests(&paths) {
                let rules = [&before, &now].map(|routes| rule_of(routes, &method, path));
                prop_assert!(has_moved || rules[0] == rules[1], "{} {} {:?}", method, path, rules);
            }
        }

        #[test]
        fn a_list_that_stays_moves_nothing(routes in lists()) {
            prop_assert!(moves(&routes, &routes).next().is_none());
        }

        #[test]
        fn what_is_kept_gives_every_request_its_rule(
            routes in lists(), paths in vec("(/[ab]?){1,4}", 20)
        ) {
            let kept = kept(&to_text(&routes), &[]);
            for (method, path) in requests(&paths) {
                prop_assert_eq!(rule_of(&routes, &method, path), rule_of(&kept, &method, path));
            }
        }
    }

    fn lists() -> impl Strategy<Value = Vec<RouteRule>> {
        let name = "(\\*|POST|PUT|POST,PUT) (/([ab]?|\\{x\\})){0,2}/([ab]?|\\{x\\}|\\{\\*r\\})";
        let route = (name, "[pxy]").prop_map(|(name, rule)| RouteRule::new(name, rule));
        vec(route, 0..4).prop_map(|routes| routes.into_iter().chain(list(&[])).collect())
    }

    fn requests(paths: &[String]) -> impl Iterator<Item = (Method, &str)> {
        let both = |path| [(Method::POST, path), (Method::PUT, path)];
        paths.iter().map(String::as_str).flat_map(both)
    }
}
