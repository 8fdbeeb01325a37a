//! Names of routes that somebody asks for: a misspelt one would find nothing, and look like good news.

use http::StatusCode;
use onlyonce::OperationFilter;
use serde_json::Value;

use super::answer::Problem;
use super::desk::Desk;
use crate::config::nearest;

/// Refuses the name of a route that the configuration does not have and no operation has either: one of an earlier
/// configuration may still have operations.
pub(super) async fn demand_known(desk: &Desk, route: Option<&str>) -> Result<(), Problem> {
    let Some(route) = route else { return Ok(()) };
    let names = configured(&(desk.policy.0)());
    if names.iter().any(|name| name == route) {
        return Ok(());
    }
    let filter = OperationFilter { route: Some(route.into()), ..OperationFilter::default() };
    let page = desk.once.operations().list(&filter, None, 1).await?;
    // After a look at a part of the store nobody knows.
    if !page.operations.is_empty() || page.next.is_some() {
        return Ok(());
    }
    Err(Problem::new(StatusCode::NOT_FOUND, "unknown_route", unknown(route, &names)))
}

fn configured(policy: &Value) -> Vec<String> {
    let routes = policy["routes"].as_array().into_iter().flatten();
    let names = routes.filter_map(|route| route["match"].as_str().map(str::to_owned));
    names.chain([DEFAULT.to_owned()]).collect()
}

fn unknown(route: &str, names: &[String]) -> String {
    let near = match nearest(route, names.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean {near:?}?"),
        None if names.len() == 1 => {
            "; no route is configured here, and what has none is \"default\"".to_owned()
        }
        None => String::new(),
    };
    format!("no route has the name {route:?}, and no operation has it{near}")
}

/// The name of what no route matches.
const DEFAULT: &str = "default";
