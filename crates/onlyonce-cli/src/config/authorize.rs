//! `authorize`: the question that the upstream is asked before a caller is answered from a record.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::uri::PathAndQuery;

use super::error::{Remark, Remarks};
use super::field::Field;

/// Whether the credentials of a caller still hold is asked so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthorizeRule {
    /// The question.
    pub question: AuthorizeQuestion,
    /// How long a good answer is believed; zero: each time it is asked anew.
    pub believed_for: Duration,
}

/// A question with the credentials of a caller: `GET /whoami`.
///
/// ```
/// use onlyonce_cli::config::AuthorizeQuestion;
///
/// let question: AuthorizeQuestion = "GET /whoami?brief=1".parse()?;
/// assert_eq!(question.target(), "/whoami?brief=1");
/// # Ok::<(), onlyonce_cli::config::AuthorizeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizeQuestion(PathAndQuery);

impl AuthorizeQuestion {
    /// The path, and the query where there is one.
    pub fn target(&self) -> &str {
        self.0.as_str()
    }

    /// The question that the text has; none if it is empty.
    pub(super) fn read(field: Field<'_>) -> Result<Option<Self>, Remarks> {
        match field.text()? {
            "" => Ok(None),
            _ => Ok(Some(field.parsed()?)),
        }
    }
}

impl FromStr for AuthorizeQuestion {
    type Err = AuthorizeError;

    fn from_str(text: &str) -> Result<Self, AuthorizeError> {
        let path = text.strip_prefix("GET ").map(str::trim_start).ok_or(AuthorizeError::Shape)?;
        match path.parse::<PathAndQuery>() {
            _ if !path.starts_with('/') => Err(AuthorizeError::Shape),
            _ if path.contains(['{', '}']) => Err(AuthorizeError::Braces),
            Ok(target) if target.as_str() == path => Ok(Self(target)),
            _ => Err(AuthorizeError::Path),
        }
    }
}

impl fmt::Display for AuthorizeQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GET {}", self.0)
    }
}

pub(super) fn believed_for(field: Field<'_>) -> Result<Duration, Remark> {
    match field.duration()? {
        duration if duration > BELIEVED_FOR_MAX => Err(field.refused()),
        duration => Ok(duration),
    }
}

/// Why a text is no question about a caller. Write it as the message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorizeError {
    /// Write the method and a path.
    #[error("the question is GET, a space and a path, such as \"GET /whoami\"")]
    Shape,
    /// Write a path that is the same for every request.
    #[error(
        "the question has no places in braces: it is about the caller, and not about the request"
    )]
    Braces,
    /// Percent-encode what a path cannot have.
    #[error("after GET comes a path, with a query or without one")]
    Path,
}

/// Longer, and a caller that lost its rights would still see answers for too long.
const BELIEVED_FOR_MAX: Duration = Duration::from_secs(5 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_question_is_refused() {
        let cases = [
            ("POST /whoami", AuthorizeError::Shape),
            ("/whoami", AuthorizeError::Shape),
            ("GET whoami", AuthorizeError::Shape),
            ("GET http://id.test/", AuthorizeError::Shape),
            ("GET /users/{id}", AuthorizeError::Braces),
            ("GET /a b", AuthorizeError::Path),
            ("GET /a#b", AuthorizeError::Path),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<AuthorizeQuestion>(), Err(error), "{text}");
        }
        let question: AuthorizeQuestion = "GET /whoami".parse().unwrap();
        assert_eq!(question.to_string(), "GET /whoami");
    }
}
