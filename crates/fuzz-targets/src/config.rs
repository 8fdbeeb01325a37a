//! Configurations: a text is a configuration or a list of what is wrong with it, each at its place.

use std::path::Path;

use http::Method;
use onlyonce_cli::config::{Config, ConfigError};

/// The data are the text of a file.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // What would be read from this machine is not the text's doing.
    if text.contains("include")
        || text.contains("\\u")
        || text.contains("\\U")
        || text.contains("file")
    {
        return;
    }
    match read(text) {
        Ok(config) => demand_usable(&config, text),
        Err(ConfigError::Wrong(notes)) => {
            assert!(!notes.is_empty(), "refused without a reason");
            for note in notes {
                demand_place(text, note.line, note.column);
            }
        }
        Err(other) => panic!("{other:?}"),
    }
}

fn read(text: &str) -> Result<Config, ConfigError> {
    let env =
        |name: &str| (name == "SECRET").then(|| "0123456789abcdef0123456789abcdef".to_owned());
    Config::parse_with(text, Path::new("/nowhere/onlyonce.toml"), &env)
}

fn demand_usable(config: &Config, text: &str) {
    for note in &config.warnings {
        demand_place(text, note.line, note.column);
    }
    for method in [Method::GET, Method::POST] {
        for path in ["", "/", "/charges", "/charges/1/refunds", "//", "/%2F", "*"] {
            let route = config.route(&method, path);
            let _ = config.upstream_of(route);
        }
    }
    // The same text is the same configuration.
    let again = read(text).expect("it was read a moment ago");
    assert_eq!(format!("{config:?}"), format!("{again:?}"));
}

fn demand_place(text: &str, line: usize, column: usize) {
    assert!(line >= 1 && line <= text.lines().count().max(1) + 1, "line {line}");
    let length = text.split('\n').nth(line - 1).map_or(0, |line| line.chars().count());
    assert!(
        column >= 1 && column <= length + 1,
        "column {column} of line {line}, which has {length}"
    );
}
