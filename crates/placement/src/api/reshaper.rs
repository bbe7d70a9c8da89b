//! `/reshaper`, from 1.30.

use std::collections::BTreeMap;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use kilonova_ids::{ProviderId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::{Body, Refusal};
use serde_json::Value;

use super::call::{Call, integer, only};
use super::validate::spelt_once;
use super::{Placement, allocations, inventories, schemas};
use crate::app::reshape::{self, Target};
use crate::codes;

pub fn routes() -> Router<Placement> {
    Router::new().route("/reshaper", only("POST", post(run)))
}

/// Parses the inventories of the body. Each provider occurs once in the result.
fn targets(data: &Value) -> Result<Vec<Target>, Refusal> {
    let each = data["inventories"].as_object().into_iter().flatten();
    let mut seen = BTreeMap::new();
    each.map(|(uuid, one)| {
        let provider: ProviderId = parse_uuid_like(uuid).ok_or_else(|| {
            Refusal::bad_request(format!("Resource provider {uuid} in inventories not found"))
                .with_code(codes::PROVIDER_NOT_FOUND)
        })?;
        spelt_once(&mut seen, provider, uuid)?;
        Ok(Target {
            provider,
            generation: integer(&one["resource_provider_generation"]).unwrap_or_default(),
            inventories: inventories::read_all(one),
        })
    })
    .collect()
}

async fn run(call: Call, body: Body) -> Result<Response, Refusal> {
    call.require_version(30)?;
    call.require_json_body()?;
    call.may("placement:reshaper:reshape")?;
    let schema = match call.version.1 {
        0..34 => &schemas::RESHAPER,
        34..38 => &schemas::RESHAPER_1_34,
        _ => &schemas::RESHAPER_1_38,
    };
    let data = call.body(&body, schema)?;
    let targets = targets(&data)?;
    let changes = allocations::read_many(&data["allocations"])?;
    let app = call.app.clone();
    let work = move |tx: &mut Tx<'_>| {
        app.refuse_managed(tx, &changes)?;
        let providers = targets.iter().map(|target| target.provider);
        app.change_trees(tx, providers, |tx| reshape::run(tx, &app.world, &targets, &changes))
    };
    call.app.store.write(work).await?;
    Ok(call.empty(StatusCode::NO_CONTENT))
}
