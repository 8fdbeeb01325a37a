//! The scenes of the shop window: the same taps, without the gateway and with it.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce::store::BoxError;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bank::Bank;
use super::client::{AMOUNT, Answer, State, Tap, tap, tap_and_lose_the_answer};
use super::news::News;

/// What a button does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    /// Two taps at once.
    TapTwice,
    /// The charge is made, the answer never arrives, the customer taps again.
    LoseTheAnswer,
    /// What stands between customer and bank dies while the bank is at work.
    KillTheGateway,
    /// The bank charges, and cuts the connection instead of answering.
    CutTheBank,
    /// The second request has the same key and another amount.
    ChangeTheAmount,
    /// The customer asks again about an order whose outcome is unknown.
    AskAgain,
}

impl FromStr for Scene {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "tap-twice" => Self::TapTwice,
            "lose-the-answer" => Self::LoseTheAnswer,
            "kill-the-gateway" => Self::KillTheGateway,
            "cut-the-bank" => Self::CutTheBank,
            "change-the-amount" => Self::ChangeTheAmount,
            "ask-again" => Self::AskAgain,
            _ => return Err(()),
        })
    }
}

/// One side of the stage: a customer, and where the taps go.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    pub(super) name: &'static str,
    pub(super) to: SocketAddr,
    pub(super) bank: &'a Bank,
    pub(super) news: &'a News,
    pub(super) taps: &'a AtomicU64,
    /// The order that is paid for.
    pub(super) order: Tap,
}

impl Lane<'_> {
    /// The second tap comes while the first is under way.
    pub(super) async fn tap_twice(&self) -> Result<(), BoxError> {
        let second = async {
            sleep(DOUBLE_TAP).await;
            self.until_known("Second tap").await
        };
        tokio::try_join!(self.tap("First tap", &self.order), second).map(drop)
    }

    pub(super) async fn lose_the_answer(&self) -> Result<(), BoxError> {
        self.tap_and_lose("First tap", "the answer is lost on its way").await?;
        sleep(PAUSE).await;
        self.until_known("Taps again").await.map(drop)
    }

    pub(super) async fn cut_the_bank(&self) -> Result<(), BoxError> {
        self.tap("First tap", &Tap { is_cut: true, ..self.order.clone() }).await?;
        sleep(PAUSE).await;
        self.ask_again().await.map(drop)
    }

    pub(super) async fn change_the_amount(&self) -> Result<(), BoxError> {
        self.tap("First tap", &self.order).await?;
        sleep(PAUSE).await;
        let other = Tap { amount: AMOUNT * 10, ..self.order.clone() };
        self.tap("Other amount", &other).await.map(drop)
    }

    pub(super) async fn ask_again(&self) -> Result<Option<Answer>, BoxError> {
        self.tap("Asks again", &self.order).await
    }

    /// A tap whose connection is dropped as soon as the bank has charged.
    pub(super) async fn tap_and_lose(&self, word: &str, why: &str) -> Result<(), BoxError> {
        let it = self.numbered(&self.order);
        self.tell(&it, json!({ "step": "sent", "word": word, "amount": it.amount }));
        let customer = &self.order.customer;
        tap_and_lose_the_answer(self.to, &it, || self.bank.has_charged(customer, 1)).await?;
        self.tell(&it, json!({ "step": "lost", "why": why }));
        Ok(())
    }

    /// Taps again until the first tap is no longer under way, as an app does that is told to wait.
    async fn until_known(&self, word: &str) -> Result<(), BoxError> {
        let mut word = word;
        for _ in 0..RETRIES_MAX {
            let answer = self.tap(word, &self.order).await?;
            let is_under_way = |answer: &Answer| answer.state() == State::InProgress;
            if !answer.as_ref().is_some_and(is_under_way) {
                return Ok(());
            }
            word = "Asks again";
            sleep(PAUSE).await;
        }
        Err("the first tap never ended".into())
    }

    /// `None` if no answer came.
    async fn tap(&self, word: &str, order: &Tap) -> Result<Option<Answer>, BoxError> {
        let it = self.numbered(order);
        self.tell(&it, json!({ "step": "sent", "word": word, "amount": it.amount }));
        let Ok(answer) = tap(self.to, &it).await else {
            self.tell(&it, json!({ "step": "lost", "why": "the connection broke" }));
            return Ok(None);
        };
        let answered = json!({
            "step": "answered",
            "status": answer.status,
            "what": answer.what(),
            "state": answer.state().name(),
            "is_replay": answer.is_replay,
        });
        self.tell(&it, answered);
        Ok(Some(answer))
    }

    fn numbered(&self, order: &Tap) -> Tap {
        Tap { number: self.taps.fetch_add(1, Ordering::Relaxed) + 1, ..order.clone() }
    }

    fn tell(&self, it: &Tap, mut event: Value) {
        event["lane"] = self.name.into();
        event["tap"] = it.number.into();
        event["order"] = it.customer.as_str().into();
        self.news.tell(&event);
    }
}

const DOUBLE_TAP: Duration = Duration::from_millis(60);
/// Longer than the bank takes to answer.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
const RETRIES_MAX: usize = 20;
