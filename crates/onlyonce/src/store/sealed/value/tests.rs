//! What opens, and what must not.

use http::header::{CONTENT_TYPE, HeaderValue, LOCATION};

use super::*;
use crate::record::NotKept;

const ID: OperationId = OperationId::from_bytes([1; 16]);
const OTHER: OperationId = OperationId::from_bytes([2; 16]);
const TOKEN: Token = Token::from_bytes([3; 16]);

fn seal(keys: &[u8]) -> Seal {
    Seal::new(keys.iter().map(|byte| SealKey::new([*byte; 32])).collect())
}

fn answer(body: Kept) -> Arc<Response> {
    let mut headers = HeaderMap::new();
    headers.insert(LOCATION, HeaderValue::from_static("/tokens/canary-1"));
    headers.append(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Arc::new(Response { status: StatusCode::CREATED, headers, body })
}

fn whole() -> Arc<Response> {
    let trailers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("canary-2"))]);
    answer(Kept::Bytes { body: "canary-3".into(), trailers: Some(trailers) })
}

fn sealed_bytes(response: &Response) -> Bytes {
    match &response.body {
        Kept::Sealed(sealed) => sealed.clone(),
        body => panic!("{body:?} is not sealed"),
    }
}

fn open_created(seal: &Seal, id: OperationId, token: Token, sealed: &[u8]) -> Option<Response> {
    seal.open(id, token, StatusCode::CREATED, sealed)
}

// R184: H1, nothing of an answer but its status is in what is stored
#[test]
fn an_answer_comes_back_whole_and_none_of_it_is_in_its_sealed_bytes() {
    let seal = seal(&[1]);
    for first in [whole(), answer(Kept::No(NotKept::Location))] {
        let closed = seal.close(ID, TOKEN, first.clone());
        assert_eq!((closed.status, closed.headers.len()), (StatusCode::CREATED, 0));
        let sealed = sealed_bytes(&closed);
        assert!(!sealed.windows(6).any(|part| part == b"canary"));
        assert_eq!(open_created(&seal, ID, TOKEN, &sealed).as_ref(), Some(&*first));
    }
}

#[test]
fn what_has_nothing_to_hide_is_not_sealed() {
    let bare = Arc::new(whole().without_body(NotKept::Secret));
    assert_eq!(seal(&[1]).close(ID, TOKEN, bare.clone()), bare);
    assert_eq!(seal(&[]).close(ID, TOKEN, whole()), whole(), "without a key nothing is");
}

// R184: H3, a value belongs to its row and its field
#[test]
fn a_value_that_was_moved_does_not_open() {
    let seal = seal(&[1]);
    let sealed = sealed_bytes(&seal.close(ID, TOKEN, whole()));
    assert_eq!(open_created(&seal, OTHER, TOKEN, &sealed), None, "another operation");
    let other_token = Token::from_bytes([4; 16]);
    assert_eq!(open_created(&seal, ID, other_token, &sealed), None, "another attempt");
    assert_eq!(seal.open(ID, TOKEN, StatusCode::OK, &sealed), None, "another status");
    let key = seal.close_key(ID, KeyText::new("canary-key"));
    assert_eq!(seal.open_key(OTHER, &key), None, "a key of another operation");
    let as_key = format!("{SEALED_KEY_MARK}{}", URL_SAFE_NO_PAD.encode(&sealed));
    assert_eq!(seal.open_key(ID, &KeyText::new(as_key)), None, "an answer as a key");
    let text = key.as_str().strip_prefix(SEALED_KEY_MARK).unwrap();
    let key_bytes = URL_SAFE_NO_PAD.decode(text).unwrap();
    assert_eq!(open_created(&seal, ID, TOKEN, &key_bytes), None, "a key as an answer");
    assert_eq!(seal.unopened(), 6);
}

// R184: H2
#[test]
fn every_key_of_the_set_opens_and_the_first_one_seals() {
    let (old, both, new) = (seal(&[1]), seal(&[2, 1]), seal(&[2]));
    let before = sealed_bytes(&old.close(ID, TOKEN, whole()));
    let after = sealed_bytes(&both.close(ID, TOKEN, whole()));
    assert!(open_created(&both, ID, TOKEN, &before).is_some());
    assert!(open_created(&new, ID, TOKEN, &after).is_some());
    assert!(open_created(&new, ID, TOKEN, &before).is_none(), "its key is lost");
    assert!(open_created(&old, ID, TOKEN, &after).is_none());
}

#[test]
fn no_changed_byte_and_no_shorter_value_opens() {
    let seal = seal(&[1]);
    let sealed = sealed_bytes(&seal.close(ID, TOKEN, whole()));
    for at in 0..sealed.len() {
        let mut changed = sealed.to_vec();
        changed[at] ^= 1;
        assert_eq!(open_created(&seal, ID, TOKEN, &changed), None, "byte {at}");
        assert_eq!(open_created(&seal, ID, TOKEN, &sealed[..at]), None, "{at} bytes");
    }
}

#[test]
fn the_same_value_is_sealed_differently_each_time() {
    let seal = seal(&[1]);
    let key = || seal.close_key(ID, KeyText::new("k"));
    assert_ne!(key(), key());
    assert_eq!(seal.open_key(ID, &key()), Some(KeyText::new("k")));
}

#[test]
fn a_key_that_was_erased_stays_erased() {
    let erased = KeyText::erased();
    assert_eq!(seal(&[1]).close_key(ID, erased.clone()), erased);
    assert_eq!((erased.as_sent(), erased.shown()), (None, "(erased)"));
    let sealed = seal(&[1]).close_key(ID, KeyText::new("canary-key"));
    assert_eq!((sealed.as_sent(), sealed.shown()), (None, "(sealed)"));
    assert!(!sealed.as_str().contains("canary"));
}
