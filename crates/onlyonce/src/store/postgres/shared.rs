//! What the workers of a store share.

use super::news::News;
use crate::store::time::Time;
use crate::store::wake::Wakers;

pub(super) struct Shared {
    pub(super) time: Time,
    pub(super) wakers: Wakers,
    pub(super) news: News,
}
