//! `onlyonce steps retry` and `settle`.

use std::path::PathBuf;
use std::process::ExitCode;

use http::{HeaderName, HeaderValue, StatusCode};
use onlyonce::steps::{CallAgain, Operators, StepsState, StoredSteps};
use onlyonce::transaction::Reply;

use super::place::{NameFlags, PlaceFlags, by_id, trouble};
use super::{Format, object, state_word};
use crate::commands::access::{Failed, print};
use crate::commands::keys::read;
use crate::commands::operating_user;

/// Let an operation go on now.
#[derive(Debug, clap::Args)]
pub(super) struct Retry {
    /// The call or step in doubt was not done: do it again. Use it only if you are sure. The revision is the one that `steps
    /// show` told you: if the operation has changed since, nothing is done
    #[arg(long, value_name = "REVISION", allow_negative_numbers = true)]
    call_again: Option<i64>,
    /// Do not wait until what is in doubt can be on its way no more. Only if its process is certainly gone
    #[arg(long, requires = "call_again")]
    force: bool,
    #[command(flatten)]
    change: Change,
}

/// Give an operation its answer.
#[derive(Debug, clap::Args)]
pub(super) struct Settle {
    /// The status of the answer that retries get
    #[arg(long, value_name = "STATUS")]
    status: u16,
    /// A header of that answer; may be repeated
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The file with the body of that answer, or - for standard input
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, clap::Args)]
struct Change {
    #[command(flatten)]
    name: NameFlags,
    /// Why it is changed; kept with the operation, and logged
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who changes it; the user of this machine unless said
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    place: PlaceFlags,
}

impl Retry {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let operators = self.change.place.open().await?;
        let (stored, _) = self.change.name.find(&operators).await?;
        let is_in_doubt = stored.calling.is_some() && !stored.is_repeatable;
        if is_in_doubt && stored.state == StepsState::Unknown && self.call_again.is_none() {
            return Err(Failed::bad_news(&IN_DOUBT));
        }
        let retried = operators.retry(&stored.id, self.again(), &self.change.note()).await;
        let is_done = retried.map_err(|error| trouble(&error))?;
        if let (false, Some(revision)) = (is_done, self.call_again) {
            return Err(Failed::bad_news(&not_called_again(&stored, revision)));
        }
        self.change.tell(&operators, "retried", &stored.id, is_done).await
    }
}

impl Retry {
    fn again(&self) -> CallAgain {
        match self.call_again {
            None => CallAgain::No,
            Some(revision) if self.force => CallAgain::Now { revision },
            Some(revision) => CallAgain::WhenQuiet { revision },
        }
    }
}

/// Why an operation was not retried, as it was found.
fn not_called_again(stored: &StoredSteps, asked: i64) -> String {
    let (state, revision) = (state_word(stored), stored.revision);
    match stored.quiet_until {
        _ if revision != asked => format!(
            "not retried: the operation has changed. It is {state} and has revision {revision}; look at it again"
        ),
        Some(quiet_until) => format!(
            "not retried: what is in doubt may be on its way until {}. Wait, or pass --force if its process is certainly gone",
            quiet_until.rfc3339()
        ),
        None => format!("not retried: the operation is {state}"),
    }
}

impl Settle {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let reply = self.reply()?;
        let operators = self.change.place.open().await?;
        let (stored, _) = self.change.name.find(&operators).await?;
        let settled = operators.settle(&stored.id, &reply, &self.change.note()).await;
        let is_done = settled.map_err(|error| trouble(&error))?;
        self.change.tell(&operators, "settled", &stored.id, is_done).await
    }

    fn reply(&self) -> Result<Reply, Failed> {
        let status = StatusCode::from_u16(self.status).ok().filter(|status| status.as_u16() < 600);
        let status = status.ok_or_else(|| Failed::usage(&"--status: from 100 to 599"))?;
        let body = self.body.as_deref().map(read).transpose()?.unwrap_or_default();
        let mut reply = Reply::new(status, body);
        for header in &self.header {
            let wrong = || Failed::usage(&format!("--header: {header:?} is not NAME: VALUE"));
            let (name, value) = header.split_once(':').ok_or_else(wrong)?;
            let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
            let value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
            reply = reply.with_header(name, value);
        }
        Ok(reply)
    }
}

impl Change {
    fn note(&self) -> String {
        let who = self.who.clone().unwrap_or_else(operating_user);
        format!("{who}: {}", self.reason)
    }

    async fn tell(
        &self,
        operators: &Operators,
        done: &str,
        id: &str,
        is_done: bool,
    ) -> Result<ExitCode, Failed> {
        let (stored, _) = by_id(operators, id).await?;
        if !is_done {
            let state = state_word(&stored);
            return Err(Failed::bad_news(&format!("not {done}: the operation is {state}")));
        }
        print(&match self.format {
            Format::Json => object(&stored).to_string() + "\n",
            Format::Text => format!("{done}: {id}\n"),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

const IN_DOUBT: &str = "a call or step that must not be repeated may have been done: find out; then settle the operation, or \
                        pass --call-again with its revision if it was not done";
