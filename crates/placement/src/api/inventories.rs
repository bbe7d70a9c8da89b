//! `/resource_providers/{uuid}/inventories`.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use kilonova_engine::Inventory;
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Body, Refusal};
use serde_json::{Map, Value, json};

use super::call::{Call, integer, only, provider_id};
use super::{Placement, schemas};
use crate::app::inventories::{self, ClassInventory};
use crate::app::providers;
use crate::db::inventories::InventoryRow;

pub fn routes() -> Router<Placement> {
    Router::new()
        .route(
            "/resource_providers/{uuid}/inventories",
            only("GET, POST, PUT, DELETE", get(list).post(create).put(replace).delete(clear)),
        )
        .route(
            "/resource_providers/{uuid}/inventories/{class}",
            only("GET, PUT, DELETE", get(show).put(update).delete(delete)),
        )
}

fn view(inventory: &Inventory) -> Value {
    json!({
        "total": inventory.total,
        "reserved": inventory.reserved,
        "min_unit": inventory.min_unit,
        "max_unit": inventory.max_unit,
        "step_size": inventory.step_size,
        "allocation_ratio": inventory.allocation_ratio,
    })
}

fn one(row: &InventoryRow, generation: i64) -> Value {
    let mut view = view(&row.inventory);
    view["resource_provider_generation"] = generation.into();
    view
}

/// Parses one inventory of a body and fills in the defaults.
pub fn read(data: &Value) -> Inventory {
    let number = |key: &str, default: i64| data.get(key).and_then(integer).unwrap_or(default);
    Inventory {
        total: number("total", 0),
        reserved: number("reserved", 0),
        min_unit: number("min_unit", 1),
        max_unit: number("max_unit", 2_147_483_647),
        step_size: number("step_size", 1),
        allocation_ratio: data.get("allocation_ratio").and_then(Value::as_f64).unwrap_or(1.0),
        used: 0,
    }
}

/// Parses the inventories of a body, by class.
pub fn read_all(data: &Value) -> Vec<ClassInventory> {
    let classes = data["inventories"].as_object();
    classes
        .into_iter()
        .flatten()
        .map(|(class, one)| (ResourceClass::verbatim(class.as_str()), read(one)))
        .collect()
}

async fn all(call: &Call, id: ProviderId) -> Result<Response, Refusal> {
    let (provider, rows) = call.app.store.read(move |tx| inventories::list(tx, id)).await?;
    let shown: Map<String, Value> =
        rows.iter().map(|row| (row.class.to_string(), view(&row.inventory))).collect();
    let body = json!({
        "resource_provider_generation": provider.generation,
        "inventories": shown,
    });
    let modified = rows.iter().map(|row| row.updated_at).max();
    Ok(call.json(StatusCode::OK, &body, modified))
}

async fn single(
    call: &Call,
    id: ProviderId,
    class: &ResourceClass,
    status: StatusCode,
) -> Result<Response, Refusal> {
    let (provider, rows) = call.app.store.read(move |tx| inventories::list(tx, id)).await?;
    let row = rows
        .iter()
        .find(|row| row.class == *class)
        .ok_or_else(|| Refusal::not_found(format!("No inventory of class {class} for {id}")))?;
    Ok(call.json(status, &one(row, provider.generation), Some(row.updated_at)))
}

async fn list(call: Call, Path(uuid): Path<String>) -> Result<Response, Refusal> {
    call.require_accepts_json()?;
    call.may("placement:resource_providers:inventories:list")?;
    all(&call, provider_id(&uuid)?).await
}

