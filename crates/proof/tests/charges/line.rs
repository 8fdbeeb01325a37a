//! The line from the service to Postgres, which sees when the database has ended a transaction.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::trigger::Trigger;

/// Lays a line to the server at `port`, and returns its own port.
pub(crate) async fn lay(port: u16, trigger: Arc<Trigger>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(carry(near, port, trigger.clone()));
        }
    });
    own
}

async fn carry(near: TcpStream, port: u16, trigger: Arc<Trigger>) -> Option<()> {
    let far = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    // Small messages that wait for each other's acknowledgement would take 40 ms each.
    near.set_nodelay(true).ok()?;
    far.set_nodelay(true).ok()?;
    let ((mut from_near, to_near), (from_far, mut to_far)) = (near.into_split(), far.into_split());
    let mut bytes = vec![0; 65_536];
    let length = from_near.read(&mut bytes).await.ok()?;
    // The relay looks for messages whenever it likes: only the pool of the service is watched.
    let is_relay = bytes[..length].windows(RELAY.len()).any(|window| window == RELAY);
    to_far.write_all(&bytes[..length]).await.ok()?;
    tokio::spawn(answers(from_far, to_near, (!is_relay).then_some(trigger)));
    loop {
        let length = from_near.read(&mut bytes).await.ok().filter(|length| *length > 0)?;
        to_far.write_all(&bytes[..length]).await.ok()?;
    }
}

/// Passes the server's messages on, one by one, up to the one at which the service is killed.
async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    trigger: Option<Arc<Trigger>>,
) -> Option<()> {
    let mut is_executed = false;
    loop {
        let kind = from.read_u8().await.ok()?;
        let length = from.read_u32().await.ok()?;
        let mut rest = vec![0; length as usize - 4];
        from.read_exact(&mut rest).await.ok()?;
        is_executed |= kind == COMMAND_COMPLETE;
        let is_over = kind == READY_FOR_QUERY && std::mem::take(&mut is_executed) && rest == IDLE;
        if is_over && trigger.as_ref().is_some_and(|trigger| trigger.reach_reply()) {
            return None;
        }
        let message = [&[kind][..], &length.to_be_bytes(), &rest].concat();
        to.write_all(&message).await.ok()?;
    }
}

const COMMAND_COMPLETE: u8 = b'C';
const READY_FOR_QUERY: u8 = b'Z';
/// No transaction is open.
const IDLE: &[u8] = b"I";
/// In the first message of the library's own connections.
const RELAY: &[u8] = b"application_name\0onlyonce";
