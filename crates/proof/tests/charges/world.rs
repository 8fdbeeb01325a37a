//! Everything around the service: its database, the services that it calls, and its client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onlyonce::store::postgres::PostgresStore;
use proof::client::Answer;
use servers::Postgres;
use tokio::time::{sleep, timeout};

use crate::line;
use crate::others::Others;
use crate::service::{self, Service};
use crate::trigger::{Moment, Trigger};

pub(crate) struct World {
    postgres: Postgres,
    url: String,
    others: Arc<Others>,
    program: PathBuf,
    settings: Vec<(&'static str, String)>,
}

impl World {
    pub(crate) async fn start() -> Self {
        let program = service::build();
        let postgres = Postgres::start();
        let url = postgres.database();
        PostgresStore::open(&url).await.unwrap().close().await;
        let trigger = Arc::new(Trigger::default());
        let (others, address) = Others::start(&url, trigger.clone()).await;
        let port = line::lay(postgres.port(), trigger).await;
        let (before, after) = url.rsplit_once(':').unwrap();
        let (_, database) = after.split_once('/').unwrap();
        let settings = vec![
            ("SHOP_DATABASE", format!("{before}:{port}/{database}?sslmode=disable")),
            ("CARD_URL", format!("http://{address}/call/card")),
            ("MAIL_URL", format!("http://{address}/call/mail")),
            ("EVENTS_URL", format!("http://{address}/events")),
            ("EVENTS_SECRET", format!("whsec_{}", "b25seW9uY2Ux".repeat(3))),
            ("LEASE_SECONDS", "1".to_owned()),
        ];
        Self { postgres, url, others, program, settings }
    }

    pub(crate) fn serve(&self) -> Service {
        Service::start(&self.program, &self.settings)
    }

    pub(crate) fn sql(&self, statement: &str) -> String {
        self.postgres.sql(&self.url, statement)
    }

    /// Sends a charge, has the service killed at the moment, and tells where the charge was then.
    pub(crate) async fn kill_at(&self, moment: Moment, key: &str) -> String {
        let mut service = self.serve();
        let trigger = &self.others.trigger;
        trigger.arm(moment, service.give_up());
        let order = body(key);
        let (killed, _) = tokio::join!(
            timeout(KILL_WAIT_MAX, trigger.killed()),
            service.post("/charges", key, &order)
        );
        assert!(killed.is_ok(), "{moment:?} was not reached");
        match moment {
            Moment::Reply(_) => self.reached(key),
            Moment::CardCalled | Moment::CardCharged => {
                "while the card network has its call".into()
            }
            Moment::Mailed => "while the mail service has its call".into(),
            Moment::Published => "after an event was published, before it was marked".into(),
        }
    }

    /// The last thing that is committed of a charge.
    fn reached(&self, key: &str) -> String {
        let found = self.sql(&format!(
            "SELECT CASE WHEN s.calling IS NULL THEN s.state ELSE s.calling END, coalesce((SELECT p.name FROM onlyonce.point p
               WHERE p.operation = s.id ORDER BY p.number DESC LIMIT 1), '')
               FROM onlyonce.steps s WHERE s.key = '{key}'"
        ));
        match found.split_once('|') {
            None => "before the claim".to_owned(),
            Some(("completed", _)) => "after the answer, before the reply".to_owned(),
            // The name of a call is committed before the call is made.
            Some((calling, _)) if calling != "running" => format!("before {calling:?}"),
            Some((_, "")) => "after the claim".to_owned(),
            Some((_, point)) => format!("after {point:?}"),
        }
    }

    /// What a client gets that sends the same request until the outcome is known.
    pub(crate) async fn retried(&self, service: &Service, key: &str) -> Answer {
        for _ in 0..TRIES_MAX {
            match service.post("/charges", key, &body(key)).await {
                Ok(answer) if answer.status.as_u16() != 409 => return answer,
                _ => sleep(TRY_PAUSE).await,
            }
        }
        panic!("{key} has no outcome");
    }

    /// The charge of a cycle has one row; its answer names it.
    pub(crate) async fn heard(&self, key: &str, answer: &Answer) {
        let charges =
            self.sql(&format!("SELECT min(id), count(*) FROM charge WHERE account = '{key}'"));
        let told: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(charges, format!("{}|1", told["charge"]), "{key}");
    }

    /// Waits until every operation has its answer and every event is shipped.
    pub(crate) async fn until_nothing_is_pending(&self) {
        let pending = "SELECT (SELECT count(*) FROM onlyonce.steps WHERE state <> 'completed')
                            + (SELECT count(*) FROM onlyonce.outbox)";
        for _ in 0..PENDING_LOOKS_MAX {
            if self.sql(pending) == "0" {
                return;
            }
            sleep(TRY_PAUSE).await;
        }
        panic!("{} operations or events are pending", self.sql(pending));
    }

    pub(crate) fn demand_once_each(&self, kills: usize) {
        let once = format!("{kills}|{kills}");
        assert_eq!(self.sql("SELECT count(*), count(DISTINCT account) FROM charge"), once);
        assert_eq!(self.sql("SELECT count(*), count(DISTINCT payload) FROM heard"), once);
        let ((cards, card_calls), (mails, mail_calls)) =
            (self.others.counts("card"), self.others.counts("mail"));
        assert_eq!((cards, mails), (kills, kills), "cards charged and mails sent");
        let deliveries = self.others.deliveries();
        println!(
            "{card_calls} calls charged {cards} cards, {mail_calls} sent {mails} mails, {deliveries} deliveries"
        );
        assert!(
            card_calls > cards && mail_calls > mails && deliveries > kills,
            "nothing was repeated"
        );
    }
}

fn body(key: &str) -> String {
    format!(r#"{{"account": "{key}", "amount": 7998}}"#)
}

const KILL_WAIT_MAX: Duration = Duration::from_secs(30);
const TRY_PAUSE: Duration = Duration::from_millis(50);
const TRIES_MAX: usize = 600;
/// Longer than the lease of a relay that was killed.
const PENDING_LOOKS_MAX: usize = 1_800;
