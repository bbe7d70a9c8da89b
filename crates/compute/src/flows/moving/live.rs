//! Live migration: all but the guest is made ready on the new host, then the guest goes over.
//!
//! ```text
//!   receive ──Ready──► transfer ──Departed──► arrive ──Running──► done
//!      │                  ├──Failed──► drop_dest, the guest never stopped
//!      │                  └──called off──► abort ──Running──► drop_dest │ Departed: too late
//!      └──Failed──► drop_dest, the next host
//! ```
//!
//! One transaction switches when the guest has gone. What stands still on its way over (a whole PCI
//! function, an FPGA) is refused before anything is claimed.

use kilonova_flow::{self as flow, Outcome as End};
use kilonova_node_api::{Attachment, Departure, Desired, Outcome, Peer, Power, Progress};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::super::{power, start};
use super::begin::{self, Start};
use super::course::Course;
use super::{Scene, undo};
use crate::app::moves as claims;
use crate::app::states;
use crate::db::hosts;
use crate::db::moves::{self, Kind};
use crate::db::servers::{self, Server, VmState, shape};
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
    states::check(context, server, "os-migrateLive")?;
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
        Ok((host, devices)) => {
            flow::event(
                tx,
                operation.id,
                &begin::conductor("conductor_live_migrate_instance", None, now),
            )?;
            course.devices = devices;
            receive(tx, &scene, &course, &host)
        }
        Err(reason) if asked.tell => {
            Err(Fault::bad_request(format!("No valid host was found. {reason}")).into())
        }
        Err(reason) => begin::no_host(tx, &scene, "conductor_live_migrate_instance", &reason),
    }
}

/// Refuses devices whose state cannot be taken along.
fn movable(server: &Server, devices: &[Attachment]) -> Result<(), Error> {
    let stays = devices.iter().find_map(|device| match device {
        Attachment::Pci { address } | Attachment::TestPci { address } => Some(address),
        Attachment::Mdev { .. } | Attachment::Vfio { .. } => None,
    });
    let Some(address) = stays else { return Ok(()) };
    Err(Fault::bad_request(format!(
        "Unable to migrate {}: its device {address} is given to it whole and cannot be moved while the \
         server runs. Migrate it shut off: `openstack server migrate`.",
        server.id
    ))
    .into())
}

/// For each device the one of its kind that takes its place; `None` when one has none.
fn pairs(from: &[Attachment], to: &[Attachment]) -> Option<Vec<(Attachment, Attachment)>> {
    let kind = |device: &Attachment| match device {
        Attachment::Mdev { mdev_type, .. } => ("mdev", mdev_type.clone()),
        Attachment::Vfio { vgpu_type, .. } => ("vfio", vgpu_type.clone()),
        Attachment::Pci { .. } => ("pci", String::new()),
        Attachment::TestPci { .. } => ("test", String::new()),
    };
    let mut left: Vec<&Attachment> = to.iter().collect();
    let mut pairs = Vec::with_capacity(from.len());
    for device in from {
        let at = left.iter().position(|other| kind(other) == kind(device))?;
        pairs.push((device.clone(), left.remove(at).clone()));
    }
    left.is_empty().then_some(pairs)
}

/// A place whose devices can take over from those that the guest has.
fn settle_on(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    course: &Course,
) -> Result<Result<(String, Vec<Attachment>), String>, Error> {
    let has = &scene.migration.old_domain.devices;
    let found = begin::settle_on(tx, scene, course, &|devices| pairs(has, devices).is_some())?;
    Ok(found.map(|place| (place.host, place.devices)))
}

