//! HTTP: one file per resource, each with its routes, requests and views.
//!
//! Reading is for admins, and for users where it is about themselves: somebody else's user or
//! project is "not found" rather than "forbidden", so that nobody learns what is there. Writing is
//! for admins.

mod auth_request;
mod catalog;
mod credentials;
mod domains;
mod grants;
mod projects;
mod roles;
mod rules;
mod token_view;
mod tokens;
mod users;
mod versions;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Dialect, Fault, JsonBody, Service};
use serde_json::{Value, json};

use crate::app::Fields;
use crate::{DOMAIN_ID, Error, Identity};

pub use rules::RULES;

/// The routes, relative to the mount.
pub fn routes(identity: Identity) -> Router {
    Router::new()
        .merge(versions::routes())
        .merge(tokens::routes())
        .merge(catalog::routes())
        .merge(domains::routes())
        .merge(projects::routes())
        .merge(users::routes())
        .merge(roles::routes())
        .merge(grants::routes())
        .merge(credentials::routes())
        .with_state(identity)
}

/// What [`kilonova_wire::mount`] needs to know.
pub fn service() -> Service {
    Service { name: "identity", dialect: Dialect::Identity, versions: None, public }
}

/// `/v3/auth/tokens` looks at tokens itself: to log in there is none yet.
fn public(path: &str) -> bool {
    matches!(path.trim_end_matches('/'), "" | "/v3" | "/v3/auth/tokens")
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

fn admin(context: &Context, action: &'static str) -> Result<(), Fault> {
    if context.is_admin() { Ok(()) } else { Err(Error::Forbidden(action).into()) }
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
