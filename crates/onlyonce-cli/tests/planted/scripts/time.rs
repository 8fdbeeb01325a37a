//! What time does to records: leases, times to live, sweeps, and a clock that is wrong.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::Seen;
use crate::caller::{Ask, send};
use crate::lab::{IN_PROGRESS, Lab, UNKNOWN};
use crate::upstream::{DIES, GATED, QUICK, SLOW};

/// Longer than its lease, and than its time to live, which begins with its end.
pub(super) async fn runs_for_long(lab: &Lab) -> Seen {
    let ask = Ask::post(GATED, "long");
    let first = lab.send_apart(&ask);
    lab.executed(1).await?;
    is_in_progress_for(lab, &ask, Duration::from_millis(3_500)).await?;
    lab.upstream.let_pass(usize::MAX);
    first.await.map_err(|error| error.to_string())??.must_be(201)?;
    lab.must_have_executed(1)
}

/// Duplicates are told so, again and again.
async fn is_in_progress_for(lab: &Lab, ask: &Ask, time: Duration) -> Seen {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let duplicate = lab.send_apart(ask);
        lab.becomes("a refusal", || duplicate.is_finished() || lab.upstream.executions() > 1)
            .await?;
        lab.must_have_executed(1)?;
        let duplicate = duplicate.await.map_err(|error| error.to_string())??;
        duplicate.must_say(409, IN_PROGRESS)?;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// The answer is kept for its whole time from when it came, also over a restart.
pub(super) async fn retried_at_the_end_of_its_time(lab: &mut Lab) -> Seen {
    let ask = Ask::post(SLOW, "kept");
    let sending = lab.send_apart(&ask);
    lab.executed(1).await?;
    // The time to live is six seconds, of which the service takes four.
    let six_seconds_old = Instant::now() + Duration::from_millis(6_300);
    let first = sending.await.map_err(|error| error.to_string())??;
    lab.gateway.kill().await;
    lab.restart().await;
    sleep_until(six_seconds_old).await;
    let again = lab.send_apart(&ask);
    lab.becomes("an answer", || again.is_finished() || lab.upstream.executions() > 1).await?;
    lab.must_have_executed(1)?;
    again.await.map_err(|error| error.to_string())??.must_replay(&first)
}

/// A sweep is every 200 ms here.
pub(super) async fn swept(lab: &Lab) -> Seen {
    // A store with unknown outcomes alone would have nothing to sweep.
    lab.send(&Ask::post(QUICK, "another")).await?.must_be(201)?;
    let ask = Ask::post(DIES, "swept");
    lab.send(&ask).await?.must_say(502, UNKNOWN)?;
    sleep(Duration::from_millis(1_500)).await;
    lab.send_to_the_end(&ask).await?.must_say(409, UNKNOWN)?;
    lab.must_have_executed(2)
}

/// Nothing is forgotten, and nobody at work loses its record.
pub(super) async fn clock_is_set(lab: &Lab) -> Seen {
    let kept = Ask::post(QUICK, "kept");
    let first = lab.send(&kept).await?;
    first.must_be(201)?;
    let running = Ask::post(GATED, "running");
    let at_work = lab.send_apart(&running);
    lab.executed(2).await?;
    // Again and again, so that one of the jumps comes right before somebody looks for leases that are over.
    for days in 1..=15 {
        lab.set_clock_ahead(days);
        lab.send(&kept).await?.must_replay(&first)?;
        lab.send(&running).await?.must_say(409, IN_PROGRESS)?;
        sleep(Duration::from_millis(200)).await;
    }
    lab.upstream.let_pass(usize::MAX);
    at_work.await.map_err(|error| error.to_string())??.must_be(201)?;
    lab.must_have_executed(2)
}

/// An operator lets an operation run again whose first owner is only late. What that one brings counts no more.
pub(super) async fn owner_comes_back(lab: &Lab) -> Seen {
    let ask = Ask::post(GATED, "comes-back");
    let late = lab.send(&ask.clone().with_line("Request-Timeout: 1")).await?;
    late.must_be(504)?;
    lab.send_to_the_end(&ask).await?.must_say(409, UNKNOWN)?;
    release(lab).await?;
    let second = lab.send_apart(&ask);
    lab.executed(2).await?;
    lab.upstream.let_pass(1);
    let end = Instant::now() + Duration::from_millis(1_500);
    while Instant::now() < end {
        lab.send(&ask).await?.must_say(409, IN_PROGRESS)?;
        sleep(Duration::from_millis(50)).await;
    }
    lab.upstream.let_pass(2);
    let second = second.await.map_err(|error| error.to_string())??;
    second.must_be(201)?;
    lab.send(&ask).await?.must_replay(&second)?;
    lab.must_have_executed(2)
}

async fn release(lab: &Lab) -> Seen {
    let admin = lab.gateway.admin;
    let all = send(admin, &Ask::admin("GET", "/api/v1/operations?state=unknown", "")).await?;
    let id = all.json()["operations"][0]["id"].as_str().map(str::to_owned);
    let id = id.ok_or_else(|| format!("no unknown operation: {}", all.body))?;
    let path = format!("/api/v1/operations/{id}/release");
    let release = Ask::admin("POST", &path, "{\"reason\": \"a script\", \"force\": true}");
    send(admin, &release).await?.must_be(200)
}
