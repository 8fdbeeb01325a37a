//! A client that may leave at any moment, and knows what the gateway has of it.

use std::fs;
use std::net::SocketAddr;

use proof::client::{self, Answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, sleep};

use crate::gateway::Gateway;
use crate::{BODY, until, within};

/// A client that has sent a whole request.
#[derive(Debug)]
pub(crate) struct Caller {
    stream: TcpStream,
    /// Of the gateway's end of the connection.
    inode: String,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    /// It closes the connection.
    Close,
    /// It resets it, as a process does that dies.
    Reset,
}

impl Caller {
    /// Sends `POST path` with `key`; returns when the gateway has read all of it.
    pub(crate) async fn send(gateway: &Gateway, path: &str, key: &str) -> Self {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let address = gateway.address;
        let length = BODY.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nX-Api-Key: proof\r\nIdempotency-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{BODY}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let client = stream.local_addr().unwrap();
        let read = || {
            let is_sent = End::find(client, address).is_some_and(|end| end.is_sent);
            let server = End::find(address, client).filter(|end| end.is_read && end.inode != "0");
            server.filter(|_| is_sent)
        };
        until("the gateway to read the request", || read().is_some()).await;
        let inode = End::find(address, client).expect("it is open").inode;
        Self { stream, inode }
    }

    /// Reads this many bytes of whatever comes.
    pub(crate) async fn read(&mut self, bytes: usize) {
        let mut read = vec![0; bytes];
        let reading = self.stream.read_exact(&mut read);
        within("some of the answer", reading).await.unwrap();
    }

    /// Leaves; returns when the gateway has closed its end as well.
    pub(crate) async fn hang_up(self, gateway: &Gateway, how: Leave) {
        if let Leave::Reset = how {
            self.stream.set_zero_linger().unwrap();
        }
        drop(self.stream);
        until("the gateway to notice", || !gateway.has_socket(&self.inode)).await;
    }
}

/// Sends until the operation has an answer of its own.
pub(crate) async fn retry_to_the_end(gateway: &Gateway, path: &str, key: &str) -> Answer {
    within("the operation's end", async {
        loop {
            let answer = client::post(gateway.address, path, key, BODY).await.unwrap();
            if answer.problem().as_deref() != Some("idempotency_in_progress") {
                return answer;
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// One end of a connection, as the system sees it.
struct End {
    inode: String,
    /// All that was written here is at the other end.
    is_sent: bool,
    /// All that came from the other end was read here.
    is_read: bool,
}

impl End {
    fn find(local: SocketAddr, remote: SocketAddr) -> Option<Self> {
        let ends = format!("0100007F:{:04X} 0100007F:{:04X}", local.port(), remote.port());
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let line = table.lines().find(|line| line.contains(&ends))?;
        let words: Vec<_> = line.split_whitespace().collect();
        let (to_send, to_read) = words[4].split_once(':')?;
        Some(Self {
            inode: words[9].to_owned(),
            is_sent: to_send == "00000000",
            is_read: to_read == "00000000",
        })
    }
}
