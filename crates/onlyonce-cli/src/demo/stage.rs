//! The shop window: a page that shows the same bank without the gateway and with it, and plays the scenes.
//!
//! It has a listener of its own, because the gateway that it shows is killed and started again.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use onlyonce::store::BoxError;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::bank::{Bank, Charge};
use super::child::Child;
use super::client::Tap;
use super::news::News;
use super::scene::{Lane, PAUSE, Scene};
use super::window;

/// What stands on it.
#[derive(Debug)]
pub(super) struct Stage {
    /// Where its page is.
    pub(super) address: SocketAddr,
    pub(super) news: News,
    without: Bank,
    with: Bank,
    /// The charges that the story in the terminal made.
    told: usize,
    /// One scene at a time.
    gateway: tokio::sync::Mutex<Child>,
    addresses: (SocketAddr, SocketAddr),
    taps: AtomicU64,
    orders: AtomicU64,
    /// The last order whose outcome was unknown.
    open: Mutex<Option<Tap>>,
}

impl Stage {
    /// Opens a second bank for the side without a gateway, and serves the page.
    pub(super) async fn open(
        folder: &Path,
        news: News,
        with: Bank,
        gateway: Child,
    ) -> Result<Arc<Self>, BoxError> {
        let ledger = folder.join("ledger-without.db");
        let without = Bank::open(&ledger, Some((news.clone(), "without"))).await?;
        let listener = bind().await?;
        let stage = Arc::new(Self {
            address: listener.local_addr()?,
            news,
            without,
            told: with.charges()?.len(),
            with,
            addresses: (gateway.address, gateway.admin),
            gateway: tokio::sync::Mutex::new(gateway),
            taps: AtomicU64::new(0),
            orders: AtomicU64::new(0),
            open: Mutex::new(None),
        });
        tokio::spawn(window::serve(listener, stage.clone()));
        Ok(stage)
    }

    /// What a page that was just opened shows.
    pub(super) fn state(&self) -> Result<Value, BoxError> {
        let (gateway, admin) = self.addresses;
        let json = |charges: &[Charge]| charges.iter().map(Charge::json).collect::<Value>();
        let open = self.open_order();
        Ok(json!({
            "gateway": format!("http://{gateway}"),
            "admin": format!("http://{admin}"),
            "ledgers": {
                "without": json(&self.without.charges()?),
                "with": json(&self.with.charges()?[self.told..]),
            },
            "open": open.map(|order| json!({ "order": order.customer, "key": order.key })),
        }))
    }

    /// Plays a scene on both sides at once. Refused while another is playing.
    pub(super) async fn play(&self, scene: Scene) -> Result<(), BoxError> {
        let mut gateway = self.gateway.try_lock().map_err(|_| "a scene is playing already")?;
        let (without, with) = self.lanes(scene)?;
        let order = &with.order;
        self.news.tell(&json!({ "step": "begun", "order": order.customer, "key": order.key }));
        let played = match scene {
            Scene::TapTwice => tokio::try_join!(without.tap_twice(), with.tap_twice()).map(drop),
            Scene::LoseTheAnswer => {
                tokio::try_join!(without.lose_the_answer(), with.lose_the_answer()).map(drop)
            }
            Scene::CutTheBank => {
                tokio::try_join!(without.cut_the_bank(), with.cut_the_bank()).map(drop)
            }
            Scene::ChangeTheAmount => {
                tokio::try_join!(without.change_the_amount(), with.change_the_amount()).map(drop)
            }
            Scene::KillTheGateway => {
                let killed = self.kill_the_gateway(&mut gateway, &with);
                tokio::try_join!(without.lose_the_answer(), killed).map(drop)
            }
            Scene::AskAgain => with.ask_again().await.map(drop),
        };
        self.remember(scene, with.order);
        let trouble = played.as_ref().err().map(ToString::to_string);
        self.news.tell(&json!({ "step": "ended", "trouble": trouble }));
        played
    }

    async fn kill_the_gateway(&self, gateway: &mut Child, with: &Lane<'_>) -> Result<(), BoxError> {
        with.tap_and_lose("First tap", "the gateway was killed").await?;
        gateway.kill().await?;
        self.news.tell(&json!({ "step": "killed", "lane": "with" }));
        sleep(PAUSE).await;
        gateway.restart().await?;
        self.news.tell(&json!({ "step": "restarted", "lane": "with" }));
        with.ask_again().await.map(drop)
    }

    fn lanes(&self, scene: Scene) -> Result<(Lane<'_>, Lane<'_>), BoxError> {
        let order = match scene {
            Scene::AskAgain => self.open_order().ok_or("no order has an unknown outcome")?,
            _ => self.new_order(),
        };
        let lane = |name, to, bank, order| Lane {
            name,
            to,
            bank,
            news: &self.news,
            taps: &self.taps,
            order,
        };
        let keyless = Tap { key: None, ..order.clone() };
        let without = lane("without", self.without.address, &self.without, keyless);
        Ok((without, lane("with", self.addresses.0, &self.with, order)))
    }

    fn new_order(&self) -> Tap {
        let number = self.orders.fetch_add(1, Ordering::Relaxed) + 1;
        Tap::new(&format!("order-{number}"), Some(&format!("order-{number}-checkout-attempt")))
    }

    fn open_order(&self) -> Option<Tap> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What these scenes leave is unknown until somebody settles it.
    fn remember(&self, scene: Scene, order: Tap) {
        if matches!(scene, Scene::KillTheGateway | Scene::CutTheBank) {
            *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(order);
        }
    }
}

/// The usual port if it is free.
async fn bind() -> Result<TcpListener, BoxError> {
    match TcpListener::bind(USUAL).await {
        Ok(listener) => Ok(listener),
        Err(_) => Ok(TcpListener::bind("127.0.0.1:0").await?),
    }
}

const USUAL: &str = "127.0.0.1:8082";
