//! Requests over HTTP/2 that would be two, or other ones, if they were written down as HTTP/1.

use super::Then::{Passed, Refused};
use super::{Then, Try, canary};
use crate::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, fields, frame, preface};

type Fields<'a> = Vec<(&'a str, &'a [u8])>;

/// Each with a hidden request in it, as a body or where a line could be broken.
pub(super) fn cases() -> Vec<Try> {
    let in_fields = IN_FIELDS.iter().map(|(name, change, then)| {
        one(name, *then, |path, hidden| {
            let (method, authority) = (&b"POST"[..], &b"shop.example"[..]);
            let path_bytes = path.as_bytes().to_vec();
            let mut list = vec![
                (":method".to_owned(), method.to_vec()),
                (":scheme".to_owned(), b"http".to_vec()),
                (":path".to_owned(), path_bytes),
                (":authority".to_owned(), authority.to_vec()),
            ];
            change.apply(&mut list, path, hidden);
            let list: Fields<'_> =
                list.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
            let head = frame(HEADERS, END_HEADERS, 1, &fields(&list));
            [head, frame(DATA, END_STREAM, 1, hidden.as_bytes())].concat()
        })
    });
    in_fields.chain(trailers()).collect()
}

/// What is wrong with a list of fields.
enum Change {
    /// One more field at the end; `{hidden}` is the hidden request, `{length}` its length.
    Add(&'static str, &'static str),
    /// Two more of one name: one before all others, and one at the end.
    Twice(&'static str, &'static str),
    /// Another value of the field.
    Set(&'static str, &'static str),
    /// One less.
    Leave(&'static str),
    /// One more before all others.
    First(&'static str, &'static str),
}

impl Change {
    fn apply(&self, list: &mut Vec<(String, Vec<u8>)>, path: &str, hidden: &str) {
        let told = |text: &str| {
            let length = hidden.len().to_string();
            text.replace("{hidden}", hidden)
                .replace("{length}", &length)
                .replace("{case}", path)
                .into_bytes()
        };
        match self {
            Self::Add(name, value) => list.push(((*name).to_owned(), told(value))),
            Self::Twice(name, value) => {
                let pseudo = list.iter().take_while(|(name, _)| name.starts_with(':')).count();
                list.insert(pseudo, ((*name).to_owned(), told(value)));
                list.push(((*name).to_owned(), told(value)));
            }
            Self::First(name, value) => list.insert(0, ((*name).to_owned(), told(value))),
            Self::Leave(name) => list.retain(|(known, _)| known != name),
            Self::Set(name, value) => {
                for (known, old) in list {
                    if known == name {
                        *old = told(value);
                    }
                }
            }
        }
    }
}

fn one(name: &str, then: Then, frames: impl FnOnce(&str, &str) -> Vec<u8>) -> Try {
    let path = format!("/case/{}", name.replace([' ', ','], "-"));
    let hidden = format!("GET {} HTTP/1.1\r\nHost: shop.example\r\n\r\n", canary(&path));
    let pieces = vec![[preface(), frames(&path, &hidden)].concat()];
    Try { name: format!("{name}, in HTTP/2"), path, pieces, then }
}

/// Fields after the body.
fn trailers() -> impl Iterator<Item = Try> {
    let trailers: [(&str, &str, &str, Then); 4] = [
        // Left out on the way, so that nobody behind us sees it.
        ("a trailer that is a pseudo-field", ":path", "{canary}", Passed),
        ("a trailer with a line end", "t", "a\r\n\r\n{hidden}", Refused),
        ("a trailer that is a coding", "transfer-encoding", "chunked", Refused),
        ("a trailer of the connection", "connection", "close", Refused),
    ];
    trailers.into_iter().map(|(name, field, value, then)| {
        one(name, then, |path, hidden| {
            let value = value.replace("{canary}", &canary(path)).replace("{hidden}", hidden);
            let head: [(&str, &[u8]); 4] = [
                (":method", b"POST"),
                (":scheme", b"http"),
                (":path", path.as_bytes()),
                (":authority", b"shop.example"),
            ];
            let after: [(&str, &[u8]); 1] = [(field, value.as_bytes())];
            [
                frame(HEADERS, END_HEADERS, 1, &fields(&head)),
                frame(DATA, 0, 1, b"12345"),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&after)),
            ]
            .concat()
        })
    })
}

