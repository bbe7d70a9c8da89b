//! `/v2.0/routers/{id}/...`: the interfaces and the additional routes of a router.

use axum::extract::{Path, State};
use kilonova_access::{Caller, Guard, Routes, put};
use kilonova_wire::{JsonBody, time};
use serde_json::{Value, json};

use super::{Answer, ok};
use crate::Networks;
use crate::app::{id, routers};
use crate::error::malformed;
use crate::record::Body;

pub(super) fn routes() -> Routes<Networks> {
    const ADD: Guard = Guard::Object(&["add_router_interface"]);
    const REMOVE: Guard = Guard::Object(&["remove_router_interface"]);
    const ADD_ROUTES: Guard = Guard::Object(&["add_extraroutes"]);
    const REMOVE_ROUTES: Guard = Guard::Object(&["remove_extraroutes"]);
    Routes::new()
        .route("/v2.0/routers/{id}/add_router_interface", [put(ADD, add_interface)])
        .route("/v2.0/routers/{id}/remove_router_interface", [put(REMOVE, remove_interface)])
        .route("/v2.0/routers/{id}/add_extraroutes", [put(ADD_ROUTES, add_routes)])
        .route("/v2.0/routers/{id}/remove_extraroutes", [put(REMOVE_ROUTES, remove_routes)])
}

fn object(body: &Value) -> Result<Body, kilonova_wire::Refusal> {
    body.as_object().cloned().ok_or_else(|| malformed("Body contains invalid data"))
}

async fn add_interface(
    State(networks): State<Networks>,
    caller: Caller,
    Path(text): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let sent = object(&body)?;
    let added = networks.store.write(move |tx| {
        let router = id(routers::KIND, &text)?;
        routers::add_interface(tx, &caller, router, &sent, time::now())
    });
    ok(json!(added.await?))
}

async fn remove_interface(
    State(networks): State<Networks>,
    caller: Caller,
    Path(text): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let sent = object(&body)?;
    let removed = networks.store.write(move |tx| {
        let router = id(routers::KIND, &text)?;
        routers::remove_interface(tx, &caller, router, &sent, time::now())
    });
    ok(json!(removed.await?))
}

async fn add_routes(
    State(networks): State<Networks>,
    caller: Caller,
    Path(text): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let sent = object(&body)?;
    let changed = networks.store.write(move |tx| {
        let router = id(routers::KIND, &text)?;
        let router = routers::add_routes(tx, &caller, router, &sent, time::now())?;
        routers::shown(tx, &router, &caller)
    });
    ok(json!({"router": changed.await?}))
}

async fn remove_routes(
    State(networks): State<Networks>,
    caller: Caller,
    Path(text): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let sent = object(&body)?;
    let changed = networks.store.write(move |tx| {
        let router = id(routers::KIND, &text)?;
        let router = routers::remove_routes(tx, &caller, router, &sent, time::now())?;
        routers::shown(tx, &router, &caller)
    });
    ok(json!({"router": changed.await?}))
}
