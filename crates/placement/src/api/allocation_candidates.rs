//! `/allocation_candidates`, from 1.10, and `/allocation_candidates/explain`, which upstream lacks:
//! the same query, answered with the conditions that exclude hosts.
//!
//! `candidates_query` parses the query, `candidates_view` writes the bodies, and the engine
//! searches. A search can take milliseconds, so searches have a small thread pool of their own:
//! more threads would use more memory without being faster.

use std::num::NonZero;
use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kilonova_engine::{Explanation, Query};
use kilonova_threads::Pool;
use kilonova_wire::Refusal;
use serde_json::{Value, json};

use super::Placement;
use super::call::{Call, bad_query, only};
use super::candidates_query::{self, CandidatesRequest};
use super::candidates_view::{Answer, Shape};
use crate::app::candidates;

pub fn routes() -> Router<Placement> {
    Router::new()
        .route("/allocation_candidates", only("GET", get(list)))
        .route("/allocation_candidates/explain", only("GET", get(explain)))
}

async fn list(call: Call) -> Result<Response, Refusal> {
    call.require_version(10)?;
    call.require_accepts_json()?;
    call.may("placement:allocation_candidates:list")?;
    let CandidatesRequest { query, limit } = read_request(&call).await?;
    let shape = shape(&call, &query);
    let snapshot = call.app.world.stored();
    let body = blocking(move || {
        let found = candidates::search(snapshot, &query, limit, shape.nested)?;
        Answer { found: &found, shape: &shape }.to_json().map_err(Refusal::internal)
    })
    .await?;
    let json = HeaderValue::from_static("application/json");
    let mut response = (StatusCode::OK, [(header::CONTENT_TYPE, json)], body).into_response();
    call.dated(&mut response, None);
    Ok(response)
}

async fn explain(call: Call) -> Result<Response, Refusal> {
    call.require_version(10)?;
    call.require_accepts_json()?;
    call.may("placement:allocation_candidates:explain")?;
    let CandidatesRequest { query, .. } = read_request(&call).await?;
    let snapshot = call.app.world.stored();
    let explanation = blocking(move || Ok(snapshot.explain(&query))).await?;
    if let Some(error) = &explanation.error {
        return Err(bad_query(&error.to_string()));
    }
    Ok(call.json(StatusCode::OK, &explained(&explanation), None))
}

/// Parses the query and refuses unknown classes and traits.
async fn read_request(call: &Call) -> Result<CandidatesRequest, Refusal> {
    let mut request = candidates_query::read(call)?;
    request.query.seed = call.seed();
    if !candidates::all_standard(&request.query) {
        let named = request.query.clone();
        call.app.store.read(move |tx| candidates::check(tx, &named)).await?;
    }
    Ok(request)
}

/// The threads that run searches.
static SEARCHES: LazyLock<std::io::Result<Pool>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    Pool::new("candidates", (2 * cores).max(4))
});

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let searches = SEARCHES.as_ref().map_err(Refusal::internal)?;
    searches.run(work).await.map_err(Refusal::internal)?
}

fn shape(call: &Call, query: &Query) -> Shape {
    let asked_for = query.groups.iter().flat_map(|group| &group.resources);
    Shape {
        by_provider: call.speaks(12),
        mappings: call.speaks(34),
        traits: call.speaks(17),
        classes: (!call.speaks(27)).then(|| asked_for.map(|(class, _)| class.clone()).collect()),
        nested: call.speaks(29),
    }
}

fn explained(explanation: &Explanation) -> Value {
    let steps: Vec<Value> = explanation
        .steps
        .iter()
        .map(|step| {
            json!({
                "constraint": step.constraint,
                "text": step.text,
                "removed": step.removed,
                "left": step.left,
            })
        })
        .collect();
    let nearest = explanation.nearest.as_ref().map(|nearest| {
        json!({
            "root_provider_uuid": nearest.root,
            "name": &*nearest.name,
            "constraint": nearest.constraint,
            "lacks": nearest.lacks,
        })
    });
    json!({
        "hosts": explanation.hosts,
        "left": explanation.left,
        "steps": steps,
        "nearest": nearest,
        "text": explanation.to_string(),
    })
}
