//! What a whole file means, and what is said about a bad one.

mod accepted;
mod answers;
mod documented;
mod included;
mod refused;
mod schema;

use std::path::Path;

use super::*;

/// What the text means where some variables are set.
fn parse(text: &str) -> Result<Config, ConfigError> {
    let env = |name: &str| match name {
        "SECRET" => Some("0123456789abcdef0123456789abcdef".to_owned()),
        "HOOK" => Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()),
        "SEAL" => Some("ab".repeat(32)),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    Config::parse_with(text, Path::new("onlyonce.toml"), &env)
}

fn good(text: &str) -> Config {
    parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn is_default(config: &Config) -> bool {
    format!("{config:?}") == format!("{:?}", Config::default())
}
