//! `/kilonova/rebalance`: shows the moves that make room for a flavor or that lower the cost of the hosts, and
//! begins one of them.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use kilonova_access::Caller;
use kilonova_compute_app::Compute;
use kilonova_compute_app::rebalance::{self, Drain, Plan, PlannedMove};
use kilonova_ids::{HostName, ServerId, parse_uuid_like};
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Refusal, time};
use serde::Deserialize;
use serde_json::{Value, json};

use super::flavor_of;

pub(super) async fn show(
    State(compute): State<Compute>,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    let plan = rebalance::plan(&compute, flavor_of(&query)?).await?;
    Ok(Json(json!({"rebalance": view(&compute, &plan)})))
}

/// The view of a planned move.
pub(super) fn planned(one: &PlannedMove) -> Value {
    json!({
        "server": one.server,
        "name": one.name,
        "from": one.from,
        "to": one.to,
        "memory_mb": one.memory_mb,
    })
}

/// The view of a drain: the host, the number of its servers, and how many more servers of the flavor fit afterwards.
pub(super) fn drain(one: &Drain) -> Value {
    json!({"host": one.host, "servers": one.servers, "gain": one.gain})
}

fn view(compute: &Compute, plan: &Plan) -> Value {
    let moves = plan.moves.iter().map(planned);
    let gains = plan.gains.iter().map(|one| {
        let after = one.before.map(|before| before.saturating_add_signed(one.gain));
        json!({
            "id": one.id,
            "name": one.name,
            "servers_before": one.before,
            "servers_after": after,
            "gain": one.gain,
        })
    });
    let options = &compute.options.rebalance;
    json!({
        "moves": moves.collect::<Vec<_>>(),
        "flavors": gains.collect::<Vec<_>>(),
        "drain": plan.drain.as_ref().map(drain),
        "saved_devices": plan.saved,
        "reason": plan.reason,
        "limits": {
            "max_concurrent_moves": options.max_concurrent_moves,
            "moves_per_hour": options.moves_per_hour,
            "in_progress": plan.count.open,
            "last_hour": plan.count.last_hour,
            "reached": plan.at_limit,
        },
    })
}

/// The body of a request that begins a move.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(rename = "move")]
    one: BodyOfMove,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyOfMove {
    server: String,
    host: HostName,
}

pub(super) async fn begin(
    State(compute): State<Compute>,
    caller: Caller,
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let body: Body = serde_json::from_value(body)
        .map_err(|why| Refusal::bad_request(format!("Invalid input: {why}.")))?;
    let BodyOfMove { server: id, host } = body.one;
    let missing =
        || Refusal::not_found(format!("Instance {} could not be found.", id.escape_debug()));
    let server: ServerId = parse_uuid_like(&id).ok_or_else(missing)?;
    let compute = compute.explaining();
    let (own, context, to) = (compute.clone(), caller.context.clone(), host.clone());
    let begun = compute
        .write(move |tx| rebalance::begin(tx, &own, &context, server, &to, time::now()))
        .await?;
    let shown = json!({
        "server": server,
        "from": begun.source,
        "to": host,
        "migration": begun.migration,
        "request_id": begun.request_id,
    });
    Ok((StatusCode::ACCEPTED, Json(json!({"move": shown}))))
}
