//! Where a command finds operations: the admin listener of a running gateway, or a store.
//!
//! Both are asked the same questions: on a store, the code behind the admin listener answers without a listener.

mod output;
mod remote;
mod store;
mod trust;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;

use super::exit;
use crate::admin::Desk;
use crate::config::StoreFlag;

pub(super) use self::output::print;
pub(super) use self::remote::Remote;
pub(super) use self::trust::TrustFlags;

/// Where the operations are.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AccessFlags {
    /// The admin listener of a running gateway; this one unless a store is given
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    admin: String,
    /// The token of the admin listener; else the variable ONLYONCE_ADMIN_TOKEN is read
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    #[command(flatten)]
    trust: TrustFlags,
    /// A store instead: sqlite:FILE (of no running gateway), postgres://…, redis://…, dynamodb:TABLE or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse, conflicts_with = "token")]
    store: Option<StoreFlag>,
    /// The configuration that names the store, and the secret and the seal of its keys where there are any
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    config: Option<PathBuf>,
}

/// Somebody who answers.
#[derive(Clone, Debug)]
pub(super) enum Access {
    Gateway(Box<Remote>),
    Store {
        desk: Desk,
        /// Keys have other ids in this store than this command would look for.
        has_other_secret: bool,
    },
}

impl AccessFlags {
    pub(super) async fn open(&self) -> Result<Access, Failed> {
        match self.store.is_some() || self.config.is_some() {
            true => store::open(self.store.as_ref(), self.config.as_deref()).await,
            false => Ok(Access::Gateway(Box::new(self.remote()?))),
        }
    }

    /// A running gateway.
    pub(super) fn of_gateway(admin: &str, token: Option<String>, trust: TrustFlags) -> Self {
        Self { admin: admin.to_owned(), token, trust, store: None, config: None }
    }

    /// Only a running gateway, whatever else is given.
    pub(super) fn remote(&self) -> Result<Remote, Failed> {
        let token = self.token.clone().or_else(|| std::env::var(TOKEN).ok());
        Remote::new(&self.admin, token.as_deref(), &self.trust)
    }

    pub(super) fn names_a_store(&self) -> bool {
        self.store.is_some() || self.config.is_some()
    }
}

impl Access {
    /// Waits so long for an answer of a gateway.
    pub(super) fn with_answer_wait(self, wait: Duration) -> Self {
        match self {
            Self::Gateway(remote) => Self::Gateway(Box::new(remote.with_answer_wait(wait))),
            store @ Self::Store { .. } => store,
        }
    }

    /// The JSON of an answer.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Failed> {
        parsed(&self.ask(Method::GET, path, None).await?)
    }

    /// The text of an answer.
    pub(super) async fn text(&self, path: &str) -> Result<Bytes, Failed> {
        self.ask(Method::GET, path, None).await
    }

    /// The JSON of the answer to a change.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failed> {
        parsed(&self.ask(Method::POST, path, Some(body)).await?)
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes, Failed> {
        let request =
            Request::builder().method(method).header(header::CONTENT_TYPE, "application/json");
        let body = body.map(Value::to_string).unwrap_or_default();
        let path = format!("/api/v1/{path}");
        match self {
            Self::Gateway(remote) => {
                let request = request.uri(remote.address(&path)).body(body.into());
                let request = request.map_err(|error| Failed::usage(&error))?;
                let (status, body) = remote.ask(request).await?;
                judged(status, body)
            }
            Self::Store { desk, .. } => {
                let request = request.uri(path).body(()).map_err(|error| Failed::usage(&error))?;
                let answer = desk.ask(&request.into_parts().0, body.into()).await;
                let (head, body) = answer.into_parts();
                let read = body.collect().await.map_err(|error| Failed::trouble(&error))?;
                judged(head.status, read.to_bytes())
            }
        }
    }

    /// Without the store's secret a key cannot be looked up, and "there is none" would be a lie.
    pub(super) fn demand_keys(&self) -> Result<(), Failed> {
        match self {
            Self::Store { has_other_secret: true, .. } => Err(Failed::usage(&NO_SECRET)),
            _ => Ok(()),
        }
    }
}

impl Access {
    /// Whether something was read from the store that is sealed, and did not open.
    pub(super) fn met_sealed(&self) -> bool {
        matches!(self, Self::Store { desk, .. } if desk.once.unopened() > 0)
    }
}

fn parsed(body: &[u8]) -> Result<Value, Failed> {
    serde_json::from_slice(body).map_err(|_| Failed::trouble(&NOT_JSON))
}

/// An answer that is no success says what to do.
pub(super) fn judged(status: StatusCode, body: Bytes) -> Result<Bytes, Failed> {
    if status.is_success() {
        return Ok(body);
    }
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    let told = match problem["detail"].as_str() {
        Some(_) if status == StatusCode::UNAUTHORIZED => WRONG_TOKEN.to_owned(),
        Some(detail) => detail.to_owned(),
        None => format!("the admin listener answered {status}"),
    };
    let code = match status.as_u16() {
        404 | 409 => 1,
        400..500 => 2,
        _ => 3,
    };
    Err(Failed { code, message: crate::words::plain(&told) })
}

/// Why a command ends early, and with which exit code.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) code: u8,
    message: String,
}

impl Failed {
    pub(super) fn usage(message: &dyn ToString) -> Self {
        Self { code: 2, message: message.to_string() }
    }

    pub(super) fn bad_news(message: &dyn ToString) -> Self {
        Self { code: 1, message: message.to_string() }
    }

    pub(super) fn trouble(message: &dyn ToString) -> Self {
        Self { code: 3, message: message.to_string() }
    }

    pub(super) fn exit(&self) -> ExitCode {
        match self.code {
            1 => exit::bad_news(&self.message),
            2 => exit::usage(&self.message),
            _ => exit::trouble(&self.message),
        }
    }
}

/// Runs a command to its exit code.
pub(super) fn run(work: impl Future<Output = Result<ExitCode, Failed>>) -> ExitCode {
    match super::block_on(work) {
        Ok(Ok(code)) => code,
        Ok(Err(failed)) => failed.exit(),
        Err(error) => exit::trouble(&format!("cannot start: {error}")),
    }
}

const TOKEN: &str = "ONLYONCE_ADMIN_TOKEN";
/// The way out where a gateway runs that nobody can ask.
const NO_LISTENER: &str = "It has an admin listener if it was started with one: start the gateway with --admin 127.0.0.1:8081 (or \
                           with [admin] in its configuration), and ask again; or stop it, and look into its store with --store \
                           or --config";
const WRONG_TOKEN: &str = "the admin listener asks for its token, and none or another one was sent: pass --token, or set \
                           ONLYONCE_ADMIN_TOKEN";
const NOT_JSON: &str = "the answer is not JSON; is --admin the address of the admin listener?";
const NO_SECRET: &str = "this store's keys are kept under a secret, so a key cannot be looked up without it: \
                         pass --config with the `secret`, or use --id, or --admin";
