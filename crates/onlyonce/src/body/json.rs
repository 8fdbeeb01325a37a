//! JSON documents as canonical bytes, in one pass, with no tree and no floating point.
//!
//! Two documents have the same canonical bytes exactly when they have the same value: members are sorted by
//! name, space is gone, escapes are decoded, numbers are exact decimals. Every value begins with its own
//! tag byte and ends where its form says, so no two values ever share their bytes.

mod number;
mod text;
mod trail;

use std::collections::BTreeMap;

use super::{Odd, put, put_optional};
use crate::pointer::Pointer;
use trail::Trail;

/// The document without what `exclude` points to; where `include` is not empty, only what it points to.
///
/// An absent value is not `null`. What is both included and excluded is excluded.
pub(crate) fn canonical(
    body: &[u8],
    include: &[Pointer],
    exclude: &[Pointer],
) -> Result<Vec<u8>, Odd> {
    let scanner = Scanner::scanned(body, include, exclude)?;
    match include {
        [] => Ok(scanner.out),
        _ => Ok(included(include, &scanner.picks)),
    }
}

/// What a pointer leads to, as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The decoded string, or the number as it was written.
    Text(String),
    NotText,
}

pub(crate) fn find(body: &[u8], pointer: &Pointer) -> Result<Option<Found>, Odd> {
    let scanner = Scanner::scanned(body, std::slice::from_ref(pointer), &[])?;
    Ok(scanner.picks.first().map(|pick| pick.found(body)))
}

/// The document with `null` at every place that a pointer leads to, and else byte for byte; `None` if none leads anywhere.
pub(crate) fn nulled(body: &[u8], pointers: &[Pointer]) -> Result<Option<Vec<u8>>, Odd> {
    let mut picks = Scanner::scanned(body, pointers, &[])?.picks;
    // Of two that lie in each other the outer comes first.
    picks.sort_by_key(|pick| (pick.span.start, std::cmp::Reverse(pick.span.end)));
    let (mut out, mut copied) = (Vec::with_capacity(body.len()), 0);
    for pick in picks.iter().filter(|pick| body[pick.span.clone()] != *b"null") {
        if pick.span.start >= copied {
            out.extend_from_slice(&body[copied..pick.span.start]);
            out.extend_from_slice(b"null");
            copied = pick.span.end;
        }
    }
    out.extend_from_slice(&body[copied..]);
    Ok((copied > 0).then_some(out))
}

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
    out: Vec<u8>,
    /// The members of every object that is open, innermost last.
    members: Vec<Member>,
    spare: Vec<u8>,
    trail: Trail<'a>,
    picks: Vec<Pick>,
}

/// Where in `out` a member's name begins, the name ends, and the value ends.
#[derive(Clone, Copy)]
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
}

/// A value that an included pointer leads to.
struct Pick {
    pointer: usize,
    span: std::ops::Range<usize>,
    canonical: Vec<u8>,
}

impl<'a> Scanner<'a> {
    fn scanned(
        body: &'a [u8],
        include: &'a [Pointer],
        exclude: &'a [Pointer],
    ) -> Result<Self, Odd> {
        str::from_utf8(body).map_err(|_| Odd)?;
        let mut scanner = Self {
            body,
            at: 0,
            out: Vec::with_capacity(body.len() + 16),
            members: Vec::with_capacity(16),
            spare: Vec::new(),
            trail: Trail::new(include, exclude),
            picks: Vec::new(),
        };
        scanner.document()?;
        Ok(scanner)
    }

