//! The connection is cut exactly at a COMMIT: before the server has it, or before its reply.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use onlyonce::transaction::{Begun, TransactionError, Transactions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_postgres::NoTls;

use crate::lab::{CHARGE, Lab, charge, created, pool, tiered};

// R126
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_commit_is_resolved_by_asking() {
    // A default that would hide the commit from whoever waits for it.
    let lab = Lab::start_with(&["default_transaction_isolation=serializable"]).await;
    let line = Line::lay(lab.postgres.port()).await;
    let (pool, transactions) = (pool(&line.url(&lab.url), 2).await, Transactions::new());
    let (mut done, mut not_done) = (0, 0);
    for number in 0..tiered(200) {
        let operation = charge(&format!("k{number}"));
        let cut = if number % 2 == 0 { CUT_REPLY } else { CUT_REQUEST };
        let Begun::Mine(mut tx) = transactions.begin(&pool, &operation).await.unwrap() else {
            panic!()
        };
        sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
        line.cut.store(cut, Ordering::SeqCst);
        match tx.complete(created()).await {
            Ok(reply) => {
                assert_eq!((cut, reply), (CUT_REPLY, created()));
                done += 1;
            }
            Err(error) => {
                assert!(matches!(error, TransactionError::NotDone(_)), "{error:?}");
                assert_eq!(cut, CUT_REQUEST);
                not_done += 1;
            }
        }
        assert_eq!(line.cut.load(Ordering::SeqCst), CUT_NOTHING, "the line was cut");
        assert_eq!(lab.charges(), done.to_string());
    }
    assert!(done > 0 && not_done > 0);
    println!("{done} found done, {not_done} found not done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tokio_postgres_the_caller_asks_on_a_new_connection() {
    let lab = Lab::start().await;
    let line = Line::lay(lab.postgres.port()).await;
    let transactions = Transactions::new();
    for (number, cut) in [CUT_REPLY, CUT_REQUEST].into_iter().enumerate() {
        let url = line.url(&lab.url);
        let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let operation = charge(&format!("k{number}"));
        let Begun::Mine(tx) = transactions.begin_on(&mut client, &operation).await.unwrap() else {
            panic!()
        };
        tx.batch_execute(CHARGE).await.unwrap();
        line.cut.store(cut, Ordering::SeqCst);
        let Err(TransactionError::Unsure { token, .. }) = tx.complete(created()).await else {
            panic!()
        };
        let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let resolved = transactions.resolve_on(&mut client, &operation, &token).await.unwrap();
        assert_eq!(resolved, (cut == CUT_REPLY).then(created));
    }
    assert_eq!(lab.charges(), "1");
}

/// A line to the server that is cut once, at the next COMMIT, or that holds back the replies to a statement.
pub(crate) struct Line {
    address: SocketAddr,
    pub(crate) cut: Arc<AtomicU8>,
    hold: watch::Sender<Hold>,
}

#[derive(Clone, Copy, PartialEq)]
enum Hold {
    Nothing,
    /// The replies from the next statement on that has this text.
    RepliesTo(&'static str),
    /// Such a statement was sent, and its reply is held.
    Holding,
}

pub(crate) const CUT_NOTHING: u8 = 0;
pub(crate) const CUT_REQUEST: u8 = 1;
pub(crate) const CUT_REPLY: u8 = 2;

impl Line {
    pub(crate) async fn lay(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, cut) = (listener.local_addr().unwrap(), Arc::<AtomicU8>::default());
        let hold = watch::Sender::new(Hold::Nothing);
        let (at, held) = (cut.clone(), hold.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, server, at.clone(), held.clone()));
            }
        });
        Self { address, cut, hold }
    }

    /// Holds back the reply to the next statement that has this text, and all replies after it.
    pub(crate) fn hold(&self, statement: &'static str) {
        self.hold.send_replace(Hold::RepliesTo(statement));
    }

    /// Waits until the server has the statement.
    pub(crate) async fn holding(&self) {
        self.hold.subscribe().wait_for(|hold| *hold == Hold::Holding).await.unwrap();
    }

    pub(crate) fn release(&self) {
        self.hold.send_replace(Hold::Nothing);
    }

    pub(crate) fn url(&self, url: &str) -> String {
        let (before, after) = url.rsplit_once(':').unwrap();
        let (_, database) = after.split_once('/').unwrap();
        format!("{before}:{}/{database}", self.address.port())
    }
}

async fn carry(mut near: TcpStream, server: u16, cut: Arc<AtomicU8>, hold: watch::Sender<Hold>) {
    let mut far = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut is_reply_lost, mut is_held, mut held) = (false, false, hold.subscribe());
    loop {
        tokio::select! {
            read = near.read(&mut up) => {
                let Ok(length @ 1..) = read else { return };
                let sent = &up[..length];
                if has(sent, "COMMIT") {
                    match cut.swap(CUT_NOTHING, Ordering::SeqCst) {
                        CUT_REQUEST => return,
                        at => is_reply_lost = at == CUT_REPLY,
                    }
                }
                far.write_all(sent).await.unwrap();
                is_held |= hold.send_if_modified(|hold| match *hold {
                    Hold::RepliesTo(statement) if has(sent, statement) => {
                        *hold = Hold::Holding;
                        true
                    }
                    _ => false,
                });
            }
            read = far.read(&mut down), if !is_held => {
                let Ok(length @ 1..) = read else { return };
                if is_reply_lost || near.write_all(&down[..length]).await.is_err() {
                    return;
                }
            }
            () = released(&mut held), if is_held => is_held = false,
        }
    }
}

fn has(sent: &[u8], statement: &str) -> bool {
    sent.windows(statement.len()).any(|bytes| bytes == statement.as_bytes())
}

async fn released(held: &mut watch::Receiver<Hold>) {
    held.wait_for(|hold| *hold == Hold::Nothing).await.unwrap();
}
