//! Where the guest of a live migration is, once its old host did not simply say that it has gone.
//!
//! The old host failed to send it, was told to keep it, or is silent. Any of that can happen after the
//! guest has arrived, so nothing is put away and nothing is started before it is known: both hosts are
//! asked by a document that has them do nothing ([`Power::AsIs`]), the new one after the old one has
//! stopped sending, so that its answer cannot be out of date.
//!
//! ```text
//!   transfer ──Failed │ called off──► abort: the old host is asked
//!      │   ▲                            ├─ it runs there ────────► drop_dest, then as it was
//!      │   └─it leaves after all        ├─ it has gone ──────────► arrive
//!      └─old host is lost──► find ◄─────┴─ it does not run there
//!                             find: the new host is asked
//!                               ├─ it runs there ────► arrive
//!                               ├─ it is not there ──► drop_dest, then the old host goes on with it
//!                               └─ silence ──► ERROR after a while, and both are kept
//! ```

use kilonova_flow::{self as flow};
use kilonova_ids::ServerId;
use kilonova_node_api::{Desired, Domain, Outcome, Power};
use kilonova_store::Tx;
use serde::{Deserialize, Serialize};

use super::super::start;
use super::course::Course;
use super::{Scene, live, open_move, undo};
use crate::db::moves;
use crate::db::servers;
use crate::{Compute, Error};

/// How long the new host may be silent before the server is in `ERROR`, microseconds.
const SILENCE: i64 = 300_000_000;

/// What a host has of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Has {
    /// It runs there.
    Runs,
    /// It is there, and its processors are stopped.
    StandsStill,
    /// It is not there, whatever else is.
    Nothing,
}

impl Has {
    fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Running => Some(Self::Runs),
            Outcome::Paused | Outcome::Suspended => Some(Self::StandsStill),
            Outcome::Ready | Outcome::Stopped | Outcome::Absent | Outcome::Departed => {
                Some(Self::Nothing)
            }
            Outcome::Working { .. } | Outcome::Departing(_) | Outcome::Failed { .. } => None,
        }
    }
}

/// Where a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Source,
    Dest,
    Unknown,
}

/// Where a guest is by what both hosts say. The old one is believed as long as it has it, but for a
/// guest that stands still there and runs on the new one: that is how the last word between the two
/// gets lost. One that stood still before it left proves nothing by that.
fn place(source: Option<Has>, dest: Option<Has>, stood: bool) -> Place {
    match (source, dest) {
        (Some(Has::Runs), _) => Place::Source,
        (Some(Has::StandsStill), _) if stood => Place::Source,
        (_, Some(Has::Runs)) => Place::Dest,
        (Some(Has::StandsStill), Some(_)) => Place::Source,
        (Some(Has::Nothing), Some(Has::StandsStill)) => Place::Dest,
        // Nobody has it: it goes on where its disks are.
        (Some(Has::Nothing), Some(Has::Nothing)) => Place::Source,
        (_, None) | (None, Some(_)) => Place::Unknown,
    }
}

/// The old host said something about the guest that leaves, or that it was asked for.
pub(super) fn source_said(
    tx: &mut Tx<'_>,
    scene: Scene<'_>,
    outcome: &Outcome,
) -> Result<(), Error> {
    let (mut course, now) = (Course::of(scene.operation)?, scene.now);
    let source = scene.migration.source.as_str();
    let at = scene.operation.step.as_str();
    match outcome {
        Outcome::Departed => return live::gone(tx, &scene, &course),
        Outcome::Departing(progress) => {
            moves::set_progress(tx, scene.migration.id, progress, now)?;
            if at == "find" && course.source.is_none() {
                flow::advance(tx, scene.operation, "transfer", &course.data()?, now)?;
            }
            return Ok(());
        }
        // Unless it is only asked, and cannot say: then it is asked again.
        Outcome::Failed { step, message }
            if at == "transfer" || (at == "find" && course.source.is_none()) =>
        {
            let why = format!("{source}: {step}: {message}");
            tracing::warn!(server = %scene.server.id, "does not leave, and may have left: {why}");
            course.reason.get_or_insert(why);
            course.sent = true;
            return ask_source(tx, &scene, course);
        }
        _ if at == "transfer" => return Ok(()),
        _ => {}
    }
    let Some(has) = Has::of(outcome) else { return Ok(()) };
    course.source = Some(has);
    match place(course.source, None, stood(&scene)) {
        Place::Source => stays(tx, &scene, course),
        Place::Dest | Place::Unknown => ask_dest(tx, &scene, course),
    }
}

/// The new host said what it has of the guest.
pub(super) fn dest_said(tx: &mut Tx<'_>, scene: Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    let course = Course::of(scene.operation)?;
    let Some(has) = Has::of(outcome) else { return Ok(()) };
    match place(course.source, Some(has), stood(&scene)) {
        Place::Source => stays(tx, &scene, course),
        Place::Dest => {
            let (source, why) = (&scene.migration.source, course.reason());
            tracing::warn!(server = %scene.server.id, source, why, "has arrived all the same");
            live::gone(tx, &scene, &course)
        }
        Place::Unknown => Ok(()),
    }
}

/// Whether the guest stood still before it left.
fn stood(scene: &Scene<'_>) -> bool {
    scene.migration.old_domain.power == Power::Paused
}

/// Has the old host stop sending the guest, and say what it has of it.
pub(super) fn ask_source(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    mut course: Course,
) -> Result<(), Error> {
    course.source = None;
    let domain = Domain { power: Power::AsIs, ..scene.migration.old_domain.clone() };
    scene.put(tx, &scene.migration.source, &Desired::Present(Box::new(domain)))?;
    Ok(flow::advance(tx, scene.operation, "abort", &course.data()?, scene.now)?)
}

