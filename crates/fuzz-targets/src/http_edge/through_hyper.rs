//! What hyper makes of bytes, set up as the gateway sets it up.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use tokio::runtime::{Builder, Runtime};

use super::Seen;

/// The requests whose bodies came to their end.
pub(super) fn requests(stream: &[u8]) -> Vec<Seen> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = seen.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let noted = noted.clone();
        async move {
            let (head, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                let is_path = head.uri.scheme().is_none() && head.uri.authority().is_none();
                let path = head
                    .uri
                    .path_and_query()
                    .filter(|path| is_path && path.as_str().starts_with('/'));
                noted.borrow_mut().push(Seen {
                    method: head.method.to_string(),
                    path: path.map(ToString::to_string).unwrap_or_default(),
                    body: body.to_bytes().to_vec(),
                });
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut builder = http1::Builder::new();
    // A client that has sent everything still gets its answers, so that all requests are read.
    builder.half_close(true).max_buf_size(64 * 1024);
    let connection = builder.serve_connection(Sent { stream: stream.to_vec(), at: 0 }, service);
    // How a connection ends is no matter.
    RUNTIME.with(|runtime| drop(runtime.block_on(connection)));
    seen.take()
}

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().build().expect("a runtime");
}

/// Gives all bytes, and then the end; takes every answer.
struct Sent {
    stream: Vec<u8>,
    at: usize,
}

impl Read for Sent {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let taken = buf.remaining().min(this.stream.len() - this.at);
        buf.put_slice(&this.stream[this.at..this.at + taken]);
        this.at += taken;
        Poll::Ready(Ok(()))
    }
}

impl Write for Sent {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
