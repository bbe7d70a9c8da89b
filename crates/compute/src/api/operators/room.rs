//! `/kilonova/room`: shows users how many servers of a flavor fit now.
//!
//! The answer contains numbers and a general reason; it names no hosts, projects or devices.

use axum::Json;
use axum::extract::State;
use kilonova_access::Caller;
use kilonova_compute_app::Compute;
use kilonova_compute_app::capacity::{Fits, of_cloud};
use kilonova_compute_app::flavors;
use kilonova_wire::Refusal;
use kilonova_wire::query::Query;
use serde_json::{Value, json};

use super::flavor_of;

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    let wanted = flavor_of(&query)?;
    let wanted = wanted.ok_or_else(|| Refusal::bad_request("The query must name a flavor."))?;
    let context = caller.context.clone();
    let flavor = compute.store.read(move |tx| flavors::visible(tx, &context, &wanted)).await?;
    let counted = of_cloud(&compute, Some(flavor.id.clone())).await?.flavors;
    let found = counted.into_iter().find(|(id, ..)| *id == flavor.id);
    let (_, _, fits) = found.ok_or_else(|| flavors::not_found(&flavor.id))?;
    let (servers, hosts, reason) = match fits {
        Fits::Counted(counted) => {
            let reason = counted.reason.as_ref().map(|reason| reason.owner_text());
            (Some(counted.servers), Some(counted.hosts), reason)
        }
        Fits::Unusable(why) => (Some(0), Some(0), Some(why)),
        Fits::NotCounted => (None, None, None),
    };
    let room = json!({
        "flavor": {"id": flavor.id, "name": flavor.name},
        "servers": servers,
        "hosts": hosts,
        "reason": reason,
    });
    Ok(Json(json!({"room": room})))
}
