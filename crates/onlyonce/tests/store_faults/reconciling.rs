//! Those who are asked what became of an operation, and do not know either.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce::policy::{Absent, Recovery};
use onlyonce::record::StateKind;
use onlyonce::{Finding, Policy, Question, Reconciler};
use tower_layer::Layer;

use crate::faults::app::{App, charge, layer, send, send_apart};
use crate::faults::lab::{Lab, gated};
use crate::faults::scripted::{Act, Call};
use crate::faults::{soon, until, until_state};

// threat A11, B10
#[tokio::test]
async fn a_reconciler_that_panics_in_the_background_does_not_end_the_background_thread() {
    let (lab, gate) = gated(Policy::default());
    let asked = Panicking::default();
    let app = reconciled(&lab, asked.clone());
    let first = send_apart(&app, KEY);
    until("the handler to be called", || async { lab.executed() == 1 }).await;
    lab.reap().await;
    until("the question", || async { asked.0.load(Ordering::SeqCst) > 0 }).await;
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
    let scans = lab.store.made(Call::Scan);
    until("the background thread to go on", || async { lab.store.made(Call::Scan) > scans + 3 })
        .await;
}

// threat B6
#[tokio::test]
async fn a_store_clock_that_jumps_makes_nobody_believe_that_an_operation_never_arrived() {
    let (lab, gate) = gated(Policy::default());
    lab.store.always(Call::Renew, Act::LoseCall);
    let app = reconciled(&lab, Ignorant);
    let first = send_apart(&app, KEY);
    until("the handler to be called", || async { lab.executed() == 1 }).await;
    until_state(&lab.memory, Some(StateKind::Unknown)).await;
    lab.clock.jump(Duration::from_secs(24 * 60 * 60));
    for _ in 0..3 {
        let retry = soon("a retry", send(&app, charge(KEY))).await;
        retry.assert_problem(409, "idempotency_outcome_unknown");
    }
    assert_eq!(lab.executed(), 1);
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
}

/// Panics whenever it is asked.
#[derive(Clone, Default)]
struct Panicking(Arc<AtomicUsize>);

impl Reconciler for Panicking {
    fn ask<'a>(
        &'a self,
        _: Question<'a>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Finding> + Send + 'a>> {
        Box::pin(async {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("in the question")
        })
    }

    fn asks_by_itself(&self) -> bool {
        true
    }
}

/// Has never heard of anything.
struct Ignorant;

impl Reconciler for Ignorant {
    fn ask<'a>(
        &'a self,
        _: Question<'a>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Finding> + Send + 'a>> {
        Box::pin(async { Finding::Absent })
    }
}

fn reconciled(lab: &Lab, reconciler: impl Reconciler) -> App {
    let recovery =
        Recovery::Reconcile { absent: Absent::Release, quiet: Duration::from_secs(60 * 60) };
    let policy = Policy::default().with_recovery(recovery).with_lease(Duration::from_millis(200));
    let layer = layer(&lab.once, policy).with_reconciler(reconciler);
    layer.layer(lab.handler.clone())
}

const KEY: &str = "order-4711";
