//! The reader of the bytes of a connection, for the fuzz targets.

use super::wire;

/// Where the heads of `stream` begin, and the place of the first doubt, or the end if there is none.
pub fn heads(stream: &[u8]) -> (Vec<usize>, usize) {
    wire::heads(stream)
}

/// Whether a stream that comes in pieces of so many bytes has a doubt.
pub fn has_doubt(stream: &[u8], piece: usize) -> bool {
    wire::has_doubt(stream, piece)
}
