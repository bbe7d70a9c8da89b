//! `/v2/deployables`: the parts of devices that are scheduled on their own. Hosts report them. A
//! request to program a deployable sends an order to its host and waits for the result.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State as Extract};
use http::StatusCode;
use kilonova_access::{Routes, get, patch};
use kilonova_ids::DeployableId;
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Base, Body, Context, Refusal, time};
use serde_json::{Value, json};

use super::request::{Segment, check, invalid, json as json_of, uuid};
use super::{State, access, collection};
use crate::Error;
use crate::app::program;
use crate::db::attributes::{self, AttributeRow};
use crate::db::deployables::{self, DeployableRow};
use crate::ledger::orders;

/// How long a request waits for a deployable to be programmed: the timeout of upstream's RPC.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two checks of the order.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(super) fn routes() -> Routes<State> {
    collection("/deployables", [get("cyborg:deployable:get_all", list)])
        .route("/deployables/{uuid}", [get("cyborg:deployable:get_one", show)])
        .route("/deployables/{uuid}/program", [patch("cyborg:deployable:program", program)])
        .route(
            "/deployables/{uuid}/program/{again}",
            [patch("cyborg:deployable:program", program_again)],
        )
}

/// The name to filter by, if the query has a filter in WSME's form.
fn filter(query: &Query) -> Result<Option<String>, Refusal> {
    check(query, &["filters.field", "filters.value"])?;
    match (query.get("filters.field"), query.get("filters.value")) {
        (None, None) => Ok(None),
        (Some("name"), Some(value)) => Ok(Some(value.to_owned())),
        (Some("name"), None) | (None, Some(_)) => {
            Err(Refusal::bad_request("A filter needs both filters.field and filters.value."))
        }
        (Some(field), _) => Err(invalid("filters.field", field, "Value should be one of: name")),
    }
}

async fn list(
    Extract(state): Extract<State>,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    let name = filter(&query)?;
    let shown = state
        .store
        .read(move |tx: &mut Tx<'_>| {
            let rows = deployables::list(tx, name.clone())?;
            let attributes = attributes::list(tx, None, None)?;
            Ok::<_, Error>(rows.iter().map(|row| view(row, &attributes, &base)).collect::<Vec<_>>())
        })
        .await?;
    Ok(Json(json!({"deployables": shown})))
}

async fn show(
    Extract(state): Extract<State>,
    base: Base,
    Segment(text): Segment,
) -> Result<Json<Value>, Refusal> {
    respond(&state, &base, uuid("uuid", &text)?).await
}

async fn respond(state: &State, base: &Base, uuid: DeployableId) -> Result<Json<Value>, Refusal> {
    let base = base.clone();
    let view = state
        .store
        .read(move |tx: &mut Tx<'_>| {
            let row = deployables::by_uuid(tx, uuid)?
                .ok_or_else(|| Error::not_found("Deployable", "uuid", uuid))?;
            let attributes = attributes::list(tx, Some(row.id), None)?;
            Ok::<_, Error>(view(&row, &attributes, &base))
        })
        .await?;
    Ok(Json(view))
}

async fn program(
    Extract(state): Extract<State>,
    context: Context,
    base: Base,
    Segment(text): Segment,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    order(&state, &context, &base, &text, &body).await
}

/// openstacksdk repeats the UUID at the end of the path.
async fn program_again(
    Extract(state): Extract<State>,
    context: Context,
    base: Base,
    path: Result<Path<(String, String)>, PathRejection>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let unreadable = |_| Refusal::bad_request("The path of the request cannot be read.");
    let Path((text, _)) = path.map_err(unreadable)?;
    order(&state, &context, &base, &text, &body).await
}

/// Orders the programming and waits for the host's result, for at most [`PROGRAM_TIMEOUT`].
async fn order(
    state: &State,
    context: &Context,
    base: &Base,
    text: &str,
    body: &Body,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let deployable: DeployableId = uuid("uuid", text)?;
    let image = program::check(&json_of(body, "patch")?)?;
    let (notifier, actor) = (state.clone(), access::actor(context));
    let work = move |tx: &mut Tx<'_>| {
        let bitstreams = notifier.bitstreams.as_deref();
        let order =
            orders::program_deployable(tx, &notifier.world, bitstreams, &actor, deployable, image)?;
        notifier.announce(tx)?;
        Ok::<_, Error>(order)
    };
    let order = state.store.write(work).await?;
    let begun = tokio::time::Instant::now();
    loop {
        let row = state.store.read(move |tx| program::ended(tx, order)).await?;
        match row {
            Some(Ok(())) => {
                return Ok((StatusCode::OK, respond(state, base, deployable).await?));
            }
            Some(Err(why)) => {
                let why = format!("FPGA programming failed: {why}");
                return Err(Refusal::new(Kind::Internal, why));
            }
            None if begun.elapsed() >= PROGRAM_TIMEOUT => {
                return Ok((StatusCode::ACCEPTED, respond(state, base, deployable).await?));
            }
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// The attributes in Cyborg's form: the text of a list of one-key objects.
fn attributes_list(attributes: &[AttributeRow], deployable_id: i64) -> String {
    let own = attributes.iter().filter(|row| row.deployable_id == deployable_id);
    let entries: Vec<String> =
        own.map(|row| format!("{{{}: {}}}", json!(row.name), json!(row.value))).collect();
    format!("[{}]", entries.join(", "))
}

fn view(row: &DeployableRow, attributes: &[AttributeRow], Base(base): &Base) -> Value {
    json!({
        "uuid": row.uuid,
        "parent_id": null,
        "root_id": null,
        "name": row.name,
        "num_accelerators": row.handles,
        "device_id": row.device_id,
        "attributes_list": attributes_list(attributes, row.id),
        "rp_uuid": row.provider,
        "driver_name": row.driver,
        "bitstream_id": row.bitstream_id,
        "links": [
            {"rel": "self", "href": format!("{base}/v2/deployables/{}", row.uuid)},
            {"rel": "bookmark", "href": format!("{base}/deployables/{}", row.uuid)},
        ],
        "created_at": time::offset(row.created_at),
        "updated_at": row.updated_at.map(time::offset),
    })
}
