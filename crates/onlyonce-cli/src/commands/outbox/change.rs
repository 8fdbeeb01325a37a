//! `onlyonce outbox retry` and `discard`: one parked message, or all that match.

use std::process::ExitCode;

use onlyonce::outbox::{Parked, ParkedMessage};
use serde_json::json;

use super::Format;
use super::list::{page, whole};
use super::message::{as_json, as_table};
use super::place::{PlaceFlags, silent};
use crate::commands::access::{Failed, print};
use crate::words::plain;

/// Make parked messages due again.
#[derive(Debug, clap::Args)]
pub(super) struct Retry {
    #[command(flatten)]
    which: Which,
}

/// Delete parked messages.
#[derive(Debug, clap::Args)]
pub(super) struct Discard {
    /// Why they are discarded; printed with each
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who discards them; the user of this machine unless said
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    #[command(flatten)]
    which: Which,
}

/// Which messages, and how the result is printed.
#[derive(Debug, clap::Args)]
struct Which {
    /// The message with this id
    #[arg(long, value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    id: Option<String>,
    /// Every parked message, of --topic if it is given
    #[arg(long)]
    all: bool,
    /// Only of this topic
    #[arg(long, value_name = "TOPIC", requires = "all")]
    topic: Option<String>,
    /// Tell which messages it would be, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Change more than 20 without asking back
    #[arg(long, requires = "all")]
    yes: bool,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    place: PlaceFlags,
}

impl Retry {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let (which, parked) = (&self.which, self.which.place.open().await?);
        if which.dry_run {
            return which.tell(&parked).await;
        }
        let mut retried = 0_u64;
        let mut matching = Matching::start(which, &parked).await?;
        while let Some(ids) = matching.next_ids().await? {
            for id in ids {
                retried += u64::from(parked.retry(&id).await.map_err(silent)?);
            }
        }
        which.demand(retried)?;
        match which.format {
            Format::Json => print(&format!("{}\n", json!({ "retried": retried })))?,
            Format::Text => print(&format!("due again: {retried}\n"))?,
        };
        Ok(ExitCode::SUCCESS)
    }
}

impl Discard {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let (which, parked) = (&self.which, self.which.place.open().await?);
        if self.reason.trim().is_empty() {
            return Err(Failed::usage(&"--reason: say why"));
        }
        if which.dry_run {
            return which.tell(&parked).await;
        }
        let mut discarded = 0_u64;
        let mut matching = Matching::start(which, &parked).await?;
        while let Some(ids) = matching.next_ids().await? {
            for id in ids {
                let Some((message, payload)) = parked.find(&id).await.map_err(silent)? else {
                    continue;
                };
                // Printed first: what is deleted has no other copy.
                if !self.show(&message, &payload)? {
                    return Err(Failed::trouble(&NOBODY_READS));
                }
                match parked.discard(&id).await.map_err(silent)? {
                    true => discarded += 1,
                    false => eprintln!("onlyonce: {} is not parked any more", plain(&id)),
                }
            }
        }
        which.demand(discarded)?;
        eprintln!("onlyonce: discarded {discarded}");
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, message: &ParkedMessage, payload: &[u8]) -> Result<bool, Failed> {
        let mut object = as_json(message, payload);
        let who = self.who.clone().unwrap_or_else(crate::commands::operating_user);
        object["discarded_by"] = who.into();
        object["reason"] = self.reason.as_str().into();
        match self.which.format {
            Format::Json => print(&format!("{object}\n")),
            Format::Text => {
                let payload = object.get("payload").or_else(|| object.get("payload_base64"));
                let payload = payload.map(ToString::to_string).unwrap_or_default();
                let (id, payload) = (plain(&message.id), plain(&payload));
                print(&format!("discarding: {id}\n  payload: {payload}\n"))
            }
        }
    }
}

impl Which {
    /// What would be changed.
    async fn tell(&self, parked: &Parked) -> Result<ExitCode, Failed> {
        let (mut would, mut matching) = (0_u64, Matching::of(self, parked));
        while let Some(messages) = matching.next().await? {
            would += messages.len() as u64;
            match self.format {
                Format::Json => {
                    for message in &messages {
                        if let Some(object) = whole(parked, &message.id).await? {
                            print(&format!("{object}\n"))?;
                        }
                    }
                }
                Format::Text => {
                    print(&as_table(&messages))?;
                }
            }
        }
        self.demand(would)?;
        eprintln!("onlyonce: would change {would}; nothing was changed");
        Ok(ExitCode::SUCCESS)
    }

    /// An id that leads to nothing is bad news; a filter may match nothing.
    fn demand(&self, found: u64) -> Result<(), Failed> {
        match &self.id {
            Some(id) if found == 0 => {
                let id = plain(id);
                Err(Failed::bad_news(&format!("there is no parked message {id}")))
            }
            _ => Ok(()),
        }
    }
}

/// The messages that are meant, page by page. Those that are parked meanwhile come last; none comes twice.
struct Matching<'a> {
    which: &'a Which,
    parked: &'a Parked,
    after: i64,
    /// The id that was given, until it is told.
    id: Option<String>,
}

impl<'a> Matching<'a> {
    fn of(which: &'a Which, parked: &'a Parked) -> Self {
        Self { which, parked, after: 0, id: which.id.clone() }
    }

    /// Asks back before many are changed.
    async fn start(which: &'a Which, parked: &'a Parked) -> Result<Self, Failed> {
        if which.all && !which.yes {
            let topics = parked.status().await.map_err(silent)?.topics;
            let is_meant = |topic: &str| which.topic.as_ref().is_none_or(|meant| meant == topic);
            let of_meant = topics.iter().filter(|status| is_meant(&status.topic));
            let would = of_meant.map(|status| status.parked).sum::<u64>();
            if would > ASKED_ABOVE {
                return Err(Failed::usage(&format!(
                    "{would} messages would be changed; pass --yes if that is meant"
                )));
            }
        }
        Ok(Self::of(which, parked))
    }

    /// Their ids. One that was given is not looked for.
    async fn next_ids(&mut self) -> Result<Option<Vec<String>>, Failed> {
        if self.which.id.is_some() {
            return Ok(self.id.take().map(|id| vec![id]));
        }
        let messages = self.next().await?;
        Ok(messages.map(|messages| messages.into_iter().map(|message| message.id).collect()))
    }

    async fn next(&mut self) -> Result<Option<Vec<ParkedMessage>>, Failed> {
        if self.which.id.is_none() {
            return page(self.parked, self.which.topic.as_deref(), &mut self.after).await;
        }
        let Some(id) = self.id.take() else { return Ok(None) };
        let found = self.parked.find(&id).await.map_err(silent)?;
        Ok(found.map(|(message, _)| vec![message]))
    }
}

/// More than this are changed only with --yes.
const ASKED_ABOVE: u64 = 20;
const NOBODY_READS: &str =
    "nobody reads what is printed, so nothing more is discarded; the last message is kept";
