//! One connection to Redis: answers calls until it is lost, and none after that.

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, RedisError, ServerErrorKind, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::error::{RedisOpenError, if_allowed};
use super::link::OnConnect;
use super::scripts::{Script, ScriptCall};
use crate::store::{BoxError, Fault, StoreError};

#[derive(Debug)]
pub(super) struct Connection {
    inner: MultiplexedConnection,
    /// Of the scripts, in the order of [`Script::TEXTS`].
    digests: Vec<String>,
    /// The address by which the server knows this connection; `None` if it does not tell.
    pub(super) address: Option<String>,
    lost: watch::Sender<bool>,
}

impl Connection {
    /// Connects, has the server close our connection from `last_address`, and loads the scripts.
    pub(super) async fn make(
        client: &Client,
        on_connect: &impl OnConnect,
        last_address: Option<&str>,
    ) -> Result<Self, RedisOpenError> {
        let no_timeouts =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut inner = client.get_multiplexed_async_connection_with_config(&no_timeouts).await?;
        // A server that forbids this, or has no such connection any more, is used all the same.
        if let Some(address) = last_address {
            let mut kill = ::redis::cmd("CLIENT");
            kill.arg("KILL").arg("ADDR").arg(address);
            if_allowed(kill.query_async::<Value>(&mut inner).await)?;
        }
        on_connect.check(inner.clone()).await?;
        let info = ::redis::cmd("CLIENT").arg("INFO").query_async::<String>(&mut inner).await;
        let info = if_allowed(info)?.unwrap_or_default();
        let address = info.split(' ').find_map(|part| part.strip_prefix("addr="));
        let mut load = ::redis::pipe();
        for text in Script::TEXTS {
            load.cmd("SCRIPT").arg("LOAD").arg(*text);
        }
        let digests = load.query_async(&mut inner).await?;
        let (address, lost) = (address.map(str::to_owned), watch::Sender::new(false));
        Ok(Self { inner, digests, address, lost })
    }

    /// Ends when the connection must not be used any more.
    pub(super) async fn lost(&self) {
        let mut lost = self.lost.subscribe();
        // An error would mean that the sender is gone, which `self` holds.
        drop(lost.wait_for(|lost| *lost).await);
    }

    /// Runs the script. If Redis does not answer in time, the connection is lost with all calls on it.
    pub(super) async fn answer(&self, call: &ScriptCall, by: Instant) -> Result<Value, Fault> {
        if *self.lost.borrow() {
            return Err(not_sent(LOST));
        }
        tokio::select! {
            answer = timeout_at(by, self.send(call)) => match answer {
                Ok(answer) => answer.map_err(|error| self.fault(error)),
                Err(elapsed) => Err(self.give_up(elapsed)),
            },
            () = self.lost() => Err(unanswered(LOST)),
        }
    }

    async fn send(&self, call: &ScriptCall) -> Result<Value, RedisError> {
        let mut connection = self.inner.clone();
        let script = call.script as usize;
        let by_digest = call.command("EVALSHA", &self.digests[script]);
        match by_digest.query_async(&mut connection).await {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                call.command("EVAL", Script::TEXTS[script]).query_async(&mut connection).await
            }
            answer => answer,
        }
    }

    /// An error with a code was answered by the server: the scripts raise none after they have written the record.
    /// Any other error is one of the network.
    fn fault(&self, error: RedisError) -> Fault {
        match error.code() {
            Some(BUSY) => Fault::NotDone(StoreError::Busy),
            Some(code) => {
                if code == READONLY || error.to_string().contains(READONLY) {
                    self.lost.send_replace(true);
                }
                Fault::NotDone(StoreError::Unavailable(error.into()))
            }
            None => self.give_up(error),
        }
    }

    fn give_up(&self, why: impl Into<BoxError>) -> Fault {
        self.lost.send_replace(true);
        unanswered(why)
    }
}

pub(super) fn unanswered(why: impl Into<BoxError>) -> Fault {
    Fault::Unsure(StoreError::Unavailable(why.into()))
}

pub(super) fn not_sent(why: impl Into<BoxError>) -> Fault {
    Fault::NotDone(StoreError::Unavailable(why.into()))
}

pub(super) const LOST: &str = "the connection to Redis was lost";
/// The error of a server that was a primary and is now a replica.
const READONLY: &str = "READONLY";
/// The error of a server that has been running somebody's script for longer than `busy-reply-threshold`.
const BUSY: &str = "BUSY";
