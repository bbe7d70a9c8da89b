//! `/kilonova/capacity`: how many more servers of each flavor fit now, and the usage of devices by kind.

use axum::Json;
use axum::extract::State;
use kilonova_compute_app::Compute;
use kilonova_compute_app::capacity::{CloudCapacity, Fits, of_cloud};
use kilonova_compute_app::rebalance;
use kilonova_wire::Refusal;
use kilonova_wire::query::Query;
use serde_json::{Value, json};

use super::flavor_of;
use super::rebalance::{drain, planned};

pub(super) async fn show(
    State(compute): State<Compute>,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    let flavor = flavor_of(&query)?;
    let capacity = of_cloud(&compute, flavor.clone()).await?;
    let mut shown = view(&capacity);
    if let Some(flavor) = flavor {
        let plan = rebalance::plan(&compute, Some(flavor)).await?;
        shown["gains"] = json!({
            "moves": plan.moves.iter().map(planned).collect::<Vec<_>>(),
            "gain": plan.gains.first().map_or(0, |one| one.gain),
            "drain": plan.drain.as_ref().map(drain),
        });
    }
    Ok(Json(json!({"capacity": shown})))
}

fn view(capacity: &CloudCapacity) -> Value {
    let flavors = capacity.flavors.iter().map(|(id, name, fits)| {
        let (servers, hosts, reason) = match fits {
            Fits::Counted(counted) => {
                let reason = counted.reason.as_ref().map(|reason| reason.all());
                (Some(counted.servers), Some(counted.hosts), reason)
            }
            Fits::Unusable(why) => (Some(0), Some(0), Some(why.clone())),
            Fits::NotCounted => {
                let why =
                    "Counting takes too long with all the other flavors; request this flavor alone.";
                (None, None, Some(why.to_owned()))
            }
        };
        json!({"id": id, "name": name, "servers": servers, "hosts": hosts, "reason": reason})
    });
    let devices = capacity.devices.iter().map(|(kind, used)| {
        json!({
            "resource_class": kind.class,
            "traits": kind.traits,
            "units": kind.units,
            "devices": used.devices,
            "free": used.free,
            "partly_used": used.partly_used,
            "free_units": used.free_units,
            "divided_units": used.divided_units,
            "reserved_units": used.reserved_units,
        })
    });
    json!({
        "flavors": flavors.collect::<Vec<_>>(),
        "devices": devices.collect::<Vec<_>>(),
        "hosts": capacity.hosts,
        "hosts_up": capacity.up,
    })
}
