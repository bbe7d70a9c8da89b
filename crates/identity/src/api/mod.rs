//! HTTP: one file per resource, each with its routes, requests and views.
//!
//! Who may do what is upstream's table of rules ([`RULES`]). Everything is in the one domain, so
//! that the targets of rules about domains are always the same.

mod auth_request;
mod catalog;
mod credentials;
mod domains;
mod endpoints;
mod grants;
mod groups;
mod projects;
mod regions;
mod role_assignments;
mod roles;
mod rules;
mod services;
mod tags;
mod token_view;
mod tokens;
mod trusts;
mod users;
mod versions;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use kilonova_access::{Caller, Operation, Routes};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Dialect, Fault, JsonBody, Service};
use serde_json::{Value, json};

use crate::app::Fields;
use crate::{DOMAIN_ID, Error, Identity};

pub use rules::RULES;

/// The routes with their rules.
fn table() -> Routes<Identity> {
    Routes::new()
        .merge(versions::routes())
        .merge(tokens::routes())
        .merge(catalog::routes())
        .merge(services::routes())
        .merge(endpoints::routes())
        .merge(regions::routes())
        .merge(domains::routes())
        .merge(projects::routes())
        .merge(tags::routes())
        .merge(users::routes())
        .merge(groups::routes())
        .merge(roles::routes())
        .merge(grants::routes())
        .merge(role_assignments::routes())
        .merge(credentials::routes())
        .merge(trusts::routes())
}

/// The routes, relative to the mount.
pub fn routes(identity: Identity) -> Router {
    table()
        .behind(identity.policy())
        .layer(middleware::from_fn_with_state(identity.clone(), tokens::admit))
        .with_state(identity)
}

/// All that can be asked of this service, with the rule that decides.
pub fn operations() -> Vec<Operation> {
    table().operations()
}

/// What [`kilonova_wire::mount`] needs to know.
pub fn service() -> Service {
    Service { name: "identity", dialect: Dialect::Identity, versions: None, public }
}

/// `/v3/auth/tokens` looks at tokens itself: to log in there is none yet.
fn public(path: &str) -> bool {
    matches!(path.trim_end_matches('/'), "" | "/v3" | tokens::PATH)
}

/// What every handler of this service answers.
type Answer = Result<Response, Fault>;

fn ok(body: Value) -> Answer {
    Ok(axum::Json(body).into_response())
}

fn created(body: Value) -> Answer {
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

fn no_content() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What every target has: all things are in the one domain.
const OURS: [(&str, &str); 6] = [
    ("target.domain_id", DOMAIN_ID),
    ("target.domain.id", DOMAIN_ID),
    ("target.user.domain_id", DOMAIN_ID),
    ("target.group.domain_id", DOMAIN_ID),
    ("target.project.domain_id", DOMAIN_ID),
    ("target.role.domain_id", "None"),
];

/// Refuses whom the rule does not let do this to the target. It is asked before the thing is looked
/// up, so that the refusal tells nobody whether it is there.
fn may(caller: &Caller, rule: &str, target: &[(&str, &str)]) -> Result<(), Fault> {
    let whole: Vec<(&str, &str)> = OURS.iter().chain(target).copied().collect();
    caller.may(rule, &whole)
}

/// The object under `key` in a body.
fn fields(body: JsonBody, key: &str) -> Result<Fields, Fault> {
    match body.0 {
        Value::Object(mut outer) => match outer.remove(key) {
            Some(Value::Object(fields)) => Ok(fields),
            _ => Err(Fault::bad_request(format!("Expecting to find {key} in request body."))),
        },
        _ => Err(Fault::bad_request("The request body has to be an object.")),
    }
}

/// A path segment as an id. No id holds a control character, and PostgreSQL takes no NUL.
fn id_of(kind: &'static str, segment: &str) -> Result<(), Fault> {
    if segment.chars().any(char::is_control) {
        return Err(Error::NotFound(kind, segment.escape_debug().to_string()).into());
    }
    Ok(())
}

/// The filters that all listings share.
struct Filter {
    name: Option<String>,
    enabled: Option<bool>,
    /// Nothing can match.
    nothing: bool,
}

impl Filter {
    fn read(query: &Query) -> Result<Self, Fault> {
        let name = query.get("name").map(str::to_owned);
        let enabled = match query.get("enabled") {
            None => None,
            Some(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "" => Some(true),
                "false" | "0" => Some(false),
                _ => return Err(Fault::bad_request("enabled has to be true or false.")),
            },
        };
        let elsewhere = query.get("domain_id").is_some_and(|id| id != DOMAIN_ID);
        let unnameable = name.as_ref().is_some_and(|name| name.chars().any(char::is_control));
        Ok(Self { name, enabled, nothing: elsewhere || unnameable })
    }
}

/// Whether a flag of a query is set: by its name alone, or by anything but no.
fn flag(query: &Query, key: &str) -> bool {
    query.get(key).is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
}

/// `{key: [...], "links": {...}}`.
fn listing(base: &Base, path: &str, key: &str, items: Vec<Value>) -> Answer {
    ok(json!({
        key: items,
        "links": {"next": null, "previous": null, "self": format!("{}{path}", base.0)},
    }))
}

fn self_link(base: &Base, collection: &str, id: &str) -> Value {
    json!({"self": format!("{}/v3/{collection}/{id}", base.0)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_of_a_route_is_in_the_table() {
        assert_eq!(kilonova_access::undefined(&operations(), RULES), Vec::<String>::new());
    }
}
