//! Which operations are meant.

use serde_json::{Map, Value};

/// Chooses operations: all that every given value fits.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Which operations")]
pub(super) struct FilterFlags {
    /// In this state: running, unknown, released or completed; several with commas between
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Of this route, such as 'POST /charges'
    #[arg(long, value_name = "ROUTE")]
    route: Option<String>,
    /// With exactly this key; found at once
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// With a key that begins so; every record is read
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Of the caller whose digest begins with these hexadecimal digits, eight at least
    #[arg(long, value_name = "DIGEST")]
    principal: Option<String>,
    /// Unknown for at least so long, such as 10m; in other states: claimed so long ago
    #[arg(long, value_name = "DURATION")]
    older: Option<String>,
}

impl FilterFlags {
    fn given(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let all = [
            ("state", &self.state),
            ("route", &self.route),
            ("key", &self.key),
            ("key_prefix", &self.key_prefix),
            ("principal", &self.principal),
            ("older", &self.older),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }

    /// As a query, to be added to.
    pub(super) fn query(&self) -> form_urlencoded::Serializer<'static, String> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.given());
        query
    }

    /// As an object.
    pub(super) fn object(&self) -> Value {
        let members = self.given().map(|(name, value)| (name.to_owned(), value.as_str().into()));
        members.collect::<Map<_, _>>().into()
    }

    /// A key alone may be the name of one operation.
    pub(super) fn has_more_than_key(&self) -> bool {
        self.given().any(|(name, _)| name != "key")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.given().next().is_none()
    }
}
