//! The program of most tests: an order is saved, a card charged, a mail sent, a receipt written.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;
use onlyonce::Failure;
use onlyonce::steps::{Finished, Run, Steps, Stopped};
use onlyonce::transaction::Reply;
use serde::{Deserialize, Serialize};

use crate::lab::Shop;
use crate::provider::call;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) amount: u32,
}

pub(crate) const ORDER: Order = Order { amount: 7998 };

/// What a test does to the program: where the provider is, and at which point the process stops for good.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) provider: SocketAddr,
    pub(crate) stop_at: String,
}

impl World {
    pub(crate) fn new(provider: SocketAddr) -> Self {
        Self { provider, stop_at: String::new() }
    }

    /// Stops here for good if this is the point.
    fn reached(&self, here: &str) {
        if here == self.stop_at {
            println!("{REACHED}");
            loop {
                std::thread::park();
            }
        }
    }
}

pub(crate) fn order<S: Shop>(world: World) -> Steps<S, Order> {
    Steps::new("order", move |run, order| program(world.clone(), run, order))
        .with_lease(Duration::from_secs(60))
}

async fn program<S: Shop>(
    world: World,
    mut run: Run<S>,
    order: Order,
) -> Result<Finished, Stopped> {
    world.reached("begun");
    let amount = run
        .step("order saved", async |mut tx| {
            S::effect(&mut tx, "saved").await?;
            S::message(&mut tx).await?;
            world.reached("in the step");
            Ok(order.amount)
        })
        .await?;
    world.reached("order saved");
    let charge = run
        .call("card charged", async |key| {
            let charge = call(world.provider, "card", &key).await?;
            world.reached("card answered");
            Ok::<_, Failure>(charge)
        })
        .await?;
    world.reached("card charged");
    run.call_once("mail sent", async |key| {
        call(world.provider, "mail", &key).await?;
        world.reached("mail answered");
        Ok(())
    })
    .await?;
    world.reached("mail sent");
    let finished = run
        .finish(async |mut tx| {
            S::effect(&mut tx, "receipt").await?;
            world.reached("in the finish");
            Ok(Reply::new(StatusCode::CREATED, format!("{amount} by {charge}")))
        })
        .await;
    world.reached("finished");
    finished
}

pub(crate) const REACHED: &str = "the point is reached";
/// Where a process can stop; the services are silent at `amid …`.
pub(crate) const POINTS: [&str; 12] = [
    "begun",
    "in the step",
    "order saved",
    "amid card",
    "card answered",
    "card charged",
    "amid mail",
    "mail answered",
    "mail sent",
    "in the finish",
    "finished",
    "never",
];
