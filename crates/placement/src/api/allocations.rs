//! `/allocations` and `/resource_providers/{uuid}/allocations`.

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::{Body, Refusal};
use serde_json::{Map, Value, json};

use super::call::{Call, integer, only};
use super::validate::spelt_once;
use super::{Placement, schemas};
use crate::Error;
use crate::app::allocations::{self, AllocationChange, Request};
use crate::db::{consumers, providers};

pub fn routes() -> Router<Placement> {
    Router::new()
        .route("/allocations", only("POST", post(replace_many)))
        .route(
            "/allocations/{consumer}",
            only("GET, PUT, DELETE", get(show).put(replace).delete(delete)),
        )
        .route("/resource_providers/{uuid}/allocations", only("GET", get(of_provider)))
}

async fn of_provider(call: Call, Path(uuid): Path<String>) -> Result<Response, Refusal> {
    call.require_accepts_json()?;
    call.may("placement:resource_providers:allocations:list")?;
    let absent = || {
        Refusal::not_found(format!(
            "Resource provider '{uuid}' not found: No resource provider with uuid {uuid} found"
        ))
    };
    let id: ProviderId = parse_uuid_like(&uuid).ok_or_else(absent)?;
    let found = call
        .app
        .store
        .read(move |tx| -> Result<_, Error> {
            match providers::by_id(tx, id)? {
                None => Ok(None),
                Some(_) => allocations::on_provider(tx, id).map(Some),
            }
        })
        .await?;
    let (provider, rows) = found.ok_or_else(absent)?;
    let mut shown: Map<String, Value> = Map::new();
    for row in &rows {
        let entry = shown.entry(row.consumer.to_string()).or_insert(json!({"resources": {}}));
        entry["resources"][row.class.as_str()] = row.used.into();
        if call.speaks(28) {
            entry["consumer_generation"] = row.generation.into();
        }
    }
    let body = json!({"allocations": shown, "resource_provider_generation": provider.generation});
    let modified = rows.iter().map(|row| row.updated_at).max();
    Ok(call.json(StatusCode::OK, &body, modified))
}

async fn show(call: Call, Path(consumer): Path<String>) -> Result<Response, Refusal> {
    call.require_accepts_json()?;
    call.may("placement:allocations:list")?;
    let Some(id) = parse_uuid_like::<ConsumerId>(&consumer) else {
        return Ok(call.json(StatusCode::OK, &json!({"allocations": {}}), None));
    };
    let (row, held) = call
        .app
        .store
        .read(move |tx| -> Result<_, Error> {
            let mut held = Vec::new();
            for part in consumers::allocations(tx, id)? {
                let provider = providers::by_id(tx, part.provider)?;
                held.push((provider.map_or(0, |p| p.generation), part));
            }
            Ok((consumers::get(tx, id)?, held))
        })
        .await?;
    let mut shown: Map<String, Value> = Map::new();
    for (generation, part) in &held {
        let entry = shown
            .entry(part.provider.to_string())
            .or_insert(json!({"generation": generation, "resources": {}}));
        entry["resources"][part.class.as_str()] = part.used.into();
    }
    let mut body = json!({"allocations": shown});
    if let Some(row) = row {
        if call.speaks(12) {
            body["project_id"] = row.project_id.into();
            body["user_id"] = row.user_id.into();
        }
        if call.speaks(28) {
            body["consumer_generation"] = row.generation.into();
        }
        if call.speaks(38) {
            body["consumer_type"] = row.consumer_type.as_deref().unwrap_or("unknown").into();
        }
    }
    Ok(call.json(StatusCode::OK, &body, held.iter().map(|(_, part)| part.updated_at).max()))
}

fn amounts(resources: &Value) -> BTreeMap<ResourceClass, i64> {
    let each = resources.as_object().into_iter().flatten();
    each.filter_map(|(class, n)| Some((ResourceClass::verbatim(class.as_str()), integer(n)?)))
        .collect()
}

