//! A sample payments service with a real little ledger. It knows nothing of keys.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use onlyonce::store::BoxError;
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::news::News;

/// The service.
#[derive(Clone, Debug)]
pub(super) struct Bank {
    /// Where it listens.
    pub(super) address: SocketAddr,
    ledger: Arc<Mutex<Connection>>,
    /// Who is told of each step, and the name that this bank has there.
    news: Option<(News, &'static str)>,
}

/// A line of the ledger.
#[derive(Clone, Debug)]
pub(super) struct Charge {
    number: i64,
    /// Who was charged.
    pub(super) customer: String,
    amount: i64,
}

impl Charge {
    pub(super) fn id(&self) -> String {
        format!("ch_{}", self.number)
    }

    pub(super) fn json(&self) -> Value {
        json!({ "id": self.id(), "customer": self.customer, "amount": self.amount })
    }
}

impl Bank {
    /// Opens the ledger and serves.
    pub(super) async fn open(
        path: &Path,
        news: Option<(News, &'static str)>,
    ) -> Result<Self, BoxError> {
        let ledger = Connection::open(path)?;
        ledger.execute_batch(
            "CREATE TABLE charge (number INTEGER PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL)",
        )?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let ledger = Arc::new(Mutex::new(ledger));
        let bank = Self { address: listener.local_addr()?, ledger, news };
        tokio::spawn(bank.clone().serve(listener));
        Ok(bank)
    }

    /// Every charge that was ever made.
    pub(super) fn charges(&self) -> Result<Vec<Charge>, BoxError> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let mut charges =
            ledger.prepare("SELECT number, customer, amount FROM charge ORDER BY number")?;
        let charges = charges.query_map([], |row| {
            Ok(Charge { number: row.get(0)?, customer: row.get(1)?, amount: row.get(2)? })
        })?;
        Ok(charges.collect::<Result<_, _>>()?)
    }

    /// Whether `customer` was charged so often.
    pub(super) fn has_charged(&self, customer: &str, times: usize) -> bool {
        let charges = self.charges().unwrap_or_default();
        charges.iter().filter(|charge| charge.customer == customer).count() >= times
    }

    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let bank = self.clone();
            let service = service_fn(move |request| {
                let bank = bank.clone();
                async move { bank.answer(request).await.ok_or("the connection is cut") }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    }

    /// Nothing, if the connection is to be cut.
    async fn answer(&self, request: Request<Incoming>) -> Option<Response<Full<Bytes>>> {
        if (request.method(), request.uri().path()) == (&Method::GET, "/") {
            return Some(page());
        }
        let is_cut = request.headers().contains_key("x-cut");
        let answer = match (request.method(), request.uri().path()) {
            (&Method::POST, "/charges") => self.charge(request).await,
            (&Method::GET, "/charges") => self.charges().map(|charges| {
                (StatusCode::OK, charges.iter().map(Charge::json).collect::<Value>())
            }),
            _ => Ok((StatusCode::NOT_FOUND, json!({ "error": "there is POST and GET /charges" }))),
        };
        let (status, body) = answer.unwrap_or_else(|error| {
            (StatusCode::BAD_REQUEST, json!({ "error": error.to_string() }))
        });
        if is_cut {
            return None;
        }
        let mut response = Response::new(Full::from(format!("{body}\n")));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert("content-type", http::HeaderValue::from_static("application/json"));
        Some(response)
    }

    /// Charges at once, and then takes its time to answer, as banks do.
    async fn charge(&self, request: Request<Incoming>) -> Result<(StatusCode, Value), BoxError> {
        let number = request.headers().get("x-tap").and_then(|number| number.to_str().ok());
        let number = number.and_then(|number| number.parse::<u64>().ok());
        let body = request.into_body();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await?.to_bytes();
        let asked: Value = serde_json::from_slice(&body)?;
        let customer = asked["customer"].as_str().ok_or("`customer` is missing")?;
        let amount = asked["amount"].as_i64().ok_or("`amount` is missing")?;
        let charge = self.write(customer, amount)?;
        self.tell(number, &charge);
        sleep(ANSWER_PAUSE).await;
        Ok((StatusCode::CREATED, charge.json()))
    }

    fn tell(&self, tap: Option<u64>, charge: &Charge) {
        if let Some((news, lane)) = &self.news {
            news.tell(
                &json!({ "step": "charged", "lane": lane, "tap": tap, "charge": charge.json() }),
            );
        }
    }

    fn write(&self, customer: &str, amount: i64) -> Result<Charge, BoxError> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger
            .execute("INSERT INTO charge (customer, amount) VALUES (?1, ?2)", (customer, amount))?;
        Ok(Charge { number: ledger.last_insert_rowid(), customer: customer.to_owned(), amount })
    }
}

/// A form with a little script that cannot pay twice.
fn page() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(include_str!("page/pay.html")));
    let media_type = http::HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert("content-type", media_type);
    response
}

const BODY_BYTES_MAX: usize = 16 * 1024;
const ANSWER_PAUSE: Duration = Duration::from_millis(300);
