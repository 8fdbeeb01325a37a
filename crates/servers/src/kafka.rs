//! A private Kafka: the broker inside librdkafka, which keeps its records in memory.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, alongside};
use crate::{brokers, folder};

/// A broker of its own. It is not Kafka, but speaks its protocol; it has no limits, no rights and no disk.
#[derive(Debug)]
pub struct Kafka {
    process: Process,
    address: String,
    /// Dropped last: the broker must have ended.
    _folder: TempDir,
}

/// A record, as a consumer of librdkafka sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaRecord {
    /// Its partition.
    pub partition: i32,
    /// Its key, if it has one.
    pub key: Option<String>,
    /// Its value.
    pub value: String,
    /// `name=value` of each header, with spaces in between.
    pub headers: String,
}

impl Kafka {
    /// Whether it can be started here; scripts/test installs it.
    pub fn is_installed() -> bool {
        let import = Command::new(python()).args(["-c", "import confluent_kafka"]).output();
        import.is_ok_and(|output| output.status.success())
    }

    /// A new broker with these topics, of four partitions each.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn start(topics: &[&str]) -> Self {
        let folder = folder::private("kafka");
        let (log, told) = (folder.path().join("log"), folder.path().join("address"));
        let mut command = alongside(python());
        command.arg(script("broker.py")).arg(&told).args(topics);
        let address = || std::fs::read_to_string(&told).ok().filter(|text| text.ends_with('\n'));
        let process = Process::start(command, &log, || address().is_some());
        let address = address().expect("the broker has told its address").trim_end().to_owned();
        Self { process, address, _folder: folder }
    }

    /// Kills it with SIGKILL; what it had is gone.
    pub fn kill(&mut self) {
        self.process.kill_tree();
    }

    /// Stops it from answering; its connections stay open.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets it go on after a pause.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Its address, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The records of a topic, in the order of each partition, as soon as there are `count` with another key or value.
    ///
    /// # Panics
    /// If there are not so many in time.
    pub fn records(&self, topic: &str, count: usize) -> Vec<KafkaRecord> {
        let read = tell(&["consume.py", &self.address, topic, &count.to_string()]);
        read.lines().map(record).collect()
    }

    /// Produces a record without a value for each key, with the partitioner of the Java client in librdkafka.
    ///
    /// # Panics
    /// If the broker does not take them.
    pub fn produce(&self, topic: &str, keys: &[&str]) {
        let mut arguments = vec!["produce.py", &self.address, topic];
        arguments.extend(keys);
        tell(&arguments);
    }
}

fn record(line: &str) -> KafkaRecord {
    let parts: Vec<_> = line.split('\t').collect();
    let [partition, key, value, headers] = parts[..] else { panic!("{line:?} is no record") };
    KafkaRecord {
        partition: partition.parse().expect("a partition is a number"),
        key: key.strip_prefix('=').map(str::to_owned),
        value: value.to_owned(),
        headers: headers.to_owned(),
    }
}

/// Runs a script to its end; what it printed.
fn tell(arguments: &[&str]) -> String {
    let mut command = Command::new(python());
    command.arg(script(arguments[0])).args(&arguments[1..]);
    let output = command.output().expect("Python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} failed: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("kafka").join(name)
}

fn python() -> PathBuf {
    brokers().join("python")
}
