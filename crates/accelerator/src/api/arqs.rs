//! `/v2/accelerator_requests`. Users create and delete unbound requests. Only a service may bind
//! them, such as an external Nova that manages its own servers and uses our devices.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State as Extract;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use kilonova_access::{Routes, get, patch, post};
use kilonova_ids::{ArqId, ProviderId, ServerId};
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Body, Context, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::request::{Segment, check, given, invalid, json as json_of, uuid};
use super::{State, access, collection, negotiation};
use crate::Error;
use crate::app::arqs::Caller;
use crate::app::patch;
use crate::app::{arqs, grammar};
use crate::db::arqs::{ArqRow, BoundHandle};
use crate::states::{ArqState, AttachType};

const MISSING: &str =
    "Object action delete failed because: Provide either an ARQ uuid list or an instance UUID";

/// Attributes that Cyborg's API reference reserves for future use, and that its service ignores.
const PLANNED: &str = "device_profile_group_id and image_uuid are not supported: each group of the \
                       device profile gets its accelerator requests.";

pub(super) fn routes() -> Routes<State> {
    collection(
        "/accelerator_requests",
        [
            get("cyborg:arq:get_all", list),
            post("cyborg:arq:create", create),
            patch("cyborg:arq:update", update),
            kilonova_access::delete("cyborg:arq:delete", delete_listed),
        ],
    )
    .route(
        "/accelerator_requests/{uuid}",
        [
            get("cyborg:arq:get_one", show),
            patch("cyborg:arq:update", update),
            kilonova_access::delete("cyborg:arq:delete", delete_one),
        ],
    )
}

async fn list(
    Extract(state): Extract<State>,
    context: Context,
    base: Base,
    query: Query,
) -> Result<Response, Refusal> {
    check(&query, &["instance", "bind_state"])?;
    let server: Option<ServerId> =
        query.get("instance").map(|text| uuid("instance", text)).transpose()?;
    let resolved = match given(&query, "bind_state") {
        None => false,
        Some("resolved") => true,
        Some(other) => {
            return Err(invalid("bind_state", other, "Expected state(s): ['resolved']"));
        }
    };
    let scope = access::scope(&context);
    match state.store.read(move |tx| arqs::list(tx, &scope, server, resolved)).await {
        Ok(rows) => Ok(Json(views(&rows, &base)).into_response()),
        // Nova reads only the status; upstream's body contains no information.
        Err(Error::Unresolved(_)) => {
            Ok((StatusCode::LOCKED, Json(json!({"error_message": "null"}))).into_response())
        }
        Err(error) => Err(error.into()),
    }
}

async fn show(
    Extract(state): Extract<State>,
    context: Context,
    base: Base,
    Segment(text): Segment,
) -> Result<Json<Value>, Refusal> {
    let uuid: ArqId = uuid("uuid", &text)?;
    let scope = access::scope(&context);
    let row = state.store.read(move |tx| arqs::get(tx, &scope, uuid)).await?;
    Ok(Json(view(&row, &base)))
}

/// Reads the profile name from the body of a POST.
fn profile_name(body: &Value) -> Result<String, Refusal> {
    let Some(fields) = body.as_object() else {
        return Err(Refusal::bad_request("The body must be an object with device_profile_name."));
    };
    for (field, value) in fields {
        match field.as_str() {
            "device_profile_name" => {}
            "device_profile_group_id" | "image_uuid" if value.is_null() => {}
            "device_profile_group_id" | "image_uuid" => return Err(Refusal::bad_request(PLANNED)),
            unknown => {
                let field = grammar::shown(unknown);
                let text = format!("Unknown or unsupported attribute: {field}");
                return Err(Refusal::bad_request(text));
            }
        }
    }
    match fields.get("device_profile_name") {
        None | Some(Value::Null) => Err(Refusal::bad_request("DeviceProfile name needed.")),
        Some(Value::String(name)) => Ok(name.clone()),
        Some(_) => Err(Refusal::bad_request("device_profile_name must be a string.")),
    }
}

fn caller(state: &State, context: &Context) -> Caller {
    Caller {
        scope: access::scope(context),
        actor: access::actor(context),
        service: context.is_service(),
        notify_nova: state.notifies_nova(),
        world: state.world.clone(),
        bitstreams: state.bitstreams.clone(),
        nodes: state.nodes.clone(),
    }
}

async fn create(
    Extract(state): Extract<State>,
    context: Context,
    base: Base,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let name = profile_name(&json_of(&body, "req")?)?;
    let (project, limit) = (context.project_id, state.unbound_limit);
    let rows = state.store.write(move |tx| arqs::create(tx, &project, &name, limit)).await?;
    Ok((StatusCode::CREATED, Json(views(&rows, &base))))
}

