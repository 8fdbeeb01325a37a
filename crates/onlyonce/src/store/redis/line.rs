//! One connection: it answers calls until it is lost, and then no more.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, RedisError, ServerErrorKind, Value};
use tokio::sync::watch;
use tokio::time::timeout;

use super::error::OpenError;
use super::link::{Call, Greet, Trouble};
use super::script::{Invocation, Script};
use crate::clock::{Clock, SystemClock};

pub(super) struct Line {
    pub(super) connection: MultiplexedConnection,
    /// Of the scripts, in the order of [`Script::ALL`].
    digests: Vec<String>,
    /// What the server calls it, unless it does not say.
    pub(super) address: Option<String>,
    lost: watch::Sender<bool>,
}

impl Line {
    /// Connects, has the server drop our connection of the name `last`, and loads the scripts.
    pub(super) async fn make(
        client: &Client,
        greet: &impl Greet,
        last: Option<&str>,
    ) -> Result<Self, OpenError> {
        let bounds =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&bounds).await;
        let connection = connection.map_err(OpenError::Unreachable)?;
        if let Some(last) = last {
            drop_other(connection.clone(), last).await?;
        }
        greet.greet(connection.clone()).await?;
        let address = address(connection.clone()).await?;
        let digests = load_scripts(connection.clone()).await.map_err(OpenError::Unreachable)?;
        Ok(Self { connection, digests, address, lost: watch::Sender::new(false) })
    }

    /// Ends when the connection is of no more use.
    pub(super) async fn lost(&self) {
        let mut lost = self.lost.subscribe();
        // The sender is `self`'s.
        drop(lost.wait_for(|lost| *lost).await);
    }

    /// Answers the call; if there is no answer in time, the connection is lost with all that is on it.
    pub(super) async fn answer(&self, call: Call, within: Duration) {
        let waited = SystemClock.boot().saturating_sub(call.asked_at);
        if *self.lost.borrow() || waited >= within {
            return drop(call.reply.send(Err(Trouble::NotSent(Lost.into()))));
        }
        let answer = tokio::select! {
            answer = timeout(within - waited, self.send(&call.ask)) => match answer {
                Ok(answer) => answer.map_err(|error| self.trouble(error)),
                Err(elapsed) => Err(self.give_up(elapsed)),
            },
            () = self.lost() => Err(Trouble::Unanswered(Lost.into())),
        };
        // A caller who no longer listens has dropped the call; by contract it may have happened.
        drop(call.reply.send(answer));
    }

    async fn send(&self, ask: &Invocation) -> Result<Value, RedisError> {
        let mut connection = self.connection.clone();
        let digest = &self.digests[ask.script as usize];
        match ask.by_digest(digest).query_async(&mut connection).await {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                ask.by_text().query_async(&mut connection).await
            }
            answer => answer,
        }
    }

    fn trouble(&self, error: RedisError) -> Trouble {
        match error.code() {
            // Somebody's script is running for longer than the server waits.
            Some(BUSY) => Trouble::Full,
            // Scripts write last: after an error the record is as it was.
            Some(code) => {
                if code == READONLY || error.to_string().contains(READONLY) {
                    self.lost.send_replace(true);
                }
                Trouble::Refused(error.into())
            }
            None => self.give_up(error),
        }
    }

    fn give_up(&self, why: impl std::error::Error + Send + Sync + 'static) -> Trouble {
        self.lost.send_replace(true);
        Trouble::Unanswered(why.into())
    }
}

/// Where the server forbids it, or has no such connection, nothing can be done.
async fn drop_other(mut connection: MultiplexedConnection, last: &str) -> Result<(), OpenError> {
    let mut kill = ::redis::cmd("CLIENT");
    kill.arg("KILL").arg("ADDR").arg(last);
    match kill.query_async::<Value>(&mut connection).await {
        Err(error) if error.code().is_none() => Err(OpenError::Unreachable(error)),
        _ => Ok(()),
    }
}

async fn address(mut connection: MultiplexedConnection) -> Result<Option<String>, OpenError> {
    match ::redis::cmd("CLIENT").arg("INFO").query_async::<String>(&mut connection).await {
        Ok(text) => {
            Ok(text.split(' ').find_map(|part| part.strip_prefix("addr=")).map(str::to_owned))
        }
        Err(error) if error.code().is_some() => Ok(None),
        Err(error) => Err(OpenError::Unreachable(error)),
    }
}

async fn load_scripts(mut connection: MultiplexedConnection) -> Result<Vec<String>, RedisError> {
    let mut load = ::redis::pipe();
    for script in Script::ALL {
        load.cmd("SCRIPT").arg("LOAD").arg(script.text());
    }
    load.query_async(&mut connection).await
}

/// The connection was lost before there was an answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection to Redis was lost")]
pub(super) struct Lost;

/// What a server says that was a primary and is none any more.
const READONLY: &str = "READONLY";
const BUSY: &str = "BUSY";
