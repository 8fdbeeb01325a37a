//! What only the thread of the gateway itself can see.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use http_body_util::BodyExt;
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
