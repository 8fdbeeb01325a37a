//! What is written is read; what was not written is refused.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from)
}

fn time() -> impl Strategy<Value = StoreTime> {
    any::<i64>().prop_map(StoreTime::from_ms)
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let header = ("[a-z][a-z-]{0,20}", prop::collection::vec(0x20..0x7fu8, 0..40));
    prop::collection::vec(header, 0..6).prop_map(|pairs| {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_bytes(&value).unwrap());
        }
        map
    })
}

fn kept() -> impl Strategy<Value = Kept> {
    prop_oneof![
        (bytes(), prop::option::of(headers()))
            .prop_map(|(body, trailers)| Kept::Bytes { body, trailers }),
        Just(Kept::No(NotKept::TooLarge)),
        Just(Kept::No(NotKept::Streamed)),
        Just(Kept::No(NotKept::Secret)),
        Just(Kept::No(NotKept::Refused)),
        Just(Kept::No(NotKept::Location)),
        Just(Kept::No(NotKept::Erased)),
        Just(Kept::No(NotKept::Unopened)),
        bytes().prop_map(Kept::Sealed),
    ]
}

fn response() -> impl Strategy<Value = Response> {
    (100..1000u16, headers(), kept()).prop_map(|(status, headers, body)| Response {
        status: StatusCode::from_u16(status).unwrap(),
        headers,
        body,
    })
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        time().prop_map(|lease_until| State::Running { lease_until }),
        time().prop_map(|since| State::Unknown { since }),
        time().prop_map(|expires_at| State::Released { expires_at }),
        (time(), 1..5u8, response()).prop_map(|(expires_at, tag, response)| State::Completed {
            expires_at,
            settled_by: settled_by(tag).unwrap(),
            response: Arc::new(response),
        }),
    ]
}

fn taken_from() -> impl Strategy<Value = Option<TakenFrom>> {
    prop_oneof![
        Just(None),
        time().prop_map(|since| Some(TakenFrom::Unknown { since })),
        time().prop_map(|expires_at| Some(TakenFrom::Released { expires_at })),
    ]
}

prop_compose! {
    fn record()(
        (token, count, attempt) in (any::<[u8; 16]>(), any::<u64>(), any::<u32>()),
        (state, taken_from) in (state(), taken_from()),
        (key, route, target) in (".{0,30}", ".{0,30}", ".{0,30}"),
        (version, canonical, raw, principal) in any::<(u8, [u8; 32], [u8; 32], [u8; 32])>(),
        (first_claimed_at, lease_ms, quiet_ms, ttl_ms) in (time(), any::<i64>(), any::<i64>(), any::<i64>()),
    ) -> Record {
        Record {
            token: Token::from_bytes(token),
            count,
            attempt,
            state,
            taken_from,
            key: KeyText::new(key),
            fingerprint: Fingerprint { version, canonical, raw },
            principal: Principal::from_bytes(principal),
            route: route.into(),
            target: target.into(),
            first_claimed_at,
            lease_ms,
            quiet_ms,
            ttl_ms,
        }
    }
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(record in record()) {
        prop_assert_eq!(decode(&encode(&record)), Ok(record));
    }

    #[test]
    fn a_head_is_read_as_it_was_written(response in response()) {
        let body = response.body.stored().cloned().unwrap_or_default();
        prop_assert_eq!(decode_head(&encode_head(&response), body), Ok(response));
    }

    #[test]
    fn a_cut_record_is_damaged_and_never_read(record in record(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&record);
        let cut = cut.index(bytes.len());
        prop_assert!(decode(&bytes[..cut]).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
        let _ = decode_head(&bytes, Bytes::new());
    }

    // threat J11
    #[test]
    fn an_unknown_version_is_refused(record in record(), version in FORMAT + 1..=255u8) {
        let mut bytes = encode(&record);
        bytes[0] = version;
        prop_assert_eq!(decode(&bytes), Err(CodecError::NewerFormat { found: version }));
    }

    // threat J11
    #[test]
    fn the_version_of_an_unreleased_build_is_refused_as_older(record in record(), response in response()) {
        let (mut whole, mut head) = (encode(&record), encode_head(&response));
        (whole[0], head[0]) = (1, 1);
        for refused in [decode(&whole).map(drop), decode_head(&head, Bytes::new()).map(drop)] {
            let told = refused.unwrap_err().to_string();
            prop_assert_eq!(told, "record format 1 is of an unreleased build and is not read");
        }
    }
}
