//! The W3C trace context: which trace a request belongs to.

use std::fmt;

use http::HeaderMap;

/// A trace, and the span in it that is the parent of what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceContext {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) is_sampled: bool,
}

impl TraceContext {
    /// The context that a request came with; `None` if it came with none, or with one that does not read.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all("traceparent").iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        Self::parse(value.to_str().ok()?)
    }

    /// A later version may have more after the flags.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version = hex(parts.next()?, 2)?;
        let (trace_id, span_id) = (hex(parts.next()?, 32)?, hex(parts.next()?, 16)?);
        let flags = hex(parts.next()?, 2)?;
        let is_valid = version != 0xff
            && (version > 0 || parts.next().is_none())
            && trace_id != 0
            && span_id != 0;
        let span_id = u64::try_from(span_id).ok()?;
        is_valid.then_some(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

/// As the header has it.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace_id, self.span_id)
    }
}

fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (text.len() == digits && is_hex).then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_reads_and_is_written_the_same() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(text).unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.to_string(), text);
        assert!(
            TraceContext::parse(&text.replace("00-4b", "01-4b").replace("-01", "-00-more"))
                .is_some()
        );
    }

    #[test]
    fn what_is_no_context_is_not_read() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47zz-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }
}
