//! Many keys whose messages fail: those are to blame, or the sink is. On both databases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce::outbox::{RelayCounts, RelayOptions, Sink};
use tokio::time::Instant;

use crate::book::{Book, Does, LOOK_PAUSE, Running, WAIT_MAX, quick};

/// A database with messages.
pub(crate) trait Place {
    /// Commits messages of as many keys, `prefix` and a number, each with so many messages, the first with `first` as its
    /// payload and the others with their number.
    fn add_keys(&self, topic: &str, prefix: &str, keys: usize, each: usize, first: &str);

    /// How many messages there are for which this holds.
    fn messages(&self, condition: &str) -> usize;

    fn relay<S: Sink>(
        &self,
        sink: S,
        options: RelayOptions,
    ) -> impl Future<Output = (Running, RelayCounts)>;
}

/// Poison gets `answer`, all else is taken; unless `is_away` says that the sink does nothing but `answer`.
fn book(answer: Does, is_away: &Arc<AtomicBool>) -> Book {
    let is_away = is_away.clone();
    Book::new(move |message| {
        let is_poison = message.payload.starts_with(b"poison");
        if is_poison || is_away.load(Ordering::Relaxed) { answer } else { Does::Take }
    })
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    };
    assert!(tokio::time::timeout(WAIT_MAX, wait).await.is_ok(), "never: {what}");
}

fn taken(book: &Book, payload: &str) -> usize {
    book.payloads().iter().filter(|taken| *taken == payload).count()
}

const OPEN: &str = "parked_at IS NULL";
const PARKED: &str = "parked_at IS NOT NULL";
const TRIED: &str = "attempts > 0";

/// More keys than a relay sends at the same time, before and behind the good ones.
// threat K24
pub(crate) async fn keys_whose_payload_gets_an_error_stop_no_others(place: impl Place) {
    for (prefix, is_first) in [("a", true), ("z", false)] {
        place.add_keys("t", prefix, 80, 2, "poison");
        assert_eq!(place.messages("error IS NOT NULL"), 0, "{is_first}");
    }
    place.add_keys("t", "good", 5, 40, "0");
    let book = book(Does::BeAway, &Arc::default());
    let (relay, counts) =
        place.relay(book.clone(), quick().with_lease(Duration::from_secs(30))).await;
    book.until_taken(200).await;
    // They go on, as fast as before.
    let since = Instant::now();
    place.add_keys("t", "good", 5, 20, "0");
    book.until_taken(300).await;
    let took = since.elapsed();
    assert!(took < Duration::from_secs(15), "a hundred messages took {took:?}");
    relay.shut_down().await;
    assert_eq!((place.messages(OPEN), place.messages(PARKED)), (320, 0));
    assert_eq!((place.messages(TRIED), counts.shipped()), (0, 300));
}

/// The sink never answers them: each takes a place until half of its lease is over.
// threat K24
pub(crate) async fn keys_whose_payload_hangs_leave_places_for_others(place: impl Place) {
    place.add_keys("t", "a", 80, 1, "poison");
    let hangs = Book::new(|message| match &message.payload[..] {
        b"poison" => Does::TakeSilently,
        _ => Does::Take,
    });
    let (relay, _) = place.relay(hangs.clone(), quick().with_lease(Duration::from_secs(2))).await;
    // All of them have failed once.
    until("every poison was tried", || place.messages("error IS NOT NULL") == 80).await;
    let since = Instant::now();
    place.add_keys("t", "good", 5, 20, "0");
    until("the good ones are taken", || place.messages("error IS NULL") == 0).await;
    let took = since.elapsed();
    assert!(took < Duration::from_secs(15), "a hundred messages took {took:?}");
    relay.kill().await;
    assert_eq!(place.messages(PARKED), 0);
}

