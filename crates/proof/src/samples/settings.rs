//! How a sample is started. What the articles do hourly or daily can be done in milliseconds, so that its defect shows.

use std::path::PathBuf;
use std::time::Duration;

/// Which layer guards the charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerName {
    /// Redis and Postgres.
    A,
    /// Postgres.
    B,
    /// Redis.
    C,
    /// SQLite.
    D,
    /// No layer at all.
    None,
}

/// Which layer, over which servers, and how fast its clean-up is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which layer.
    pub layer: LayerName,
    /// The file with a line per execution.
    pub executions: PathBuf,
    /// The server of A and C.
    pub redis: String,
    /// The database of A and B.
    pub postgres: String,
    /// The file of D.
    pub sqlite: PathBuf,
    /// How long a charge takes unless the request says otherwise.
    pub work: Duration,
    /// Every so many executions one raises after its effect, as a lost answer of a provider does; 0 is never.
    pub raise_every: usize,
    /// How often the reaper of A and the clean-up of B run.
    pub sweep_every: Duration,
    /// How old a row must be for the reaper of A to reset it, and for the clean-up of B to delete it.
    pub stale_after: Duration,
}

impl Settings {
    /// The layer with the articles' times: hourly for A, daily for B.
    pub fn new(layer: LayerName, executions: impl Into<PathBuf>) -> Self {
        let (sweep_every, stale_after) = match layer {
            LayerName::A => (HOUR, HOUR),
            _ => (HOUR * 24, HOUR * 24),
        };
        Self {
            layer,
            executions: executions.into(),
            redis: String::new(),
            postgres: String::new(),
            sqlite: PathBuf::new(),
            work: Duration::from_millis(40),
            raise_every: 0,
            sweep_every,
            stale_after,
        }
    }

    /// Reads `--layer a --executions FILE …`, and the address of `--listen`.
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<(Self, String), String> {
        let mut given = Vec::new();
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            given.push((name, value));
        }
        let find = |wanted: &str| given.iter().find(|(name, _)| name == wanted);
        let value = |wanted| find(wanted).map(|(_, value)| value.clone());
        let layer = value("--layer").ok_or("--layer is missing")?;
        let executions = value("--executions").ok_or("--executions is missing")?;
        let mut settings = Self::new(layer_name(&layer)?, executions);
        let listen = value("--listen").unwrap_or_else(|| "127.0.0.1:0".to_owned());
        for (name, value) in given {
            settings.set(&name, value)?;
        }
        Ok((settings, listen))
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "--layer" | "--executions" | "--listen" => {}
            "--redis" => self.redis = value,
            "--postgres" => self.postgres = value,
            "--sqlite" => self.sqlite = value.into(),
            "--work-ms" => self.work = milliseconds(&value)?,
            "--sweep-every-ms" => self.sweep_every = milliseconds(&value)?,
            "--stale-after-ms" => self.stale_after = milliseconds(&value)?,
            "--raise-every" => {
                self.raise_every = value.parse().map_err(|_| format!("{value} is no number"))?;
            }
            _ => return Err(format!("{name} is unknown")),
        }
        Ok(())
    }
}

fn layer_name(text: &str) -> Result<LayerName, String> {
    match text {
        "a" => Ok(LayerName::A),
        "b" => Ok(LayerName::B),
        "c" => Ok(LayerName::C),
        "d" => Ok(LayerName::D),
        "none" => Ok(LayerName::None),
        _ => Err(format!("--layer is a, b, c, d or none, not {text}")),
    }
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.map(Duration::from_millis).ok_or_else(|| format!("{text} is no number of milliseconds"))
}

const HOUR: Duration = Duration::from_secs(60 * 60);
