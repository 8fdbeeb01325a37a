//! Operations of several steps in a Postgres schema: can all of them be read?

use onlyonce::steps::{Operators, StepsError, StepsFilter, StoredSteps};

use super::report::{Finding, Promise};
use super::told;

/// Only in a schema of this version: in another one there is nothing to read.
pub(super) async fn examine(url: &str) -> Finding {
    let (promise, setting) = (Promise::Usable, "steps");
    let found = match Operators::open(url).await {
        Ok(operators) => unreadable(&operators).await.map_err(|error| told(&error)),
        Err(error) => Err(told(&error)),
    };
    match found {
        Ok((seen, unreadable)) => judge(seen, &unreadable),
        Err(error) => Finding::at_risk(
            promise,
            setting,
            format!("operations of several steps could not be looked at: {error}"),
            "GRANT SELECT ON onlyonce.steps, onlyonce.point to this user, if a program keeps its steps here",
        ),
    }
}

/// How many open operations were looked at, those first that have not changed for longest, and which cannot be read.
async fn unreadable(operators: &Operators) -> Result<(usize, Vec<StoredSteps>), StepsError> {
    let (mut seen, mut unreadable, mut last) = (0, Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let page = operators.list(StepsFilter::default(), last.as_ref()).await?;
        let Some(end) = page.last().cloned() else { break };
        seen += page.len();
        unreadable.extend(page.into_iter().filter(|stored| stored.unreadable.is_some()));
        last = Some(end);
    }
    Ok((seen, unreadable))
}

fn judge(seen: usize, unreadable: &[StoredSteps]) -> Finding {
    let (promise, setting) = (Promise::Usable, "steps");
    let Some(first) = unreadable.first() else {
        let told = format!("{seen} open operations of several steps can be read");
        return Finding::holds(promise, setting, told);
    };
    let (count, id) = (unreadable.len(), &first.id);
    let told = format!(
        "{count} of {seen} open operations of several steps cannot be read, {id} for one: nobody goes on with them"
    );
    let fix = format!(
        "`onlyonce steps show {id}` says why; run the version that has written it, or repair the row"
    );
    Finding::broken(promise, setting, told, fix)
}

/// Pages of a hundred.
const PAGES_MAX: usize = 100;
