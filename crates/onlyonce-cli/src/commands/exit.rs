//! Exit codes: 0 good, 1 the answer is bad news, 2 usage or configuration, 3 store or network, 4 inconclusive.

use std::process::ExitCode;

/// The answer is bad news.
pub fn bad_news(message: &str) -> ExitCode {
    told(message, 1)
}

/// The command line or the configuration must be changed.
pub fn usage(message: &str) -> ExitCode {
    told(message, 2)
}

/// The store, the network or the machine does not do its part.
pub fn trouble(message: &str) -> ExitCode {
    told(message, 3)
}

fn told(message: &str, code: u8) -> ExitCode {
    eprintln!("onlyonce: {message}");
    ExitCode::from(code)
}
