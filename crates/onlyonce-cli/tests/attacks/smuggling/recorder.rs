//! A service that takes HTTP/1.1 by the letter, and writes down what it gets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub(super) struct Recorder {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// The path of each whole request.
    paths: Vec<String>,
    /// What could be read in more than one way, with the bytes of its connection.
    odd: Vec<String>,
}

impl Recorder {
    /// Serves until the process ends.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Seen>>::default();
        let noted = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, noted) = (stream.unwrap(), noted.clone());
                thread::spawn(move || {
                    Connection { stream, bytes: Vec::new(), at: 0 }.serve(&noted)
                });
            }
        });
        Self { address, seen }
    }

    pub(super) fn count(&self, path: &str) -> usize {
        self.seen.lock().unwrap().paths.iter().filter(|seen| *seen == path).count()
    }

    pub(super) fn count_all(&self) -> usize {
        self.seen.lock().unwrap().paths.len()
    }

    pub(super) fn demand_unambiguous(&self) {
        let seen = self.seen.lock().unwrap();
        assert!(seen.odd.is_empty(), "{}", seen.odd.join("\n"));
        let hidden: Vec<_> = seen.paths.iter().filter(|path| path.contains("canary")).collect();
        assert!(hidden.is_empty(), "{hidden:?}");
    }
}

/// Why a connection ended.
enum End {
    /// Its peer closed it.
    Closed,
    Odd(&'static str),
}

struct Connection {
    stream: TcpStream,
    /// Everything that came.
    bytes: Vec<u8>,
    at: usize,
}

impl Connection {
    fn serve(mut self, seen: &Mutex<Seen>) {
        loop {
            match self.request() {
                Ok(path) => {
                    seen.lock().unwrap().paths.push(path);
                    let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
                    if self.stream.write_all(answer).is_err() {
                        return;
                    }
                }
                Err(End::Closed) => return,
                Err(End::Odd(why)) => {
                    let bytes = self.bytes.escape_ascii();
                    return seen.lock().unwrap().odd.push(format!("{why}: {bytes}"));
                }
            }
        }
    }

    /// The path of the next whole request.
    fn request(&mut self) -> Result<String, End> {
        let first = self.line()?;
        let path = target(&first)?;
        let (mut hosts, mut length, mut is_chunked) = (0, None, false);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = field(&line)?;
            match name.as_str() {
                "host" => hosts += 1,
                "content-length" if length.is_some() => return Err(End::Odd("two lengths")),
                "content-length" => length = Some(decimal(&value)?),
                "transfer-encoding" if is_chunked => return Err(End::Odd("two codings")),
                "transfer-encoding" if value == "chunked" => is_chunked = true,
                "transfer-encoding" => return Err(End::Odd("an odd coding")),
                _ => {}
            }
        }
        match (hosts, length, is_chunked) {
            (1, Some(_), true) => return Err(End::Odd("a length and a coding")),
            (1, None, true) => self.chunks()?,
            (1, length, false) => drop(self.take(length.unwrap_or(0))?),
            _ => return Err(End::Odd("none or several hosts")),
        }
        Ok(path)
    }

    fn chunks(&mut self) -> Result<(), End> {
        loop {
            let size = self.line()?;
            let is_size =
                !size.is_empty() && size.len() <= 8 && size.iter().all(u8::is_ascii_hexdigit);
            if !is_size {
                return Err(End::Odd("an odd chunk size"));
            }
            let size = usize::from_str_radix(&String::from_utf8_lossy(&size), 16).unwrap();
            if size == 0 {
                break;
            }
            self.take(size)?;
            if !self.line()?.is_empty() {
                return Err(End::Odd("a chunk longer than its size"));
            }
        }
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(());
            }
            if ["content-length", "transfer-encoding", "host"].contains(&field(&line)?.0.as_str()) {
                return Err(End::Odd("a trailer that belongs in a head"));
            }
        }
    }

    /// The next line, without its CR LF, neither of which is in it alone.
    fn line(&mut self) -> Result<Vec<u8>, End> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\r' if self.byte()? == b'\n' => return Ok(line),
                b'\r' => return Err(End::Odd("a bare CR")),
                b'\n' => return Err(End::Odd("a bare LF")),
                byte => line.push(byte),
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, End> {
        (0..count).map(|_| self.byte()).collect()
    }

    fn byte(&mut self) -> Result<u8, End> {
        if self.at == self.bytes.len() {
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(read @ 1..) => self.bytes.extend_from_slice(&buffer[..read]),
                _ => return Err(End::Closed),
            }
        }
        self.at += 1;
        Ok(self.bytes[self.at - 1])
    }
}

fn target(line: &[u8]) -> Result<String, End> {
    let line = std::str::from_utf8(line).map_err(|_| End::Odd("a first line that is no text"))?;
    let [method, target, "HTTP/1.1"] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(End::Odd("a first line that is not three words"));
    };
    let is_plain = method.bytes().all(is_token) && target.starts_with('/');
    let is_visible = target.bytes().all(|byte| byte.is_ascii_graphic());
    match is_plain && is_visible && !method.is_empty() {
        true => Ok(target.to_owned()),
        false => Err(End::Odd("an odd method or target")),
    }
}

fn field(line: &[u8]) -> Result<(String, String), End> {
    let line = String::from_utf8_lossy(line).into_owned();
    let (name, value) = line.split_once(':').ok_or(End::Odd("a line without a colon"))?;
    let is_plain = !name.is_empty() && name.bytes().all(is_token);
    match is_plain && !value.chars().any(|one| one.is_ascii_control() && one != '\t') {
        true => Ok((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned())),
        false => Err(End::Odd("an odd field")),
    }
}

fn decimal(value: &str) -> Result<usize, End> {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = is_number && (value == "0" || !value.starts_with('0'));
    value.parse().ok().filter(|_| is_number).ok_or(End::Odd("an odd length"))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
