//! Everything that the library says in this process, at trace level, as lines of JSON.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// The log of this process, from the first call on.
    pub(crate) fn open() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self::default();
            let subscriber = tracing_subscriber::fmt()
                .json()
                .with_max_level(tracing::Level::TRACE)
                .with_span_events(FmtSpan::CLOSE)
                .with_writer(log.clone());
            subscriber.init();
            log
        });
        log.clone()
    }

    pub(crate) fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(bytes).expect("a log is text")
    }

    /// Whether a line has all of these texts.
    pub(crate) fn has(&self, texts: &[&str]) -> bool {
        self.text().lines().any(|line| texts.iter().all(|text| line.contains(text)))
    }

    /// Waits for a line with all of these texts.
    pub(crate) async fn until(&self, texts: &[&str]) {
        let what = format!("{texts:?} in the log");
        crate::faults::until(&what, || async { self.has(texts) }).await;
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
