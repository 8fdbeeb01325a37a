//! Which requests a route is for.

use std::fmt;
use std::str::FromStr;

use http::Method;
use onlyonce::scope::normal_path;

use super::pattern::{PathPattern, PatternError};

/// Methods and a path: `POST /v1/charges`, `POST,PUT /v1/{name}`, `* /v1/{*rest}`.
///
/// ```
/// use http::Method;
/// use onlyonce_cli::config::Match;
///
/// let matching: Match = "POST /v1/charges/{id}".parse()?;
/// assert!(matching.matches(&Method::POST, "/v1/charges/7"));
/// assert!(!matching.matches(&Method::POST, "/v1/charges/7/"));
/// assert!(!matching.matches(&Method::GET, "/v1/charges/7"));
/// # Ok::<(), onlyonce_cli::config::MatchError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    methods: Option<Vec<Method>>,
    path: Option<PathPattern>,
}

impl Match {
    /// What every request matches.
    pub const EVERYTHING: Self = Self { methods: None, path: None };

    /// Whether the route is for a request with this method and path.
    pub fn matches(&self, method: &Method, path: &str) -> bool {
        self.has_method(method) && (self.path.is_none() || self.has_path(path))
    }

    /// The path as this match writes it, if a service may take it for one that matches; `None` for what every request
    /// matches.
    pub(crate) fn spelled(&self, path: &str) -> Option<String> {
        self.path.as_ref()?.spelled(path)
    }

    /// Whether a path that has no other spelling matches in its own spelling or not at all.
    pub(crate) fn is_settled(&self) -> bool {
        self.path.as_ref().is_none_or(PathPattern::is_settled)
    }

    /// What the places of the path hold in this one, by their names, percent-encoded as they came.
    pub fn places<'a>(&'a self, path: &'a str) -> Vec<(&'a str, &'a str)> {
        self.path.as_ref().map_or_else(Vec::new, |pattern| pattern.places(path))
    }

    /// The names of those places.
    pub(super) fn place_names(&self) -> impl Iterator<Item = &str> {
        self.path.iter().flat_map(PathPattern::place_names)
    }

    /// Whether the route is for this path, under some method.
    pub fn has_path(&self, path: &str) -> bool {
        !path.is_empty()
            && self.path.as_ref().is_none_or(|pattern| pattern.matches(&normal_path(path)))
    }

    /// The methods that are named, and so guarded; `None` for `*`, where the policy says which are.
    pub fn methods(&self) -> Option<&[Method]> {
        self.methods.as_deref()
    }

    /// Whether this leaves nothing that matches `other` under `method`, `None` being any.
    pub(super) fn covers(&self, other: &Self, method: Option<&Method>) -> bool {
        let paths = match (&self.path, &other.path) {
            (None, _) => true,
            (Some(mine), Some(others)) => mine.covers(others),
            (Some(_), None) => false,
        };
        let methods = match method {
            Some(method) => self.has_method(method),
            None => self.methods.is_none(),
        };
        paths && methods
    }

    fn has_method(&self, method: &Method) -> bool {
        self.methods().is_none_or(|methods| methods.contains(method))
    }
}

impl FromStr for Match {
    type Err = MatchError;

    fn from_str(text: &str) -> Result<Self, MatchError> {
        let slash = text.find('/').ok_or(MatchError::Shape)?;
        let (methods, path) = text.split_at(slash);
        if !methods.ends_with(' ') {
            return Err(MatchError::Shape);
        }
        Ok(Self { methods: named_methods(methods.trim())?, path: Some(path.parse()?) })
    }
}

fn named_methods(text: &str) -> Result<Option<Vec<Method>>, MatchError> {
    match text {
        "*" => Ok(None),
        _ => text
            .split(',')
            .map(|name| Ok(guarded_method(name.trim())?))
            .collect::<Result<_, _>>()
            .map(Some),
    }
}

