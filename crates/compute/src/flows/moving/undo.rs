//! A move that is given up: the new place is cleared, another one is tried, or the server goes on
//! where it was.
//!
//! From the first step on the server holds its old place again and the migration the new one, until
//! the new host says that nothing is left there.

use kilonova_flow::{self as flow, Operation, Outcome as End};
use kilonova_ids::{ConsumerId, ServerId};
use kilonova_node_api::{Desired, Outcome, Power};
use kilonova_store::Tx;
use kilonova_wire::Fault;

use super::super::stay::PAUSED;
use super::super::{power, start};
use super::course::Course;
use super::{Scene, begin, cold, confirm, live, open_move};
use crate::app::moves as claims;
use crate::app::scheduler::NoHost;
use crate::db::documents;
use crate::db::moves::{self, Kind, Move, NewMove};
use crate::db::servers::{self, Server, VmState};
use crate::{Compute, Error};

/// Clears the new place.
pub(super) fn drop_dest(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    mut course: Course,
) -> Result<(), Error> {
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    claims::swap(tx, scene.server.id, scene.migration.id, &dest)?;
    course.tried.push(dest.clone());
    if scene.migration.same_host() {
        return restore(tx, scene, &course);
    }
    scene.put(tx, &dest, &Desired::Absent)?;
    Ok(flow::advance(tx, scene.operation, "drop_dest", &course.data()?, scene.now)?)
}

/// The source would not let go, and nothing was written for the new place.
pub(super) fn leave_dest_untouched(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    course: Course,
) -> Result<(), Error> {
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    claims::swap(tx, scene.server.id, scene.migration.id, &dest)?;
    claims::drop_held(tx, scene.compute, scene.server.id, &dest)?;
    restore(tx, scene, &course)
}