async fn show(
    call: Call,
    Path((uuid, class)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    call.require_accepts_json()?;
    call.may("placement:resource_providers:inventories:show")?;
    single(&call, provider_id(&uuid)?, &ResourceClass::verbatim(class), StatusCode::OK).await
}

async fn exists(call: &Call, id: ProviderId) -> Result<(), Refusal> {
    call.app.store.read(move |tx| providers::get(tx, id)).await?;
    Ok(())
}

async fn create(call: Call, Path(uuid): Path<String>, body: Body) -> Result<Response, Refusal> {
    call.require_json_body()?;
    call.may("placement:resource_providers:inventories:create")?;
    let id = provider_id(&uuid)?;
    exists(&call, id).await?;
    let data = call.body(&body, &schemas::POST_INVENTORY)?;
    let class = ResourceClass::verbatim(data["resource_class"].as_str().unwrap_or_default());
    let wanted = (class.clone(), read(&data));
    let (app, version) = (call.app.clone(), call.version);
    let add = move |tx: &mut Tx<'_>| {
        app.change_trees(tx, [id], |tx| inventories::add(tx, &app.world, id, &wanted, version))
    };
    call.app.store.write(add).await?;
    let response = single(&call, id, &class, StatusCode::CREATED).await?;
    Ok(call.located(response, &format!("/resource_providers/{id}/inventories/{class}")))
}

async fn replace(call: Call, Path(uuid): Path<String>, body: Body) -> Result<Response, Refusal> {
    call.require_json_body()?;
    call.may("placement:resource_providers:inventories:update")?;
    let id = provider_id(&uuid)?;
    exists(&call, id).await?;
    let data = call.body(&body, &schemas::PUT_INVENTORIES)?;
    let generation = integer(&data["resource_provider_generation"]);
    let wanted = read_all(&data);
    let (app, version) = (call.app.clone(), call.version);
    let replace = move |tx: &mut Tx<'_>| {
        app.change_trees(tx, [id], |tx| {
            inventories::replace(tx, &app.world, id, generation, &wanted, version)
        })
    };
    call.app.store.write(replace).await?;
    all(&call, id).await
}

async fn update(
    call: Call,
    Path((uuid, class)): Path<(String, String)>,
    body: Body,
) -> Result<Response, Refusal> {
    call.require_json_body()?;
    call.may("placement:resource_providers:inventories:update")?;
    let id = provider_id(&uuid)?;
    exists(&call, id).await?;
    let class = ResourceClass::verbatim(class);
    let data = call.body(&body, &schemas::PUT_INVENTORY)?;
    let generation = integer(&data["resource_provider_generation"]).unwrap_or_default();
    let wanted = (class.clone(), read(&data));
    let (app, version) = (call.app.clone(), call.version);
    let update = move |tx: &mut Tx<'_>| {
        app.change_trees(tx, [id], |tx| {
            inventories::update(tx, &app.world, id, generation, &wanted, version)
        })
    };
    call.app.store.write(update).await?;
    single(&call, id, &class, StatusCode::OK).await
}

async fn delete(
    call: Call,
    Path((uuid, class)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    call.may("placement:resource_providers:inventories:delete")?;
    let (id, class) = (provider_id(&uuid)?, ResourceClass::verbatim(class));
    let app = call.app.clone();
    let delete = move |tx: &mut Tx<'_>| {
        app.change_trees(tx, [id], |tx| inventories::delete(tx, &app.world, id, &class))
    };
    call.app.store.write(delete).await?;
    Ok(call.empty(StatusCode::NO_CONTENT))
}

async fn clear(call: Call, Path(uuid): Path<String>) -> Result<Response, Refusal> {
    if !call.speaks(5) {
        return Err(Refusal::new(
            Kind::MethodNotAllowed,
            "The method specified is not allowed for this resource.",
        ));
    }
    call.may("placement:resource_providers:inventories:delete")?;
    let id = provider_id(&uuid)?;
    let app = call.app.clone();
    let clear = move |tx: &mut Tx<'_>| {
        app.change_trees(tx, [id], |tx| inventories::clear(tx, &app.world, id))
    };
    call.app.store.write(clear).await?;
    Ok(call.empty(StatusCode::NO_CONTENT))
}
