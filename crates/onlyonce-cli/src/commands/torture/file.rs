//! Flags from a file: each name is a flag, and the command line comes after them.

use std::path::Path;

use clap::Parser;
use toml::de::{DeTable, DeValue};

use super::Torture;

#[derive(Debug, Parser)]
#[command(name = "onlyonce torture", no_binary_name = false)]
struct Again {
    #[command(flatten)]
    flags: Torture,
}

impl Torture {
    /// With the flags of its file, if it has one.
    pub(super) fn with_file(self) -> Result<Self, String> {
        let Some(path) = &self.config else { return Ok(self) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let from_file = flags(&text, path)?;
        let given = std::env::args().skip_while(|word| word != "torture").skip(1);
        let words = ["onlyonce torture".to_owned()].into_iter().chain(from_file).chain(given);
        let again = Again::try_parse_from(words).map_err(|error| error.render().to_string())?;
        Ok(again.flags)
    }
}

fn flags(text: &str, path: &Path) -> Result<Vec<String>, String> {
    let told = |error: &str| format!("{}: {error}", path.display());
    let table = DeTable::parse(text).map_err(|error| told(&error.to_string()))?;
    let mut words = Vec::new();
    for (name, value) in table.get_ref() {
        let name = name.get_ref().replace('_', "-");
        let values = match value.get_ref() {
            DeValue::Array(members) => members.iter().map(|member| member.get_ref()).collect(),
            other => vec![other],
        };
        for value in values {
            let text = match value {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => number.as_str().to_owned(),
                DeValue::Boolean(true) => {
                    words.push(format!("--{name}"));
                    continue;
                }
                DeValue::Boolean(false) => continue,
                _ => {
                    return Err(told(&format!(
                        "{name} must be a text, a number, true or false, or a list"
                    )));
                }
            };
            if name == "url" || name == "urls" {
                words.push(text);
            } else {
                words.push(format!("--{name}={text}"));
            }
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_flags() {
        let text = "url = [\"http://a/\", \"http://b/\"]\nrate = 7\nquiet = true\ndry-run = false\ncount_url = \"http://c/{marker}\"\n";
        let mut words = flags(text, Path::new("t.toml")).unwrap();
        words.sort();
        assert_eq!(
            words,
            ["--count-url=http://c/{marker}", "--quiet", "--rate=7", "http://a/", "http://b/"]
        );
        assert!(flags("rate = 1.5", Path::new("t.toml")).is_err());
    }
}
