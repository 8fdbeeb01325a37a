use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::clock::StoreTime;
use crate::outbox::Message;

/// The only message of key `id` in this topic.
fn message(topic: &str, id: u128) -> Leased {
    let id = Uuid::from_u128(id);
    let message = Message {
        id: id.to_string(),
        topic: topic.to_owned(),
        key: Some(id.to_string()),
        payload: Bytes::new(),
        created_at: StoreTime::from_ms(0),
        leased_at: StoreTime::from_ms(0),
        refusals: 0,
    };
    let message = Arc::new(message);
    Leased { message, id, lease: Uuid::nil(), is_suspect: false, asked_at: Instant::now() }
}

/// One letter for each failure of message `id`: `r` counted as a refusal, `p` a pause of its own, `o` an outage.
fn fails(health: &mut Health, topic: &str, id: u128, is_refused: bool) -> char {
    match health.failed(&message(topic, id), is_refused).verdict {
        Verdict::Refused => 'r',
        Verdict::Later(OUTAGE_PAUSE) if health.is_away(topic) => 'o',
        Verdict::Later(_) => 'p',
        Verdict::Shipped => 's',
    }
}

// threat K24
#[tokio::test]
async fn a_refusal_counts_if_others_are_taken_or_nobody_else_is_refused() {
    let mut health = Health::new(None);
    // Alone.
    assert_eq!([0; 3].map(|_| fails(&mut health, "t", 1, true)), ['r'; 3]);
    // Several keys, and none is taken.
    assert_eq!([1, 2, 1, 2].map(|id| fails(&mut health, "t", id, true)), ['r', 'o', 'o', 'o']);
    assert_eq!(health.away(), ["t"]);
    // What is taken in another topic proves nothing.
    health.shipped(&message("other", 3));
    assert_eq!([1, 2].map(|id| fails(&mut health, "t", id, true)), ['o', 'o']);
    health.shipped(&message("t", 4));
    assert!(health.away().is_empty());
    assert_eq!([1, 2].map(|id| fails(&mut health, "t", id, true)), ['r', 'r']);
    // None was taken since: nothing is counted, and nothing is said about the sink.
    assert_eq!([1, 2].map(|id| fails(&mut health, "t", id, true)), ['p', 'p']);
    assert!(health.away().is_empty());
}

// threat K24
#[tokio::test]
async fn a_message_that_fails_while_others_are_taken_pauses_alone_and_longer_each_time() {
    let mut health = Health::new(None);
    assert_eq!(fails(&mut health, "t", 1, false), 'o');
    let mut pauses = Vec::new();
    for number in 0..9 {
        health.shipped(&message("t", 100 + number));
        let judged = health.failed(&message("t", 1), false);
        let Verdict::Later(pause) = judged.verdict else { panic!("{judged:?}") };
        pauses.push(pause.as_millis());
        assert!(!health.is_away("t") && !judged.begins_outage, "{number}");
    }
    assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
    // Nothing was taken since: it pauses as before. Only one that was never to blame says that the sink is away.
    assert_eq!(fails(&mut health, "t", 1, false), 'p');
    assert!(!health.is_away("t"));
    assert_eq!(fails(&mut health, "t", 2, false), 'o');
    assert!(health.is_away("t"));
    // It was taken in the end, and begins anew.
    health.shipped(&message("t", 1));
    assert_eq!(fails(&mut health, "t", 1, false), 'o');
}

#[tokio::test]
async fn an_unavailable_sink_is_a_refusal_after_so_many_times_if_the_options_say_so() {
    let mut health = Health::new(Some(2));
    let mut told = String::new();
    for number in 0..5 {
        told.push(fails(&mut health, "t", 1, false));
        health.shipped(&message("t", 100 + number));
    }
    assert_eq!(told, "oprrr");
    let outage: String =
        [11, 12, 11, 12].map(|id| fails(&mut health, "u", id, false)).iter().collect();
    assert_eq!(outage, "oooo");
}

/// The pauses before rounds of probes, in ms, and how many messages each round has; one at a time is sent.
async fn rounds(health: &mut Health) -> Vec<(u128, usize)> {
    let mut rounds = Vec::new();
    for _ in 0..8 {
        let (name, at) = health.next_probe().unwrap();
        let (name, pause) = (name.to_owned(), at - Instant::now());
        tokio::time::sleep_until(at).await;
        let probes = health.of(&name).probes();
        rounds.push((pause.as_millis(), probes));
        for left in (0..probes).rev() {
            assert!(health.next_probe().unwrap().1 <= Instant::now());
            health.of(&name).note_probes(1);
            assert!(left == 0 || health.of(&name).probes() == left);
        }
    }
    rounds
}

// threat K24
#[tokio::test(start_paused = true)]
async fn probes_become_rarer_and_more_and_are_more_frequent_where_the_sink_answers() {
    let mut health = Health::new(None);
    assert_eq!(health.next_probe(), None);
    fails(&mut health, "t", 1, false);
    let probes = [4, 8, 16, 32, 64, 64, 64, 64];
    let away = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000];
    assert_eq!(rounds(&mut health).await, std::iter::zip(away, probes).collect::<Vec<_>>());
    health.shipped(&message("t", 9));
    assert_eq!(health.next_probe(), None);
    for id in [1, 2, 3] {
        fails(&mut health, "u", id, true);
    }
    let refusing = [100, 200, 400, 500, 500, 500, 500, 500];
    assert_eq!(rounds(&mut health).await, std::iter::zip(refusing, probes).collect::<Vec<_>>());
}

// threat K24
#[tokio::test]
async fn probes_begin_with_the_keys_whose_last_message_was_taken() {
    let mut health = Health::new(None);
    let lane = |id| message("t", id).lane();
    for id in (0..100).chain([7, 8, 7]) {
        health.shipped(&message("t", id));
    }
    let good = health.of("t").good_lanes();
    assert_eq!((good.len(), good.contains(&lane(7)), good.contains(&lane(99))), (16, true, true));
    fails(&mut health, "t", 7, false);
    assert!(!health.of("t").good_lanes().contains(&lane(7)));
}

#[tokio::test]
async fn more_topics_than_are_kept_are_away_together() {
    let mut health = Health::new(None);
    for number in 0..TOPICS_MAX {
        // Those that are not away make room.
        health.shipped(&message(&format!("calm {number}"), 1));
        health.failed(&message(&format!("t {number}"), number as u128), false);
    }
    assert_eq!(health.away().len(), TOPICS_MAX);
    assert!(!health.is_away(REST));
    health.failed(&message("one more", 1), false);
    assert!(health.is_away(REST));
    health.shipped(&message("another", 2));
    assert!(!health.is_away(REST));
}
