//! A line to the server that can be cut at a chosen moment.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use onlyonce::scope::OperationId;

/// Passes bytes on, until it is told otherwise.
pub(crate) struct Proxy {
    port: u16,
    mode: Arc<Mutex<Mode>>,
    lines: Arc<Mutex<Vec<TcpStream>>>,
    delivers: Arc<AtomicBool>,
}

/// What becomes of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// The answer to the next request that names this operation is swallowed and its line cut.
    CutAnswer(OperationId),
    /// As before, and there is no other line after it.
    CutAnswerForGood(OperationId),
    /// The next request that names this operation is swallowed and its line cut.
    CutRequest(OperationId),
    /// The next request that names this operation is kept until [`Proxy::deliver`], whoever has left by then.
    KeepRequest(OperationId),
    /// No new line.
    Refuse,
    /// Nothing goes anywhere, and nobody is told.
    Stall,
}

impl Proxy {
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(Mutex::new(Mode::Pass));
        let lines = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (modes, kept) = (mode.clone(), lines.clone());
        let delivers = Arc::<AtomicBool>::default();
        let delivered = delivers.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server)))
                else {
                    continue;
                };
                if *modes.lock().unwrap() == Mode::Refuse {
                    continue;
                }
                kept.lock().unwrap().push(client.try_clone().unwrap());
                Line::new(client, server, modes.clone(), delivered.clone()).start();
            }
        });
        Self { port, mode, lines, delivers }
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// Sends on what was kept.
    pub(crate) fn deliver(&self) {
        self.delivers.store(true, Ordering::SeqCst);
    }

    /// Ends every line.
    pub(crate) fn cut_all(&self) {
        for line in self.lines.lock().unwrap().drain(..) {
            let _ = line.shutdown(Shutdown::Both);
        }
    }

    /// `url` through this line.
    pub(crate) fn url(&self, url: &str) -> String {
        let (before, after) = url.rsplit_once(':').unwrap();
        let (_, database) = after.split_once('/').unwrap();
        format!("{before}:{}/{database}", self.port)
    }
}

#[derive(Clone)]
struct Line {
    client: Arc<TcpStream>,
    server: Arc<TcpStream>,
    mode: Arc<Mutex<Mode>>,
    /// Its next answer is swallowed.
    marked: Arc<AtomicBool>,
    delivers: Arc<AtomicBool>,
}

impl Line {
    fn new(
        client: TcpStream,
        server: TcpStream,
        mode: Arc<Mutex<Mode>>,
        delivers: Arc<AtomicBool>,
    ) -> Self {
        for end in [&client, &server] {
            end.set_nodelay(true).unwrap();
        }
        let (client, server, marked) = (client.into(), server.into(), Arc::default());
        Self { client, server, mode, marked, delivers }
    }

    fn start(self) {
        let (requests, answers) = (self.clone(), self);
        thread::spawn(move || {
            requests
                .pass(&requests.client, &requests.server, |bytes| requests.keeps_request(bytes));
        });
        thread::spawn(move || {
            answers
                .pass(&answers.server, &answers.client, |_| answers.marked.load(Ordering::SeqCst));
        });
    }

    /// Whether the line is to be cut before this request; marks it if that is to be before its answer.
    fn keeps_request(&self, bytes: &[u8]) -> bool {
        let names = |id: OperationId| bytes.windows(16).any(|window| window == id.as_bytes());
        let mut mode = self.mode.lock().unwrap();
        match *mode {
            Mode::CutRequest(id) if names(id) => {
                *mode = Mode::Pass;
                true
            }
            Mode::CutAnswer(id) if names(id) => {
                *mode = Mode::Pass;
                self.marked.store(true, Ordering::SeqCst);
                false
            }
            Mode::CutAnswerForGood(id) if names(id) => {
                *mode = Mode::Refuse;
                self.marked.store(true, Ordering::SeqCst);
                false
            }
            Mode::KeepRequest(id) if names(id) => {
                *mode = Mode::Pass;
                drop(mode);
                while !self.delivers.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(5));
                }
                false
            }
            _ => false,
        }
    }

    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream, cuts: impl Fn(&[u8]) -> bool) {
        let mut bytes = [0; 65_536];
        while let Ok(count) = from.read(&mut bytes)
            && count > 0
            && !cuts(&bytes[..count])
        {
            while *self.mode.lock().unwrap() == Mode::Stall {
                thread::sleep(Duration::from_millis(5));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