    fn document(&mut self) -> Result<(), Odd> {
        self.space();
        self.value(0)?;
        self.space();
        match self.at == self.body.len() {
            true => Ok(()),
            false => Err(Odd),
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), Odd> {
        let (from, start) = (self.at, self.out.len());
        match self.body.get(self.at) {
            Some(b'{') => self.object(depth + 1)?,
            Some(b'[') => self.array(depth + 1)?,
            Some(b'"') => self.string()?,
            Some(b't') => self.word(b"true")?,
            Some(b'f') => self.word(b"false")?,
            Some(b'n') => self.word(b"null")?,
            _ => self.number()?,
        }
        if self.trail.is_watched() {
            self.select(from, start);
        }
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), Odd> {
        self.open(depth)?;
        let first = self.members.len();
        if !self.next_is(b'}') {
            self.member(depth)?;
            while self.eat(b',') {
                self.space();
                self.member(depth)?;
            }
            self.sort_members(first)?;
        }
        self.close(b'}')
    }

    fn member(&mut self, depth: usize) -> Result<(), Odd> {
        let start = self.out.len();
        self.string()?;
        let name_end = self.out.len();
        self.space();
        self.expect(b':')?;
        self.space();
        let name = text::content(&self.out[start..name_end]);
        self.trail.enter(|token| token.as_bytes() == name);
        self.value(depth)?;
        self.trail.leave();
        self.members.push(Member { start, name_end, end: self.out.len() });
        self.space();
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), Odd> {
        self.open(depth)?;
        if !self.next_is(b']') {
            self.element(depth, 0)?;
            let mut index = 1;
            while self.eat(b',') {
                self.space();
                self.element(depth, index)?;
                index += 1;
            }
        }
        self.close(b']')
    }

    fn element(&mut self, depth: usize, index: usize) -> Result<(), Odd> {
        self.trail.enter(|token| trail::is_index(token, index));
        self.value(depth)?;
        self.trail.leave();
        self.space();
        Ok(())
    }

    /// Puts the members of the innermost object in order, without the excluded ones.
    fn sort_members(&mut self, first: usize) -> Result<(), Odd> {
        let (out, members) = (&mut self.out, &mut self.members[first..]);
        if !members.is_sorted_by(|one, two| one.name(out) < two.name(out)) {
            members.sort_unstable_by(|one, two| one.name(out).cmp(two.name(out)));
            if members.windows(2).any(|two| two[0].name(out) == two[1].name(out)) {
                return Err(Odd);
            }
            rewrite(out, &mut self.spare, members);
        } else if members.iter().any(|member| member.is_excluded()) {
            rewrite(out, &mut self.spare, members);
        }
        self.members.truncate(first);
        Ok(())
    }

    /// Drops the value that has just ended, or notes it, if a pointer leads to it.
    fn select(&mut self, from: usize, start: usize) {
        if self.trail.is_excluded() {
            return self.out.truncate(start);
        }
        for pointer in self.trail.included() {
            let (span, canonical) = (from..self.at, self.out[start..].to_vec());
            self.picks.push(Pick { pointer, span, canonical });
        }
    }

    fn open(&mut self, depth: usize) -> Result<(), Odd> {
        if depth > DEPTH_MAX {
            return Err(Odd);
        }
        self.out.push(self.body[self.at]);
        self.at += 1;
        self.space();
        Ok(())
    }

    fn close(&mut self, bracket: u8) -> Result<(), Odd> {
        self.out.push(bracket);
        self.expect(bracket)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Odd> {
        if !self.body[self.at..].starts_with(word) {
            return Err(Odd);
        }
        self.at += word.len();
        self.out.push(word[0]);
        Ok(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.body.get(self.at) {
            self.at += 1;
        }
    }

    fn next_is(&self, byte: u8) -> bool {
        self.body.get(self.at) == Some(&byte)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let eaten = self.next_is(byte);
        self.at += usize::from(eaten);
        eaten
    }

    fn expect(&mut self, byte: u8) -> Result<(), Odd> {
        match self.eat(byte) {
            true => Ok(()),
            false => Err(Odd),
        }
    }
}

impl Member {
    fn name<'o>(&self, out: &'o [u8]) -> &'o [u8] {
        text::content(&out[self.start..self.name_end])
    }

    /// No value is empty, but for one that was taken out.
    fn is_excluded(&self) -> bool {
        self.end == self.name_end
    }
}

impl Pick {
    fn found(&self, body: &[u8]) -> Found {
        let text = match body[self.span.start] {
            b'"' => text::content(&self.canonical),
            b'-' | b'0'..=b'9' => &body[self.span.clone()],
            _ => return Found::NotText,
        };
        Found::Text(String::from_utf8_lossy(text).into_owned())
    }
}

/// Writes the members anew in the order they are listed in.
fn rewrite(out: &mut Vec<u8>, spare: &mut Vec<u8>, members: &[Member]) {
    let Some(start) = members.iter().map(|member| member.start).min() else {
        return;
    };
    spare.clear();
    spare.reserve(out.len() - start);
    for member in members.iter().filter(|member| !member.is_excluded()) {
        spare.extend_from_slice(&out[member.start..member.end]);
    }
    out.truncate(start);
    out.extend_from_slice(spare);
}

/// Every included pointer, in order, and the value that it leads to.
fn included(include: &[Pointer], picks: &[Pick]) -> Vec<u8> {
    let value = |pointer: usize| picks.iter().find(|pick| pick.pointer == pointer);
    let texts = include.iter().enumerate().map(|(at, pointer)| (pointer.to_string(), value(at)));
    let mut out = vec![INCLUDED];
    for (pointer, pick) in texts.collect::<BTreeMap<_, _>>() {
        put(&mut out, pointer.as_bytes());
        put_optional(&mut out, pick.map(|pick| &*pick.canonical));
    }
    out
}

/// Begins no value.
const INCLUDED: u8 = b'/';
const DEPTH_MAX: usize = 64;

#[cfg(test)]
mod tests;
