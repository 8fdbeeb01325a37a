//! Plants each bug of `onlyonce::planted` into the real gateway, and plays scripts of requests against it from outside.
//!
//! A gateway without a bug must pass every script; a gateway with one must fail the script that is for it. `scripts/planted`
//! asks the other layers of the tests the same, and prints who finds what.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod caller;
mod clock;
mod gateway;
mod lab;
mod scripts;
mod upstream;

use std::time::Duration;

use futures_util::{StreamExt, stream};
use onlyonce::planted::Planted;
use proof::tier::is_full;

use crate::lab::Lab;
use crate::scripts::Script;

/// The script that finds a bug.
const fn found_by(bug: Planted) -> Script {
    match bug {
        Planted::NoClaim | Planted::RunningIsAbsent => Script::SentAtOnce,
        Planted::NoFence => Script::OwnerComesBack,
        Planted::ReleaseOnError | Planted::UnknownIsAbsent | Planted::SentIsUnsent => {
            Script::ServiceDies
        }
        Planted::RunningExpires | Planted::NoRenewal => Script::RunsForLong,
        Planted::TtlFromStart => Script::RetriedAtTheEndOfItsTime,
        Planted::SweepIgnoresState => Script::Swept,
        Planted::ReaperByStoreClock | Planted::TrustedTimeOff => Script::ClockIsSet,
        Planted::CompletesBeforeCommit => Script::KilledAfterItsAnswer,
        Planted::RestartReleases => Script::KilledAtWork,
        Planted::DrainingReleases => Script::StoppedAtWork,
        Planted::WaiterDeletes => Script::WaitedFor,
        Planted::CancelsWithClient => Script::ClientHangsUp,
        Planted::MismatchIgnored | Planted::FingerprintCutShort => Script::OtherBody,
        Planted::DoubledKeyTaken => Script::TwoKeys,
        Planted::ScopeJoinedWithColon => Script::PartsThatReadAlike,
        Planted::PrincipalIgnored => Script::TwoCallers,
        Planted::EmptyPrincipalShared => Script::EmptyCredential,
        Planted::ReplayOtherStatus | Planted::ReplayWithoutBody => Script::Retried,
        Planted::CutAnswerKept => Script::AnswerIsCut,
        Planted::LargeAnswerReleases => Script::AnswerIsLarge,
        Planted::ServerErrorReleases => Script::ServiceFails,
        Planted::ReconcileByRawKey => Script::AskedLater,
        Planted::RedriveWithoutKey => Script::SentAgain,
    }
}

/// The negative control.
// threat J17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_without_a_bug_passes_every_script() {
    let runs = if is_full() { 20 } else { 3 };
    let all = (0..runs).flat_map(|_| Script::ALL);
    let found: Vec<_> = stream::iter(all)
        .map(|script| async move { (script, played(None, *script).await) })
        .buffer_unordered(AT_ONCE)
        .filter_map(|(script, found)| async move { found.err().map(|why| (script, why)) })
        .collect()
        .await;
    println!("{runs} clean runs of {} scripts", Script::ALL.len());
    assert!(found.is_empty(), "false alarms: {found:#?}");
}

// threats A3, A5, A6, A7, A11, A12, A13, B1, B5, B6, B9, B11, B12, F1, F3, F4, F6, F9, G9, G13, G15, I1, I6, I8, I10, J3, J4, J5, J17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_planted_bug_is_found_from_outside() {
    let named = std::env::var(ONLY).ok();
    let bugs = Planted::ALL.iter().filter(|bug| named.as_deref().is_none_or(|n| n == bug.name()));
    let played: Vec<_> = stream::iter(bugs)
        .map(|bug| async move { (bug, played(Some(*bug), found_by(*bug)).await) })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    assert!(!played.is_empty(), "{ONLY} names no bug");
    for (bug, found) in &played {
        let told = found.as_ref().err().map_or("NOT FOUND", String::as_str);
        println!("{}, by {:?}: {told}", bug.name(), found_by(**bug));
    }
    let missed: Vec<_> = played.iter().filter(|(_, found)| found.is_ok()).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Plays the script on a gateway with or without a bug: what was found.
async fn played(bug: Option<Planted>, script: Script) -> Result<(), String> {
    let playing = async {
        let mut lab = Lab::start(bug, script).await;
        script.play(&mut lab).await
    };
    match tokio::time::timeout(PATIENCE, playing).await {
        Ok(found) => found,
        Err(_) => panic!("{script:?} with {bug:?} does not end"),
    }
}

/// Names the one bug to try; all of them if it is not set.
const ONLY: &str = "ONLYONCE_TEST_BUG";
/// Most scripts wait more than they work.
const AT_ONCE: usize = 6;
/// No script takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(120);
