//! Live migration: all but the guest is made ready on the new host, then the guest goes over.
//!
//! ```text
//!   queued ──the host has time──► receive
//!   receive ──Ready──► transfer ──Departed──► arrive ──Running──► done
//!      │                  └──Failed │ called off──► abort, where the guest is found (`whereabouts`)
//!      └──Failed──► drop_dest, the next host
//! ```
//!
//! One transaction switches when the guest has gone. What stands still on its way over (a whole PCI
//! function, an FPGA) is refused before anything is claimed.

use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::ServerId;
use kilonova_node_api::{Departure, Desired, Outcome, Peer, Power};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::super::{power, start};
use super::along::{able, movable, pairs, unable};
use super::begin::{self, Start};
use super::course::Course;
use super::{Scene, open_move, undo};
use crate::app::aliases;
use crate::app::boot::Placement;
use crate::app::moves as claims;
use crate::app::nics;
use crate::app::scheduler::NoHost;
use crate::app::states;
use crate::db::moves::{self, Kind};
use crate::db::servers::{self, Server, VmState, shape};
use crate::db::{documents, hosts, queue};
use crate::{Compute, Error};

/// Nova's power state of a guest whose processors are stopped.
const PAUSED: i64 = 3;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// Where to.
    pub host: Option<String>,
    /// Whether that host is taken whatever its zone.
    pub force: bool,
    /// Whether a lack of hosts is told at once (before 2.34).
    pub tell: bool,
}

/// Begins it.
///
/// # Errors
/// 409 in Nova's words in the wrong state, 400 for devices that cannot move and, before 2.34, when
/// there is no host.
pub fn migrate_live(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    asked: &Live,
    now: i64,
) -> Result<(), Error> {
    let (source, domain) = begin::guest_of(tx, server)?;
    movable(server, &domain.devices)?;
    able(compute, server, &source, &domain.devices)?;
    states::check(context, server, "os-migrateLive")?;
    aliases::check(&compute.options.pci_aliases, &server.spec.flavor)?;
    for host in [Some(&source), asked.host.as_ref()].into_iter().flatten() {
        if compute.host_is_lost(host, now) {
            let words = format!("Compute service of {host} is unavailable at this time.");
            return Err(Fault::bad_request(words).into());
        }
    }
    let start = Start {
        server,
        kind: Kind::Live,
        action: "live-migration",
        task: "migrating",
        status: "preparing",
        flavor: &server.spec.flavor,
    };
    let (operation, migration) = begin::begin(tx, context, &start, now)?;
    let mut course = Course { host: asked.host.clone(), force: asked.force, ..Course::default() };
    let scene = Scene { compute, operation: &operation, server: server.clone(), migration, now };
    match settle_on(tx, &scene, &course)? {
        Ok(place) => {
            flow::event(
                tx,
                operation.id,
                &begin::conductor("conductor_live_migrate_instance", None, now),
            )?;
            course.devices = place.devices;
            course.chosen = Some(place.how);
            if is_busy(tx, compute, &source)? {
                moves::set_status(tx, scene.migration.id, "queued", now)?;
                return Ok(flow::advance(tx, &operation, "queued", &course.data()?, now)?);
            }
            receive(tx, &scene, &course, &place.host)
        }
        Err(reason) if asked.tell => {
            let words = if context.is_admin() { reason.details() } else { reason.message() };
            Err(Fault::bad_request(words).into())
        }
        Err(reason) => begin::no_host(tx, &scene, "conductor_live_migrate_instance", &reason),
    }
}

/// Whether so many guests leave the host that another one has to wait
/// (`max_concurrent_live_migrations`). Whoever asks writes the host's row, so that two do not count
/// without each other.
fn is_busy(tx: &mut Tx<'_>, compute: &Compute, host: &str) -> Result<bool, Error> {
    let most = compute.options.max_concurrent_live_migrations;
    if most <= 0 {
        return Ok(false);
    }
    documents::next(tx, host)?;
    Ok(queue::leaving(tx, host)? >= most)
}

/// A guest has left the host, or stays: the next one that waits for that goes.
///
/// # Errors
/// The database's.
pub fn let_next_go(tx: &mut Tx<'_>, compute: &Compute, host: &str, now: i64) -> Result<(), Error> {
    for server in queue::waiting(tx, host)? {
        if is_busy(tx, compute, host)? {
            return Ok(());
        }
        leave_queue(tx, compute, server, now)?;
    }
    Ok(())
}

