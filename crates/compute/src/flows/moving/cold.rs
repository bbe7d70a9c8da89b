//! Resize and cold migration: the guest is shut off where it is, and made anew elsewhere with the
//! disk that it had. On one host it is made anew in place.

use kilonova_flow::{self as flow, Outcome as End};
use kilonova_node_api::{Attachment, Desired, Outcome, Peer, Power};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::super::{power, start};
use super::begin::{self, Start};
use super::course::Course;
use super::{Scene, evacuate, undo};
use crate::app::usage::{self, ProjectUsage};
use crate::app::{aliases, boot, nics, resolve, states, unsupported};
use crate::db::hosts;
use crate::db::moves::{self, Kind};
use crate::db::servers::{self, FlavorOf, Server, VmState};
use crate::{Compute, Error};

/// What is asked.
#[derive(Debug, Clone)]
pub enum Cold {
    /// Another size.
    Resize(Box<FlavorOf>),
    /// Another host.
    Migrate(Option<String>),
}

/// Begins it; 202. That there is no place is for the action to tell.
///
/// # Errors
/// 409 in Nova's words when the server is not in a state for it, 403 for a size over the limits, 400 for
/// a size whose devices nobody can name.
pub fn move_cold(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    cold: &Cold,
    now: i64,
) -> Result<(), Error> {
    let (action, kind, flavor) = match cold {
        Cold::Resize(flavor) => ("resize", Kind::Resize, flavor.as_ref()),
        Cold::Migrate(_) => ("migrate", Kind::Cold, &server.spec.flavor),
    };
    states::check(context, server, action)?;
    begin::host_is_up(compute, server, now)?;
    if let Cold::Resize(flavor) = cold {
        may_grow(tx, server, flavor)?;
        boot::machine::check(&server.spec.image_properties, flavor)?;
        unsupported::flavor(flavor, &server.spec.image_properties)?;
    }
    aliases::check(&compute.options.pci_aliases, flavor)?;
    let status = "pre-migrating";
    let start = Start { server, kind, action, task: "resize_prep", status, flavor };
    let (operation, migration) = begin::begin(tx, context, &start, now)?;
    let host = if let Cold::Migrate(host) = cold { host.clone() } else { None };
    let power = migration.old_domain.power;
    let mut course = Course { host, power: Some(power), ..Course::default() };
    let mut scene =
        Scene { compute, operation: &operation, server: server.clone(), migration, now };
    let place = match begin::settle_on(tx, &scene, &course, &|_| true)? {
        Ok(place) => place,
        Err(reason) => return begin::no_host(tx, &scene, "conductor_migrate_server", &reason),
    };
    for name in ["cold_migrate", "conductor_migrate_server"] {
        flow::event(tx, operation.id, &begin::conductor(name, None, now))?;
    }
    flow::event(
        tx,
        operation.id,
        &start::event("compute_prep_resize", &place.host, None, now, now),
    )?;
    course.devices = place.devices;
    course.chosen = Some(place.how);
    scene.migration.dest = Some(place.host.clone());
    moves::set_status(tx, scene.migration.id, "migrating", now)?;
    let same_host = place.host == scene.migration.source;
    if same_host || power == Power::Off {
        return make_dest(tx, &scene, &course, &place.host);
    }
    servers::set_task(tx, server.id, Some("resize_migrating"), now)?;
    let mut domain = scene.migration.old_domain.clone();
    domain.power = Power::Off;
    scene.put(tx, &scene.migration.source, &Desired::Present(Box::new(domain)))?;
    Ok(flow::advance(tx, &operation, "stop_source", &course.data()?, now)?)
}

/// Refuses a disk that would shrink, and a size over the limits.
fn may_grow(tx: &mut Tx<'_>, server: &Server, flavor: &FlavorOf) -> Result<(), Error> {
    let old = &server.spec.flavor;
    if flavor.disk < old.disk {
        let words = if flavor.disk == 0 {
            "Resize to zero disk flavor is not allowed.".to_owned()
        } else {
            format!(
                "Unable to resize disk down: the server has {} GiB, the flavor {} GiB. Choose a \
                 flavor with as much disk.",
                old.disk, flavor.disk
            )
        };
        return Err(Fault::bad_request(words).into());
    }
    // A server without a disk of its own size may have come from an image of any size.
    if let Some(image) = server.spec.image.filter(|_| old.disk == 0)
        && let Some(image) = kilonova_image::find(tx, image)?
    {
        resolve::fits_disk(&image, flavor.disk)?;
    }
    let grown = ProjectUsage {
        instances: 0,
        cores: (flavor.vcpus - old.vcpus).max(0),
        ram: (flavor.ram - old.ram).max(0),
    };
    usage::check(tx, &server.project_id, &server.user_id, grown)
}

