//! `onlyonce openapi`: what the routes promise, for whoever generates clients.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use onlyonce::code::{Code, Retry};
use onlyonce::key::KeySource;
use onlyonce::policy::{Errors, KeyNeed, Mismatch, Mode};
use serde_json::{Value, json};

use super::config::told;
use super::show;
use crate::config::{Config, Route};

/// What to write for OpenAPI.
#[derive(Debug, Subcommand)]
pub enum OpenapiCommand {
    /// Print an OpenAPI overlay with the key and the answers of each route, to be applied to your own document
    #[command(after_help = EXAMPLES)]
    Overlay {
        /// The configuration file
        #[arg(long)]
        config: PathBuf,
    },
}

impl OpenapiCommand {
    /// Runs the command: data to stdout, all else to stderr.
    pub fn run(&self) -> io::Result<ExitCode> {
        let Self::Overlay { config } = self;
        match Config::load(config) {
            Ok(config) => {
                for route in config.routes.iter().filter(|route| is_open_ended(route)) {
                    let matching = &route.matching;
                    writeln!(io::stderr(), "left out: {matching} (OpenAPI has no {{*rest}})")?;
                }
                Ok(show(&format!("{:#}\n", overlay(&config))))
            }
            Err(error) => {
                writeln!(io::stderr(), "{}", told(&error))?;
                Ok(ExitCode::from(2))
            }
        }
    }
}

/// An OpenAPI overlay 1.0: a list of places in a document, and what is added there.
pub fn overlay(config: &Config) -> Value {
    let routes = config.routes.iter().filter(|route| !is_open_ended(route));
    let routes = routes.filter(|route| route.policy.mode() == Mode::Enforce);
    let operations = routes.flat_map(|route| targets(route).map(|target| action(&target, route)));
    let schema = json!({ "target": "$", "update": { "components": { "schemas": schemas() } } });
    let actions: Value = std::iter::once(schema).chain(operations).collect();
    json!({
        "overlay": "1.0.0",
        "info": { "title": "Idempotency keys", "version": "1.0.0" },
        "actions": actions,
    })
}

fn is_open_ended(route: &Route) -> bool {
    route.matching.to_string().contains("{*")
}

/// Where in a document the operations of a route are.
fn targets(route: &Route) -> impl Iterator<Item = String> {
    let text = route.matching.to_string();
    let path = text.split_once(' ').map_or("", |(_, path)| path).replace('\'', "\\'");
    let methods = route.policy.methods().iter();
    methods.map(move |method| format!("$.paths['{path}'].{}", method.as_str().to_lowercase()))
}

fn action(target: &str, route: &Route) -> Value {
    let parameters: Vec<_> =
        route.policy.key_from().iter().filter_map(|source| parameter(source, route)).collect();
    let mut update = json!({ "responses": responses(route), "x-idempotency": promise(route) });
    if !parameters.is_empty() {
        update["parameters"] = parameters.into();
    }
    json!({ "target": target, "update": update })
}

/// The parameter that has the key. A key in the body is a part of the document that is already there.
fn parameter(source: &KeySource, route: &Route) -> Option<Value> {
    let (name, place) = match source {
        KeySource::Header(name) => (name.to_string(), "header"),
        KeySource::Query(name) => (name.to_string(), "query"),
        _ => return None,
    };
    let policy = &route.policy;
    let (least, most) = policy.key_rules().length;
    let format = policy.key_rules().format.to_string();
    let mut schema = json!({ "type": "string", "minLength": least, "maxLength": most });
    if format != "any" {
        schema["format"] = format.into();
    }
    Some(json!({
        "name": name,
        "in": place,
        "required": policy.key() == KeyNeed::Required && policy.key_from().len() == 1,
        "description": "One key for each operation, the same at every retry of it.",
        "schema": schema,
    }))
}

fn responses(route: &Route) -> Value {
    let reused = match route.policy.mismatch() {
        Mismatch::Conflict => "409",
        Mismatch::Unprocessable => "422",
    };
    let mut responses = serde_json::Map::new();
    for (status, description) in [
        (
            "400",
            "The idempotency key is missing or malformed, or the caller is unclear. Nothing was executed.",
        ),
        (reused, "The key was used for another request. Nothing was executed; use a new key."),
        (
            "409",
            "The first request with this key still runs, or its outcome is unknown. Retry with the same key after Retry-After.",
        ),
        ("410", "The operation was executed, and its answer was not kept."),
        ("503", "Nothing was executed. Retry with the same key after Retry-After."),
    ] {
        responses.insert(status.to_owned(), response(description, route.policy.errors()));
    }
    responses.into()
}

fn response(description: &str, errors: Errors) -> Value {
    let content = match errors {
        Errors::Problem => {
            json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/IdempotencyProblem" } } })
        }
        Errors::Stripe => json!({ "application/json": {} }),
    };
    json!({ "description": description, "content": content })
}

/// What a generator needs for retries. Where the key is optional, only a request with a key may be sent again.
fn promise(route: &Route) -> Value {
    let is_required = route.policy.key() == KeyNeed::Required;
    let retry = if is_required { "retry" } else { "retryWithKey" };
    json!({
        "required": is_required,
        "keptForSeconds": route.policy.ttl().as_secs(),
        retry: { "key": "same", "statuses": [408, 409, 425, 429, 502, 503, 504] },
    })
}

