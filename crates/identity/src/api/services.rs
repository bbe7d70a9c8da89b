//! Services: the built-in ones, which follow from the configuration, and registered ones.

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Routes, delete, get, patch, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, JsonBody};
use serde_json::{Value, json};

use super::{
    Answer, changes, created, fields, fits, id_of, listing, no_content, ok, self_link, with_extra,
};
use crate::Identity;
use crate::catalog::CatalogEntry;
use crate::db::catalog::Service;

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route(
            "/v3/services",
            [get("identity:list_services", list), post("identity:create_service", create)],
        )
        .route(
            "/v3/services/{id}",
            [
                get("identity:get_service", show),
                patch("identity:update_service", update),
                delete("identity:delete_service", remove),
            ],
        )
}

fn own(entry: &CatalogEntry, base: &Base) -> Value {
    let id = entry.id();
    json!({
        "name": entry.name,
        "type": entry.service_type,
        "enabled": true,
        "links": self_link(base, "services", &id),
        "id": id,
    })
}

fn view(service: &Service, base: &Base) -> Value {
    let mut view = with_extra(
        &service.extra,
        [
            ("id", json!(service.id)),
            ("type", json!(service.kind)),
            ("enabled", json!(service.enabled)),
            ("links", self_link(base, "services", &service.id)),
        ],
    );
    for (key, value) in [("name", &service.name), ("description", &service.description)] {
        if let Some(value) = value {
            view.insert(key.to_owned(), json!(value));
        }
    }
    Value::Object(view)
}

async fn list(State(identity): State<Identity>, base: Base, uri: Uri, query: Query) -> Answer {
    let registered = identity.registered().await?;
    let ours = identity.catalog();
    let ours = ours.iter().map(|entry| own(entry, &base));
    let theirs = registered.services.iter().map(|service| view(service, &base));
    let fits = |view: &Value| fits(&query, &["type", "name"], view);
    let items = ours.chain(theirs).filter(fits).collect();
    listing(&base, &uri, "services", items)
}

async fn show(State(identity): State<Identity>, base: Base, Path(id): Path<String>) -> Answer {
    id_of("service", &id)?;
    if let Some(entry) = identity.catalog().iter().find(|entry| entry.id() == id) {
        return ok(json!({"service": own(entry, &base)}));
    }
    ok(json!({"service": view(&identity.service(&id).await?, &base)}))
}

async fn create(State(identity): State<Identity>, base: Base, body: JsonBody) -> Answer {
    let service = identity.create_service(&fields(body, "service")?).await?;
    created(json!({"service": view(&service, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    id_of("service", &id)?;
    let service = identity.update_service(&id, changes(body, "service", &id)?).await?;
    ok(json!({"service": view(&service, &base)}))
}

async fn remove(State(identity): State<Identity>, Path(id): Path<String>) -> Answer {
    id_of("service", &id)?;
    identity.delete_service(&id).await?;
    no_content()
}
