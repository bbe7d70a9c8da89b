//! `/allocation_candidates`, from 1.10: the grammar and the view; the search is the engine's.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use kilonova_engine::Candidate;
use kilonova_wire::Fault;
use serde_json::{Map, Value, json};

use super::Placement;
use super::call::{Call, only};
use super::candidates_query::{self, Asked};
use crate::app::candidates::{self, Found, Summary};
use crate::app::traits;

/// Each search starts at another host than the one before, so that parallel schedulers spread.
static TURN: AtomicU64 = AtomicU64::new(0);

pub fn routes() -> Router<Placement> {
    Router::new().route("/allocation_candidates", only("GET", get(list)))
}

async fn list(call: Call) -> Result<Response, Fault> {
    call.since(10)?;
    call.takes_json()?;
    call.may("placement:allocation_candidates:list")?;
    let Asked { mut query, limit } = candidates_query::read(&call)?;
    query.seed = TURN.fetch_add(1, Ordering::Relaxed);
    let classes: BTreeSet<String> = query
        .groups
        .iter()
        .flat_map(|group| group.resources.iter().map(|(class, _)| class.clone()))
        .collect();
    let named = query.clone();
    call.app.store.read(move |tx| candidates::check(tx, &named)).await?;
    let (snapshot, nested) = (call.app.world.snapshot(), call.speaks(29));
    let found =
        tokio::task::spawn_blocking(move || candidates::search(&snapshot, &query, limit, nested))
            .await
            .map_err(Fault::internal)??;
    Ok(call.json(StatusCode::OK, &view(&call, &found, &classes), None))
}

fn view(call: &Call, found: &Found, classes: &BTreeSet<String>) -> Value {
    let requests: Vec<Value> =
        found.candidates.iter().map(|candidate| request(call, candidate)).collect();
    let summaries: Map<String, Value> = found
        .summaries
        .iter()
        .map(|one| (one.provider.id.to_string(), summary(call, one, classes)))
        .collect();
    json!({"allocation_requests": requests, "provider_summaries": summaries})
}

fn request(call: &Call, candidate: &Candidate) -> Value {
    let mut by_provider: Map<String, Value> = Map::new();
    for (provider, class, amount) in &candidate.allocations {
        let entry = by_provider.entry(provider.to_string()).or_insert(json!({"resources": {}}));
        entry["resources"][&**class] = (*amount).into();
    }
    if !call.speaks(12) {
        let list: Vec<Value> = by_provider
            .into_iter()
            .map(|(uuid, mut one)| {
                json!({"resource_provider": {"uuid": uuid}, "resources": one["resources"].take()})
            })
            .collect();
        return json!({"allocations": list});
    }
    let mut shown = json!({"allocations": by_provider});
    if call.speaks(34) {
        let mappings: Map<String, Value> = candidate
            .mappings
            .iter()
            .map(|(suffix, providers)| (suffix.clone(), json!(providers)))
            .collect();
        shown["mappings"] = mappings.into();
    }
    shown
}

fn summary(call: &Call, one: &Summary, classes: &BTreeSet<String>) -> Value {
    let provider = &one.provider;
    let resources: Map<String, Value> = provider
        .inventories
        .iter()
        .filter(|(class, _)| call.speaks(27) || classes.contains(&**class))
        .map(|(class, inv)| {
            (class.to_string(), json!({"capacity": inv.capacity(), "used": inv.used}))
        })
        .collect();
    let mut shown = json!({"resources": resources});
    if call.speaks(17) {
        let mut names: Vec<String> = provider.traits.iter().map(|name| name.to_string()).collect();
        traits::sort(&mut names);
        shown["traits"] = json!(names);
    }
    if call.speaks(29) {
        shown["parent_provider_uuid"] = json!(provider.parent);
        shown["root_provider_uuid"] = json!(one.root);
    }
    shown
}
