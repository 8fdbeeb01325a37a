//! What lies between browser and gateway, and can lose answers.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Keys = Arc<Mutex<HashSet<String>>>;

/// What lies between browser and gateway, and can lose answers.
pub(crate) struct Cable {
    pub(crate) address: SocketAddr,
    pub(crate) lose_answers: Arc<AtomicBool>,
    /// What every connection is answered with, instead of being carried.
    refusal: Refusal,
    /// The keys of all charges that went through.
    pub(crate) keys: Keys,
}

type Refusal = Arc<Mutex<Option<&'static str>>>;

impl Cable {
    pub(crate) async fn lay(gateway: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (lose_answers, keys) = (Arc::<AtomicBool>::default(), Keys::default());
        let refusal = Refusal::default();
        let cable = Self {
            address,
            lose_answers: lose_answers.clone(),
            refusal: refusal.clone(),
            keys: keys.clone(),
        };
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (lose_answers, refusal) = (lose_answers.clone(), refusal.clone());
                tokio::spawn(carry(near, gateway, lose_answers, refusal, keys.clone()));
            }
        });
        cable
    }

    pub(crate) fn refuse(&self, answer: &'static str) {
        *self.refusal.lock().unwrap() = Some(answer);
    }

    pub(crate) fn carry_on(&self) {
        *self.refusal.lock().unwrap() = None;
    }
}

/// Both ways, until an answer is to be lost: then the connection is cut instead.
async fn carry(
    mut near: TcpStream,
    gateway: SocketAddr,
    lose_answers: Arc<AtomicBool>,
    refusal: Refusal,
    keys: Keys,
) {
    let mut far = TcpStream::connect(gateway).await.unwrap();
    let (mut up, mut down) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = near.read(&mut up) => {
                let Ok(length @ 1..) = read else { return };
                let refusal = *refusal.lock().unwrap();
                if let Some(refusal) = refusal {
                    return answer_and_close(near, refusal).await;
                }
                keys.lock().unwrap().extend(key(&up[..length]));
                far.write_all(&up[..length]).await.unwrap();
            }
            read = far.read(&mut down) => {
                let Ok(length @ 1..) = read else { return };
                if lose_answers.load(Ordering::SeqCst) || near.write_all(&down[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Reads on to the end: a socket that is closed with bytes unread is reset, and the reset may overtake the answer.
async fn answer_and_close(mut near: TcpStream, answer: &str) {
    let _ = near.write_all(answer.as_bytes()).await;
    let _ = near.shutdown().await;
    let _ = tokio::io::copy(&mut near, &mut tokio::io::sink()).await;
}

/// The key of a request that begins here.
fn key(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let (_, after) = text.split_once("idempotency-key: ")?;
    after.lines().next().map(str::to_owned)
}
