//! What expires is deleted, and nothing else.

use super::*;

// threat I6
#[tokio::test]
async fn a_sweep_deletes_what_expired_and_never_running_or_unknown() {
    let lab = Lab::new().await;
    for n in 0..900 {
        match n % 9 {
            0 => drop(lab.unknown(n).await),
            1 => drop(lab.claimed(n).await),
            _ => drop(lab.settled(n).await),
        }
    }
    assert_eq!(lab.sweep(10_000).await, (0, false));
    lab.clock.advance(TTL_MS);
    assert_eq!(lab.sweep(100).await, (100, true));
    assert_eq!(lab.sweep(10_000).await, (600, false));
    for n in 0..900 {
        let kind = match n % 9 {
            0 => Some(StateKind::Unknown),
            1 => Some(StateKind::Running),
            _ => None,
        };
        assert_eq!(lab.kind(n).await, kind, "{n}");
    }
    assert_eq!(lab.sweep(10_000).await, (0, false));
    let lab = lab.reopened().await;
    assert_eq!(lab.list(&[StateKind::Unknown], 1000).await.len(), 200);
    assert_eq!(lab.list(&[StateKind::Completed], 1000).await.len(), 0);
}

#[tokio::test]
async fn a_moved_record_keeps_its_revision_and_its_owner() {
    let lab = Lab::new().await;
    let token = lab.claimed(1).await;
    lab.settled(2).await;
    let before = lab.load(1).await;
    lab.clock.advance(TTL_MS);
    assert_eq!(lab.sweep(10).await, (1, false));
    assert_eq!(lab.load(1).await, before);
    lab.swap(1, owner(token), settle(1)).await;
    let lab = lab.reopened().await;
    assert_eq!(lab.kind(1).await, Some(StateKind::Completed));
    assert_eq!(lab.load(2).await, None);
}

#[tokio::test]
async fn many_pinned_records_at_the_old_end_hide_nothing_behind_them() {
    let lab = Lab::new().await;
    for n in 0..600 {
        lab.unknown(n).await;
    }
    for n in 600..610 {
        lab.settled(n).await;
    }
    lab.clock.advance(TTL_MS);
    assert_eq!(lab.sweep(100).await, (10, false));
    assert_eq!(lab.list(&[StateKind::Unknown], 1000).await.len(), 600);
    let lab = lab.reopened().await;
    assert_eq!(lab.list(&[StateKind::Unknown], 1000).await.len(), 600);
}

#[tokio::test]
async fn an_expired_record_behind_one_that_lives_longer_goes_too() {
    let lab = Lab::new().await;
    let late = lab.claimed(1).await;
    lab.settled(2).await;
    lab.clock.advance(1000);
    lab.swap(1, owner(late), settle(1)).await;
    lab.clock.advance(TTL_MS - 1000);
    assert_eq!(lab.sweep(10).await, (1, false));
    assert_eq!(lab.kind(1).await, Some(StateKind::Completed));
    assert_eq!(lab.load(2).await, None);
    lab.clock.advance(1000);
    let lab = lab.reopened().await;
    assert_eq!(lab.sweep(10).await, (1, false));
    assert_eq!(lab.load(1).await, None);
}

#[tokio::test]
async fn every_ttl_class_is_swept() {
    let lab = Lab::new().await;
    for (n, ttl_ms) in [1, 2, 3, 1000, 86_400_000, i64::MAX].into_iter().enumerate() {
        let draft = Draft { ttl_ms, ..draft(n as u32) };
        let token = draft.token;
        lab.store.claim(draft).await.unwrap();
        lab.swap(n as u32, owner(token), settle(n as u32)).await;
    }
    lab.clock.advance(1_000);
    assert_eq!(lab.sweep(100).await, (4, false));
    lab.clock.advance(86_400_000);
    assert_eq!(lab.sweep(100).await, (1, false));
    assert_eq!(lab.kind(5).await, Some(StateKind::Completed));
}

#[tokio::test]
async fn deleted_records_leave_no_gap_and_free_their_ids() {
    let lab = Lab::new().await;
    for n in 0..20 {
        let token = lab.claimed(n).await;
        if n % 2 == 0 {
            lab.swap(n, owner(token), Next::Absent).await;
        } else {
            lab.swap(n, owner(token), settle(n)).await;
        }
    }
    let lab = lab.reopened().await;
    assert_eq!(lab.load(4).await, None);
    lab.settled(4).await;
    lab.clock.advance(TTL_MS);
    assert_eq!(lab.sweep(100).await, (11, false));
    let lab = lab.reopened().await;
    assert_eq!(lab.list(&StateKind::ALL, 10).await, []);
}

// Claims interleave with a long sweep: it goes from batch to batch.
#[tokio::test]
async fn claims_are_answered_while_a_long_sweep_runs() {
    let lab = Lab::new().await;
    let settle_all = (0..2000).map(|n| lab.settled(n));
    futures_util::future::join_all(settle_all).await;
    lab.clock.advance(TTL_MS);
    let sweep = lab.sweep(10_000);
    let claim = async {
        lab.claimed(5000).await;
        lab.list(&[StateKind::Completed], 10_000).await.len()
    };
    let (swept, left) = tokio::join!(sweep, claim);
    assert_eq!(swept, (2000, false));
    assert!(left > 0, "the claim waited for the whole sweep");
}

#[tokio::test]
async fn a_released_record_expires_though_nothing_else_is_in_its_class() {
    let lab = Lab::new().await;
    let token = lab.unknown(1).await;
    lab.swap(1, owner(token), Next::Released { expires_at: None }).await;
    assert_eq!(lab.sweep(10).await, (0, false));
    lab.clock.advance(TTL_MS);
    assert_eq!(lab.sweep(10).await, (1, false));
    assert_eq!(lab.load(1).await, None);
}

// threat I9
#[tokio::test]
async fn sweeps_at_the_same_time_delete_each_record_once() {
    let lab = Lab::new().await;
    futures_util::future::join_all((0..700).map(|n| lab.settled(n))).await;
    lab.unknown(1000).await;
    lab.clock.advance(TTL_MS);
    let (a, b, c) = tokio::join!(lab.sweep(400), lab.sweep(10_000), lab.sweep(10_000));
    assert_eq!(a.0 + b.0 + c.0, 700);
    assert_eq!(lab.list(&StateKind::ALL, 100).await, [id(1000)]);
}

// threat A10
#[tokio::test]
async fn a_crash_in_the_middle_of_a_sweep_loses_no_pinned_record() {
    let lab = Lab::new().await;
    for n in 0..200 {
        match n % 10 {
            0 => drop(lab.unknown(n).await),
            1 => drop(lab.claimed(n).await),
            _ => drop(lab.settled(n).await),
        }
    }
    lab.clock.advance(TTL_MS);
    let image = lab.directory.path().join("image.db");
    for _ in 0..5 {
        lab.sweep(31).await;
        for suffix in ["", "-wal"] {
            let from = format!("{}{suffix}", lab.path().display());
            std::fs::copy(from, format!("{}{suffix}", image.display())).unwrap();
        }
        let store = open(&image, &lab.clock).await.unwrap();
        for n in (0..200).filter(|n| n % 10 < 2) {
            let record = store.load(id(n)).await.unwrap().record.unwrap();
            assert_eq!(record.state.kind(), StateKind::Unknown, "{n}");
        }
        store.sweep(StoreTime::MAX, 10_000).await.unwrap();
        store.close().await;
    }
}
