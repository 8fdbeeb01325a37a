//! TTL classes, and the place of a record: its class and its row.

use crate::record::StateKind;

/// The state and the place of a record, packed into 64 bits for the index and for cursors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) kind: StateKind,
    pub(crate) place: Place,
}

/// A row of a TTL class. Places are ordered by class, then by the time of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) class: u8,
    pub(crate) row: i64,
}

impl Slot {
    /// Never zero, because rows count from one: zero means a free entry in the index.
    pub(crate) fn to_bits(self) -> u64 {
        (self.kind as u64) << 62 | self.place.to_bits()
    }

    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let kind = StateKind::ALL[(bits >> 62) as usize];
        Place::from_bits(bits).map(|place| Self { kind, place })
    }
}

impl Place {
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.class) << 56 | self.row.unsigned_abs() & ROW_MAX
    }

    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let class = (bits >> 56 & u64::from(CLASS_MAX)) as u8;
        let row = (bits & ROW_MAX) as i64;
        (row > 0).then_some(Self { class, row })
    }
}

/// The TTL class of a record: its TTL rounded up to a power of two, as the exponent. Records of one class expire in about
/// the order of their rows, so that the sweep can delete ranges.
pub(crate) fn class_of(ttl_ms: i64) -> u8 {
    let ttl = ttl_ms.max(1).unsigned_abs();
    (u64::BITS - (ttl - 1).leading_zeros()) as u8
}

const ROW_MAX: u64 = (1 << 56) - 1;
/// The class of the longest TTL, 2^63 ms.
pub(crate) const CLASS_MAX: u8 = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_survives_its_bits() {
        for kind in StateKind::ALL {
            for class in [0, 27, CLASS_MAX] {
                for row in [1, 77, ROW_MAX as i64] {
                    let slot = Slot { kind, place: Place { class, row } };
                    assert_eq!(Slot::from_bits(slot.to_bits()), Some(slot));
                }
            }
        }
        assert_eq!(Slot::from_bits(0), None);
    }

    #[test]
    fn a_ttl_belongs_to_the_power_of_two_above_it() {
        let classes = [-5, 0, 1, 2, 3, 1024, 1025, 86_400_000, i64::MAX].map(class_of);
        assert_eq!(classes, [0, 0, 0, 1, 2, 10, 11, 27, 63]);
    }
}
