//! Gateways that die or stop, and a client that does.

use std::time::Duration;

use super::Seen;
use crate::caller::{Ask, begin};
use crate::lab::{Lab, UNKNOWN};
use crate::upstream::{GATED, QUICK};

/// Whoever was answered is answered the same again.
pub(super) async fn killed_after_its_answer(lab: &mut Lab) -> Seen {
    let ask = Ask::post(QUICK, "killed-after");
    let first = lab.send(&ask).await?;
    lab.gateway.kill().await;
    first.must_be(201)?;
    lab.restart().await;
    lab.send(&ask).await?.must_replay(&first)?;
    lab.must_have_executed(1)
}

/// Nobody knows whether the service has executed it, so that it is not sent again.
pub(super) async fn killed_at_work(lab: &mut Lab) -> Seen {
    let ask = Ask::post(GATED, "killed");
    let lost = lab.send_apart(&ask);
    lab.executed(1).await?;
    lab.gateway.kill().await;
    // Its connection broke.
    let _ = lost.await;
    is_held_after_a_restart(lab, &ask).await
}

/// The service does not answer for as long as the gateway waits before it ends.
pub(super) async fn stopped_at_work(lab: &mut Lab) -> Seen {
    let ask = Ask::post(GATED, "stopped");
    let lost = lab.send_apart(&ask);
    lab.executed(1).await?;
    lab.gateway.stop().await;
    lost.abort();
    is_held_after_a_restart(lab, &ask).await
}

async fn is_held_after_a_restart(lab: &mut Lab, ask: &Ask) -> Seen {
    lab.upstream.let_pass(usize::MAX);
    lab.restart().await;
    lab.send_to_the_end(ask).await?.must_say(409, UNKNOWN)?;
    lab.must_have_executed(1)
}

/// The work goes on, and a retry gets its answer.
pub(super) async fn client_hangs_up(lab: &Lab) -> Seen {
    let ask = Ask::post(GATED, "hangs-up");
    let connection = begin(lab.gateway.address, &ask).await?;
    lab.executed(1).await?;
    drop(connection);
    // For the gateway to notice.
    tokio::time::sleep(Duration::from_millis(300)).await;
    lab.upstream.let_pass(1);
    let retry = lab.send_to_the_end(&ask).await?;
    retry.must_be(201)?;
    if !retry.is_replay() {
        return Err("the retry was executed".to_owned());
    }
    lab.must_have_executed(1)
}
