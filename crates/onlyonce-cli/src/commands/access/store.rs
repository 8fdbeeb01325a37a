//! A store that no gateway stands before, or that many share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onlyonce::Limits;
use tokio::sync::watch;

use super::{Access, Failed, NO_LISTENER};
use crate::admin::{Desk, Keeper, PolicyInForce, Setting, in_force};
use crate::commands::audit::kept_by;
use crate::commands::demand_file;
use crate::config::{Config, StoreFlag, StoreUrl};
use crate::gateway::{Stage, StartError, adjusted, store};

pub(super) async fn open(flag: Option<&StoreFlag>, file: Option<&Path>) -> Result<Access, Failed> {
    let mut config = config(flag, file)?;
    match &config.store {
        StoreUrl::Memory => {
            return Err(Failed::usage(&"memory: is in the gateway alone; use --admin"));
        }
        StoreUrl::Sqlite(path) => demand_file(path).map_err(|error| Failed::trouble(&error))?,
        _ => {}
    }
    if file.is_none() {
        config.audit = kept_by(&config.store).await?;
    }
    let (builder, about) = store::open(&config).await.map_err(|error| refused(&error))?;
    // A look must not give up operations that were unknown for long: that is for those who know the routes.
    let limits = Limits::default().with_sweep(NEVER, config.sweep_rows);
    let builder = adjusted(builder, &config).with_limits(limits);
    let has_other_secret = builder.has_other_secret().await;
    let has_other_secret = has_other_secret.map_err(|fault| Failed::trouble(fault.error()))?;
    let (_, stage) = watch::channel(Stage::Serving);
    let desk = Desk::new(Setting {
        once: builder.build(),
        about,
        keeper: Keeper::default(),
        stage,
        listen: None,
        policy: PolicyInForce(Arc::new(move || in_force(&config))),
    });
    Ok(Access::Store { desk, has_other_secret })
}

fn config(flag: Option<&StoreFlag>, file: Option<&Path>) -> Result<Config, Failed> {
    let mut config = match file {
        Some(file) => Config::load(file)
            .map_err(|error| Failed::usage(&crate::commands::config::told(&error)))?,
        None => Config::default(),
    };
    if let Some(flag) = flag {
        config.store = flag.url().map_err(|error| Failed::usage(&format!("--store: {error}")))?;
    }
    // Whether the store is good enough for payments is for `serve` to judge.
    config.accept_loss = true;
    Ok(config)
}

fn refused(error: &StartError) -> Failed {
    match error.to_string().contains("is in use") {
        true => Failed::trouble(&format!("{error}. {IN_USE} {NO_LISTENER}")),
        false => Failed::trouble(&error),
    }
}

const IN_USE: &str = "If a gateway has it open, ask that gateway: --admin http://127.0.0.1:8081.";
/// Longer than any command runs.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