/// The next host, after one has failed. Says whether there was one.
pub(super) fn next_host(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    course: &mut Course,
) -> Result<Result<(), String>, Error> {
    match settle_on(tx, scene, course)? {
        Err(why) => Ok(Err(why)),
        Ok((host, devices)) => {
            course.devices = devices;
            receive(tx, scene, course, &host)?;
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
    scene.put(tx, dest, &there(scene, course, Power::Incoming))?;
    Ok(flow::advance(tx, scene.operation, "receive", &course.data()?, now)?)
}

/// The guest as it is on the new host.
fn there(scene: &Scene<'_>, course: &Course, power: Power) -> Desired {
    let mut domain = scene.migration.old_domain.clone();
    domain.display_name.clone_from(&scene.server.name);
    domain.devices.clone_from(&course.devices);
    domain.power = power;
    domain.verb = None;
    domain.from = None;
    Desired::Present(Box::new(domain))
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
fn send(tx: &mut Tx<'_>, scene: &Scene<'_>, course: &Course, force: bool) -> Result<(), Error> {
    let Some(host) = scene.migration.dest.clone() else { return Ok(()) };
    let address = hosts::by_name(tx, &host)?.map(|host| host.host_ip).unwrap_or_default();
    let mut domain = scene.migration.old_domain.clone();
    let devices = pairs(&domain.devices, &course.devices)
        .ok_or_else(|| shape("devices of a move do not match"))?;
    domain.departure = Some(Box::new(Departure { to: Peer { host, address }, devices, force }));
    scene.put(tx, &scene.migration.source, &Desired::Present(Box::new(domain)))
}

/// The old host said something about the guest that leaves.
pub(super) fn sent(tx: &mut Tx<'_>, scene: Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    let (course, now) = (Course::of(scene.operation)?, scene.now);
    let source = scene.migration.source.clone();
    let why = match outcome {
        Outcome::Departed => return gone(tx, scene, &course),
        Outcome::Departing(progress) => {
            return moves::set_progress(tx, scene.migration.id, progress, now);
        }
        Outcome::Failed { step, message } => format!("{source}: {step}: {message}"),
        _ if scene.operation.step == "abort" => "The live migration was aborted.".to_owned(),
        _ => return Ok(()),
    };
    let since = scene.operation.updated_at;
    let failed = start::event("compute_live_migration", &source, Some(&why), since, now);
    flow::event(tx, scene.operation.id, &failed)?;
    let stays = Desired::Present(Box::new(scene.migration.old_domain.clone()));
    scene.put(tx, &source, &stays)?;
    undo::drop_dest(tx, &scene, Course { reason: Some(why), sent: true, ..course })
}

/// The guest has gone: everything switches at once.
fn gone(tx: &mut Tx<'_>, scene: Scene<'_>, course: &Course) -> Result<(), Error> {
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    let (id, now, source) = (scene.server.id, scene.now, scene.migration.source.as_str());
    let since = scene.operation.updated_at;
    let went = start::event("compute_live_migration", source, None, since, now);
    flow::event(tx, scene.operation.id, &went)?;
    servers::set_host(tx, id, Some(&dest), now)?;
    moves::set_status(tx, scene.migration.id, "post-migrating", now)?;
    let power = scene.migration.old_domain.power;
    scene.put(tx, &dest, &there(&scene, course, power))?;
    scene.put(tx, source, &Desired::Absent)?;
    Ok(flow::advance(tx, scene.operation, "arrive", &course.data()?, now)?)
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
            let fault =
                servers::Fault { code: 500, message: why.clone(), created: now, details: None };
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

/// The live migration with that number which is under way.
fn under_way(
    tx: &mut Tx<'_>,
    server: &Server,
    number: i64,
    method: &str,
) -> Result<(flow::Operation, moves::Move), Error> {
    let known = moves::of_server(tx, server.id)?.into_iter().find(|known| known.number == number);
    let Some(migration) = known else {
        return Err(Fault::not_found(format!(
            "Migration {number} for instance {} is not found",
            server.id
        ))
        .into());
    };
    let operation = flow::open_of(tx, server.id)?.filter(|open| open.kind == "live-migration");
    match operation {
        Some(operation) if migration.open && migration.kind == Kind::Live => {
            Ok((operation, migration))
        }
        _ => Err(not_in(server, &migration, method)),
    }
}

fn not_in(server: &Server, migration: &moves::Move, method: &str) -> Error {
    Fault::bad_request(format!(
        "Migration {} state of instance {} is {}. Cannot {method} while the migration is in this state.",
        migration.number, server.id, migration.status
    ))
    .into()
}

/// Calls it off; one that is still being prepared too where `early` (2.65).
///
/// # Errors
/// 404, 400 or 409 in Nova's words when it is not under way.
pub fn abort(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    number: i64,
    early: bool,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "abort live migration")?;
    let (operation, migration) = under_way(tx, server, number, "abort")?;
    let step = operation.step.as_str();
    if step != "transfer" && (step != "receive" || !early) {
        return Err(not_in(server, &migration, "abort"));
    }
    start::note(tx, context, server, "live_migration_cancel", now)?;
    let source = migration.source.clone();
    let aborted = start::event("compute_live_migration_abort", &source, None, now, now);
    flow::event(tx, operation.id, &aborted)?;
    let mut course = Course::of(&operation)?;
    course.cancelled = true;
    let scene = Scene { compute, operation: &operation, server: server.clone(), migration, now };
    if step != "transfer" {
        course.reason = Some("The live migration was aborted.".to_owned());
        return undo::drop_dest(tx, &scene, course);
    }
    let stays = Desired::Present(Box::new(scene.migration.old_domain.clone()));
    scene.put(tx, &source, &stays)?;
    Ok(flow::advance(tx, &operation, "abort", &course.data()?, now)?)
}

/// Has it end soon, even if the guest has to stand still for a while.
///
/// # Errors
/// 404, 400 or 409 in Nova's words when it is not under way.
pub fn force_complete(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    number: i64,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "force_complete")?;
    let (operation, migration) = under_way(tx, server, number, "force_complete")?;
    if operation.step != "transfer" {
        return Err(not_in(server, &migration, "force_complete"));
    }
    start::note(tx, context, server, "live_migration_force_complete", now)?;
    let course = Course::of(&operation)?;
    let scene = Scene { compute, operation: &operation, server: server.clone(), migration, now };
    send(tx, &scene, &course, true)?;
    // The row says that somebody has had a hand in it, for whoever does so at the same time.
    Ok(flow::advance(tx, &operation, "transfer", &course.data()?, now)?)
}

/// What clients see of a migration that has said nothing yet.
pub fn no_progress(ram_mb: i64) -> Progress {
    let memory = ram_mb.saturating_mul(1024 * 1024);
    Progress { memory_total: memory, memory_remaining: memory, ..Progress::default() }
}
