//! placeholder
#![expect(missing_docs, reason = "the values come next")]
pub type Digest = [u8; 32];
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    pub version: u8,
    pub canonical: Digest,
    pub raw: Digest,
}
impl Fingerprint {
    pub fn matches(&self, o: &Self) -> bool {
        self.raw == o.raw || self.canonical == o.canonical
    }
}
