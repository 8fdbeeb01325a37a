//! A line to the server that can be cut at a chosen moment.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes bytes on, until it is told otherwise.
pub(crate) struct Proxy {
    port: u16,
    mode: Arc<AtomicU8>,
    lines: Arc<Mutex<Vec<TcpStream>>>,
}

/// What becomes of bytes.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    Pass,
    /// The next answer of the server is swallowed and its line cut; then all pass again.
    CutAnswer,
    /// The next request is swallowed and its line cut; then all pass again.
    CutRequest,
    /// Nothing goes anywhere, and nobody is told.
    Stall,
}

impl Proxy {
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(AtomicU8::new(Mode::Pass as u8));
        let lines = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (modes, kept) = (mode.clone(), lines.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server)))
                else {
                    continue;
                };
                kept.lock().unwrap().push(client.try_clone().unwrap());
                for (from, to, cut) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap(), Mode::CutRequest),
                    (server, client, Mode::CutAnswer),
                ] {
                    from.set_nodelay(true).unwrap();
                    let mode = modes.clone();
                    thread::spawn(move || pass(from, to, cut, &mode));
                }
            }
        });
        Self { port, mode, lines }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::SeqCst);
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

fn pass(mut from: TcpStream, mut to: TcpStream, cut: Mode, mode: &AtomicU8) {
    let mut bytes = [0; 65_536];
    while let Ok(count) = from.read(&mut bytes)
        && count > 0
    {
        let cuts = (cut as u8, Mode::Pass as u8);
        if mode.compare_exchange(cuts.0, cuts.1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            break;
        }
        while mode.load(Ordering::SeqCst) == Mode::Stall as u8 {
            thread::sleep(std::time::Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
