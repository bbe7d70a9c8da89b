//! The catalog, and its services, endpoints and region as read-only resources.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Fault};
use serde_json::{Value, json};

use super::{Answer, listing, ok, self_link};
use crate::catalog::{CatalogEntry, root, view};
use crate::{Error, Identity, REGION};

pub(super) fn routes() -> Router<Identity> {
    Router::new()
        .route("/v3/auth/catalog", get(catalog))
        .route("/v3/services", get(services))
        .route("/v3/services/{id}", get(service))
        .route("/v3/endpoints", get(endpoints))
        .route("/v3/endpoints/{id}", get(endpoint))
        .route("/v3/regions", get(regions))
        .route("/v3/regions/{id}", get(region))
}

async fn catalog(State(identity): State<Identity>, base: Base) -> Answer {
    ok(json!({
        "catalog": view(&identity.catalog(), root(&base.0)),
        "links": {"self": format!("{}/v3/auth/catalog", base.0), "next": null, "previous": null},
    }))
}

fn service_view(entry: &CatalogEntry, base: &Base) -> Value {
    let id = entry.id();
    json!({
        "name": entry.name,
        "type": entry.service_type,
        "enabled": true,
        "links": self_link(base, "services", &id),
        "id": id,
    })
}

async fn services(State(identity): State<Identity>, base: Base, query: Query) -> Answer {
    let fits = |entry: &&CatalogEntry| {
        query.get("type").is_none_or(|kind| kind == entry.service_type)
            && query.get("name").is_none_or(|name| name == entry.name)
    };
    let items =
        identity.catalog().iter().filter(fits).map(|entry| service_view(entry, &base)).collect();
    listing(&base, "/v3/services", "services", items)
}

async fn service(State(identity): State<Identity>, base: Base, Path(id): Path<String>) -> Answer {
    match identity.catalog().iter().find(|entry| entry.id() == id) {
        Some(entry) => ok(json!({"service": service_view(entry, &base)})),
        None => Err(missing("service", &id)),
    }
}

fn endpoint_views(identity: &Identity, base: &Base) -> Vec<Value> {
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

async fn endpoints(State(identity): State<Identity>, base: Base, query: Query) -> Answer {
    let fits = |endpoint: &Value| {
        ["interface", "service_id", "region_id", "region"]
            .into_iter()
            .all(|key| query.get(key).is_none_or(|wanted| endpoint[key] == wanted))
    };
    let items = endpoint_views(&identity, &base).into_iter().filter(fits).collect();
    listing(&base, "/v3/endpoints", "endpoints", items)
}

async fn endpoint(State(identity): State<Identity>, base: Base, Path(id): Path<String>) -> Answer {
    match endpoint_views(&identity, &base).into_iter().find(|endpoint| endpoint["id"] == id) {
        Some(endpoint) => ok(json!({"endpoint": endpoint})),
        None => Err(missing("endpoint", &id)),
    }
}

fn region_view(base: &Base) -> Value {
    json!({
        "id": REGION,
        "description": "",
        "parent_region_id": null,
        "links": self_link(base, "regions", REGION),
    })
}

async fn regions(base: Base) -> Answer {
    listing(&base, "/v3/regions", "regions", vec![region_view(&base)])
}

async fn region(base: Base, Path(id): Path<String>) -> Answer {
    if id == REGION {
        return ok(json!({"region": region_view(&base)}));
    }
    Err(missing("region", &id))
}

fn missing(kind: &'static str, id: &str) -> Fault {
    Error::NotFound(kind, id.escape_debug().to_string()).into()
}