/// Parses one consumer's allocations from a body.
///
/// # Errors
/// 400 for a provider that cannot exist, or that the body spells in two ways.
pub fn read(consumer: ConsumerId, data: &Value) -> Result<AllocationChange, Refusal> {
    let pairs: Vec<(&str, &Value)> = match &data["allocations"] {
        Value::Array(list) => list
            .iter()
            .filter_map(|one| Some((one["resource_provider"]["uuid"].as_str()?, &one["resources"])))
            .collect(),
        Value::Object(map) => {
            map.iter().map(|(uuid, one)| (uuid.as_str(), &one["resources"])).collect()
        }
        _ => Vec::new(),
    };
    let mut allocations = BTreeMap::new();
    let mut seen = BTreeMap::new();
    for (uuid, resources) in pairs {
        // Unlike elsewhere, a UUID without dashes is unknown here.
        let whole = Some(uuid).filter(|uuid| uuid.len() == 36);
        let provider = whole.and_then(parse_uuid_like).ok_or_else(|| {
            Refusal::bad_request(format!(
                "Allocation for resource provider '{uuid}' that does not exist."
            ))
        })?;
        spelt_once(&mut seen, provider, uuid)?;
        allocations.insert(provider, amounts(resources));
    }
    let text = |key: &str| data[key].as_str().map(str::to_owned);
    Ok(AllocationChange {
        consumer,
        owner: text("project_id").zip(text("user_id")),
        consumer_type: text("consumer_type"),
        generation: data.get("consumer_generation").map(integer),
        allocations,
    })
}

/// Parses the allocations of several consumers from a body. Each consumer occurs once in the result.
///
/// # Errors
/// Like [`read`], also for consumers.
pub fn read_many(data: &Value) -> Result<Vec<AllocationChange>, Refusal> {
    let mut changes = Vec::new();
    let mut seen = BTreeMap::new();
    for (text, one) in data.as_object().into_iter().flatten() {
        let consumer = consumer_id(text)?;
        spelt_once(&mut seen, consumer, text)?;
        changes.push(read(consumer, one)?);
    }
    changes.sort_by_key(|change| change.consumer);
    Ok(changes)
}

fn consumer_id(text: &str) -> Result<ConsumerId, Refusal> {
    parse_uuid_like(text)
        .ok_or_else(|| Refusal::bad_request(format!("Malformed consumer_uuid: {text}")))
}

async fn write(
    call: &Call,
    changes: Vec<AllocationChange>,
    request: Request,
) -> Result<Response, Refusal> {
    let world = call.app.world.clone();
    let rows: BTreeSet<ProviderId> =
        changes.iter().flat_map(|change| change.allocations.keys().copied()).collect();
    let app = call.app.clone();
    let work = move |tx: &mut Tx<'_>| {
        app.refuse_managed(tx, &changes)?;
        allocations::replace(tx, &world, &changes, request)
    };
    call.app.store.write_on(rows, work).await?;
    Ok(call.empty(StatusCode::NO_CONTENT))
}

async fn replace(
    call: Call,
    Path(consumer): Path<String>,
    body: Body,
) -> Result<Response, Refusal> {
    call.require_json_body()?;
    call.may("placement:allocations:update")?;
    let consumer = consumer_id(&consumer)?;
    let schema = match call.version.1 {
        0..8 => &schemas::PUT_ALLOCATIONS,
        8..12 => &schemas::PUT_ALLOCATIONS_1_8,
        12..28 => &schemas::PUT_ALLOCATIONS_1_12,
        28..34 => &schemas::PUT_ALLOCATIONS_1_28,
        34..38 => &schemas::PUT_ALLOCATIONS_1_34,
        _ => &schemas::PUT_ALLOCATIONS_1_38,
    };
    let change = read(consumer, &call.body(&body, schema)?)?;
    write(&call, vec![change], Request::One).await
}

async fn replace_many(call: Call, body: Body) -> Result<Response, Refusal> {
    call.require_version(13)?;
    call.require_json_body()?;
    call.may("placement:allocations:manage")?;
    let schema = match call.version.1 {
        0..28 => &schemas::POST_ALLOCATIONS,
        28..34 => &schemas::POST_ALLOCATIONS_1_28,
        34..38 => &schemas::POST_ALLOCATIONS_1_34,
        _ => &schemas::POST_ALLOCATIONS_1_38,
    };
    let changes = read_many(&call.body(&body, schema)?)?;
    write(&call, changes, Request::Many).await
}

async fn delete(call: Call, Path(consumer): Path<String>) -> Result<Response, Refusal> {
    call.may("placement:allocations:delete")?;
    let id = parse_uuid_like(&consumer).ok_or_else(|| allocations::no_allocations(&consumer))?;
    let world = call.app.world.clone();
    let manager = call.app.manager.clone();
    let work = move |tx: &mut Tx<'_>| {
        if let Some(manager) = &manager {
            allocations::refuse_managed(tx, &**manager, id, None)?;
        }
        allocations::delete(tx, &world, id)
    };
    call.app.store.write(work).await?;
    Ok(call.empty(StatusCode::NO_CONTENT))
}