fn leave_queue(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<(), Error> {
    let open = open_move(tx, server, |open| open.step == "queued")?;
    let Some((operation, server, migration)) = open else { return Ok(()) };
    let course = Course::of(&operation)?;
    let scene = Scene { compute, operation: &operation, server, migration, now };
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    if compute.host_is_lost(&dest, now) {
        let reason = Some(format!("{dest} went down."));
        return undo::leave_dest_untouched(tx, &scene, Course { reason, ..course });
    }
    receive(tx, &scene, &course, &dest)
}

/// A place whose devices can take over from those that the guest has.
fn settle_on(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    course: &Course,
) -> Result<Result<Placement, NoHost>, Error> {
    let has = &scene.migration.old_domain.devices;
    let found = begin::settle_on(tx, scene, course, &|devices| pairs(has, devices).is_some())?;
    Ok(found.map_err(|why| match unable(scene.compute, &scene.migration, course.host.as_deref()) {
        Some(unable) => why.and(unable),
        None => why,
    }))
}

/// The next host, after one has failed. Says whether there was one.
pub(super) fn next_host(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    course: &mut Course,
) -> Result<Result<(), NoHost>, Error> {
    match settle_on(tx, scene, course)? {
        Err(why) => Ok(Err(why)),
        Ok(place) => {
            course.devices = place.devices;
            course.chosen = Some(place.how);
            receive(tx, scene, course, &place.host)?;
            Ok(Ok(()))
        }
    }
}

fn receive(tx: &mut Tx<'_>, scene: &Scene<'_>, course: &Course, dest: &str) -> Result<(), Error> {
    let now = scene.now;
    for (name, host) in [
        ("compute_check_can_live_migrate_destination", dest),
        ("compute_check_can_live_migrate_source", scene.migration.source.as_str()),
    ] {
        flow::event(tx, scene.operation.id, &start::event(name, host, None, now, now))?;
    }
    moves::set_status(tx, scene.migration.id, "preparing", now)?;
    let there = there(tx, scene, course, dest, Power::Incoming)?;
    scene.put(tx, dest, &there)?;
    Ok(flow::advance(tx, scene.operation, "receive", &course.data()?, now)?)
}

/// The guest as it is on the new host.
pub(super) fn there(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    course: &Course,
    dest: &str,
    power: Power,
) -> Result<Desired, Error> {
    let mut domain = scene.migration.old_domain.clone();
    domain.display_name.clone_from(&scene.server.name);
    domain.devices.clone_from(&course.devices);
    domain.interfaces = nics::of_guest(tx, &scene.server, dest)?;
    domain.power = power;
    domain.verb = None;
    domain.from = None;
    if power == Power::Incoming {
        let host = scene.migration.source.clone();
        let address = hosts::by_name(tx, &host)?.map(|host| host.host_ip).unwrap_or_default();
        domain.from = Some(Peer { host, address });
    }
    Ok(Desired::Present(Box::new(domain)))
}

/// The new host said something about its readiness.
pub(super) fn received(tx: &mut Tx<'_>, scene: Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    let (course, now) = (Course::of(scene.operation)?, scene.now);
    let name = "compute_pre_live_migration";
    let since = scene.operation.updated_at;
    match outcome {
        Outcome::Ready => {
            flow::event(tx, scene.operation.id, &start::event(name, &dest, None, since, now))?;
            moves::set_status(tx, scene.migration.id, "running", now)?;
            send(tx, &scene, &course, false)?;
            Ok(flow::advance(tx, scene.operation, "transfer", &course.data()?, now)?)
        }
        Outcome::Failed { step, message } => {
            let why = format!("{dest}: {step}: {message}");
            let failed = start::event(name, &dest, Some(&why), since, now);
            flow::event(tx, scene.operation.id, &failed)?;
            undo::drop_dest(tx, &scene, Course { reason: Some(why), ..course })
        }
        _ => Ok(()),
    }
}

/// The guest is to go over.
pub(super) fn send(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    course: &Course,
    force: bool,
) -> Result<(), Error> {
    let Some(host) = scene.migration.dest.clone() else { return Ok(()) };
    let address = hosts::by_name(tx, &host)?.map(|host| host.host_ip).unwrap_or_default();
    let mut domain = scene.migration.old_domain.clone();
    let devices = pairs(&domain.devices, &course.devices)
        .ok_or_else(|| shape("devices of a move do not match"))?;
    domain.departure = Some(Box::new(Departure { to: Peer { host, address }, devices, force }));
    scene.put(tx, &scene.migration.source, &Desired::Present(Box::new(domain)))
}

/// The guest has gone: everything switches at once.
pub(super) fn gone(tx: &mut Tx<'_>, scene: &Scene<'_>, course: &Course) -> Result<(), Error> {
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    let (id, now, source) = (scene.server.id, scene.now, scene.migration.source.as_str());
    let since = scene.operation.updated_at;
    let went = start::event("compute_live_migration", source, None, since, now);
    flow::event(tx, scene.operation.id, &went)?;
    nics::set_host(tx, id, Some(&dest), now)?;
    moves::set_status(tx, scene.migration.id, "post-migrating", now)?;
    let power = scene.migration.old_domain.power;
    let there = there(tx, scene, course, &dest, power)?;
    scene.put(tx, &dest, &there)?;
    scene.put(tx, source, &Desired::Absent)?;
    flow::advance(tx, scene.operation, "arrive", &course.data()?, now)?;
    let_next_go(tx, scene.compute, source, now)
}

/// The new host says how the guest is that has come over.
pub(super) fn arrived(tx: &mut Tx<'_>, scene: Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    let (id, now) = (scene.server.id, scene.now);
    let name = "compute_post_live_migration_at_destination";
    let since = scene.operation.updated_at;
    let (state, power_state) = match outcome {
        Outcome::Running => (VmState::Active, power::RUNNING),
        Outcome::Paused => (VmState::Paused, PAUSED),
        Outcome::Stopped => (VmState::Stopped, power::SHUTDOWN),
        Outcome::Failed { step, message } => {
            let why = format!("{dest}: {step}: {message}");
            let failed = start::event(name, &dest, Some(&why), since, now);
            flow::event(tx, scene.operation.id, &failed)?;
            moves::close(tx, scene.migration.id, "error", now)?;
            let told = "The host that the guest moved to could not take it over.";
            let fault = servers::Fault::new(told, &*why, now);
            servers::set_error(tx, id, &fault, now)?;
            return Ok(flow::finish(tx, scene.operation, End::Failed, Some(&why), now)?);
        }
        _ => return Ok(()),
    };
    flow::event(tx, scene.operation.id, &start::event(name, &dest, None, since, now))?;
    servers::set_state(tx, id, state, None, power_state, now)?;
    moves::close(tx, scene.migration.id, "completed", now)?;
    if scene.compute.host_is_lost(&scene.migration.source, now) {
        claims::abandon_held(tx, scene.compute, id, &scene.migration.source)?;
    }
    Ok(flow::finish(tx, scene.operation, End::Done, None, now)?)
}