/// Has the new host say what it has of the guest.
fn ask_dest(tx: &mut Tx<'_>, scene: &Scene<'_>, mut course: Course) -> Result<(), Error> {
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    course.asked.get_or_insert(scene.now);
    let there = live::there(tx, scene, &course, &dest, Power::AsIs)?;
    scene.put(tx, &dest, &there)?;
    Ok(flow::advance(tx, scene.operation, "find", &course.data()?, scene.now)?)
}

/// The guest is not on the new host, which is to put away what it has.
fn stays(tx: &mut Tx<'_>, scene: &Scene<'_>, mut course: Course) -> Result<(), Error> {
    let (id, now, source) = (scene.server.id, scene.now, scene.migration.source.as_str());
    let since = scene.operation.updated_at;
    let why = course.reason.get_or_insert_with(|| "The live migration was aborted.".to_owned());
    let failed = start::event("compute_live_migration", source, Some(why), since, now);
    flow::event(tx, scene.operation.id, &failed)?;
    if course.told {
        let (was, power) = (scene.migration.was, scene.server.power_state);
        servers::set_state(tx, id, was, Some("migrating"), power, now)?;
    }
    let as_it_was = course.source == Some(Has::Runs)
        || (stood(scene) && course.source == Some(Has::StandsStill));
    if as_it_was {
        let kept = Desired::Present(Box::new(scene.migration.old_domain.clone()));
        scene.put(tx, source, &kept)?;
    }
    // Otherwise it goes on there once the other host has nothing of it any more.
    course.stopped = !as_it_was;
    undo::drop_dest(tx, scene, Course { sent: true, ..course })
}

/// Asks hosts again that have not said where the guest is, and says so where one is silent for long.
///
/// # Errors
/// The database's.
pub fn find_guest(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<(), Error> {
    let open = open_move(tx, server, |open| open.kind == "live-migration")?;
    let Some((operation, server, migration)) = open else { return Ok(()) };
    let course = Course::of(&operation)?;
    let scene = Scene { compute, operation: &operation, server, migration, now };
    let Some(dest) = scene.migration.dest.clone() else { return Ok(()) };
    let source_is_lost = compute.host_is_lost(&scene.migration.source, now);
    match operation.step.as_str() {
        "transfer" | "abort" if source_is_lost => {
            ask_dest(tx, &scene, Course { source: None, ..course })
        }
        "abort" => ask_source(tx, &scene, course),
        "find" if course.source.is_none() && !source_is_lost => ask_source(tx, &scene, course),
        "find" if compute.host_is_declared_dead(&dest) && course.source.is_some() => {
            stays(tx, &scene, course)
        }
        "find" if !compute.host_is_lost(&dest, now) => ask_dest(tx, &scene, course),
        "find" if !course.told => silent(tx, &scene, course, &dest),
        _ => Ok(()),
    }
}

/// Says that the new host is silent, after a while. The guest may be on either side: both are kept.
fn silent(tx: &mut Tx<'_>, scene: &Scene<'_>, mut course: Course, dest: &str) -> Result<(), Error> {
    let (id, now, source) = (scene.server.id, scene.now, scene.migration.source.as_str());
    let since = course.asked.unwrap_or(now);
    if now - since < SILENCE {
        return Ok(());
    }
    let message = format!(
        "{dest} has not said for {} s whether the guest has arrived there, and it does not run on \
         {source}. {} Nothing is started or removed before that is known: bring the agent of {dest} \
         back, or, if that host is off, say so (`openstack compute service set --down {dest} \
         nova-compute`); the server then goes on where it can.",
        SILENCE / 1_000_000,
        course.reason.as_deref().unwrap_or("The live migration was aborted."),
    );
    tracing::error!(server = %id, "{message}");
    let name = "compute_live_migration";
    flow::event(tx, scene.operation.id, &start::event(name, dest, Some(&message), since, now))?;
    let told = "The live migration broke off, and the new host has not said whether the guest has \
                arrived. Nothing is started or removed before that is known.";
    let fault = servers::Fault::new(told, message, now);
    servers::set_error(tx, id, &fault, now)?;
    course.told = true;
    Ok(flow::advance(tx, scene.operation, "find", &course.data()?, now)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_the_guest_keeps_it() {
        use Has::{Nothing, Runs, StandsStill};
        use Place::{Dest, Source, Unknown};
        for (source, dest, stood, is) in [
            (Some(Runs), None, false, Source),
            (Some(Runs), Some(Runs), false, Source),
            (Some(StandsStill), None, false, Unknown),
            (Some(StandsStill), Some(Runs), false, Dest),
            (Some(StandsStill), Some(StandsStill), false, Source),
            (Some(StandsStill), Some(Nothing), false, Source),
            (Some(StandsStill), None, true, Source),
            (Some(StandsStill), Some(StandsStill), true, Source),
            (Some(Nothing), None, false, Unknown),
            (Some(Nothing), Some(Runs), false, Dest),
            (Some(Nothing), Some(StandsStill), false, Dest),
            (Some(Nothing), Some(StandsStill), true, Dest),
            (Some(Nothing), Some(Nothing), false, Source),
            (None, Some(Runs), false, Dest),
            (None, Some(StandsStill), true, Unknown),
            (None, Some(Nothing), false, Unknown),
            (None, None, false, Unknown),
        ] {
            assert_eq!(place(source, dest, stood), is, "{source:?} {dest:?} {stood}");
        }
    }
}
