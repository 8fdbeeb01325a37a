//! Replies of a Redis server, or of whatever else answers on its port.

use onlyonce::fuzzing;
use onlyonce::scope::OperationId;
use onlyonce::store::{Fault, StoreError};

/// The data are the bytes of a reply.
pub fn target(data: &[u8]) {
    let id = OperationId::from_bytes([0x0c; 16]);
    let readings = fuzzing::redis_reply(id, data);
    for fault in readings.into_iter().filter_map(Result::err) {
        // Nobody knows what was done by a call whose answer is not understood. A record that is there
        // and cannot be read is another matter.
        let is_unreadable = matches!(fault.error(), StoreError::Unreadable(_));
        assert!(matches!(fault, Fault::Unsure(_)) || is_unreadable, "{fault:?}");
    }
}