/// Reads a method that may be guarded.
pub(super) fn guarded_method(text: &str) -> Result<Method, MethodError> {
    let upper = text.to_ascii_uppercase();
    match Method::from_bytes(text.as_bytes()) {
        Err(_) => Err(MethodError::NoMethod(text.into())),
        // HTTP would allow a method of this name; here it stands for all of them, and alone.
        Ok(_) if text.contains('*') => Err(MethodError::NoMethod(text.into())),
        Ok(_) if EVERY.contains(&upper.as_str()) || text.contains('|') => {
            Err(MethodError::Several(text.into()))
        }
        Ok(_) if SAFE.contains(&upper.as_str()) => Err(MethodError::Safe(upper)),
        // Methods are case-sensitive: `post` would never match anything.
        Ok(_) if upper != text => Err(MethodError::Case(upper)),
        Ok(method) => Ok(method),
    }
}

/// Words of other routers for every method.
const EVERY: [&str; 3] = ["ALL", "ANY", "EVERY"];
/// What a retry of cannot harm, and whose answer must not be frozen (RFC 9110, section 9.2.1; RFC 10008).
const SAFE: [&str; 5] = ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY"];

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.methods().unwrap_or_default();
        let names: Vec<_> = methods.iter().map(Method::as_str).collect();
        match names.is_empty() {
            true => f.write_str("*")?,
            false => f.write_str(&names.join(","))?,
        }
        self.path.iter().try_for_each(|path| write!(f, " {path}"))
    }
}

/// Why a text says no requests. Write it as the message says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatchError {
    /// Write methods, a space and a path.
    #[error(
        "a match is methods, a space and a path, such as \"POST /v1/charges\" or \"* /v1/{{*rest}}\""
    )]
    Shape,
    /// Correct the method.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// Correct the path.
    #[error(transparent)]
    Path(#[from] PatternError),
}

/// Why a method cannot be guarded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// Write a method's name.
    #[error("{0:?} is no method")]
    NoMethod(String),
    /// Leave it out; a route that is for all methods has `*`.
    #[error(
        "{0} is never guarded: it is safe to repeat. Leave it out, or write * for every method"
    )]
    Safe(String),
    /// Write commas between methods, or `*` for every method.
    #[error(
        "{0:?} is no method; write * for every method, or several with commas, such as POST,PUT"
    )]
    Several(String),
    /// Write it in upper case.
    #[error("methods are in upper case: {0}")]
    Case(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(text: &str) -> Match {
        text.parse().unwrap()
    }

    #[test]
    fn named_methods_are_matched_and_no_others() {
        let both = matching("POST, PUT /x");
        assert!(both.matches(&Method::POST, "/x") && both.matches(&Method::PUT, "/x"));
        assert!(!both.matches(&Method::GET, "/x"));
        assert!(matching("* /x").matches(&Method::GET, "/x"));
        assert!(Match::EVERYTHING.matches(&Method::OPTIONS, "*"));
    }

    // R20, R21
    #[test]
    fn safe_methods_are_never_guarded() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY"] {
            let error = format!("{method} /x").parse::<Match>().unwrap_err();
            assert_eq!(error, MethodError::Safe(method.into()).into());
        }
    }

    #[test]
    fn what_is_no_match_is_refused() {
        for text in ["", "POST", "/x", "POST/x", "POST x", " "] {
            assert_eq!(text.parse::<Match>(), Err(MatchError::Shape), "{text}");
        }
        for text in ["ANY", "ALL", "any", "POST|PUT"] {
            let error = format!("{text} /x").parse::<Match>().unwrap_err();
            assert_eq!(error, MethodError::Several(text.into()).into());
        }
        let case = MethodError::Case("POST".into());
        assert_eq!("post /x".parse::<Match>(), Err(case.into()));
        for text in ["POST, /x", "PO ST /x", " /x", "*,POST /x", "ALL! {} /x"] {
            let error = text.parse::<Match>().unwrap_err();
            assert!(
                matches!(error, MatchError::Method(MethodError::NoMethod(_))),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_match_is_written_back() {
        for text in ["POST /v1/charges", "POST,PUT /a/{b}/", "* /{*rest}"] {
            assert_eq!(matching(text).to_string(), text);
        }
        assert_eq!(Match::EVERYTHING.to_string(), "*");
    }

    #[test]
    fn percent_encoded_letters_are_the_letters() {
        assert!(matching("POST /ch%61rges").matches(&Method::POST, "/c%68arges"));
        assert!(!matching("POST /a/b").matches(&Method::POST, "/a%2Fb"));
    }
}