fn schemas() -> Value {
    let codes = Code::ALL.iter().map(|code| code.text()).collect::<Vec<_>>();
    json!({
        "IdempotencyProblem": {
            "type": "object",
            "required": ["type", "title", "status", "detail", "code", "retry"],
            "properties": {
                "type": { "type": "string" },
                "title": { "type": "string" },
                "status": { "type": "integer" },
                "detail": { "type": "string" },
                // A newer gateway may have others, and a client that refuses them would lose the answer.
                "code": { "anyOf": [{ "type": "string", "enum": codes }, { "type": "string" }] },
                "retry": { "type": "string", "enum": Retry::ALL.map(Retry::text) },
                "original_status": { "type": "integer" },
            },
        },
    })
}

const EXAMPLES: &str = "Examples:
  onlyonce openapi overlay --config onlyonce.toml > idempotency.overlay.json";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json_path::JsonPath;

    use super::*;

    /// The document with the overlay applied, as its specification says: objects are merged, lists are joined.
    fn applied(mut document: Value, overlay: &Value) -> Value {
        for action in overlay["actions"].as_array().unwrap() {
            let path = JsonPath::parse(action["target"].as_str().unwrap()).unwrap();
            let places: Vec<_> =
                path.query_located(&document).locations().map(ToString::to_string).collect();
            for place in places {
                let pointer = pointer_of(&place);
                merge(document.pointer_mut(&pointer).unwrap(), &action["update"]);
            }
        }
        document
    }

    /// `$['paths']['/a']` as `/paths/~1a`.
    fn pointer_of(path: &str) -> String {
        let names = path.trim_start_matches('$').split("']").filter(|name| !name.is_empty());
        names
            .map(|name| "/".to_owned() + &name[2..].replace('~', "~0").replace('/', "~1"))
            .collect()
    }

    fn merge(place: &mut Value, update: &Value) {
        match (place, update) {
            (Value::Object(place), Value::Object(update)) => {
                for (name, value) in update {
                    merge(place.entry(name).or_insert(Value::Null), value);
                }
            }
            (Value::Array(place), Value::Array(update)) => place.extend(update.iter().cloned()),
            (place, update) => *place = update.clone(),
        }
    }

    fn config(text: &str) -> Config {
        Config::parse_with(text, Path::new("onlyonce.toml"), &|_| None).unwrap()
    }

    #[test]
    fn the_overlay_adds_the_key_and_the_answers_to_a_document() {
        let overlay = overlay(&config(
            "[[route]]\nmatch = \"POST /v1/charges\"\npreset = \"payments\"\nkey_format = \"uuid\"\n\
             [[route]]\nmatch = \"POST,PATCH /v1/accounts/{id}\"\nmismatch = 409\nerrors = \"stripe\"\n\
             [[route]]\nmatch = \"* /files/{*rest}\"",
        ));
        let document = json!({
            "openapi": "3.1.0",
            "info": { "title": "Bank", "version": "1" },
            "paths": {
                "/v1/charges": {
                    "get": { "responses": { "200": { "description": "all" } } },
                    "post": {
                        "parameters": [{ "name": "X-Tenant", "in": "header" }],
                        "responses": { "201": { "description": "made" } },
                    },
                },
                "/v1/accounts/{id}": { "patch": { "responses": {} } },
            },
        });
        let after = applied(document.clone(), &overlay);
        let post = &after["paths"]["/v1/charges"]["post"];
        assert_eq!(post["parameters"][0]["name"], "X-Tenant");
        assert_eq!(post["parameters"][1]["name"], "idempotency-key");
        assert_eq!(post["parameters"][1]["required"], true);
        let schema =
            json!({ "type": "string", "minLength": 16, "maxLength": 255, "format": "uuid" });
        assert_eq!(post["parameters"][1]["schema"], schema);
        let statuses: Vec<_> = post["responses"].as_object().unwrap().keys().collect();
        assert_eq!(statuses, ["201", "400", "409", "410", "422", "503"]);
        assert_eq!(post["x-idempotency"]["keptForSeconds"], 86_400);
        assert_eq!(post["x-idempotency"]["retry"]["key"], "same");
        let patch = &after["paths"]["/v1/accounts/{id}"]["patch"];
        // Without a key, which is optional here, a retry may be executed a second time.
        assert!(patch["x-idempotency"].get("retry").is_none(), "{patch}");
        assert_eq!(patch["x-idempotency"]["retryWithKey"]["key"], "same");
        assert!(patch["responses"].get("422").is_none(), "{patch}");
        assert!(patch["responses"]["409"]["content"].get("application/json").is_some());
        assert!(after["components"]["schemas"].get("IdempotencyProblem").is_some());
        // What is not guarded stays as it was.
        assert_eq!(after["paths"]["/v1/charges"]["get"], document["paths"]["/v1/charges"]["get"]);
        assert_eq!(overlay["actions"].as_array().unwrap().len(), 4);
    }
}
