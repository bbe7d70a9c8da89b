//! Roles.

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Caller, Guard, Routes, delete, get, patch, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, JsonBody};
use serde_json::{Value, json};

use super::{
    Answer, ListFilter, changes, created, fields, id_of, listing, may, no_content, ok, options,
    resembles, self_link, with_extra,
};
use crate::Identity;
use crate::db::roles::Role;

const LIST: &str = "identity:list_roles";
const LIST_OF_DOMAIN: &str = "identity:list_domain_roles";

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route(
            "/v3/roles",
            [
                get(Guard::Object(&[LIST, LIST_OF_DOMAIN]), list),
                post("identity:create_role", create),
            ],
        )
        .route(
            "/v3/roles/{id}",
            [
                get(Guard::Object(&["identity:get_role"]), show),
                patch("identity:update_role", update),
                delete("identity:delete_role", remove),
            ],
        )
}

pub(super) fn view(role: &Role, base: &Base) -> Value {
    Value::Object(with_extra(
        &role.extra,
        [
            ("id", json!(role.id)),
            ("name", json!(role.name)),
            ("domain_id", Value::Null),
            ("description", json!(role.description)),
            ("options", options(role.immutable)),
            ("links", self_link(base, "roles", &role.id)),
        ],
    ))
}

/// Every role is global, so that a filter by domain finds none; upstream has a rule of its own for
/// such a list (`keystone/api/roles.py`).
async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    query: Query,
) -> Answer {
    let domain = query.get("domain_id");
    let of_domain = domain.is_some_and(|id| !id.is_empty());
    may(&caller, if of_domain { LIST_OF_DOMAIN } else { LIST }, &[])?;
    let filter = ListFilter::read(&query);
    let found = if filter.matches_nothing || domain.is_some() {
        Vec::new()
    } else {
        identity.roles(filter.name).await?
    };
    let items = found
        .iter()
        .map(|role| view(role, &base))
        .filter(|view| resembles(&query, &["name", "domain_id"], view))
        .collect();
    listing(&base, &uri, "roles", items)
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    let found = match id_of("role", &id) {
        Ok(()) => identity.role(&id).await.map_err(Into::into),
        Err(refusal) => Err(refusal),
    };
    let name = found.as_ref().map(|role| role.name.as_str()).unwrap_or_default();
    may(&caller, "identity:get_role", &[("target.role.name", name)])?;
    ok(json!({"role": view(&found?, &base)}))
}

async fn create(State(identity): State<Identity>, base: Base, body: JsonBody) -> Answer {
    let role = identity.create_role(fields(body, "role")?).await?;
    created(json!({"role": view(&role, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    id_of("role", &id)?;
    let role = identity.update_role(&id, changes(body, "role", &id)?).await?;
    ok(json!({"role": view(&role, &base)}))
}

async fn remove(State(identity): State<Identity>, Path(id): Path<String>) -> Answer {
    id_of("role", &id)?;
    identity.delete_role(&id).await?;
    no_content()
}
