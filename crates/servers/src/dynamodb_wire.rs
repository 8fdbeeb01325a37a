//! The network between a store and an emulator of DynamoDB: it loses, refuses and counts calls.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::DynamoDb;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireFault {
    /// It is carried out and answered.
    None,
    /// It is carried out, and the connection is closed instead of an answer.
    ReplyLost,
    /// It is carried out, and the answer is an internal error.
    FailedAfter,
    /// It is not carried out, and the connection is closed.
    CallLost,
    /// It is not carried out: no capacity.
    Throttled,
    /// It is not carried out: the credentials have expired.
    Expired,
    /// It is not carried out, and this JSON is the answer.
    Told(&'static str),
    /// It waits until [`DynamoWire::release`], and is carried out and answered then.
    Held,
}

/// A network in front of one emulator. It is used until the process ends.
#[derive(Debug)]
pub struct DynamoWire {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: u16,
    plan: Mutex<Plan>,
    /// How many calls are held, and whether they may go on.
    held: Mutex<(usize, bool)>,
    release: Condvar,
    /// How many seconds later than the server's clock the answers say it is.
    ahead_s: AtomicU64,
    counts: Mutex<WireCounts>,
}

type Plan = Box<dyn FnMut(&str) -> WireFault + Send>;

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// What went over the wire.
#[derive(Clone, Debug, Default)]
pub struct WireCounts {
    /// Calls that were carried out, by action.
    pub calls: BTreeMap<String, usize>,
    /// Faults that were made.
    pub faults: usize,
    /// Capacity units that the emulator counted: reads, writes of the table, writes of the index.
    pub reads: f64,
    /// Write units of the table alone.
    pub table_writes: f64,
    /// Write units of the index alone.
    pub index_writes: f64,
}

impl DynamoWire {
    /// A network that `plan` asks what becomes of each call, by its action.
    ///
    /// # Panics
    /// If there is no port.
    pub fn before(server: &DynamoDb, plan: impl FnMut(&str) -> WireFault + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let (plan, counts) = (Mutex::new(Box::new(plan) as Plan), Mutex::default());
        let (target, held, release) = (server.port(), Mutex::default(), Condvar::new());
        let ahead_s = AtomicU64::new(0);
        let shared = Arc::new(Shared { target, plan, held, release, ahead_s, counts });
        let of_all = shared.clone();
        thread::spawn(move || {
            for store in listener.incoming().flatten() {
                let shared = of_all.clone();
                // An error is the end of the connection, which is what the store sees.
                thread::spawn(move || drop(shared.serve(&store)));
            }
        });
        Self { port, shared }
    }

    /// Asks another plan from now on.
    pub fn change(&self, plan: impl FnMut(&str) -> WireFault + Send + 'static) {
        *self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(plan);
    }

    /// The server's clock is later by this from now on, by what its answers say.
    pub fn set_clock_ahead(&self, by: Duration) {
        self.shared.ahead_s.store(by.as_secs(), Ordering::Relaxed);
    }

    /// How many calls are held now.
    pub fn held(&self) -> usize {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Lets the calls go on that are held, and all later ones.
    pub fn release(&self) {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.shared.release.notify_all();
    }

    /// What went over it so far.
    pub fn counts(&self) -> WireCounts {
        self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts anew.
    pub fn forget(&self) {
        *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner) = WireCounts::default();
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Shared {
    fn serve(&self, store: &TcpStream) -> io::Result<()> {
        store.set_nodelay(true)?;
        let (mut calls, mut answers) = (BufReader::new(store), store);
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target))?;
        server.set_nodelay(true)?;
        let mut from_server = BufReader::new(&server);
        loop {
            let call = Message::read(&mut calls)?;
            let action = call.header("x-amz-target").rsplit('.').next().unwrap_or("").to_owned();
            let fault = (self.plan.lock().unwrap_or_else(PoisonError::into_inner))(&action);
            match fault {
                WireFault::CallLost => return self.count_fault(),
                WireFault::Throttled => {
                    self.count_fault()?;
                    answers.write_all(&error(400, "ProvisionedThroughputExceededException"))?;
                    continue;
                }
                WireFault::Expired => {
                    self.count_fault()?;
                    answers.write_all(&error(400, "ExpiredTokenException"))?;
                    continue;
                }
                WireFault::Told(json) => {
                    self.count_fault()?;
                    answers.write_all(&planned(200, json))?;
                    continue;
                }
                WireFault::Held => self.hold()?,
                WireFault::None | WireFault::ReplyLost | WireFault::FailedAfter => {}
            }
            (&server).write_all(&call.counted().bytes())?;
            let answer = Message::read(&mut from_server)?;
            let answer = answer.dated(Duration::from_secs(self.ahead_s.load(Ordering::Relaxed)));
            self.count(action, &String::from_utf8_lossy(&answer.body));
            match fault {
                WireFault::ReplyLost => return self.count_fault(),
                WireFault::FailedAfter => {
                    self.count_fault()?;
                    answers.write_all(&error(500, "InternalServerError"))?;
                }
                _ => answers.write_all(&answer.bytes())?,
            }
        }
    }

    fn hold(&self) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.0 += 1;
        let until = self.release.wait_while(held, |(_, released)| !*released);
        until.unwrap_or_else(PoisonError::into_inner).0 -= 1;
        self.count_fault()
    }

