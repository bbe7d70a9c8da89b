//! `/traits` and `/resource_providers/{uuid}/traits`, all from 1.6.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use kilonova_store::Tx;
use kilonova_wire::{Body, Refusal};
use serde_json::{Value, json};

use super::call::{Call, integer, only, provider_id};
use super::{Placement, schemas};
use crate::app::providers;
use crate::app::traits::{self, TraitFilter};
use crate::names;

pub fn routes() -> Router<Placement> {
    Router::new()
        .route("/traits", only("GET", get(list)))
        .route("/traits/{name}", only("GET, PUT, DELETE", get(show).put(create).delete(delete)))
        .route(
            "/resource_providers/{uuid}/traits",
            only("GET, PUT, DELETE", get(of_provider).put(set).delete(clear)),
        )
}

fn filter(call: &Call) -> Result<TraitFilter, Refusal> {
    call.require_keys(&["name", "associated"])?;
    let mut filter = TraitFilter::default();
    if let Some(text) = call.query.get("name") {
        match text.split_once(':') {
            Some(("in", names)) => {
                filter.among = Some(names.split(',').map(str::to_owned).collect());
            }
            Some(("startswith", prefix)) => filter.prefix = Some(prefix.to_owned()),
            Some(_) => {}
            None => {
                return Err(Refusal::bad_request(format!(
                    "Badly formatted name parameter. Expected name query string parameter in \
                     form: ?name=[in|startswith]:[name1,name2|prefix]. Got: \"{text}\""
                )));
            }
        }
    }
    if let Some(text) = call.query.get("associated") {
        filter.associated = Some(match text.to_ascii_lowercase().as_str() {
            "true" => true,
            "false" => false,
            _ => {
                return Err(Refusal::bad_request(
                    "The query parameter \"associated\" only accepts \"true\" or \"false\"",
                ));
            }
        });
    }
    Ok(filter)
}

async fn list(call: Call) -> Result<Response, Refusal> {
    call.require_version(6)?;
    call.require_accepts_json()?;
    call.may("placement:traits:list")?;
    let filter = filter(&call)?;
    let names = call.app.store.read(move |tx| traits::list(tx, &filter)).await?;
    Ok(call.json(StatusCode::OK, &json!({"traits": names}), None))
}

async fn show(call: Call, Path(name): Path<String>) -> Result<Response, Refusal> {
    call.require_version(6)?;
    call.may("placement:traits:show")?;
    let made = call.app.store.read(move |tx| traits::get(tx, &name)).await?;
    let mut response = call.empty(StatusCode::NO_CONTENT);
    call.dated(&mut response, made);
    Ok(response)
}

async fn create(call: Call, Path(name): Path<String>) -> Result<Response, Refusal> {
    call.require_version(6)?;
    call.may("placement:traits:update")?;
    if !names::is_custom(&name) {
        return Err(Refusal::bad_request(
            "The trait is invalid. A valid trait must be no longer than 255 characters, start \
             with the prefix \"CUSTOM_\" and use following characters: \"A\"-\"Z\", \"0\"-\"9\" \
             and \"_\"",
        ));
    }
    let wanted = name.clone();
    let made = call.app.store.write(move |tx| traits::create(tx, &wanted)).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    let mut response = call.empty(status);
    call.dated(&mut response, None);
    Ok(call.located(response, &format!("/traits/{name}")))
}

async fn delete(call: Call, Path(name): Path<String>) -> Result<Response, Refusal> {
    call.require_version(6)?;
    call.may("placement:traits:delete")?;
    call.app.store.write(move |tx| traits::delete(tx, &name)).await?;
    Ok(call.empty(StatusCode::NO_CONTENT))
}

async fn of_provider(call: Call, Path(uuid): Path<String>) -> Result<Response, Refusal> {
    call.require_version(6)?;
    call.require_accepts_json()?;
    call.may("placement:resource_providers:traits:list")?;
    let id = provider_id(&uuid)?;
    let (row, names) = call.app.store.read(move |tx| traits::of_provider(tx, id)).await?;
    let body = json!({"traits": names, "resource_provider_generation": row.generation});
    Ok(call.json(StatusCode::OK, &body, None))
}

async fn set(call: Call, Path(uuid): Path<String>, body: Body) -> Result<Response, Refusal> {
    call.require_version(6)?;
    call.require_json_body()?;
    call.may("placement:resource_providers:traits:update")?;
    let data = call.body(&body, &schemas::PROVIDER_TRAITS)?;
    let id = provider_id(&uuid)?;
    let generation = integer(&data["resource_provider_generation"]);
    let wanted: Vec<String> = data["traits"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let app = call.app.clone();
    let set = move |tx: &mut Tx<'_>| {
        app.change_trees(tx, [id], |tx| traits::set(tx, &app.world, id, generation, &wanted))
    };
    let (row, names) = call.app.store.write(set).await?;
    let body = json!({"traits": names, "resource_provider_generation": row.generation});
    Ok(call.json(StatusCode::OK, &body, None))
}

async fn clear(call: Call, Path(uuid): Path<String>) -> Result<Response, Refusal> {
    call.require_version(6)?;
    call.may("placement:resource_providers:traits:delete")?;
    let id = provider_id(&uuid)?;
    call.app.store.read(move |tx| providers::get(tx, id)).await?;
    let app = call.app.clone();
    let clear = move |tx: &mut Tx<'_>| {
        app.change_trees(tx, [id], |tx| traits::set(tx, &app.world, id, None, &[]))
    };
    call.app.store.write(clear).await?;
    Ok(call.empty(StatusCode::NO_CONTENT))
}
