//! Clients that retry, hang up, change gateways, and use each other's keys.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::Request;
use http_body_util::{BodyExt, Full};
use onlyonce::store::BoxError;
use tokio::time::{sleep, timeout};
use turmoil::net::TcpStream;

use crate::gateway::{CHARGES, HTTP, ORDERS, PRINCIPAL, exchange};
use crate::plan::{AUDIT_AT, FAULTS_END, Kind};
use crate::world::{Answer, Asked, World};

/// One client: some operations after each other, each until it has an answer or gives up.
pub(crate) async fn client(world: Arc<World>, number: u64) -> turmoil::Result {
    let mut rng = world.plan.rng(10 + number);
    while world.now() < FAULTS_END {
        sleep(Duration::from_millis(rng.u64(1..600))).await;
        let asked = choose(&world, &mut rng);
        until_answered(&world, &asked, &mut rng).await;
    }
    Ok(())
}

/// Mostly the one request that belongs to a key; now and then another one.
fn choose(world: &World, rng: &mut Rng) -> Asked {
    let path = if rng.u8(..3) == 0 { ORDERS } else { CHARGES };
    // Old keys where answers expire, so that the sweeper has something to delete.
    let era = match world.plan.kind {
        Kind::Sweeps => world.now().as_secs() / 5,
        Kind::Crashes | Kind::Clocks => world.now().as_secs() / 9,
    };
    let key = format!("key-{era}-{}", rng.u8(..4));
    let principal = if rng.u8(..6) == 0 { "bob" } else { "ann" };
    if principal == "bob" {
        world.count(|met| met.other_principal += 1);
    }
    let mut asked =
        Asked { path, principal: principal.to_owned(), key, body: "amount=7".to_owned() };
    if rng.u8(..10) == 0 {
        world.count(|met| met.other_body += 1);
        asked.body = "amount=8".to_owned();
    }
    asked
}

async fn until_answered(world: &Arc<World>, asked: &Asked, rng: &mut Rng) {
    let mut gateway = rng.usize(..2);
    for _ in 0..ATTEMPTS_MAX {
        let patience = match rng.u8(..4) {
            0 => Duration::from_millis(rng.u64(10..800)),
            _ => PATIENCE,
        };
        match send(world, asked, gateway, patience, false).await {
            // Told what became of it: done, or never this request.
            Some(200..300 | 422) => return,
            _ => sleep(Duration::from_millis(rng.u64(20..1_200))).await,
        }
        if world.now() > FAULTS_END {
            return;
        }
        if rng.bool() {
            gateway = 1 - gateway;
            world.count(|met| met.other_gateway += 1);
        }
    }
}

/// Sends the request once, and notes the answer; `None` if there was none.
async fn send(
    world: &Arc<World>,
    asked: &Asked,
    gateway: usize,
    patience: Duration,
    is_final: bool,
) -> Option<u16> {
    world.count(|met| met.requests += 1);
    world.trace(|| format!("client asks g{gateway} {asked:?}"));
    let heard = timeout(patience, post(asked, gateway)).await;
    let (status, body) = match heard {
        Ok(Ok(heard)) => heard,
        Ok(Err(_)) => {
            world.trace(|| format!("client is cut off from g{gateway}"));
            return None;
        }
        Err(_) => {
            world.count(|met| met.hang_ups += 1);
            world.trace(|| format!("client hangs up on g{gateway}"));
            return None;
        }
    };
    world.trace(|| format!("client hears g{gateway} {asked:?} -> {status} {body}"));
    let at = world.now();
    let answer = Answer { at, asked: asked.clone(), status, body, is_final };
    world.told().answers.push(answer);
    Some(status)
}

async fn post(asked: &Asked, gateway: usize) -> Result<(u16, String), BoxError> {
    let host = ["g0", "g1"][gateway];
    let stream = TcpStream::connect((host, HTTP)).await?;
    let request = Request::post(asked.path)
        .header("host", "shop.example")
        .header(PRINCIPAL, &asked.principal)
        .header("idempotency-key", &asked.key)
        .header("content-type", "text/plain")
        .body(Full::new(Bytes::from(asked.body.clone())))?;
    let (head, body) = exchange(stream, request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok((head.status.as_u16(), String::from_utf8_lossy(&body).into_owned()))
}

/// Asks again for all that was ever answered, at both gateways, after all faults have stopped.
pub(crate) async fn audit(world: Arc<World>) -> turmoil::Result {
    while world.now() < AUDIT_AT {
        sleep(Duration::from_millis(200)).await;
    }
    let mut told: Vec<_> = {
        let told = world.told();
        let done = told.answers.iter().filter(|answer| (200..300).contains(&answer.status));
        done.map(|answer| answer.asked.clone()).collect()
    };
    told.sort();
    told.dedup();
    for asked in told {
        for gateway in 0..2 {
            for _ in 0..AUDITS_MAX {
                if send(&world, &asked, gateway, PATIENCE, true).await.is_some_and(|s| s != 409) {
                    break;
                }
                sleep(Duration::from_millis(500)).await;
            }
        }
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(12);
const ATTEMPTS_MAX: usize = 5;
const AUDITS_MAX: usize = 2;
