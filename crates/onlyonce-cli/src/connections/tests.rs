use tokio::time::advance;

use super::*;

struct Open {
    slot: Slot,
    state: ConnectionState,
}

impl Open {
    fn is_told_to_leave(&self) -> bool {
        futures_util::FutureExt::now_or_never(self.state.told_to_leave()).is_some()
    }
}

async fn admit(connections: &Connections) -> Option<Open> {
    let state = ConnectionState::default();
    let slot = connections.admit(&state).await?;
    Some(Open { slot, state })
}

async fn fill(connections: &Connections, count: usize) -> Vec<Open> {
    let mut open = Vec::new();
    for _ in 0..count {
        open.push(admit(connections).await.expect("there is room"));
        advance(Duration::from_millis(1)).await;
    }
    open
}

// threats K27, K28
#[tokio::test(start_paused = true)]
async fn the_oldest_that_has_asked_nothing_makes_room() {
    let connections = Connections::new("clients", 4);
    let open = fill(&connections, 4).await;
    open[0].state.ask();
    advance(FIRST_MOMENT).await;
    let _fifth = admit(&connections).await.expect("one makes room");
    let told: Vec<_> = open.iter().map(Open::is_told_to_leave).collect();
    assert_eq!(told, [false, true, false, false]);
    let counts = connections.counts();
    assert_eq!(
        (counts.open, counts.made_room, counts.full),
        (5, 1, 0),
        "it is open until it has left"
    );
    drop(open);
    assert_eq!(connections.counts().open, 1);
}

// threat K28
#[tokio::test(start_paused = true)]
async fn of_those_that_have_asked_the_one_that_is_idle_for_longest_makes_room() {
    let connections = Connections::new("clients", 4);
    let open = fill(&connections, 4).await;
    for one in open.iter().rev() {
        one.state.ask();
        advance(FIRST_MOMENT).await;
    }
    let _at_work = open[3].state.begin();
    let _fifth = admit(&connections).await.expect("one makes room");
    let told: Vec<_> = open.iter().map(Open::is_told_to_leave).collect();
    assert_eq!(told, [false, false, true, false]);
}

// threat K28
#[tokio::test(start_paused = true)]
async fn where_all_are_at_work_the_new_one_is_closed_at_once() {
    let connections = Connections::new("clients", 4);
    let open = fill(&connections, 4).await;
    let working: Vec<_> = open[..3].iter().map(|one| one.state.begin()).collect();
    open[3].state.ask();
    assert!(open[3].slot.vouch(), "who has shown who it is stays too");
    advance(FIRST_MOMENT * 10).await;
    let before = Instant::now();
    assert!(admit(&connections).await.is_none());
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(connections.counts().full, 1);
    drop(working);
    drop(open);
    assert!(admit(&connections).await.is_some());
}

// threat K27
#[tokio::test(start_paused = true)]
async fn nobody_is_sent_away_in_the_first_moment() {
    let connections = Connections::new("admin", 4);
    let open = fill(&connections, 4).await;
    let before = Instant::now();
    let _fifth = admit(&connections).await.expect("a little later");
    assert!(before.elapsed() >= FIRST_MOMENT - Duration::from_millis(5), "{:?}", before.elapsed());
    assert!(open[0].is_told_to_leave());
}

// A thread that is stuck does not close what it was told to close.
#[tokio::test(start_paused = true)]
async fn those_that_are_told_to_leave_and_stay_are_bounded() {
    let connections = Connections::new("clients", 4);
    let mut open = fill(&connections, 4).await;
    for _ in 0..LEAVING_MIN {
        advance(FIRST_MOMENT).await;
        open.push(admit(&connections).await.expect("one makes room"));
    }
    advance(FIRST_MOMENT).await;
    assert!(admit(&connections).await.is_none(), "none has left");
    open.remove(0);
    assert!(admit(&connections).await.is_some());
}

// threat K27
#[tokio::test(start_paused = true)]
async fn some_slots_are_left_for_those_who_have_shown_nothing() {
    let connections = Connections::new("admin", 32);
    let open = fill(&connections, 32).await;
    let vouched = open.iter().filter(|one| one.slot.vouch()).count();
    assert_eq!(vouched, 30);
    assert!(open[0].slot.vouch(), "again");
    advance(FIRST_MOMENT).await;
    let probe = admit(&connections).await.expect("the probe has a slot");
    assert!(open[30].is_told_to_leave() && !probe.slot.vouch());
    drop(open);
    assert!(probe.slot.vouch());
}
