//! The service behind the gateways, which counts what it executes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::sleep;
use turmoil::net::TcpListener;

use crate::gateway::{CHARGES, HTTP, ORDERS, PRINCIPAL};
use crate::world::{ANY, Asked, Execution, World};

pub(crate) async fn serve(world: Arc<World>, life: u64) -> turmoil::Result {
    let rng = Rc::new(RefCell::new(world.plan.rng(100 + life)));
    let listener = TcpListener::bind((ANY, HTTP)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let (world, rng) = (world.clone(), rng.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (world, rng) = (world.clone(), rng.clone());
            async move {
                let (head, body) = request.into_parts();
                let path = if head.uri.path() == ORDERS { ORDERS } else { CHARGES };
                let text = |name: &str| text(&head.headers, name);
                let (principal, key) = (text(PRINCIPAL), text("idempotency-key"));
                let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                let body = String::from_utf8_lossy(&body).into_owned();
                let asked = Asked { path, principal, key, body };
                let mood = Mood::choose(&world, &mut rng.borrow_mut());
                // It goes on when the gateway hangs up.
                let worked = tokio::task::spawn_local(work(world, asked, mood));
                match worked.await.ok().flatten() {
                    Some(answer) => Ok(answer),
                    None => Err(Silent),
                }
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .auto_date_header(false)
            .keep_alive(false)
            .header_read_timeout(None::<Duration>)
            .serve_connection(TokioIo::new(stream), service);
        tokio::task::spawn_local(async move {
            let _ = connection.await;
        });
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Ends a connection without an answer.
#[derive(Debug)]
struct Silent;

impl std::fmt::Display for Silent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no answer")
    }
}

impl std::error::Error for Silent {}

/// What the service does with a request.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Answers {
        before: Duration,
        after: Duration,
    },
    /// Executes, and closes the connection.
    Silent,
    /// Says that it executed nothing, which is true.
    TooBusy,
    /// Executes, and says that something went wrong.
    Fails,
}

impl Mood {
    fn choose(world: &World, rng: &mut fastrand::Rng) -> Self {
        let (roll, before, after) = (rng.u8(..20), rng.u64(..700), rng.u64(..1_500));
        let ms = Duration::from_millis;
        if !world.has_faults() {
            return Self::Answers { before: ms(before), after: ms(after) };
        }
        match roll {
            0 => Self::Silent,
            1 => Self::TooBusy,
            2 => Self::Fails,
            // Slower than a lease, or than the timeout.
            3..=5 => Self::Answers { before: ms(before), after: ms(after * 4) },
            _ => Self::Answers { before: ms(before), after: ms(after) },
        }
    }
}

async fn work(world: Arc<World>, asked: Asked, mood: Mood) -> Option<Response<Full<Bytes>>> {
    let (before, after) = match mood {
        Mood::Answers { before, after } => (before, after),
        _ => (Duration::from_millis(5), Duration::ZERO),
    };
    sleep(before).await;
    if let Mood::TooBusy = mood {
        return Some(answer(StatusCode::TOO_MANY_REQUESTS, String::new()));
    }
    let n = execute(&world, &asked);
    sleep(after).await;
    let Asked { path, principal, key, body } = asked;
    match mood {
        Mood::Silent => {
            world.count(|met| met.silent_service += 1);
            None
        }
        Mood::Fails => Some(answer(StatusCode::SERVICE_UNAVAILABLE, String::new())),
        _ => {
            if after > crate::plan::UPSTREAM_TIMEOUT {
                world.count(|met| met.slow_service += 1);
            }
            Some(answer(StatusCode::CREATED, format!("{path} {principal} {key} {body} #{n}")))
        }
    }
}

/// Executes the request, and returns which effect it is. The service of orders knows what it has executed.
fn execute(world: &World, asked: &Asked) -> usize {
    let now = world.now();
    let n = {
        let mut told = world.told();
        let known = told.executions.iter().find(|done| done.request == *asked);
        match known.filter(|_| asked.path == ORDERS) {
            Some(done) => done.n,
            None => {
                let n = told.executions.len();
                told.executions.push(Execution { at: now, request: asked.clone(), n });
                n
            }
        }
    };
    world.trace(|| format!("service executes {asked:?} as {n}"));
    n
}

fn answer(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}
