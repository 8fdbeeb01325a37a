//! Event streams (`text/event-stream`): their events, and the messages in them.
//!
//! A line ends with CR, LF or both. An event ends with an empty line, and its data is that of all its `data` lines.

/// An event as it stands: its lines, each with its end.
pub(super) struct Event<'a>(Vec<&'a [u8]>);

impl Event<'_> {
    /// The data of the event, which may be over several lines; `None` if it has none.
    pub(super) fn data(&self) -> Option<Vec<u8>> {
        let values = self.0.iter().filter_map(|line| value(line, b"data"));
        let values: Vec<_> = values.collect();
        (!values.is_empty()).then(|| values.join(&b'\n'))
    }

    /// How many bytes it has.
    pub(super) fn length(&self) -> usize {
        self.0.iter().map(|line| line.len()).sum()
    }

    /// Whether an empty line ends it: no more of it is to come.
    pub(super) fn is_ended(&self) -> bool {
        self.0.last().is_some_and(|line| is_empty(line))
    }

    /// The event with this data in place of its own; `None` leaves its data as it is. Without `id` and `retry`, by
    /// which a client would ask for the rest of a stream that is not its own.
    pub(super) fn replayed(&self, data: Option<&[u8]>) -> Vec<u8> {
        let mut data = data;
        let mut is_replaced = false;
        let mut written = Vec::new();
        for line in &self.0 {
            let is_data = value(line, b"data").is_some();
            let is_place =
                ["id", "retry"].iter().any(|name| value(line, name.as_bytes()).is_some());
            match data.take_if(|_| is_data) {
                Some(data) => {
                    is_replaced = true;
                    put_data(&mut written, line, data);
                }
                None if is_place || (is_data && is_replaced) => {}
                None => written.extend_from_slice(line),
            }
        }
        written
    }
}

/// Writes the data as lines that begin and end like `first`.
fn put_data(written: &mut Vec<u8>, first: &[u8], data: &[u8]) {
    let name = if first.starts_with(b"data: ") { &b"data: "[..] } else { b"data:" };
    let end = &first[content(first).len()..];
    for (number, line) in data.split(|byte| *byte == b'\n').enumerate() {
        // The last line of a stream may have no end.
        if number > 0 && end.is_empty() {
            written.push(b'\n');
        }
        written.extend_from_slice(name);
        written.extend_from_slice(line);
        written.extend_from_slice(end);
    }
}

/// The events of a stream, with what follows the last of them: a stream that was cut ends within an event.
pub(super) fn events(stream: &[u8]) -> impl Iterator<Item = Event<'_>> {
    let mut rest = stream;
    std::iter::from_fn(move || {
        let mut lines = Vec::new();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(line_length(rest));
            rest = after;
            lines.push(line);
            if is_empty(line) {
                break;
            }
        }
        (!lines.is_empty()).then_some(Event(lines))
    })
}

/// The length of the first line, with its end.
fn line_length(bytes: &[u8]) -> usize {
    let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return bytes.len();
    };
    match &bytes[end..] {
        [b'\r', b'\n', ..] => end + 2,
        _ => end + 1,
    }
}

fn is_empty(line: &[u8]) -> bool {
    !line.is_empty() && content(line).is_empty()
}

/// The line without its end.
fn content(line: &[u8]) -> &[u8] {
    let length = line.iter().take_while(|byte| !matches!(byte, b'\r' | b'\n')).count();
    &line[..length]
}

/// The value of the line, if it is of the field with this name.
fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let line = content(line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line));
    match line.strip_prefix(name)? {
        [] => Some(b""),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// A stream may begin with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use super::*;

    fn data(stream: &str) -> Vec<Option<String>> {
        let data = events(stream.as_bytes()).map(|event| event.data());
        data.map(|data| data.map(|data| String::from_utf8(data).unwrap())).collect()
    }

    #[test]
    fn lines_end_in_three_ways_and_data_is_joined() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = "\u{feff}data: a\ndata:b\ndata\n\n: comment\nevent: x\n\ndata: {\n";
            let stream = stream.replace('\n', end);
            let expected = [Some("a\nb\n".to_owned()), None, Some("{".to_owned())];
            assert_eq!(data(&stream), expected, "{end:?}");
        }
    }

    #[test]
    fn an_event_is_replayed_without_the_place_of_its_stream() {
        let replayed = |stream: &str, data: Option<&str>| {
            let mut events = events(stream.as_bytes());
            let replayed = events.next().unwrap().replayed(data.map(str::as_bytes));
            String::from_utf8(replayed).unwrap()
        };
        let stream = "id: 7\r\nevent: message\r\ndata:one\r\nretry: 10\r\ndata: two\r\n\r\n";
        let kept = "event: message\r\ndata:one\r\ndata: two\r\n\r\n";
        assert_eq!(replayed(stream, None), kept);
        let other = "event: message\r\ndata:a\r\ndata:b\r\n\r\n";
        assert_eq!(replayed(stream, Some("a\nb")), other);
        assert_eq!(replayed("data: one", Some("a\nb")), "data: a\ndata: b");
        assert_eq!(replayed("identity: 7\n\n", None), "identity: 7\n\n");
    }
}
