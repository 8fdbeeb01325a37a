//! Where a scan is: what a [`Cursor`] of this store means.

use crate::record::{StateKind, StateSet};
use crate::store::Cursor;

/// Where the next page starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) listing: Listing,
    /// The score in the sorted set, or the cursor of Redis's own `SCAN`.
    pub(super) cursor: u64,
    /// The first place at that cursor which was not listed yet: 52 bits of an id.
    pub(super) place: u64,
}

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// The sorted set of the running records.
    Running,
    /// The sorted set of the unknown records.
    Unknown,
    /// All keys of the store: released and completed records are in no set.
    AllKeys,
}

impl Position {
    /// Where the scan for records in `states` starts.
    pub(super) fn first(states: StateSet) -> Self {
        let has = |kind| states.contains(kind);
        let listing = match has(StateKind::Released) || has(StateKind::Completed) {
            true => Listing::AllKeys,
            false if has(StateKind::Running) => Listing::Running,
            false => Listing::Unknown,
        };
        Self { listing, cursor: 0, place: 0 }
    }

    /// Where the scan goes on after everything in this listing.
    pub(super) fn after_listing(self, states: StateSet) -> Option<Self> {
        let is_next = self.listing == Listing::Running && states.contains(StateKind::Unknown);
        is_next.then_some(Self { listing: Listing::Unknown, cursor: 0, place: 0 })
    }

    pub(super) fn to_cursor(self) -> Cursor {
        let cursor = u128::from(self.cursor) << PLACE_BITS;
        Cursor((self.listing as u128) << LISTING_AT | cursor | u128::from(self.place))
    }

    /// `None` if this store did not make the cursor.
    pub(super) fn from_cursor(cursor: Cursor) -> Option<Self> {
        let listing = *LISTINGS.get((cursor.0 >> LISTING_AT) as usize)?;
        let inner = (cursor.0 >> PLACE_BITS) & ((1 << CURSOR_BITS) - 1);
        let place = cursor.0 & ((1 << PLACE_BITS) - 1);
        Some(Self { listing, cursor: inner as u64, place: place as u64 })
    }
}

/// In the order of their declaration: a cursor has the index.
const LISTINGS: [Listing; 3] = [Listing::Running, Listing::Unknown, Listing::AllKeys];
/// One more than the bits of a place: the place after the last one fits too.
const PLACE_BITS: u32 = 53;
const CURSOR_BITS: u32 = 60;
const LISTING_AT: u32 = PLACE_BITS + CURSOR_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_where_it_was_made() {
        for listing in [Listing::Running, Listing::Unknown, Listing::AllKeys] {
            for (cursor, place) in [(0, 0), (1_780_000_000_000, 7), ((1 << 60) - 1, 1 << 52)] {
                let position = Position { listing, cursor, place };
                assert_eq!(Position::from_cursor(position.to_cursor()), Some(position));
            }
        }
        assert_eq!(Position::from_cursor(Cursor(u128::MAX)), None);
    }
}
