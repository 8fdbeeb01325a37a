//! The address of a store: `dynamodb:TABLE?region=…&endpoint=…&prefix=…`.

use std::fmt;
use std::str::FromStr;

use super::error::DynamoOpenError;

/// Where a store is, and how it is used.
///
/// ```
/// use onlyonce::store::dynamodb::DynamoAddress;
///
/// let address: DynamoAddress = "dynamodb:keys?region=eu-central-1".parse()?;
/// assert_eq!(address.table(), "keys");
/// assert_eq!(address.to_string(), "dynamodb:keys?region=eu-central-1");
/// # Ok::<(), onlyonce::store::dynamodb::DynamoOpenError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamoAddress {
    pub(super) table: String,
    /// `None`: the region of the SDK's own chain.
    pub(super) region: Option<String>,
    /// `None`: that of AWS in the region.
    pub(super) endpoint: Option<String>,
    pub(super) prefix: String,
    /// Whether an answer that is too large for one item is kept in parts; otherwise its body is not kept.
    pub(super) parts: bool,
    /// Whether `sweep` reads the table for what has expired; otherwise DynamoDB's own time to live deletes it.
    pub(super) sweeps: bool,
}

impl DynamoAddress {
    /// The name of its table.
    pub fn table(&self) -> &str {
        &self.table
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), DynamoOpenError> {
        match (name, value) {
            (_, "") => return Err(wrong("a setting has no value")),
            ("region", _) => self.region = Some(value.to_owned()),
            ("endpoint", _) => self.endpoint = Some(value.to_owned()),
            ("prefix", _) => value.clone_into(&mut self.prefix),
            ("parts", "on" | "off") => self.parts = value == "on",
            ("sweep", "ttl" | "scan") => self.sweeps = value == "scan",
            ("parts", _) => return Err(wrong("`parts` is `on` or `off`")),
            ("sweep", _) => return Err(wrong("`sweep` is `ttl` or `scan`")),
            _ => return Err(wrong("the settings are region, endpoint, prefix, parts and sweep")),
        }
        Ok(())
    }
}

impl FromStr for DynamoAddress {
    type Err = DynamoOpenError;

    fn from_str(text: &str) -> Result<Self, DynamoOpenError> {
        let rest =
            text.strip_prefix("dynamodb:").ok_or(wrong("this is not a store in DynamoDB"))?;
        let (table, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if !(TABLE_BYTES_MIN..=TABLE_BYTES_MAX).contains(&table.len())
            || !table.bytes().all(is_plain)
        {
            return Err(wrong("a table has 3 to 255 letters, digits and _ - ."));
        }
        let mut address = Self {
            table: table.to_owned(),
            region: None,
            endpoint: None,
            prefix: PREFIX.to_owned(),
            parts: true,
            sweeps: false,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            address.set(name, value)?;
        }
        Ok(address)
    }
}

impl fmt::Display for DynamoAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = [
            self.region.as_ref().map(|region| format!("region={region}")),
            self.endpoint.as_ref().map(|endpoint| format!("endpoint={endpoint}")),
            (self.prefix != PREFIX).then(|| format!("prefix={}", self.prefix)),
            (!self.parts).then(|| "parts=off".to_owned()),
            self.sweeps.then(|| "sweep=scan".to_owned()),
        ];
        let settings: Vec<_> = settings.into_iter().flatten().collect();
        let mark = if settings.is_empty() { "" } else { "?" };
        write!(f, "dynamodb:{}{mark}{}", self.table, settings.join("&"))
    }
}

const fn wrong(why: &'static str) -> DynamoOpenError {
    DynamoOpenError::Address { why }
}

/// What all names in the table begin with, unless the address says otherwise.
const PREFIX: &str = "oo";
const TABLE_BYTES_MIN: usize = 3;
const TABLE_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_was_written() {
        for text in [
            "dynamodb:keys",
            "dynamodb:keys?region=eu-west-1&endpoint=http://127.0.0.1:8000&prefix=shop&parts=off&sweep=scan",
        ] {
            assert_eq!(text.parse::<DynamoAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_does_not_read_is_refused() {
        for text in [
            "redis://x",
            "dynamodb:",
            "dynamodb:a b c",
            "dynamodb:keys?regoin=x",
            "dynamodb:keys?parts=maybe",
            "dynamodb:keys?region=",
        ] {
            assert!(text.parse::<DynamoAddress>().is_err(), "{text}");
        }
    }
}
