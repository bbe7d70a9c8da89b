//! What becomes of a server in its new place or size: it stays, or goes back.

use kilonova_flow::{self as flow, NewOperation, Outcome as End};
use kilonova_ids::{RequestId, ServerId, ascending};
use kilonova_node_api::Desired;
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};
use serde_json::json;

use super::super::start;
use super::course::Course;
use super::{Scene, put, undo};
use crate::app::moves as claims;
use crate::app::nics;
use crate::app::states;
use crate::db::moves::{self, Move};
use crate::db::servers::{self, Server, VmState, shape};
use crate::{Compute, Error};

/// The move that waits to be confirmed.
fn finished(tx: &mut Tx<'_>, server: &Server) -> Result<Move, Error> {
    let open = moves::open_of(tx, server.id)?.filter(|open| open.status == "finished");
    open.ok_or_else(|| Fault::bad_request("Instance has not been resized.").into())
}

/// The server stays. The old side is released when its host says that nothing is left there; nobody
/// waits for that.
///
/// # Errors
/// 409 in Nova's words when the server is not in a state for it.
pub fn confirm(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "confirmResize")?;
    let migration = finished(tx, server)?;
    let operation = NewOperation {
        id: ascending(),
        kind: "confirmResize",
        subject: server.id,
        request_id: context.request_id_text(),
        project_id: context.project_id.clone(),
        user_id: context.user_id.clone(),
        step: "done",
        data: json!({}),
    };
    stays(tx, compute, server, &migration, &operation, now)
}

/// Confirms what waited for too long. Says whether it did.
///
/// # Errors
/// The database's.
pub fn confirm_unasked(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    before: i64,
    now: i64,
) -> Result<bool, Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(false) };
    let migration = moves::open_of(tx, server.id)?
        .filter(|open| open.status == "finished" && open.updated_at <= before);
    let Some(migration) = migration else { return Ok(false) };
    if server.vm_state != VmState::Resized || server.task_state.is_some() {
        return Ok(false);
    }
    let operation = NewOperation {
        id: ascending(),
        kind: "confirmResize",
        subject: server.id,
        request_id: format!("req-{}", RequestId::new_v4()),
        project_id: server.project_id.clone(),
        user_id: server.user_id.clone(),
        step: "done",
        data: json!({}),
    };
    stays(tx, compute, &server, &migration, &operation, now)?;
    Ok(true)
}

fn stays(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    migration: &Move,
    operation: &NewOperation,
    now: i64,
) -> Result<(), Error> {
    let source = &migration.source;
    let state = undo::state_by_power(server.power_state);
    servers::set_state(tx, server.id, state, None, server.power_state, now)?;
    leave_for_good(tx, compute, server.id, migration, now)?;
    flow::record(tx, operation, End::Done, now)?;
    let done = start::event("compute_confirm_resize", source, None, now, now);
    Ok(flow::event(tx, operation.id, &done)?)
}

/// The move is over, and the old place is given up.
fn leave_for_good(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    migration: &Move,
    now: i64,
) -> Result<(), Error> {
    let source = &migration.source;
    moves::close(tx, migration.id, "confirmed", now)?;
    if migration.same_host() {
        return claims::drop_held(tx, compute, server, source);
    }
    put(tx, compute, source, server, &Desired::Absent)?;
    if compute.host_is_lost(source, now) {
        claims::abandon_held(tx, compute, server, source)?;
    }
    Ok(())
}

/// An operator says what the server is: if it waited to be confirmed, it stays where it is.
///
/// # Errors
/// The database's.
pub fn stay_there(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<(), Error> {
    match moves::open_of(tx, server)?.filter(|open| open.status == "finished") {
        Some(migration) => leave_for_good(tx, compute, server, &migration, now),
        None => Ok(()),
    }
}

/// The server goes back: it holds its old place and flavor from now on, and the guest is started
/// there once the new place is clear.
///
/// # Errors
/// 409 in Nova's words when the server is not in a state for it.
pub fn revert(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "revertResize")?;
    let migration = finished(tx, server)?;
    if compute.host_is_lost(&migration.source, now) {
        return Err(Fault::conflict("Service is unavailable at this time.").into());
    }
    start::begin(tx, context, server, "revertResize", "begin", "resize_reverting", now)?;
    let operation = flow::open_of(tx, server.id)?.ok_or_else(|| shape("no operation"))?;
    moves::set_status(tx, migration.id, "reverting", now)?;
    servers::set_flavor(tx, server, &migration.old_flavor, now)?;
    nics::set_host(tx, server.id, Some(&migration.source), now)?;
    let server = server.clone();
    let scene = Scene { compute, operation: &operation, server, migration, now };
    undo::drop_dest(tx, &scene, Course::default())?;
    // The server holds its old place again only now: its ports are the devices that it has there.
    if scene.server.spec.networked {
        nics::bind(tx, scene.server.id, Some(&scene.migration.source), now)?;
    }
    Ok(())
}

/// Notes how going back went.
pub(super) fn note_reverted(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    failure: Option<&str>,
) -> Result<(), Error> {
    let (operation, migration, now) = (scene.operation, &scene.migration, scene.now);
    let dest = migration.dest.as_deref().unwrap_or_default();
    let since = operation.created_at;
    let cleared = start::event("compute_revert_resize", dest, None, since, operation.updated_at);
    flow::event(tx, operation.id, &cleared)?;
    let name = "compute_finish_revert_resize";
    let done = start::event(name, &migration.source, failure, operation.updated_at, now);
    Ok(flow::event(tx, operation.id, &done)?)
}
