//! Roles. Their names stand in every token, so that anyone may read them.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, JsonBody};
use serde_json::{Value, json};

use super::{Answer, Filter, admin, created, fields, id_of, listing, no_content, ok, self_link};
use crate::Identity;
use crate::db::roles::Role;

pub(super) fn routes() -> Router<Identity> {
    Router::new()
        .route("/v3/roles", get(list).post(create))
        .route("/v3/roles/{id}", get(show).patch(update).delete(delete))
}

pub(super) fn view(role: &Role, base: &Base) -> Value {
    json!({
        "id": role.id,
        "name": role.name,
        "domain_id": null,
        "description": role.description,
        "options": {},
        "links": self_link(base, "roles", &role.id),
    })
}

async fn list(State(identity): State<Identity>, base: Base, query: Query) -> Answer {
    let filter = Filter::read(&query)?;
    let found = if filter.nothing { Vec::new() } else { identity.roles(filter.name).await? };
    let items = found.iter().map(|role| view(role, &base)).collect();
    listing(&base, "/v3/roles", "roles", items)
}

async fn show(State(identity): State<Identity>, base: Base, Path(id): Path<String>) -> Answer {
    id_of("role", &id)?;
    ok(json!({"role": view(&identity.role(&id).await?, &base)}))
}

async fn create(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    body: JsonBody,
) -> Answer {
    admin(&context, "identity:create_role")?;
    let role = identity.create_role(fields(body, "role")?).await?;
    created(json!({"role": view(&role, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    admin(&context, "identity:update_role")?;
    id_of("role", &id)?;
    let role = identity.update_role(&id, fields(body, "role")?).await?;
    ok(json!({"role": view(&role, &base)}))
}

async fn delete(
    State(identity): State<Identity>,
    context: Context,
    Path(id): Path<String>,
) -> Answer {
    admin(&context, "identity:delete_role")?;
    id_of("role", &id)?;
    identity.delete_role(&id).await?;
    no_content()
}