    fn count_fault(&self) -> io::Result<()> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).faults += 1;
        Ok(())
    }

    fn count(&self, action: String, answer: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_write = ["PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"]
            .contains(&action.as_str());
        *counts.calls.entry(action).or_default() += 1;
        let Some((_, consumed)) = answer.split_once("\"ConsumedCapacity\":") else {
            return;
        };
        let all = units(consumed, "");
        match is_write {
            true => {
                let table = units(consumed, "\"Table\":");
                counts.table_writes += table;
                counts.index_writes += all - table;
            }
            false => counts.reads += all,
        }
    }
}

/// The first units after `what`.
fn units(consumed: &str, what: &str) -> f64 {
    let after = consumed.split_once(what).map_or("", |(_, after)| after);
    let number = after.split_once("\"CapacityUnits\":").map_or("", |(_, number)| number);
    let number: String = number.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    number.parse().unwrap_or(0.0)
}

/// A request or an answer of HTTP, with its length.
struct Message {
    head: Vec<String>,
    body: Vec<u8>,
}

impl Message {
    fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut message = Self { head: Vec::new(), body: Vec::new() };
        loop {
            let mut line = String::new();
            if from.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end() {
                "" => break,
                line => message.head.push(line.to_owned()),
            }
        }
        let length = message.header("content-length").parse().unwrap_or(0);
        message.body.resize(length, 0);
        from.read_exact(&mut message.body)?;
        Ok(message)
    }

    fn header(&self, name: &str) -> &str {
        let lines = self.head.iter().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        values.next().map_or("", |(_, value)| value.trim())
    }

    /// The same call, which asks what it costs.
    fn counted(mut self) -> Self {
        let asks = b"{\"ReturnConsumedCapacity\":\"INDEXES\",";
        let takes = [
            "PutItem",
            "UpdateItem",
            "DeleteItem",
            "TransactWriteItems",
            "GetItem",
            "Query",
            "Scan",
            "BatchGetItem",
        ];
        let action = self.header("x-amz-target").rsplit('.').next().unwrap_or("").to_owned();
        if takes.contains(&action.as_str()) && self.body.starts_with(b"{\"") {
            self.body.splice(..1, *asks);
        }
        self
    }

    /// The same answer, given later by this.
    fn dated(mut self, later_by: Duration) -> Self {
        if let Ok(date) = httpdate::parse_http_date(self.header("date")) {
            self.head.retain(|line| !line.to_ascii_lowercase().starts_with("date:"));
            self.head.push(format!("date: {}", httpdate::fmt_http_date(date + later_by)));
        }
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let is_length = |line: &&String| !line.to_ascii_lowercase().starts_with("content-length:");
        let lines: Vec<_> = self.head.iter().filter(is_length).map(String::as_str).collect();
        let head = format!("{}\r\nContent-Length: {}\r\n\r\n", lines.join("\r\n"), self.body.len());
        [head.as_bytes(), &self.body].concat()
    }
}

fn error(status: u16, code: &str) -> Vec<u8> {
    let body = format!(
        "{{\"__type\":\"com.amazonaws.dynamodb.v20120810#{code}\",\"message\":\"planned\"}}"
    );
    planned(status, &body)
}

fn planned(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} Planned\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}
