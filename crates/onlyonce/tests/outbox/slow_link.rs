//! A connection to the database that is too slow for many payloads at once.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use onlyonce::outbox::{Parked, ParkedFilter, Relay};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::lab::{Book, Lab, Running, quick};

/// The address of the lab's database, over a link that brings two MiB a second.
async fn slow_url(lab: &Lab) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (slow, port) = (listener.local_addr().unwrap().port(), lab.postgres.port());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            // It ends when either side has left.
            tokio::spawn(pass(client, port));
        }
    });
    lab.url.replace(&format!(":{port}"), &format!(":{slow}"))
}

async fn pass(client: TcpStream, port: u16) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    // What waits in the kernel has been sent, as the database sees it.
    socket.set_recv_buffer_size(64 * 1024)?;
    let server = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    tokio::select! {
        ended = pass_slowly(from_server, to_client) => ended,
        ended = tokio::io::copy(&mut from_client, &mut to_server) => ended.map(drop),
    }
}

async fn pass_slowly(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1) * length as u32 / BYTES_PER_SECOND).await;
        to.write_all(&piece[..length]).await?;
    }
}

// Their payloads are 32 MiB, and the link brings ten in the time of one answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_messages_are_listed_however_large_they_are() {
    let lab = Lab::start().await;
    lab.sql(&LARGE.replace("COUNT", "32"));
    lab.sql("UPDATE onlyonce.outbox SET parked_at = now(), due_at = 'infinity', error = 'no'");
    let parked = Parked::open(&slow_url(&lab).await).await.unwrap();
    let listed = parked.list(ParkedFilter::default(), 0).await.unwrap();
    assert_eq!(listed.len(), 32);
    let (message, payload) = parked.find(&listed[7].id).await.unwrap().unwrap();
    assert_eq!((message, payload.len()), (listed[7].clone(), 1024 * 1024));
}

// A lease of 16 would take eight seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_asks_for_fewer_messages_if_they_do_not_arrive_in_time() {
    let lab = Lab::start().await;
    lab.sql(&LARGE.replace("COUNT", "16"));
    let options = quick().with_lease(Duration::from_secs(30));
    let relay = Relay::open_with(&slow_url(&lab).await, Book::taking(), options).await.unwrap();
    let relay = Running::start(relay);
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
}

const BYTES_PER_SECOND: u32 = 2 * 1024 * 1024;
/// So many messages of the largest size.
const LARGE: &str = "
    INSERT INTO onlyonce.outbox (operation, topic, payload, created_at)
    SELECT gen_random_uuid(), 't', repeat('x', 1048576)::bytea, now() FROM generate_series(1, COUNT)";
