//! `/resource_classes`, from 1.2.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use kilonova_ids::ResourceClass;
use kilonova_wire::{Body, Refusal};
use serde_json::{Value, json};

use super::call::{Call, only};
use super::{Placement, schemas};
use crate::Error;
use crate::app::classes;

pub fn routes() -> Router<Placement> {
    Router::new().route("/resource_classes", only("GET, POST", get(list).post(create))).route(
        "/resource_classes/{name}",
        only("GET, PUT, DELETE", get(show).put(update).delete(delete)),
    )
}

fn own(name: &str) -> String {
    format!("/resource_classes/{name}")
}

fn view(call: &Call, name: &str) -> Value {
    json!({"name": name, "links": [{"rel": "self", "href": call.path(&own(name))}]})
}

/// A class to create. The schema has already refused an invalid name.
fn new_class(name: &str) -> Result<ResourceClass, Refusal> {
    ResourceClass::parse(name).map_err(|why| Refusal::bad_request(format!("{name:?}: {why}")))
}

async fn list(call: Call) -> Result<Response, Refusal> {
    call.require_version(2)?;
    call.require_accepts_json()?;
    call.may("placement:resource_classes:list")?;
    let rows = call.app.store.read(classes::list).await?;
    let shown: Vec<Value> = rows.iter().map(|(name, _)| view(&call, name)).collect();
    Ok(call.json(StatusCode::OK, &json!({"resource_classes": shown}), None))
}

async fn show(call: Call, Path(name): Path<String>) -> Result<Response, Refusal> {
    call.require_version(2)?;
    call.require_accepts_json()?;
    call.may("placement:resource_classes:show")?;
    let wanted = ResourceClass::verbatim(name.as_str());
    let made = call.app.store.read(move |tx| classes::get(tx, &wanted)).await?;
    Ok(call.json(StatusCode::OK, &view(&call, &name), made))
}

async fn create(call: Call, body: Body) -> Result<Response, Refusal> {
    call.require_version(2)?;
    call.require_json_body()?;
    call.may("placement:resource_classes:create")?;
    let data = call.body(&body, &schemas::RESOURCE_CLASS)?;
    let name = new_class(data["name"].as_str().unwrap_or_default())?;
    let wanted = name.clone();
    call.app.store.write(move |tx| classes::create(tx, &wanted)).await?;
    Ok(call.located(call.empty(StatusCode::CREATED), &own(&name)))
}

/// Before 1.7 a rename with a body; since then an idempotent create without a body.
async fn update(call: Call, Path(name): Path<String>, body: Body) -> Result<Response, Refusal> {
    call.require_version(2)?;
    if call.speaks(7) {
        return ensure(call, name).await;
    }
    call.require_json_body()?;
    call.may("placement:resource_classes:update")?;
    let data = call.body(&body, &schemas::RESOURCE_CLASS)?;
    let new = new_class(data["name"].as_str().unwrap_or_default())?;
    let name = ResourceClass::verbatim(name);
    let (world, wanted) = (call.app.world.clone(), new.clone());
    call.app.store.write(move |tx| classes::rename(tx, &world, &name, &wanted)).await?;
    Ok(call.json(StatusCode::OK, &view(&call, &new), None))
}

async fn ensure(call: Call, name: String) -> Result<Response, Refusal> {
    call.may("placement:resource_classes:update")?;
    schemas::RESOURCE_CLASS.check(&json!({"name": name}))?;
    let wanted = new_class(&name)?;
    let made = call
        .app
        .store
        .write(move |tx| -> Result<bool, Error> {
            if classes::exists(tx, &wanted)? {
                return Ok(false);
            }
            classes::create(tx, &wanted)?;
            Ok(true)
        })
        .await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok(call.located(call.empty(status), &own(&name)))
}

async fn delete(call: Call, Path(name): Path<String>) -> Result<Response, Refusal> {
    call.require_version(2)?;
    call.may("placement:resource_classes:delete")?;
    let name = ResourceClass::verbatim(name);
    call.app.store.write(move |tx| classes::delete(tx, &name)).await?;
    Ok(call.empty(StatusCode::NO_CONTENT))
}
