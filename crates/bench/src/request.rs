//! The cycle of a client: one request of 300 bytes on a connection that is kept, and its whole answer.
//!
//! Written straight to the socket: a client library would cost more than the proxies that are measured.

use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

use crate::load::Cycle;
use crate::upstream::ANSWER_BYTES;

/// Which keys the requests carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// None: the gateway passes them on.
    None,
    /// A new one each, that follows from the seed.
    New(u64),
    /// One of so many, again and again.
    Of(u64),
}

impl Keys {
    /// Those that one of several threads uses: no new key is used by two.
    pub fn on(self, thread: usize) -> Self {
        match self {
            Self::New(seed) => Self::New(seed << 8 | thread as u64),
            same => same,
        }
    }
}

/// Requests to one address.
#[derive(Debug)]
pub struct Requests {
    address: SocketAddr,
    keys: Keys,
    bearer: &'static str,
    made: Cell<u64>,
    idle: RefCell<Vec<Connection>>,
}

impl Requests {
    /// Connections are made when they are first needed.
    pub fn new(address: SocketAddr, keys: Keys) -> Self {
        Self { address, keys, bearer: BEARER, made: Cell::new(0), idle: RefCell::default() }
    }

    /// With a bearer token that [`Proxy::sealed_gateway`](crate::proxy::Proxy::sealed_gateway) verifies.
    #[must_use]
    pub fn with_signed_token(self) -> Self {
        Self { bearer: SIGNED, ..self }
    }

    /// Sends so many requests, one after the other.
    pub fn send_in_turn(&self, count: u64) {
        let runtime = Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime can be built").block_on(async {
            for _ in 0..count {
                self.claim().await;
            }
        });
        // They belong to the runtime that ends here.
        self.idle.borrow_mut().clear();
    }

    async fn connection(&self) -> Connection {
        let idle = self.idle.borrow_mut().pop();
        match idle {
            Some(connection) => connection,
            None => Connection::open(self.address).await.expect("the proxy accepts a connection"),
        }
    }

    fn next_key(&self) -> Option<String> {
        let number = self.made.get();
        self.made.set(number + 1);
        match self.keys {
            Keys::None => None,
            Keys::New(seed) => Some(format!("order-{seed:016x}-{number:08x}")),
            Keys::Of(count) => Some(format!("order-{:08x}", number % count)),
        }
    }
}

impl Cycle for Requests {
    type Claimed = ();

    async fn claim(&self) {
        let key = self.next_key();
        let mut connection = self.connection().await;
        connection
            .exchange(self.bearer, key.as_deref())
            .await
            .expect("the answer is whole and as expected");
        self.idle.borrow_mut().push(connection);
    }

    async fn settle(&self, (): ()) {}
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let buffer = Vec::with_capacity(4096);
        Ok(Self { stream, buffer })
    }

    async fn exchange(&mut self, bearer: &str, key: Option<&str>) -> io::Result<()> {
        self.buffer.clear();
        write_request(&mut self.buffer, bearer, key)?;
        self.stream.write_all(&self.buffer).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if is_whole(&self.buffer)? {
                return Ok(());
            }
        }
    }
}

fn write_request(to: &mut Vec<u8>, bearer: &str, key: Option<&str>) -> io::Result<()> {
    to.extend_from_slice(HEAD);
    write!(to, "Authorization: Bearer {bearer}\r\n")?;
    if let Some(key) = key {
        write!(to, "Idempotency-Key: {key}\r\n")?;
    }
    write!(to, "Content-Length: {BODY_BYTES}\r\n\r\n")?;
    let begun = to.len();
    to.extend_from_slice(BODY);
    let padding = BODY_BYTES - BODY.len() - BODY_END.len();
    to.resize(begun + BODY.len() + padding, b'x');
    to.extend_from_slice(BODY_END);
    Ok(())
}

/// Whether the answer is all there. One that the upstream would not give is an error.
fn is_whole(answer: &[u8]) -> io::Result<bool> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(answer).map_err(io::Error::other)?;
    let httparse::Status::Complete(head_bytes) = parsed else {
        return Ok(false);
    };
    let length =
        head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|length| std::str::from_utf8(length.value).ok()?.parse().ok());
    if head.code != Some(201) || length != Some(ANSWER_BYTES) {
        let text = String::from_utf8_lossy(answer).into_owned();
        return Err(io::Error::other(text));
    }
    Ok(answer.len() >= head_bytes + ANSWER_BYTES)
}

const HEAD: &[u8] = b"POST /v1/charges HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\
    Content-Type: application/json\r\n";
const BEARER: &str = "0123456789abcdef";
/// HS256 with the secret that the gateway is given, for the subject `bench`, until the year 2100.
const SIGNED: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJiZW5jaCIsImV4cCI6NDEwMjQ0NDgwMH0.lTMxIb5YF0Psf3st-iWM32xttv-tomXHvmDB2ffP70U";
const BODY: &[u8] = br#"{"amount":7998,"currency":"eur","customer":"c-4711","card":{"number":"4242424242424242","month":7,"year":2031},"note":""#;
const BODY_END: &[u8] = br#""}"#;
const BODY_BYTES: usize = 300;
