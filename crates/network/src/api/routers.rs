//! `/v2.0/routers/{id}/...`: the interfaces, the additional routes and the agents of a router.

use axum::extract::{Path, State};
use kilonova_access::{Caller, Guard, Guarded, Routes, get, put};
use kilonova_wire::{JsonBody, time};
use serde_json::{Value, json};

use super::{Answer, ok};
use crate::Networks;
use crate::app::{id, routers};
use crate::error::malformed;

/// A change of a router.
#[derive(Debug, Clone, Copy)]
enum Change {
    AddInterface,
    RemoveInterface,
    AddRoutes,
    RemoveRoutes,
}

pub(super) fn routes() -> Routes<Networks> {
    const ADD: Guard = Guard::Object(&["add_router_interface"]);
    const REMOVE: Guard = Guard::Object(&["remove_router_interface"]);
    const ADD_ROUTES: Guard = Guard::Object(&["add_extraroutes"]);
    const REMOVE_ROUTES: Guard = Guard::Object(&["remove_extraroutes"]);
    Routes::new()
        .route("/v2.0/routers/{id}/add_router_interface", [on_put(ADD, Change::AddInterface)])
        .route(
            "/v2.0/routers/{id}/remove_router_interface",
            [on_put(REMOVE, Change::RemoveInterface)],
        )
        .route("/v2.0/routers/{id}/add_extraroutes", [on_put(ADD_ROUTES, Change::AddRoutes)])
        .route(
            "/v2.0/routers/{id}/remove_extraroutes",
            [on_put(REMOVE_ROUTES, Change::RemoveRoutes)],
        )
        .route("/v2.0/routers/{id}/l3-agents", [get("get_l3-agents", agents)])
}

fn on_put(guard: Guard, what: Change) -> Guarded<Networks> {
    let handler =
        move |State(networks): State<Networks>,
              caller: Caller,
              Path(text): Path<String>,
              JsonBody(body): JsonBody| change(networks, caller, text, body, what);
    put(guard, handler)
}

async fn change(
    networks: Networks,
    caller: Caller,
    text: String,
    body: Value,
    what: Change,
) -> Answer {
    let sent = body.as_object().cloned();
    let sent = sent.ok_or_else(|| malformed("Body contains invalid data"))?;
    let changed = networks.store.write(move |tx| {
        let router = id(routers::KIND, &text)?;
        let now = time::now();
        let router = match what {
            Change::AddInterface => {
                return routers::add_interface(tx, &caller, router, &sent, now).map(Value::from);
            }
            Change::RemoveInterface => {
                return routers::remove_interface(tx, &caller, router, &sent, now).map(Value::from);
            }
            Change::AddRoutes => routers::add_routes(tx, &caller, router, &sent, now)?,
            Change::RemoveRoutes => routers::remove_routes(tx, &caller, router, &sent, now)?,
        };
        Ok(json!({"router": routers::shown(tx, &router, &caller)?}))
    });
    ok(changed.await?)
}

/// The L3 agents of a router: none, because hosts get their configuration from the compute service. Upstream does not look
/// the router up, and answers with an empty list for any id (`neutron/db/l3_agentschedulers_db.py`).
async fn agents(
    State(networks): State<Networks>,
    caller: Caller,
    Path(text): Path<String>,
) -> Answer {
    let found = networks.store.read(move |tx| {
        let router = id(routers::KIND, &text)?;
        routers::seen(tx, &caller, router)
    });
    found.await?;
    ok(json!({"agents": []}))
}
