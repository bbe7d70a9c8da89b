//! `/kilonova/usage`: how much of each resource class was in use over the last day, week or month, from samples.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use kilonova_compute_app::{Compute, Error};
use kilonova_compute_db::samples::{OF_DAY, OF_MONTH, OF_WEEK, since};
use kilonova_wire::query::Query;
use kilonova_wire::{Refusal, time};
use serde_json::{Value, json};

const DAY: i64 = 24 * 3600;

pub(super) async fn show(
    State(compute): State<Compute>,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    let period = query.get("period").unwrap_or("day");
    let (days, step) = match period {
        "day" => (1, OF_DAY),
        "week" => (7, OF_WEEK),
        "month" => (31, OF_MONTH),
        _ => return Err(Refusal::bad_request("The period must be day, week or month.")),
    };
    let (now, length) = (time::now(), days * DAY);
    let found = compute.store.read(move |tx| Ok::<_, Error>(since(tx, step, now, length)?)).await?;
    let mut classes: BTreeMap<String, Vec<[i64; 3]>> = BTreeMap::new();
    for (at, usage) in found {
        let samples = classes.entry(usage.resource_class).or_default();
        samples.push([at.as_second(), usage.used, usage.capacity]);
    }
    let class = |(class, samples)| json!({"resource_class": class, "samples": samples});
    Ok(Json(json!({"usage": {
        "period": period,
        "step": step.seconds,
        "from": now.as_second() - length,
        "to": now.as_second(),
        "classes": classes.into_iter().map(class).collect::<Vec<_>>(),
    }})))
}
