//! `/resource_providers`.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use kilonova_ids::{ProviderId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::{Body, Refusal};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Value, json};

use super::call::{Call, only, provider_id};
use super::{Placement, filters, schemas};
use crate::app::{self, providers};
use crate::db::providers::ProviderRow;

pub fn routes() -> Router<Placement> {
    Router::new().route("/resource_providers", only("GET, POST", get(list).post(create))).route(
        "/resource_providers/{uuid}",
        only("GET, PUT, DELETE", get(show).put(update).delete(delete)),
    )
}

fn view(call: &Call, row: &ProviderRow) -> Value {
    let own = call.path(&format!("/resource_providers/{}", row.id));
    let mut links = vec![json!({"rel": "self", "href": own})];
    let rels =
        [(0, "inventories"), (0, "usages"), (1, "aggregates"), (6, "traits"), (11, "allocations")];
    for (_, rel) in rels.iter().filter(|(minor, _)| call.speaks(*minor)) {
        links.push(json!({"rel": rel, "href": format!("{own}/{rel}")}));
    }
    let mut view = json!({
        "uuid": row.id,
        "name": row.name,
        "generation": row.generation,
        "links": links,
    });
    if call.speaks(14) {
        view["parent_provider_uuid"] = json!(row.parent);
        view["root_provider_uuid"] = json!(row.root);
    }
    view
}

/// A list of providers, serialized one by one: there may be a hundred thousand.
struct Listing<'a> {
    call: &'a Call,
    rows: &'a [ProviderRow],
}

impl Serialize for Listing<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("resource_providers", &Rows(self))?;
        map.end()
    }
}

struct Rows<'a>(&'a Listing<'a>);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.rows.iter().map(|row| view(self.0.call, row)))
    }
}

async fn list(call: Call) -> Result<Response, Refusal> {
    call.require_accepts_json()?;
    call.may("placement:resource_providers:list")?;
    let filters = filters::read(&call)?;
    let rows = call.app.store.read(move |tx| app::filters::list(tx, &filters)).await?;
    let modified = rows.iter().map(|row| row.updated_at).max();
    Ok(call.json(StatusCode::OK, &Listing { call: &call, rows: &rows }, modified))
}

async fn show(call: Call, Path(uuid): Path<String>) -> Result<Response, Refusal> {
    call.require_accepts_json()?;
    call.may("placement:resource_providers:show")?;
    let id = provider_id(&uuid)?;
    let row = call.app.store.read(move |tx| providers::get(tx, id)).await?;
    Ok(call.json(StatusCode::OK, &view(&call, &row), Some(row.updated_at)))
}

fn parent_of(data: &Value) -> Option<Option<ProviderId>> {
    data.get("parent_provider_uuid").map(|value| value.as_str().and_then(parse_uuid_like))
}

/// Upstream accepts any name of 1 to 200 characters. Control characters are refused here, because
/// terminals cannot show them.
fn name_of(data: &Value) -> Result<String, Refusal> {
    let name = data["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Err(Refusal::bad_request("Unable to save resource provider: name is required"));
    }
    if name.chars().any(char::is_control) {
        return Err(Refusal::bad_request(format!(
            "Invalid name of a resource provider: '{}' contains control characters.",
            name.escape_debug()
        )));
    }
    Ok(name.to_owned())
}

async fn create(call: Call, body: Body) -> Result<Response, Refusal> {
    call.require_json_body()?;
    call.may("placement:resource_providers:create")?;
    let schema =
        if call.speaks(14) { &schemas::POST_PROVIDER_1_14 } else { &schemas::POST_PROVIDER };
    let data = call.body(&body, schema)?;
    let id = data["uuid"].as_str().and_then(parse_uuid_like).unwrap_or_else(ProviderId::new_v4);
    let name = name_of(&data)?;
    let parent = parent_of(&data).flatten();
    let world = call.app.world.clone();
    let row =
        call.app.store.write(move |tx| providers::create(tx, &world, id, &name, parent)).await?;
    let response = if call.speaks(20) {
        call.json(StatusCode::OK, &view(&call, &row), Some(row.updated_at))
    } else {
        call.empty(StatusCode::CREATED)
    };
    Ok(call.located(response, &format!("/resource_providers/{id}")))
}

async fn update(call: Call, Path(uuid): Path<String>, body: Body) -> Result<Response, Refusal> {
    call.require_json_body()?;
    call.may("placement:resource_providers:update")?;
    let id = provider_id(&uuid)?;
    call.app.store.read(move |tx| providers::get(tx, id)).await?;
    let schema = if call.speaks(14) { &schemas::PUT_PROVIDER_1_14 } else { &schemas::PUT_PROVIDER };
    let data = call.body(&body, schema)?;
    let name = name_of(&data)?;
    let (parent, may_move) = (parent_of(&data), call.speaks(37));
    let app = call.app.clone();
    let update = move |tx: &mut Tx<'_>| {
        app.change_trees(tx, [id], |tx| {
            providers::update(tx, &app.world, id, &name, parent, may_move)
        })
    };
    let row = call.app.store.write(update).await?;
    Ok(call.json(StatusCode::OK, &view(&call, &row), Some(row.updated_at)))
}

async fn delete(call: Call, Path(uuid): Path<String>) -> Result<Response, Refusal> {
    call.may("placement:resource_providers:delete")?;
    let id = parse_uuid_like(&uuid).ok_or_else(|| {
        Refusal::not_found(format!("No resource provider with uuid {uuid} found for delete"))
    })?;
    let app = call.app.clone();
    let delete = move |tx: &mut Tx<'_>| {
        app.change_trees(tx, [id], |tx| providers::delete(tx, &app.world, id))
    };
    call.app.store.write(delete).await?;
    Ok(call.empty(StatusCode::NO_CONTENT))
}