/// As long as others are taken.
// threat K24
pub(crate) async fn many_poisoned_messages_are_parked_and_the_others_shipped(place: impl Place) {
    place.add_keys("t", "a", 70, 2, "poison");
    let book = book(Does::Refuse, &Arc::default());
    let options = quick().with_lease(Duration::from_secs(30)).with_attempts_max(3);
    let (relay, counts) = place.relay(book.clone(), options).await;
    let shipped = AtomicUsize::new(0);
    let good = async {
        while place.messages(PARKED) < 70 {
            place.add_keys("t", "good", 2, 1, "0");
            shipped.fetch_add(2, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(WAIT_MAX, good).await;
    assert!(in_time.is_ok(), "{} of 70 are parked", place.messages(PARKED));
    let shipped = shipped.load(Ordering::Relaxed);
    book.until_taken(shipped).await;
    relay.shut_down().await;
    assert_eq!((place.messages(PARKED), place.messages(OPEN)), (70, 70));
    assert_eq!((counts.parked(), counts.shipped()), (70, shipped as u64));
}

/// A receiver that was moved answers 404 to everything: long enough for each message to be parked many times.
// threat K24
pub(crate) async fn a_refusal_of_many_keys_at_once_is_an_outage(place: impl Place) {
    let is_away = Arc::new(AtomicBool::new(true));
    place.add_keys("t", "k", 30, 3, "0");
    let book = book(Does::Refuse, &is_away);
    let (relay, counts) = place.relay(book.clone(), quick().with_attempts_max(3)).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!((place.messages(OPEN), place.messages(PARKED)), (90, 0));
    // The first of them was refused alone.
    assert!(place.messages(TRIED) <= 1, "{}", place.messages(TRIED));
    assert_eq!((counts.parked(), counts.outages(), counts.shipped()), (0, 1, 0));
    // Not a hundred times a second.
    assert!(counts.refused() < 400, "{counts:?}");
    is_away.store(false, Ordering::Relaxed);
    until("all are shipped", || place.messages("true") == 0).await;
    relay.shut_down().await;
    assert_eq!((counts.parked(), counts.shipped()), (0, 90));
    for (key, numbers) in book.numbers_by_key() {
        assert_eq!(numbers, [0, 1, 2], "{key:?}");
    }
}

/// After an outage, beside others that are taken.
// threat K24
pub(crate) async fn one_poisoned_message_is_parked_also_after_an_outage(place: impl Place) {
    let is_away = Arc::new(AtomicBool::new(true));
    place.add_keys("t", "bad", 1, 2, "poison");
    place.add_keys("t", "k", 10, 3, "0");
    let book = book(Does::Refuse, &is_away);
    let (relay, counts) = place.relay(book.clone(), quick().with_attempts_max(3)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(place.messages(PARKED), 0);
    is_away.store(false, Ordering::Relaxed);
    until("the poison is parked", || place.messages(PARKED) == 1).await;
    until("the others are shipped", || place.messages("true") == 2).await;
    relay.shut_down().await;
    assert_eq!((counts.parked(), counts.shipped()), (1, 30));
    assert_eq!(taken(&book, "poison"), 0);
}

/// A topic that the broker has not, say.
// threat K24
pub(crate) async fn a_topic_that_is_refused_is_not_parked_and_stops_no_other_topic(
    place: impl Place,
) {
    place.add_keys("a", "k", 70, 2, "poison");
    place.add_keys("b", "k", 20, 10, "0");
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = is_mended.clone();
    let book =
        Book::new(move |message| match message.topic == "a" && !mended.load(Ordering::Relaxed) {
            true => Does::Refuse,
            false => Does::Take,
        });
    let (relay, counts) = place.relay(book.clone(), quick().with_attempts_max(3)).await;
    book.until_taken(200).await;
    place.add_keys("b", "more", 5, 4, "0");
    book.until_taken(220).await;
    assert_eq!((place.messages(PARKED), place.messages("topic = 'a'")), (0, 140));
    is_mended.store(true, Ordering::Relaxed);
    until("all are shipped", || place.messages("true") == 0).await;
    relay.shut_down().await;
    assert_eq!((counts.parked(), counts.shipped()), (0, 360));
    let ids: BTreeSet<_> = book.ids().into_iter().collect();
    assert_eq!(ids.len(), 360);
}

/// The tests of this page at a new place of their own each.
macro_rules! at_place {
    ($new:expr) => {
        at_place! { $new;
            keys_whose_payload_gets_an_error_stop_no_others
            keys_whose_payload_hangs_leave_places_for_others
            many_poisoned_messages_are_parked_and_the_others_shipped
            a_refusal_of_many_keys_at_once_is_an_outage
            one_poisoned_message_is_parked_also_after_an_outage
            a_topic_that_is_refused_is_not_parked_and_stops_no_other_topic
        }
    };
    ($new:expr; $($name:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            crate::suspects::$name($new.await).await;
        })+
    };
}
pub(crate) use at_place;
