//! What only the thread of the gateway itself can see.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::time::{sleep, timeout};

use super::*;

fn request() -> Request<Body> {
    let request = Request::post("/t").header("host", "test");
    request.body(Body::from(bytes::Bytes::from_static(b"{}"))).unwrap()
}

/// Answers the next connection's first request on a thread of its own, and hands the connection back.
fn answer_one(listener: &TcpListener) -> thread::JoinHandle<TcpStream> {
    let listener = listener.try_clone().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut read = Vec::new();
        let mut byte = [0];
        while !read.ends_with(b"{}") {
            assert_eq!(stream.read(&mut byte).unwrap(), 1);
            read.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").unwrap();
        stream
    })
}

// The end of the connection has arrived, and nothing of this thread has looked at its sockets since.
#[tokio::test]
async fn a_connection_that_the_service_has_closed_is_not_used() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let upstream = Upstream::new(&uri, &Outward::of_this_machine()).unwrap();
    let terms = Terms::new(Duration::from_secs(30), Duration::from_secs(1));
    for _ in 0..20 {
        let served = answer_one(&listener);
        let answer = upstream.send(request(), terms).await.expect("an answer");
        answer.into_body().collect().await.unwrap();
        sleep(Duration::from_millis(5)).await;
        let kept = upstream.pool.take(Duration::from_secs(1)).expect("it is ready");
        upstream.pool.keep(kept, &HeaderMap::new());
        drop(served.join().unwrap());
    }
}

// As after a pause of the process: the claim may be somebody else's by now.
#[tokio::test]
async fn nothing_is_sent_when_the_time_for_a_connection_is_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let upstream = Upstream::new(&uri, &Outward::of_this_machine()).unwrap();
    let second = Duration::from_secs(1);
    let served = answer_one(&listener);
    let answer = upstream.send(request(), Terms::new(second * 30, second)).await;
    answer.unwrap().into_body().collect().await.unwrap();
    let mut kept = served.join().unwrap();
    sleep(Duration::from_millis(5)).await;
    let late = timeout(second, upstream.send(request(), Terms::new(Duration::ZERO, second))).await;
    assert!(matches!(late, Ok(Err(SendError::NotSent(_)))), "{late:?}");
    sleep(Duration::from_millis(20)).await;
    kept.set_nonblocking(true).unwrap();
    assert!(matches!(kept.read(&mut [0]), Ok(0) | Err(_)), "no byte of it");
}

/// Takes every byte, and then refuses the certificate of its peer.
struct Refusing {
    has_written: bool,
}

impl tokio::io::AsyncRead for Refusing {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRevoked);
        match self.has_written {
            true => Poll::Ready(Err(io::Error::other(alert))),
            false => Poll::Pending,
        }
    }
}

impl tokio::io::AsyncWrite for Refusing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

// threat K30
#[tokio::test]
async fn a_certificate_that_is_refused_after_an_answer_proves_nothing() {
    for (has_answered, is_sent) in [(false, false), (true, true)] {
        let io = TokioIo::new(Refusing { has_written: false });
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let failed = sender.try_send_request(request()).await.unwrap_err();
        let judged = judged(failed.into_error(), has_answered);
        assert_eq!(matches!(judged, SendError::Sent(_)), is_sent, "{judged:?}");
    }
}
