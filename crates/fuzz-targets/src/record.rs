//! Stored bytes: what is read is written back and read as the same; what is damaged is an error, never another record.

use bytes::Bytes;
use onlyonce::fuzzing;
use onlyonce::record::{Record, codec};
use onlyonce::scope::OperationId;

const ID: OperationId = OperationId::from_bytes([0x0c; 16]);

/// The data are a record, the head of a response, or a value of Redis.
pub fn target(data: &[u8]) {
    if let Ok(head) = codec::decode_head(data, Bytes::from_static(b"body")) {
        let again = codec::decode_head(&codec::encode_head(&head), Bytes::from_static(b"body"));
        assert_eq!(again, Ok(head));
    }
    if let Ok(record) = fuzzing::redis_record(ID, data) {
        demand_redis(&record, data);
    }
    if let Ok(record) = codec::decode(data) {
        assert_eq!(codec::decode(&codec::encode(&record)).as_ref(), Ok(&record));
        demand_redis(&record, data);
    }
}

/// A record comes back from Redis as it went in; with one bit changed it does not come back at all.
fn demand_redis(record: &Record, data: &[u8]) {
    let value = fuzzing::redis_value(ID, record);
    assert_eq!(fuzzing::redis_record(ID, &value).as_ref(), Ok(record));
    let other = OperationId::from_bytes([0x0d; 16]);
    assert!(fuzzing::redis_record(other, &value).is_err(), "the record of another operation");
    // Any bit, chosen by the data.
    let chosen =
        data.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    let mut damaged = value;
    let at = chosen / 8 % damaged.len();
    damaged[at] ^= 1 << (chosen % 8);
    if let Ok(read) = fuzzing::redis_record(ID, &damaged) {
        panic!("bit {} of byte {at} changed, and it reads as {read:?}", chosen % 8);
    }
}
