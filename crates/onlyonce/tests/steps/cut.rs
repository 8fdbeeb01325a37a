//! The line to the database is cut at every single packet of an operation, in both directions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use onlyonce::steps::{PgDatabase, StepsOutcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::lab::{Lab, Shop, operation, tiered};
use crate::provider::Provider;
use crate::shop::{ORDER, World, order};

// R131 to R133, R135: also where a commit was made and its reply was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_cut_at_any_packet_has_each_effect_once() {
    let lab = Lab::postgres().await;
    let direct = PgDatabase::connect(&lab.address).await;
    let (mut unknown, mut cuts) = (0, 0);
    // Not every packet in the fast tier.
    let stride = if tiered(10) == 10 { 1 } else { 3 };
    for packet in (1..PACKETS_MAX).step_by(stride) {
        let line = Line::lay(&lab.address, packet).await;
        let Ok(pool) = sqlx::postgres::PgPoolOptions::new().connect(&line.url).await else {
            continue;
        };
        let provider = Provider::start();
        let (steps, key) = (order(World::new(provider.address)), format!("k{packet}"));
        let through = PgDatabase::new(pool);
        let first = steps.run(&through, &operation(&key), &ORDER).await;
        let was_cut = line.left.load(Ordering::SeqCst) <= 0;
        lab.let_time_pass();
        let last = steps.run(&direct, &operation(&key), &ORDER).await.unwrap();
        let mails = provider.calls("mail");
        assert_eq!(provider.effects("card"), 1, "{packet}");
        match last {
            StepsOutcome::Done(_) | StepsOutcome::Replay(_) => {
                assert_eq!(mails, 1, "{packet}: {first:?}");
                assert_eq!(lab.effects(), "receipt|1\nsaved|1", "{packet}: {first:?}");
                assert_eq!(lab.sql("SELECT count(*) FROM {outbox}"), "1", "{packet}");
            }
            StepsOutcome::Unknown { .. } => {
                unknown += 1;
                assert!(mails <= 1, "{packet}: {first:?}");
                assert_eq!(lab.effects(), "saved|1", "{packet}: {first:?}");
            }
            other => panic!("{packet}: {other:?} after {first:?}"),
        }
        lab.sql("DELETE FROM effect");
        lab.sql("DELETE FROM {outbox}");
        if !was_cut {
            println!("{cuts} cuts of {packet} packets; {unknown} left the mail in doubt");
            assert!(cuts > 5, "{cuts}");
            return;
        }
        cuts += 1;
    }
    panic!("an operation has more than {PACKETS_MAX} packets");
}

pub(crate) const PACKETS_MAX: i64 = 300;

/// A line to the server that is cut once, at a packet: it is lost, and its connection with it.
pub(crate) struct Line {
    pub(crate) url: String,
    /// Packets until then.
    pub(crate) left: Arc<AtomicI64>,
}

impl Line {
    pub(crate) async fn lay(url: &str, packets: i64) -> Self {
        Self::lay_counted(url, packets, "").await
    }

    /// The packets are counted from the one on that has `first` in it.
    pub(crate) async fn lay_counted(url: &str, packets: i64, first: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (before, after) = url.rsplit_once(':').unwrap();
        let (server, database) = after.split_once('/').unwrap();
        let server: SocketAddr = format!("127.0.0.1:{server}").parse().unwrap();
        let url = format!("{before}:{}/{database}", listener.local_addr().unwrap().port());
        let left = Arc::new(AtomicI64::new(packets));
        let count = Count { left: left.clone(), first, is_on: Arc::default() };
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, server, count.clone()));
            }
        });
        Self { url, left }
    }
}

#[derive(Clone)]
struct Count {
    left: Arc<AtomicI64>,
    first: &'static str,
    is_on: Arc<AtomicBool>,
}

impl Count {
    /// Whether this packet is the one that is lost.
    fn is_over(&self, packet: &[u8]) -> bool {
        let is_first = || {
            packet.windows(self.first.len().max(1)).any(|w| w.starts_with(self.first.as_bytes()))
        };
        if !self.is_on.load(Ordering::SeqCst) && is_first() {
            self.is_on.store(true, Ordering::SeqCst);
        }
        self.is_on.load(Ordering::SeqCst) && self.left.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

async fn carry(mut near: TcpStream, server: SocketAddr, count: Count) {
    let mut far = TcpStream::connect(server).await.unwrap();
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = near.read(&mut up) => {
                let Ok(length @ 1..) = read else { return };
                if count.is_over(&up[..length]) || far.write_all(&up[..length]).await.is_err() {
                    return;
                }
            }
            read = far.read(&mut down) => {
                let Ok(length @ 1..) = read else { return };
                if count.is_over(&down[..length]) || near.write_all(&down[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
