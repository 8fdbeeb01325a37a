//! A card network and a mail service, over TCP: they recognise keys, and count what they are asked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

/// It ends with the process.
#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    book: Arc<Book>,
}

#[derive(Default)]
struct Book {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Default)]
struct Calls {
    /// How often each service was called with each key.
    counts: BTreeMap<(String, String), usize>,
    /// Services that take a call and never answer.
    silent: Vec<String>,
}

impl Provider {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let provider = Self { address: listener.local_addr().unwrap(), book: Arc::default() };
        let book = provider.book.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let book = book.clone();
                thread::spawn(move || book.answer(stream.unwrap()));
            }
        });
        provider
    }

    /// Services that take a call and never answer, from now on.
    pub(crate) fn silence(&self, services: &[&str]) {
        let services = services.iter().map(|service| (*service).to_owned());
        self.book.calls.lock().unwrap().silent = services.collect();
    }

    /// How often `service` was called, with all keys.
    pub(crate) fn calls(&self, service: &str) -> usize {
        self.counts(service).iter().sum()
    }

    /// How many different keys `service` has seen: that many times it has charged.
    pub(crate) fn effects(&self, service: &str) -> usize {
        self.counts(service).len()
    }

    pub(crate) fn keys(&self, service: &str) -> Vec<String> {
        let calls = self.book.calls.lock().unwrap();
        let of_service = calls.counts.keys().filter(|(of, _)| of == service);
        of_service.map(|(_, key)| key.clone()).collect()
    }

    fn counts(&self, service: &str) -> Vec<usize> {
        let calls = self.book.calls.lock().unwrap();
        let of_service = calls.counts.iter().filter(|((of, _), _)| of == service);
        of_service.map(|(_, count)| *count).collect()
    }

    /// Waits until `service` was called so often.
    pub(crate) fn until_called(&self, service: &str, count: usize) {
        let calls = self.book.calls.lock().unwrap();
        let is_missing = |calls: &mut Calls| {
            let of_service = calls.counts.iter().filter(|((of, _), _)| of == service);
            of_service.map(|(_, count)| count).sum::<usize>() < count
        };
        let waited = self.book.changed.wait_timeout_while(calls, WAIT_MAX, is_missing).unwrap();
        assert!(!waited.1.timed_out(), "{service} was not called {count} times");
    }
}

impl Book {
    /// The answer depends on the service and the key alone: the first answer, for every call with this key.
    fn answer(&self, mut stream: TcpStream) {
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        let Some((service, key)) = line.trim().split_once(' ') else { return };
        let mut calls = self.calls.lock().unwrap();
        *calls.counts.entry((service.to_owned(), key.to_owned())).or_default() += 1;
        let is_silent = calls.silent.iter().any(|silent| silent == service);
        self.changed.notify_all();
        drop(calls);
        if is_silent {
            thread::sleep(WAIT_MAX);
        }
        // The caller may be dead.
        let _ = stream.write_all(format!("{service}-{}\n", &key[..8]).as_bytes());
    }
}

/// Calls a service with a key, and returns its answer.
pub(crate) async fn call(
    address: SocketAddr,
    service: &str,
    key: &str,
) -> Result<String, std::io::Error> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(format!("{service} {key}\n").as_bytes()).await?;
    let mut answer = String::new();
    tokio::io::BufReader::new(stream).read_line(&mut answer).await?;
    match answer.trim() {
        "" => Err(std::io::ErrorKind::UnexpectedEof.into()),
        answer => Ok(answer.to_owned()),
    }
}

const WAIT_MAX: Duration = Duration::from_secs(60);