pub(super) fn dest_dropped(
    tx: &mut Tx<'_>,
    scene: Scene<'_>,
    host: &str,
    outcome: &Outcome,
) -> Result<(), Error> {
    match outcome {
        Outcome::Absent => {
            documents::forget(tx, host, scene.server.id)?;
            claims::drop_held(tx, scene.compute, scene.server.id, host)?;
            if scene.migration.kind == Kind::Live {
                let name = "compute_rollback_live_migration_at_destination";
                let since = scene.operation.updated_at;
                let done = start::event(name, host, None, since, scene.now);
                flow::event(tx, scene.operation.id, &done)?;
            }
            go_on(tx, scene)
        }
        Outcome::Failed { step, message } => {
            tracing::warn!(server = %scene.server.id, "cannot drop yet: {host}: {step}: {message}");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The new place is clear: the next host, or back.
fn go_on(tx: &mut Tx<'_>, mut scene: Scene<'_>) -> Result<(), Error> {
    let mut course = Course::of(scene.operation)?;
    let kind = scene.operation.kind.as_str();
    if kind == "revertResize" || course.cancelled || course.sent {
        return restore(tx, &scene, &course);
    }
    if course.tried.len() < scene.compute.options.max_attempts {
        match next_place(tx, &mut scene, &mut course)? {
            Ok(()) => return Ok(()),
            Err(why) => course.reason = Some(no_other(&course, &why)),
        }
    } else {
        course.reason = Some(format!(
            "Exceeded maximum number of retries. Exhausted all hosts available for retrying the \
             move of instance {}. Last failure: {}",
            scene.server.id,
            course.reason()
        ));
    }
    restore(tx, &scene, &course)
}

fn no_other(course: &Course, why: &NoHost) -> String {
    let why = why.details();
    match &course.reason {
        Some(reason) => format!("{why} Last failure: {reason}"),
        None => why,
    }
}

/// Claims another place and begins there, or says why there is none.
fn next_place(
    tx: &mut Tx<'_>,
    scene: &mut Scene<'_>,
    course: &mut Course,
) -> Result<Result<(), NoHost>, Error> {
    if scene.migration.kind == Kind::Live {
        return live::next_host(tx, scene, course);
    }
    Ok(match begin::settle_on(tx, scene, course, &|_| true)? {
        Ok(place) => {
            course.devices = place.devices;
            course.chosen = Some(place.how);
            scene.migration.dest = Some(place.host.clone());
            Ok(cold::make_dest(tx, scene, course, &place.host)?)
        }
        Err(why) => Err(why),
    })
}

/// The guest is to be on its old host as it was.
pub(super) fn restore(tx: &mut Tx<'_>, scene: &Scene<'_>, course: &Course) -> Result<(), Error> {
    if scene.migration.kind == Kind::Live && !course.stopped {
        // The guest has never stopped.
        return as_before(tx, scene, course);
    }
    let mut domain = scene.migration.old_domain.clone();
    domain.display_name.clone_from(&scene.server.name);
    let source = &scene.migration.source;
    scene.put(tx, source, &Desired::Present(Box::new(domain)))?;
    if scene.migration.kind == Kind::Evacuation {
        // Nobody is there to say how it goes; the host does as it is told when it is back.
        return as_before(tx, scene, course);
    }
    Ok(flow::advance(tx, scene.operation, "restore", &course.data()?, scene.now)?)
}

pub(super) fn restored(tx: &mut Tx<'_>, scene: Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    let course = Course::of(scene.operation)?;
    let (id, now) = (scene.server.id, scene.now);
    let source = scene.migration.source.as_str();
    let reverted = scene.operation.kind == "revertResize";
    let power_state = match (outcome, scene.migration.old_domain.power) {
        (Outcome::Running, Power::On) => power::RUNNING,
        (Outcome::Stopped, Power::Off) => power::SHUTDOWN,
        (Outcome::Paused, Power::Paused) => PAUSED,
        (Outcome::Failed { step, message }, _) => {
            let why = format!("{source}: {step}: {message}");
            let message = match &course.reason {
                Some(reason) => format!("{reason} Going back failed too: {why}"),
                None => why,
            };
            if reverted {
                confirm::note_reverted(tx, &scene, Some(&message))?;
            }
            let told = if reverted {
                "The host could not bring the guest back from its resize."
            } else {
                "The move failed, and the host could not bring the guest back."
            };
            let fault = servers::Fault::new(told, &*message, now);
            moves::close(tx, scene.migration.id, "error", now)?;
            servers::set_error(tx, id, &fault, now)?;
            return Ok(flow::finish(tx, scene.operation, End::Failed, Some(&message), now)?);
        }
        _ => return Ok(()),
    };
    if scene.migration.same_host() {
        claims::drop_held(tx, scene.compute, id, source)?;
    }
    servers::set_state(tx, id, scene.migration.was, None, power_state, now)?;
    if reverted {
        confirm::note_reverted(tx, &scene, None)?;
        moves::close(tx, scene.migration.id, "reverted", now)?;
        return Ok(flow::finish(tx, scene.operation, End::Done, None, now)?);
    }
    end(tx, &scene, &course)
}

/// The server is as it was; the action says why.
fn as_before(tx: &mut Tx<'_>, scene: &Scene<'_>, course: &Course) -> Result<(), Error> {
    servers::set_task(tx, scene.server.id, None, scene.now)?;
    end(tx, scene, course)
}

fn end(tx: &mut Tx<'_>, scene: &Scene<'_>, course: &Course) -> Result<(), Error> {
    let (operation, reason, now) = (scene.operation, course.reason(), scene.now);
    let status = match (course.cancelled, course.sent) {
        (true, _) => "cancelled",
        (false, true) => "failed",
        (false, false) => "error",
    };
    let name = match operation.kind.as_str() {
        "evacuate" => "rebuild_server",
        "live-migration" => "conductor_live_migrate_instance",
        _ => "conductor_migrate_server",
    };
    flow::event(tx, operation.id, &begin::conductor(name, Some(reason), now))?;
    moves::close(tx, scene.migration.id, status, now)?;
    flow::finish(tx, operation, End::Failed, Some(reason), now)?;
    if operation.kind == "live-migration" {
        live::let_next_go(tx, scene.compute, &scene.migration.source, now)?;
    }
    Ok(())
}

/// A move whose new host is lost goes on without it. Says whether it was one.
///
/// # Errors
/// The database's.
pub fn give_up_dest(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<bool, Error> {
    let making = ["make_dest", "receive", "drop_dest"];
    let open = open_move(tx, server, |open| making.contains(&open.step.as_str()))?;
    let Some((operation, server, migration)) = open else { return Ok(false) };
    let step = operation.step.as_str();
    let lost = |host: &String| compute.host_is_lost(host, now);
    let Some(dest) = migration.dest.clone().filter(lost).filter(|_| !migration.same_host()) else {
        return Ok(false);
    };
    tracing::warn!(server = %server.id, host = dest, "moves on without its new host, which is down");
    let scene = Scene { compute, operation: &operation, server, migration, now };
    if step != "drop_dest" {
        let mut course = Course::of(&operation)?;
        course.reason = Some(format!("{dest} went down."));
        drop_dest(tx, &scene, course)?;
    }
    claims::abandon_held(tx, compute, scene.server.id, &dest)?;
    let Some(operation) = flow::open_of(tx, scene.server.id)? else { return Ok(true) };
    let mut course = Course::of(&operation)?;
    let scene = Scene { operation: &operation, ..scene };
    let back = operation.kind == "revertResize" || course.cancelled || course.sent;
    if !back && course.tried.len() < compute.options.max_attempts {
        match tx.attempt(|tx| anew(tx, &scene, course.clone())) {
            Ok(()) => return Ok(true),
            Err(Error::Refused(why)) => {
                course.reason = Some(no_other(&course, &NoHost::new(&why.message)));
            }
            Err(error) => return Err(error),
        }
    }
    restore(tx, &scene, &course)?;
    Ok(true)
}

/// Tries a third host. The migration to the second is over, and remembers what is dirty there; it is
/// another one that goes on.
fn anew(tx: &mut Tx<'_>, scene: &Scene<'_>, mut course: Course) -> Result<(), Error> {
    let (old, now) = (&scene.migration, scene.now);
    moves::close(tx, old.id, "error", now)?;
    let new = NewMove {
        id: ConsumerId::new_v4(),
        server: old.server,
        kind: old.kind,
        status: if old.kind == Kind::Live { "preparing" } else { "migrating" },
        source: old.source.clone(),
        was: old.was,
        old_flavor: old.old_flavor.clone(),
        new_flavor: old.new_flavor.clone(),
        old_domain: old.old_domain.clone(),
        user_id: old.user_id.clone(),
        project_id: old.project_id.clone(),
    };
    moves::insert(tx, &new, now)?;
    let Some(migration) = moves::open_of(tx, old.server)? else { return Ok(()) };
    let mut scene = Scene {
        compute: scene.compute,
        operation: scene.operation,
        server: scene.server.clone(),
        migration,
        now,
    };
    next_place(tx, &mut scene, &mut course)?.map_err(|why| Fault::conflict(why.all()).into())
}

/// Ends a move that somebody steps over (a delete, an evacuation): the server holds the place that it
/// is on, the migration the other one. What is to happen to the guests is for the caller to say.
///
/// # Errors
/// The database's.
pub fn call_off(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    operation: Option<&Operation>,
    status: &str,
    now: i64,
) -> Result<(), Error> {
    let Some(migration) = moves::open_of(tx, server.id)? else { return Ok(()) };
    let step = operation.map_or("", |operation| operation.step.as_str());
    let holds_dest = ["stop_source", "make_dest", "queued", "receive", "transfer", "abort", "find"];
    if holds_dest.contains(&step) {
        untangle(tx, compute, server.id, &migration)?;
    }
    moves::close(tx, migration.id, status, now)
}

fn untangle(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    migration: &Move,
) -> Result<(), Error> {
    let Some(dest) = &migration.dest else { return Ok(()) };
    claims::swap(tx, server, migration.id, dest)?;
    if documents::get(tx, dest, server)?.is_none() {
        claims::drop_held(tx, compute, server, dest)?;
    }
    Ok(())
}

/// The state that a server has by what its guest does.
pub(super) fn state_by_power(power_state: i64) -> VmState {
    if power_state == power::SHUTDOWN { VmState::Stopped } else { VmState::Active }
}
