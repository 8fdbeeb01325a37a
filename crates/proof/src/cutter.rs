//! A line to Postgres that can be cut right when the server says that a write is done, and led to another server.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Passes bytes on, and cuts when it is told to. It ends when it is dropped.
#[derive(Debug)]
pub struct Cutter {
    /// Where clients connect instead of to the server.
    pub address: SocketAddr,
    cuts: Arc<Cuts>,
    server: watch::Sender<SocketAddr>,
    _lines: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Cuts {
    asked: AtomicUsize,
    made: AtomicUsize,
}

impl Cutter {
    /// A line to the server at `server`.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, cuts) = (listener.local_addr()?, Arc::<Cuts>::default());
        let mut lines = JoinSet::new();
        let server = watch::Sender::new(server);
        lines.spawn(accept(listener, server.subscribe(), cuts.clone()));
        Ok(Self { address, cuts, server, _lines: lines })
    }

    /// Cuts every line; new ones lead to `server`.
    pub fn lead_to(&self, server: SocketAddr) {
        self.server.send_replace(server);
    }

    /// The next line on which the server replies to a write of records is cut before the reply is passed on.
    pub fn cut(&self) {
        self.cuts.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// How many lines were cut.
    pub fn made(&self) -> usize {
        self.cuts.made.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, server: watch::Receiver<SocketAddr>, cuts: Arc<Cuts>) {
    let mut lines = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (cuts, mut server) = (cuts.clone(), server.clone());
        lines.spawn(async move {
            let address = *server.borrow_and_update();
            if let Ok(stream) = TcpStream::connect(address).await {
                tokio::select! {
                    () = pass(client, stream, &cuts) => {}
                    _ = server.changed() => {}
                }
            }
        });
    }
}

/// Until either end hangs up, or the line is cut.
async fn pass(client: TcpStream, server: TcpStream, cuts: &Cuts) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let writes = AtomicUsize::new(0);
    tokio::select! {
        () = pass_statements(from_client, to_server, &writes) => {}
        () = pass_replies(from_server, to_client, &writes, cuts) => {}
    }
}

async fn pass_statements(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    writes: &AtomicUsize,
) {
    let (mut bytes, mut talk) = (vec![0; PART_BYTES], Talk::default());
    while let Ok(count @ 1..) = client.read(&mut bytes).await {
        writes.fetch_add(talk.writes_in(&bytes[..count]), Ordering::SeqCst);
        if server.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// What the server says after a statement that writes is the reply to its commit.
async fn pass_replies(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    writes: &AtomicUsize,
    cuts: &Cuts,
) {
    let mut bytes = vec![0; PART_BYTES];
    while let Ok(count @ 1..) = server.read(&mut bytes).await {
        let is_reply = writes.swap(0, Ordering::SeqCst) > 0;
        if is_reply && cuts.take() {
            return;
        }
        if client.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// What a client says, as far as it tells when a statement writes records.
#[derive(Default)]
struct Talk {
    unread: Vec<u8>,
    is_begun: bool,
    /// The names of prepared statements that write.
    writing: HashSet<Vec<u8>>,
}

impl Talk {
    /// How many statements that write are run by the messages that end in `part`.
    fn writes_in(&mut self, part: &[u8]) -> usize {
        self.unread.extend_from_slice(part);
        let mut writes = 0;
        while let Some(message) = self.next_message() {
            writes += usize::from(self.is_write(&message));
        }
        writes
    }

    /// The next whole message. Those that come before a session has begun have no tag.
    fn next_message(&mut self) -> Option<Vec<u8>> {
        let tag_bytes = usize::from(self.is_begun);
        let length = self.unread.get(tag_bytes..tag_bytes + 4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        let end = tag_bytes + length;
        if self.unread.len() < end {
            return None;
        }
        let message: Vec<u8> = self.unread.drain(..end).collect();
        self.is_begun |= message.get(4..8) == Some(&PROTOCOL);
        Some(message)
    }

    /// Notes what a Parse message prepares; a Bind message runs it.
    fn is_write(&mut self, message: &[u8]) -> bool {
        let mut texts = message.get(5..).unwrap_or_default().split(|byte| *byte == 0);
        let (Some(first), Some(second)) = (texts.next(), texts.next()) else {
            return false;
        };
        match message[0] {
            b'P' if is_writing(second) => {
                self.writing.insert(first.to_owned());
                false
            }
            b'B' => self.writing.contains(second),
            _ => false,
        }
    }
}

fn is_writing(sql: &[u8]) -> bool {
    let sql = String::from_utf8_lossy(sql);
    ["INSERT INTO", "UPDATE", "DELETE FROM"].iter().any(|word| sql.contains(word))
        && !sql.contains(".meta SET")
        && !sql.contains("SKIP LOCKED")
}

/// How a session begins: version 3 of the protocol.
const PROTOCOL: [u8; 4] = 196_608_u32.to_be_bytes();
const PART_BYTES: usize = 64 * 1024;

impl Cuts {
    /// Whether this line is the one to be cut.
    fn take(&self) -> bool {
        let less = |asked: usize| asked.checked_sub(1);
        let is_asked = self.asked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok();
        self.made.fetch_add(usize::from(is_asked), Ordering::SeqCst);
        is_asked
    }
}
