//! Prints what a command found.

use std::io::{ErrorKind, Write, stdout};

use super::Failed;

/// Prints to stdout, and says whether somebody still reads it: a reader that has seen enough and closed the pipe, such as
/// `head`, is no failure.
pub(in crate::commands) fn print(text: &str) -> Result<bool, Failed> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failed::trouble(&format!("cannot write: {error}"))),
    }
}
