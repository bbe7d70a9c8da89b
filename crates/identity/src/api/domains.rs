//! Domains: there is exactly one.

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Caller, Guard, Routes, delete, get, patch, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, JsonBody};
use serde_json::{Value, json};

use super::{Answer, as_boolean, fields, listing, may, ok, resembles, self_link};
use crate::db::assignments::Target;
use crate::{DOMAIN_ID, DOMAIN_NAME, Error, Identity};

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route(
            "/v3/domains",
            [
                get(Guard::Object(&["identity:list_domains"]), list),
                post(Guard::Object(&["identity:create_domain"]), create),
            ],
        )
        .route(
            "/v3/domains/{id}",
            [
                get(Guard::Object(&["identity:get_domain"]), show),
                patch(Guard::Object(&["identity:update_domain"]), update),
                delete(Guard::Object(&["identity:delete_domain"]), remove),
            ],
        )
        .route("/v3/auth/domains", [get("identity:get_auth_domains", scopes)])
        .route("/v3/auth/system", [get("identity:get_auth_system", system)])
}

fn view(description: &str, base: &Base) -> Value {
    json!({
        "id": DOMAIN_ID,
        "name": DOMAIN_NAME,
        "description": description,
        "enabled": true,
        "tags": [],
        "options": {},
        "links": self_link(base, "domains", DOMAIN_ID),
    })
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    query: Query,
) -> Answer {
    may(&caller, "identity:list_domains", &[])?;
    let fits = query.get("name").is_none_or(|name| name.eq_ignore_ascii_case(DOMAIN_NAME))
        && query.get("enabled").is_none_or(as_boolean);
    let fits = |view: &Value| fits && resembles(&query, &["name", "enabled"], view);
    let description = identity.domain_description().await?;
    let items = [view(&description, &base)].into_iter().filter(fits).collect();
    listing(&base, &uri, "domains", items)
}

/// Refuses the domain's name as a duplicate, as Keystone does, and every other domain.
async fn create(caller: Caller, JsonBody(body): JsonBody) -> Answer {
    may(&caller, "identity:create_domain", &[])?;
    let name = body["domain"]["name"].as_str().unwrap_or_default();
    if name.eq_ignore_ascii_case(DOMAIN_NAME) {
        return Err(Error::Duplicate("domain", DOMAIN_NAME.into()).into());
    }
    Err(Error::Refused(format!(
        "This cloud has one domain, {DOMAIN_NAME}: another one cannot be created."
    ))
    .into())
}

/// The domain, if the caller has a role on it.
async fn scopes(State(identity): State<Identity>, caller: Caller, base: Base, uri: Uri) -> Answer {
    let has = identity.has_roles_on(&caller.user_id, Target::Domain).await?;
    let mut items = Vec::new();
    if has {
        items.push(view(&identity.domain_description().await?, &base));
    }
    listing(&base, &uri, "domains", items)
}

/// The system, if the caller has a role on it.
async fn system(State(identity): State<Identity>, caller: Caller, base: Base) -> Answer {
    let has = identity.has_roles_on(&caller.user_id, Target::System).await?;
    let items = if has { vec![json!({"all": true})] } else { Vec::new() };
    ok(json!({"system": items, "links": {"self": format!("{}/v3/auth/system", base.0)}}))
}

/// 404 for every domain but the one.
fn known(id: &str) -> Result<(), Error> {
    match id == DOMAIN_ID {
        true => Ok(()),
        false => Err(Error::NotFound("domain", id.escape_debug().to_string())),
    }
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    may(&caller, "identity:get_domain", &[])?;
    known(&id)?;
    ok(json!({"domain": view(&identity.domain_description().await?, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    may(&caller, "identity:update_domain", &[])?;
    known(&id)?;
    let description = identity.update_domain(fields(body, "domain")?).await?;
    ok(json!({"domain": view(&description, &base)}))
}

/// Refuses to delete the domain, with the status of upstream for an enabled one (`_delete_domain` of
/// `keystone/resource/core.py`).
async fn remove(caller: Caller, Path(id): Path<String>) -> Answer {
    may(&caller, "identity:delete_domain", &[])?;
    known(&id)?;
    Err(Error::Refused(format!("This cloud has one domain, {DOMAIN_NAME}: it cannot be deleted."))
        .into())
}
