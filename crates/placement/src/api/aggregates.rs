//! Shows and replaces the aggregates of a provider (`/resource_providers/{uuid}/aggregates`).

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use kilonova_ids::parse_uuid_like;
use kilonova_wire::{Body, Refusal};
use serde_json::{Value, json};

use super::call::{Call, integer, only, provider_id};
use super::{Placement, schemas};
use crate::app::aggregates::Spelt;
use crate::app::{aggregates, providers};
use crate::db::providers::ProviderRow;

pub fn routes() -> Router<Placement> {
    Router::new()
        .route("/resource_providers/{uuid}/aggregates", only("GET, PUT", get(show).put(update)))
}

fn answer(call: &Call, provider: &ProviderRow, aggregates: &[String]) -> Response {
    let mut body = json!({"aggregates": aggregates});
    if call.speaks(19) {
        body["resource_provider_generation"] = provider.generation.into();
    }
    call.json(StatusCode::OK, &body, None)
}

async fn show(call: Call, Path(uuid): Path<String>) -> Result<Response, Refusal> {
    call.require_version(1)?;
    call.require_accepts_json()?;
    call.may("placement:resource_providers:aggregates:list")?;
    let id = provider_id(&uuid)?;
    let (provider, aggregates) = call.app.store.read(move |tx| aggregates::list(tx, id)).await?;
    Ok(answer(&call, &provider, &aggregates))
}

async fn update(call: Call, Path(uuid): Path<String>, body: Body) -> Result<Response, Refusal> {
    call.require_version(1)?;
    call.require_json_body()?;
    call.may("placement:resource_providers:aggregates:update")?;
    let id = provider_id(&uuid)?;
    call.app.store.read(move |tx| providers::get(tx, id)).await?;
    let with_generation = call.speaks(19);
    let schema = if with_generation { &schemas::AGGREGATES_1_19 } else { &schemas::AGGREGATES };
    let data = call.body(&body, schema)?;
    let list = if with_generation { &data["aggregates"] } else { &data };
    let generation = integer(&data["resource_provider_generation"]).filter(|_| with_generation);
    let wanted: Vec<Spelt> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter_map(|text| Some((parse_uuid_like(text)?, text.to_owned())))
        .collect();
    let world = call.app.world.clone();
    let shown: Vec<String> = wanted.iter().map(|(_, sent)| sent.clone()).collect();
    let provider = call
        .app
        .store
        .write(move |tx| aggregates::set(tx, &world, id, generation, &wanted))
        .await?;
    Ok(answer(&call, &provider, &shown))
}
