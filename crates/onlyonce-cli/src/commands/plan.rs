//! `onlyonce plan`: how much disk, memory and writing does a load need? It shows its arithmetic.

mod dynamodb;
mod measured;
mod parse;

use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use self::measured::Measured;
use super::access::print;
use crate::config::units;

/// Compute the rows, disk, memory and writes that a load needs.
///
/// From the bytes of a record, which were measured with each store. Every line shows how it was computed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Plan {
    /// Requests with a key, such as 1000/s, 50/m or 2000000/d
    #[arg(long, value_name = "RATE", value_parser = parse::rate)]
    rate: f64,
    /// How long an answer is kept, such as 24h
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    ttl: Duration,
    /// The body of an answer, such as 300B or 4KiB
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "300B")]
    response: usize,
    /// The share of retries among the requests
    #[arg(long, value_name = "PERCENT", value_parser = parse::percent, default_value = "0%")]
    duplicates: f64,
    /// The store; all of them if none is given
    #[arg(long, value_name = "STORE", value_parser = parse::store)]
    store: Option<Kind>,
    /// How often expired records are deleted
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "15m")]
    sweep: Duration,
    /// How the plan is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

/// The stores that are planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Postgres,
    Redis,
    DynamoDb,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce plan --rate 1000/s --ttl 24h
  onlyonce plan --rate 50/s --ttl 7d --response 4KiB --duplicates 5% --store postgres --format json";

impl Plan {
    /// Computes, and prints.
    pub fn run(self) -> ExitCode {
        let stores = self.store.map_or_else(|| Kind::ALL.to_vec(), |store| vec![store]);
        let load = self.load();
        let sections: Vec<_> = stores.iter().map(|store| (*store, self.section(*store))).collect();
        let printed = print(&match self.format {
            Format::Text => {
                let texts = sections.iter().map(|(store, lines)| text(store.name(), lines));
                let texts: Vec<_> = [text("load", &load)].into_iter().chain(texts).collect();
                texts.join("\n")
            }
            Format::Json => {
                let stores = sections.iter().map(|(store, lines)| (store.name(), json_of(lines)));
                let stores: serde_json::Map<_, _> =
                    stores.map(|(name, lines)| (name.to_owned(), lines)).collect();
                format!("{:#}\n", json!({ "load": json_of(&load), "stores": stores }))
            }
        });
        printed.map_or_else(|failed| failed.exit(), |_| ExitCode::SUCCESS)
    }

    fn operations(&self) -> f64 {
        self.rate * (1.0 - self.duplicates / 100.0)
    }

    fn rows(&self) -> f64 {
        self.operations() * (self.ttl + self.sweep).as_secs_f64()
    }

    fn load(&self) -> Vec<Line> {
        let (rate, duplicates) = (number(self.rate), self.duplicates);
        let (operations, seconds) = (number(self.operations()), self.ttl.as_secs());
        let sweep = self.sweep.as_secs();
        vec![
            Line::new(
                "operations_per_second",
                self.operations(),
                format!("{rate} requests a second × (100 − {duplicates} %)"),
                " a second",
            ),
            Line::new(
                "rows",
                self.rows(),
                format!(
                    "{operations} a second × ({seconds} s to live + {sweep} s until the next sweep)"
                ),
                "",
            ),
        ]
    }

    fn section(&self, store: Kind) -> Vec<Line> {
        if store == Kind::DynamoDb {
            return self.dynamodb();
        }
        let Measured { record, body, memory, log } = Measured::of(store);
        let (rows, response) = (self.rows(), self.response as f64);
        let per_record = record + response * body;
        let mut lines = vec![Line::new(
            "bytes_per_record",
            per_record,
            format!("{} without its body + {response} × {body}, measured", number(record)),
            " bytes",
        )];
        let times_rows = |per: f64| format!("{} rows × {} bytes", number(rows), number(per));
        match store {
            Kind::Redis => lines.extend([
                Line::bytes("memory_bytes", rows * per_record, times_rows(per_record)),
                Line::bytes(
                    "disk_bytes",
                    2.0 * rows * per_record,
                    "twice the memory: the append-only file is rewritten when it has doubled"
                        .to_owned(),
                ),
            ]),
            _ => lines.extend([
                Line::bytes(
                    "disk_bytes",
                    rows * per_record + log,
                    format!("{} + {} for the log", times_rows(per_record), size(log)),
                ),
                Line::bytes(
                    "memory_bytes",
                    rows * memory + CACHE_BYTES,
                    format!(
                        "{} for the index in memory + {} for recent answers",
                        times_rows(memory),
                        size(CACHE_BYTES)
                    ),
                ),
            ]),
        }
        lines.extend(self.writes(store));
        lines
    }

    /// A claim, a settle, and a delete by the sweep; Redis expires by itself.
    fn writes(&self, store: Kind) -> [Line; 2] {
        let (operations, shown) = (self.operations(), number(self.operations()));
        let (writes, named) = match store {
            Kind::Redis => (2.0, "2 (claim, settle)"),
            _ => (3.0, "3 (claim, settle, delete)"),
        };
        [
            Line::new(
                "writes_per_second",
                operations * writes,
                format!("{shown} × {named}"),
                " a second",
            ),
            Line::new(
                "syncs_per_second_max",
                operations * 2.0,
                format!(
                    "{shown} × 2 (claim, settle); calls that wait for one sync share the next, so a slower disk syncs less often"
                ),
                " a second at most",
            ),
        ]
    }
}

/// One figure, and how it came to be.
#[derive(Debug)]
struct Line {
    name: &'static str,
    value: f64,
    shown: String,
    how: String,
}

impl Line {
    fn new(name: &'static str, value: f64, how: String, unit: &str) -> Self {
        Self { name, value, shown: format!("{}{unit}", number(value)), how }
    }

    fn bytes(name: &'static str, value: f64, how: String) -> Self {
        Self { name, value, shown: size(value), how }
    }
}

fn text(title: &str, lines: &[Line]) -> String {
    let mut text = format!("{title}\n");
    for Line { name, shown, how, .. } in lines {
        let name = name.replace('_', " ").replace("per second", "").replace(" bytes", "");
        let name = if name == "bytes per record" { "record" } else { name.trim() };
        text += &format!("  {name:<12} {shown}\n  {:<12}   = {how}\n", "");
    }
    text
}

fn json_of(lines: &[Line]) -> Value {
    let line = |line: &Line| {
        (
            line.name.to_owned(),
            json!({ "value": (line.value * 100.0).round() / 100.0, "how": line.how }),
        )
    };
    Value::Object(lines.iter().map(line).collect())
}

/// With a comma between thousands.
fn number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn size(bytes: f64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit as f64) {
        Some((name, unit)) => format!("{:.1} {name}", bytes / *unit as f64),
        None => format!("{bytes:.0} B"),
    }
}

impl Kind {
    const ALL: [Self; 4] = [Self::Sqlite, Self::Postgres, Self::Redis, Self::DynamoDb];

    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::DynamoDb => "dynamodb",
        }
    }
}

/// Completed answers that each gateway keeps in memory: docs/limits.md.
const CACHE_BYTES: f64 = (64 << 20) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_by_people() {
        assert_eq!([0.5, 7.0, 950.0, 82_080_000.0].map(number), ["0.50", "7", "950", "82,080,000"]);
        assert_eq!([10.0, 2048.0, 1.5e12].map(size), ["10 B", "2.0 KiB", "1.4 TiB"]);
    }
}
