//! placeholder
#![expect(missing_docs, reason = "the values come next")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId([u8; 16]);
impl OperationId {
    pub const fn from_bytes(b: [u8; 16]) -> Self {
        Self(b)
    }
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Principal([u8; 32]);
impl Principal {
    pub const fn from_bytes(b: [u8; 32]) -> Self {
        Self(b)
    }
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}