pub(super) fn source_stopped(
    tx: &mut Tx<'_>,
    scene: Scene<'_>,
    outcome: &Outcome,
) -> Result<(), Error> {
    let course = Course::of(scene.operation)?;
    let source = scene.migration.source.clone();
    match outcome {
        Outcome::Stopped => {
            let since = scene.operation.created_at;
            let done = start::event("compute_resize_instance", &source, None, since, scene.now);
            flow::event(tx, scene.operation.id, &done)?;
            let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
            make_dest(tx, &scene, &course, &dest)
        }
        Outcome::Failed { step, message } => {
            let why = format!("{source}: {step}: {message}");
            let since = scene.operation.created_at;
            let failed =
                start::event("compute_resize_instance", &source, Some(&why), since, scene.now);
            flow::event(tx, scene.operation.id, &failed)?;
            undo::leave_dest_untouched(tx, &scene, Course { reason: Some(why), ..course })
        }
        _ => Ok(()),
    }
}

/// The guest is to be made at the new place.
pub(super) fn make_dest(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    course: &Course,
    dest: &str,
) -> Result<(), Error> {
    // The host says when the disk is there; where it is already, the guest is made at once.
    let task = match (scene.operation.kind.as_str(), scene.migration.same_host()) {
        ("evacuate", _) => "rebuild_spawning",
        (_, true) => "resize_finish",
        (_, false) => "resize_migrated",
    };
    servers::set_task(tx, scene.server.id, Some(task), scene.now)?;
    let power = course.power.unwrap_or(Power::On);
    let document = guest(tx, scene, course.devices.clone(), power)?;
    scene.put(tx, dest, &document)?;
    Ok(flow::advance(tx, scene.operation, "make_dest", &course.data()?, scene.now)?)
}

/// The guest as it is to be at the new place: what it was, in its new size, with its new devices, and
/// with the disk that the old host has. An evacuated one has lost that.
fn guest(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    devices: Vec<Attachment>,
    power: Power,
) -> Result<Desired, Error> {
    let (migration, flavor) = (&scene.migration, &scene.migration.new_flavor);
    let mut domain = migration.old_domain.clone();
    domain.display_name.clone_from(&scene.server.name);
    domain.vcpus = flavor.vcpus;
    domain.memory_mb = flavor.ram;
    domain.boot.root_gb = flavor.disk;
    domain.boot.ephemeral_gb = flavor.ephemeral;
    domain.boot.swap_mb = flavor.swap;
    domain.machine = boot::machine::of(&scene.server.spec, flavor);
    domain.power = power;
    domain.devices = devices;
    if let Some(dest) = &migration.dest {
        domain.interfaces = nics::of_guest(tx, &scene.server, dest)?;
        if migration.kind == Kind::Evacuation {
            domain.guest = boot::told(scene.compute, &scene.server, dest);
        }
    }
    // A verb that was carried out on the old host is not one for the new.
    domain.verb = domain.verb.filter(|_| migration.same_host());
    domain.from = None;
    if !migration.same_host() && migration.kind != Kind::Evacuation {
        let host = migration.source.clone();
        let address = hosts::by_name(tx, &host)?.map(|host| host.host_ip).unwrap_or_default();
        domain.from = Some(Peer { host, address });
    }
    Ok(Desired::Present(Box::new(domain)))
}

pub(super) fn dest_made(tx: &mut Tx<'_>, scene: Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    let evacuated = scene.operation.kind == "evacuate";
    let name = if evacuated { "compute_rebuild_instance" } else { "compute_finish_resize" };
    let since = scene.operation.updated_at;
    let course = Course::of(scene.operation)?;
    let power_state = match (outcome, course.power) {
        (Outcome::Running, Some(Power::On)) => power::RUNNING,
        (Outcome::Stopped, Some(Power::Off)) => power::SHUTDOWN,
        (Outcome::Failed { step, message }, _) => {
            let why = format!("{dest}: {step}: {message}");
            let failed = start::event(name, &dest, Some(&why), since, scene.now);
            flow::event(tx, scene.operation.id, &failed)?;
            return undo::drop_dest(tx, &scene, Course { reason: Some(why), ..course });
        }
        _ => return Ok(()),
    };
    let (id, now) = (scene.server.id, scene.now);
    flow::event(tx, scene.operation.id, &start::event(name, &dest, None, since, now))?;
    nics::set_host(tx, id, Some(&dest), now)?;
    if evacuated {
        evacuate::arrived(tx, &scene, power_state)?;
    } else {
        servers::set_flavor(tx, &scene.server, &scene.migration.new_flavor, now)?;
        servers::set_state(tx, id, VmState::Resized, None, power_state, now)?;
        moves::set_status(tx, scene.migration.id, "finished", now)?;
    }
    Ok(flow::finish(tx, scene.operation, End::Done, None, now)?)
}
