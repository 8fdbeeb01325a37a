//! The services of others. Both remove duplicates by the key that they are given.

use onlyonce::Failure;
use onlyonce::client::{Client, SendOutcome};
use onlyonce::key::{Key, KeyRules};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::charge::Order;

#[derive(Clone)]
pub struct Others {
    client: Client,
    card_url: String,
    mail_url: String,
}

#[derive(Serialize, Deserialize)]
pub enum Payment {
    Taken { id: String },
    Declined,
}

impl Others {
    pub fn new(card_url: String, mail_url: String) -> Self {
        Self { client: Client::new(), card_url, mail_url }
    }

    pub async fn charge_card(&self, order: &Order, key: &str) -> Result<Payment, Failure> {
        let card = json!({ "account": order.account, "amount": order.amount });
        match self.send(&self.card_url, key, &card).await? {
            SendOutcome::Rejected { .. } => Ok(Payment::Declined),
            outcome => {
                let answer: Option<Value> = outcome.answer().and_then(|answer| answer.json().ok());
                let id = answer.as_ref().and_then(|answer| answer["id"].as_str());
                let id = id.ok_or_else(|| unknown("the card network answered without an id"))?;
                Ok(Payment::Taken { id: id.to_owned() })
            }
        }
    }

    pub async fn mail_receipt(&self, charge: i64, order: &Order, key: &str) -> Result<(), Failure> {
        let mail = json!({ "to": order.account, "charge": charge, "amount": order.amount });
        self.send(&self.mail_url, key, &mail).await?;
        Ok(())
    }

    /// An outcome that is not known is an error: the call is made again, with the same key.
    async fn send(&self, url: &str, key: &str, body: &Value) -> Result<SendOutcome, Failure> {
        let key = Key::from_text(key, &KeyRules::default())?;
        match self.client.post(url).with_key(key).json(body).send().await? {
            SendOutcome::Unknown { doubt, .. } => Err(unknown(&doubt.to_string())),
            outcome => Ok(outcome),
        }
    }
}

fn unknown(why: &str) -> Failure {
    Failure::Unknown(why.into())
}