async fn update(
    Extract(state): Extract<State>,
    context: Context,
    version: Microversion,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let body = json_of(&body, "patch_list")?;
    patch::check_ops(&body)?;
    if patch::sets_project(&body) {
        negotiation::at_least(version, negotiation::BIND_PROJECT)?;
        if !context.is_admin() {
            return Err(access::denied("cyborg:arq:update"));
        }
    }
    let patch = patch::parse(&body)?;
    access::service_token(&context)?;
    let caller = caller(&state, &context);
    let providers: Vec<ProviderId> = patch.binds.iter().map(|bind| bind.provider).collect();
    let notifier = state.clone();
    state
        .store
        .write_on(providers, move |tx| {
            arqs::apply(tx, &caller, &patch)?;
            notifier.announce(tx)
        })
        .await?;
    state.wake_delivery();
    Ok(StatusCode::ACCEPTED)
}

async fn delete_one(
    Extract(state): Extract<State>,
    context: Context,
    Segment(text): Segment,
) -> Result<StatusCode, Refusal> {
    delete(&state, &context, &text).await
}

async fn delete_listed(
    Extract(state): Extract<State>,
    context: Context,
    query: Query,
) -> Result<StatusCode, Refusal> {
    check(&query, &["arqs", "instance"])?;
    match (given(&query, "arqs"), query.get("instance")) {
        (Some(list), None) => delete(&state, &context, list).await,
        (None, Some(text)) => {
            let server: ServerId = uuid("instance", text)?;
            access::service_token(&context)?;
            let (caller, notifier) = (caller(&state, &context), state.clone());
            state
                .store
                .write(move |tx| {
                    arqs::delete_of_server(tx, &caller, server)?;
                    notifier.announce(tx)
                })
                .await?;
            Ok(StatusCode::NO_CONTENT)
        }
        _ => Err(Refusal::bad_request(MISSING)),
    }
}

async fn delete(state: &State, context: &Context, list: &str) -> Result<StatusCode, Refusal> {
    let uuids =
        list.split(',').map(|text| uuid("arqs", text)).collect::<Result<BTreeSet<ArqId>, _>>()?;
    let caller = caller(state, context);
    let notifier = state.clone();
    let work = move |tx: &mut Tx<'_>| {
        let absent = arqs::delete(tx, &caller, &uuids)?;
        notifier.announce(tx)?;
        Ok::<_, Error>(absent)
    };
    let absent = state.store.write(work).await?;
    match absent.first() {
        None => Ok(StatusCode::NO_CONTENT),
        Some(_) => {
            let all: Vec<String> = absent.iter().map(ToString::to_string).collect();
            Err(Error::not_found("ExtArq", "uuid", all.join(",")).into())
        }
    }
}

fn views(rows: &[ArqRow], base: &Base) -> Value {
    json!({"arqs": rows.iter().map(|row| view(row, base)).collect::<Vec<_>>()})
}

/// Splits `0000:84:00.1` into its four parts; `None` if it is not the address of a PCI function.
fn pci(address: &str) -> Option<Value> {
    let (rest, function) = address.rsplit_once('.')?;
    let mut parts = rest.splitn(3, ':');
    let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
    Some(json!({"domain": domain, "bus": bus, "device": device, "function": function}))
}

/// The information that a hypervisor driver needs to attach the handle.
fn attach_info(held: &BoundHandle) -> Value {
    let address = &held.key.address;
    let mut info = pci(address).unwrap_or_else(|| json!({"parent": address}));
    if held.key.attach_type == AttachType::Mdev {
        info["asked_type"] = held.key.mdev_type.clone().into();
        info["vgpu_mark"] = format!("{}_{}", held.key.mdev_type, held.slot).into();
    }
    if let Some(network) = &held.network {
        info["physical_network"] = network.clone().into();
    }
    info
}

/// Clients do not know `VFIO`, so it is shown as a PCI function.
fn attach_type(held: &BoundHandle) -> &'static str {
    match held.key.attach_type {
        AttachType::Vfio => AttachType::Pci.as_str(),
        other @ (AttachType::Mdev | AttachType::Pci | AttachType::TestPci) => other.as_str(),
    }
}

/// A request in another state than `Bound` shows no handle, as upstream's does (`objects/ext_arq.py`): a request whose
/// card is being programmed has one, which nobody may attach yet.
fn view(row: &ArqRow, Base(base): &Base) -> Value {
    let held = row.handle.as_ref().filter(|_| row.state == ArqState::Bound);
    json!({
        "uuid": row.uuid,
        "state": row.state,
        "device_profile_name": row.profile_name,
        "device_profile_group_id": row.group_id,
        "hostname": row.host,
        "device_rp_uuid": row.provider,
        "instance_uuid": row.server,
        "project_id": row.project_id,
        "attach_handle_type": held.map_or("", attach_type),
        "attach_handle_uuid": held.map(|held| held.uuid),
        "attach_handle_info": held.map_or_else(|| json!({}), attach_info),
        "links": [{
            "rel": "self",
            "href": format!("{base}/v2/accelerator_requests/{}", row.uuid),
        }],
        "created_at": time::offset(row.created_at),
        "updated_at": row.updated_at.map(time::offset),
    })
}
