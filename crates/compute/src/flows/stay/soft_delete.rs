//! A deletion that can be taken back for a while, where the operator allows it: the guest is shut off
//! and keeps its place, its disk and its devices until its time is over.

use kilonova_ids::ServerId;
use kilonova_store::Tx;
use kilonova_wire::Context;

use super::super::start;
use super::course::Course;
use super::{Scene, Wish, shelve};
use crate::app::{states, usage};
use crate::db::resting::{self, Why};
use crate::db::servers::{self, Server, VmState};
use crate::{Compute, Error, flows};
use kilonova_flow::{self as flow, Outcome as End};

/// The step by which such a deletion is told from a real one.
pub(in crate::flows) const SOFT: &str = "soft";

/// Deletes the server so that it can be restored, or for good where that cannot be. Deleting twice
/// is deleting once.
///
/// # Errors
/// 409 when the server is locked; the database's.
pub fn soft_delete(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "delete")?;
    if server.vm_state == VmState::SoftDeleted {
        return Ok(());
    }
    let wanted = compute.options.reclaim_instance_interval > 0;
    let whole = server.launched_at.is_some() && server.vm_state != VmState::Resized;
    if !(wanted && whole) || super::guest_of(tx, server).is_err() {
        return flows::delete(tx, compute, context, server, now);
    }
    if let Some(open) = flow::open_of(tx, server.id)? {
        if open.kind == "delete" && super::is_one(&open) {
            return Ok(());
        }
        if open.kind == "create" || flows::moving::is_move(&open.kind) {
            return flows::delete(tx, compute, context, server, now);
        }
        super::call_off(tx, compute, &open)?;
        flow::finish(tx, &open, End::Cancelled, Some("The server was deleted."), now)?;
    }
    super::begin(tx, compute, context, server, &Wish::SoftDelete, Course::default(), now)
}

/// The guest is shut off.
pub(super) fn rests(tx: &mut Tx<'_>, scene: &Scene<'_>) -> Result<(), Error> {
    shelve::forget_image(tx, scene)?;
    resting::put(tx, scene.server.id, Why::Deleted, None, scene.now)
}

/// Begins `restore`.
///
/// # Errors
/// 409 in Nova's words when the server is not deleted; 403 over quota.
pub fn restore(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "restore")?;
    let flavor = &server.spec.flavor;
    let wanted = usage::ProjectUsage { instances: 1, cores: flavor.vcpus, ram: flavor.ram };
    usage::check(tx, &server.project_id, &server.user_id, wanted)?;
    super::begin(tx, compute, context, server, &Wish::Restore, Course::default(), now)
}

/// The time of a deleted server is over, if it is still deleted.
///
/// # Errors
/// The database's.
pub fn reclaim(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(()) };
    if server.vm_state != VmState::SoftDeleted || server.task_state.is_some() {
        return Ok(());
    }
    flows::delete(tx, compute, &start::nobody(&server), &server, now)
}
