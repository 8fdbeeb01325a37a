//! A compensation: what was reserved is cancelled after a later step was definitely refused.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;
use onlyonce::steps::{Finished, Run, Steps, StepsOutcome, Stopped};
use onlyonce::transaction::Reply;

use crate::lab::{Lab, Shop, on_both, operation};
use crate::provider::{Provider, call};

on_both! {
    a_refused_charge_cancels_the_reservation_under_a_key_of_its_own;
}

async fn trip<S: Shop>(
    provider: SocketAddr,
    mut run: Run<S>,
    is_declined: bool,
) -> Result<Finished, Stopped> {
    run.call("seat reserved", async |key| Ok(call(provider, "reserve", &key).await?)).await?;
    let is_charged = run
        .call("card charged", async |key| {
            call(provider, "card", &key).await?;
            // A definite refusal is a value, and is remembered.
            Ok(!is_declined)
        })
        .await?;
    if !is_charged {
        run.call("seat cancelled", async |key| Ok(call(provider, "cancel", &key).await?)).await?;
    }
    run.finish(async |mut tx| {
        let (status, what) = match is_charged {
            true => (StatusCode::CREATED, "booked"),
            false => (StatusCode::PAYMENT_REQUIRED, "declined"),
        };
        S::effect(&mut tx, what).await?;
        Ok(Reply::new(status, what))
    })
    .await
}

// R138
async fn a_refused_charge_cancels_the_reservation_under_a_key_of_its_own<S: Shop>(lab: Lab) {
    let provider = Provider::start();
    let address = provider.address;
    let shop = S::connect(&lab.address).await;
    let steps = Steps::new("trip", move |run, is_declined| trip::<S>(address, run, is_declined))
        .with_attempt_max(Duration::from_millis(500))
        .with_retry_pause(Duration::ZERO);
    let booked = steps.run(&shop, &operation("booked"), &false).await.unwrap();
    assert!(matches!(&booked, StepsOutcome::Done(reply) if reply.status == 201), "{booked:?}");
    assert_eq!(provider.calls("cancel"), 0);
    // The cancellation hangs, and goes on in the next attempt: the steps before it are not done again.
    provider.silence(&["cancel"]);
    steps.run(&shop, &operation("declined"), &true).await.unwrap_err();
    provider.silence(&[]);
    lab.let_time_pass();
    for _ in 0..2 {
        let declined = steps.run(&shop, &operation("declined"), &true).await.unwrap();
        let (StepsOutcome::Done(reply) | StepsOutcome::Replay(reply)) = declined else {
            panic!("{declined:?}")
        };
        assert_eq!(reply, Reply::new(StatusCode::PAYMENT_REQUIRED, "declined"));
    }
    assert_eq!(["reserve", "card", "cancel"].map(|service| provider.calls(service)), [2, 2, 2]);
    assert_eq!(["reserve", "card", "cancel"].map(|service| provider.effects(service)), [2, 2, 1]);
    assert_eq!(lab.effects(), "booked|1\ndeclined|1");
    let keys = [provider.keys("reserve"), provider.keys("card"), provider.keys("cancel")].concat();
    let different: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(different.len(), keys.len(), "each call has a key of its own");
}
