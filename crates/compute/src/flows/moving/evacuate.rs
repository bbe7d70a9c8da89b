//! Away from a host that is down: the server is made anew elsewhere, from its image.
//!
//! The old host is told at once to keep the guest off, should it come back meanwhile, and to drop it
//! when the server has arrived. What it had there goes to nobody before that host says so.

use kilonova_flow::{self as flow, Outcome as End};
use kilonova_node_api::{Desired, Domain, Power};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::super::stay;
use super::begin::{self, Start};
use super::course::Course;
use super::{Scene, cold, put, undo};
use crate::app::aliases;
use crate::app::moves as claims;
use crate::app::states;
use crate::db::moves::{self, Kind};
use crate::db::servers::{self, Server, VmState};
use crate::{Compute, Error};

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Evacuation {
    /// Where to.
    pub host: Option<String>,
    /// Whether that host is taken whatever its zone.
    pub force: bool,
    /// Whether the server is shut off afterwards whatever it was before (2.95).
    pub ends_stopped: bool,
}

/// Begins it.
///
/// # Errors
/// 400 while the server's host is in use, 409 in Nova's words in the wrong state.
pub fn evacuate(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    asked: &Evacuation,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "evacuate")?;
    let source = server.host.clone().ok_or_else(|| states::not_ready(server))?;
    if !compute.host_is_lost(&source, now) {
        let words = format!("Compute service of {source} is still in use.");
        return Err(Fault::bad_request(words).into());
    }
    aliases::check(&compute.options.pci_aliases, &server.spec.flavor)?;
    let left_on = match flow::open_of(tx, server.id)? {
        Some(open) => step_over(tx, compute, server, &open, now)?,
        None => None,
    };
    let start = Start {
        server,
        kind: Kind::Evacuation,
        action: "evacuate",
        task: "rebuilding",
        status: "accepted",
        flavor: &server.spec.flavor,
    };
    let (operation, migration) = begin::begin(tx, context, &start, now)?;
    let runs = server.vm_state != VmState::Stopped && !asked.ends_stopped;
    let mut course = Course {
        host: asked.host.clone(),
        force: asked.force,
        power: Some(if runs { Power::On } else { Power::Off }),
        ..Course::default()
    };
    let scene = Scene { compute, operation: &operation, server: server.clone(), migration, now };
    if let Some(dest) = left_on {
        flow::event(tx, operation.id, &begin::conductor("rebuild_server", None, now))?;
        moves::set_status(tx, scene.migration.id, "pre-migrating", now)?;
        moves::set_dest(tx, scene.migration.id, &dest, now)?;
        keep_off(tx, &scene)?;
        // Half of the guest may be there: nothing is made elsewhere before that host is rid of it.
        scene.put(tx, &dest, &Desired::Absent)?;
        return Ok(flow::advance(tx, &operation, "drop_dest", &course.data()?, now)?);
    }
    let place = match begin::settle_on(tx, &scene, &course, &|_| true)? {
        Ok(place) => place,
        Err(reason) => return begin::no_host(tx, &scene, "rebuild_server", &reason),
    };
    flow::event(tx, operation.id, &begin::conductor("rebuild_server", None, now))?;
    moves::set_status(tx, scene.migration.id, "pre-migrating", now)?;
    keep_off(tx, &scene)?;
    course.devices = place.devices;
    course.chosen = Some(place.how);
    cold::make_dest(tx, &scene, &course, &place.host)
}

/// The lost host is not to run the guest, should it come back meanwhile.
fn keep_off(tx: &mut Tx<'_>, scene: &Scene<'_>) -> Result<(), Error> {
    let kept = Domain { power: Power::Off, ..scene.migration.old_domain.clone() };
    scene.put(tx, &scene.migration.source, &Desired::Present(Box::new(kept)))
}

/// Ends what was being done on the lost host. A move that another host works on is left to end, but
/// for a live migration, which needs the lost one: the other host is returned, and has to drop what
/// it has of the guest.
fn step_over(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    open: &flow::Operation,
    now: i64,
) -> Result<Option<String>, Error> {
    let live = open.kind == "live-migration";
    let here: &[&str] = if live {
        &["queued", "receive", "transfer", "abort", "find", "drop_dest", "restore", "arrive"]
    } else {
        &["stop_source", "restore", "arrive"]
    };
    let elsewhere = super::is_move(&open.kind) && !here.contains(&open.step.as_str());
    if elsewhere || open.kind == "delete" {
        let task = server.task_state.as_deref().unwrap_or("None");
        return Err(Fault::conflict(format!(
            "Cannot 'evacuate' instance {} while it is in task_state {task}",
            server.id
        ))
        .into());
    }
    let leaves = live && open.step != "arrive";
    let mut left_on = None;
    if (leaves || open.step == "stop_source")
        && let Some(migration) = moves::open_of(tx, server.id)?
    {
        let as_it_was = Desired::Present(Box::new(migration.old_domain));
        put(tx, compute, &migration.source, server.id, &as_it_was)?;
        let untouched = matches!(open.step.as_str(), "queued" | "restore");
        left_on = migration.dest.filter(|_| leaves && !untouched);
    }
    stay::call_off(tx, compute, open)?;
    undo::call_off(tx, compute, server, Some(open), "error", now)?;
    flow::finish(tx, open, End::Cancelled, Some("The server was evacuated."), now)?;
    Ok(left_on)
}

/// The server is on its new host; the old one is to drop it when it is back.
pub(super) fn arrived(tx: &mut Tx<'_>, scene: &Scene<'_>, power_state: i64) -> Result<(), Error> {
    let (id, now, source) = (scene.server.id, scene.now, &scene.migration.source);
    servers::set_state(tx, id, undo::state_by_power(power_state), None, power_state, now)?;
    servers::set_launched(tx, id, now)?;
    moves::close(tx, scene.migration.id, "done", now)?;
    scene.put(tx, source, &Desired::Absent)?;
    if scene.compute.host_is_lost(source, now) {
        claims::abandon_held(tx, scene.compute, id, source)?;
    }
    Ok(())
}
