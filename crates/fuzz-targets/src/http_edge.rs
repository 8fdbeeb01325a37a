//! The bytes of an HTTP/1 connection: three readers must see the same requests.
//!
//! 1. The gateway's own reader, below hyper, which refuses what leaves a doubt.
//! 2. hyper, which is given what the first has let pass, and no more.
//! 3. A strict reader of RFC 9112, written for this.
//!
//! Every request that hyper reads is one that the strict reader reads too, in the same order, with the same method,
//! target and body; and the gateway's reader has seen its end at the same byte. Whatever is smuggled is seen
//! by one of them and not by the other.

mod strict;
mod through_hyper;

use onlyonce_cli::fuzzing::{has_doubt, heads};

/// The data are what a client sends on one connection.
pub fn target(data: &[u8]) {
    let (starts, end) = heads(data);
    let doubt = has_doubt(data, data.len().max(1));
    for piece in [1, 7] {
        assert_eq!(has_doubt(data, piece), doubt, "in pieces of {piece}");
    }
    assert_eq!(doubt, end < data.len());
    let passed = &data[..end];
    let strict = strict::requests(passed);
    let seen = through_hyper::requests(passed);
    for (at, request) in seen.iter().enumerate() {
        let Some(expected) = strict.get(at) else {
            panic!("hyper reads a request that the strict reader does not: {request:?}");
        };
        assert_eq!(request, &expected.request, "request {at}");
        assert!(
            starts.contains(&expected.ends_at),
            "request {at} ends at {}, heads at {starts:?}",
            expected.ends_at
        );
    }
}

/// What a reader makes of a request.
#[derive(Debug, PartialEq)]
struct Seen {
    method: String,
    /// Where it is a path; else empty.
    path: String,
    body: Vec<u8>,
}
