//! The API of regions: the built-in region and registered regions.

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Routes, delete, get, patch, post, put};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, JsonBody};
use serde_json::{Value, json};

use super::{
    Answer, changes, created, fields, fits, id_of, listing, no_content, ok, self_link, with_extra,
};
use crate::db::catalog::Region;
use crate::{Identity, REGION};

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route(
            "/v3/regions",
            [get("identity:list_regions", list), post("identity:create_region", create)],
        )
        .route(
            "/v3/regions/{id}",
            [
                get("identity:get_region", show),
                put("identity:create_region", create_named),
                patch("identity:update_region", update),
                delete("identity:delete_region", remove),
            ],
        )
}

fn own() -> Region {
    Region {
        id: REGION.into(),
        description: String::new(),
        parent: None,
        extra: serde_json::Map::new(),
    }
}

fn view(region: &Region, base: &Base) -> Value {
    Value::Object(with_extra(
        &region.extra,
        [
            ("id", json!(region.id)),
            ("description", json!(region.description)),
            ("parent_region_id", json!(region.parent)),
            ("links", self_link(base, "regions", &region.id)),
        ],
    ))
}

async fn list(State(identity): State<Identity>, base: Base, uri: Uri, query: Query) -> Answer {
    let fits = |view: &Value| fits(&query, &["parent_region_id"], view);
    let mut all = vec![own()];
    all.extend(identity.regions().await?);
    let items = all.iter().map(|region| view(region, &base)).filter(fits).collect();
    listing(&base, &uri, "regions", items)
}

async fn show(State(identity): State<Identity>, base: Base, Path(id): Path<String>) -> Answer {
    id_of("region", &id)?;
    let region = match id.as_str() {
        REGION => own(),
        _ => identity.region(&id).await?,
    };
    ok(json!({"region": view(&region, &base)}))
}

async fn create(State(identity): State<Identity>, base: Base, body: JsonBody) -> Answer {
    let region = identity.create_region(None, fields(body, "region")?).await?;
    created(json!({"region": view(&region, &base)}))
}

async fn create_named(
    State(identity): State<Identity>,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    id_of("region", &id)?;
    let region = identity.create_region(Some(id), fields(body, "region")?).await?;
    created(json!({"region": view(&region, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    id_of("region", &id)?;
    let region = identity.update_region(&id, changes(body, "region", &id)?).await?;
    ok(json!({"region": view(&region, &base)}))
}

async fn remove(State(identity): State<Identity>, Path(id): Path<String>) -> Answer {
    id_of("region", &id)?;
    identity.delete_region(&id).await?;
    no_content()
}
