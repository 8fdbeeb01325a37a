//! Little-endian numbers and length-prefixed bytes.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::CodecError;

pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(version: u8) -> Self {
        Self(vec![version])
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Names and values are short, so their lengths are too: 2 and 4 bytes.
    pub(super) fn headers(&mut self, headers: &HeaderMap) {
        self.u32(headers.len() as u32);
        for (name, value) in headers {
            self.u16(name.as_str().len() as u16);
            self.raw(name.as_str().as_bytes());
            self.u32(value.len() as u32);
            self.raw(value.as_bytes());
        }
    }
}

pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn finish(self) -> Result<(), CodecError> {
        if self.0.is_empty() { Ok(()) } else { Err(CodecError::Damaged { what: "end" }) }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], CodecError> {
        let (taken, rest) =
            self.0.split_at_checked(length).ok_or(CodecError::Damaged { what: "length" })?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("`take` gave N bytes"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, CodecError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, CodecError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, CodecError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, CodecError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, CodecError> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], CodecError> {
        let length = self.u64()?;
        self.take(usize::try_from(length).map_err(|_| CodecError::Damaged { what: "length" })?)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, CodecError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| CodecError::Damaged { what: "text" })
    }

    pub(super) fn headers(&mut self) -> Result<HeaderMap, CodecError> {
        let mut headers = HeaderMap::new();
        for _ in 0..self.u32()? {
            let (name, value) = self.header()?;
            headers.try_append(name, value).map_err(|_| CodecError::Damaged { what: "headers" })?;
        }
        Ok(headers)
    }

    fn header(&mut self) -> Result<(HeaderName, HeaderValue), CodecError> {
        let length = self.u16()?;
        let name = HeaderName::from_bytes(self.take(length.into())?);
        let length = self.u32()?;
        let value = HeaderValue::from_bytes(self.take(length as usize)?);
        name.ok().zip(value.ok()).ok_or(CodecError::Damaged { what: "header" })
    }
}
