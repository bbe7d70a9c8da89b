//! Endpoints: the built-in ones, which follow from the configuration, and registered ones.

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Routes, delete, get, patch, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, JsonBody};
use serde_json::{Value, json};

use super::{
    Answer, changes, created, fields, fits, id_of, listing, no_content, ok, self_link, with_extra,
};
use crate::catalog::root;
use crate::db::catalog::Endpoint;
use crate::{Identity, REGION};

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route(
            "/v3/endpoints",
            [get("identity:list_endpoints", list), post("identity:create_endpoint", create)],
        )
        .route(
            "/v3/endpoints/{id}",
            [
                get("identity:get_endpoint", show),
                patch("identity:update_endpoint", update),
                delete("identity:delete_endpoint", remove),
            ],
        )
}

fn own(identity: &Identity, base: &Base) -> Vec<Value> {
    let catalog = identity.catalog();
    catalog
        .iter()
        .flat_map(|entry| {
            entry.endpoints(root(&base.0)).into_iter().map(|(id, interface, url)| {
                json!({
                    "interface": interface,
                    "region": REGION,
                    "region_id": REGION,
                    "service_id": entry.id(),
                    "url": url,
                    "enabled": true,
                    "links": self_link(base, "endpoints", &id),
                    "id": id,
                })
            })
        })
        .collect()
}

fn view(endpoint: &Endpoint, base: &Base) -> Value {
    Value::Object(with_extra(
        &endpoint.extra,
        [
            ("id", json!(endpoint.id)),
            ("interface", json!(endpoint.interface)),
            ("region", json!(endpoint.region)),
            ("region_id", json!(endpoint.region)),
            ("service_id", json!(endpoint.service)),
            ("url", json!(endpoint.url)),
            ("enabled", json!(endpoint.enabled)),
            ("links", self_link(base, "endpoints", &endpoint.id)),
        ],
    ))
}

async fn list(State(identity): State<Identity>, base: Base, uri: Uri, query: Query) -> Answer {
    let registered = identity.registered().await?;
    let theirs = registered.endpoints.iter().map(|endpoint| view(endpoint, &base));
    let fits =
        |view: &Value| fits(&query, &["interface", "service_id", "region_id", "region"], view);
    let items = own(&identity, &base).into_iter().chain(theirs).filter(fits).collect();
    listing(&base, &uri, "endpoints", items)
}

async fn show(State(identity): State<Identity>, base: Base, Path(id): Path<String>) -> Answer {
    id_of("endpoint", &id)?;
    if let Some(ours) = own(&identity, &base).into_iter().find(|endpoint| endpoint["id"] == id) {
        return ok(json!({"endpoint": ours}));
    }
    ok(json!({"endpoint": view(&identity.endpoint(&id).await?, &base)}))
}

async fn create(State(identity): State<Identity>, base: Base, body: JsonBody) -> Answer {
    let endpoint = identity.create_endpoint(fields(body, "endpoint")?).await?;
    created(json!({"endpoint": view(&endpoint, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    id_of("endpoint", &id)?;
    let endpoint = identity.update_endpoint(&id, changes(body, "endpoint", &id)?).await?;
    ok(json!({"endpoint": view(&endpoint, &base)}))
}

async fn remove(State(identity): State<Identity>, Path(id): Path<String>) -> Answer {
    id_of("endpoint", &id)?;
    identity.delete_endpoint(&id).await?;
    no_content()
}