use Change::{Add, First, Leave, Set, Twice};

#[rustfmt::skip]
const IN_FIELDS: &[(&str, Change, Then)] = &[
    ("a plain request", Add("x", "a"), Passed),
    ("its length", Add("content-length", "{length}"), Passed),
    ("the same host", Add("host", "shop.example"), Passed),
    ("a path with a line end", Set(":path", "{case} HTTP/1.1\r\nHost: a\r\n\r\n{hidden}"), Refused),
    ("a path with a space", Set(":path", "{case} HTTP/1.1"), Refused),
    ("a path with a NUL", Set(":path", "{case}\0"), Refused),
    ("a path with a tab", Set(":path", "{case}\tx"), Refused),
    ("an empty path", Set(":path", ""), Refused),
    ("a path without a slash", Set(":path", "case"), Refused),
    ("no path", Leave(":path"), Refused),
    ("two paths", Add(":path", "{case}"), Refused),
    ("two paths at the beginning", First(":path", "{case}"), Refused),
    ("a method with a line end", Set(":method", "GET / HTTP/1.1\r\nHost: a\r\n\r\n{hidden}"), Refused),
    ("a method with a space", Set(":method", "POST /x"), Refused),
    ("an empty method", Set(":method", ""), Refused),
    ("no method", Leave(":method"), Refused),
    ("two methods", First(":method", "GET"), Refused),
    ("an authority with a line end", Set(":authority", "a\r\n\r\n{hidden}"), Refused),
    ("an authority with a space", Set(":authority", "a b"), Refused),
    ("an authority with a user", Set(":authority", "me@shop.example"), Refused),
    ("an authority with a path", Set(":authority", "shop.example/x"), Refused),
    ("another host", Add("host", "other.example"), Refused),
    ("a scheme with a line end", Set(":scheme", "http\r\n\r\n{hidden}"), Refused),
    ("no scheme", Leave(":scheme"), Refused),
    ("an unknown pseudo-field", First(":other", "x"), Refused),
    ("a pseudo-field after a field", First("x", "a"), Refused),
    ("a pseudo-field of answers", First(":status", "200"), Refused),
    ("a coding", Add("transfer-encoding", "chunked"), Refused),
    ("a coding with a line end", Add("transfer-encoding", "chunked\r\nx: y"), Refused),
    ("a connection", Add("connection", "close"), Refused),
    ("a kept connection", Add("keep-alive", "timeout=5"), Refused),
    ("a connection of a proxy", Add("proxy-connection", "close"), Refused),
    ("an upgrade", Add("upgrade", "websocket"), Refused),
    ("another te", Add("te", "gzip"), Refused),
    ("a length that is too small", Add("content-length", "0"), Refused),
    ("a length that is too large", Add("content-length", "100000"), Refused),
    ("a length that is no number", Add("content-length", "+{length}"), Refused),
    ("a length with zeros before it", Add("content-length", "000{length}"), Refused),
    ("its length twice", Twice("content-length", "{length}"), Refused),
    ("a length that is a list", Add("content-length", "{length}, {length}"), Refused),
    ("a value with a line end", Add("x", "a\r\n\r\n{hidden}"), Refused),
    ("a value with a bare LF", Add("x", "a\nb: c"), Refused),
    ("a value with a bare CR", Add("x", "a\rb: c"), Refused),
    ("a value with a NUL", Add("x", "a\0b"), Refused),
    ("a name with a line end", Add("x: a\r\nb", "c"), Refused),
    ("a name with a colon", Add("x:y", "c"), Refused),
    ("a name with a space", Add("x y", "c"), Refused),
    ("a name in capitals", Add("X", "c"), Refused),
    ("an empty name", Add("", "c"), Refused),
];
