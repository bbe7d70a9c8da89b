//! The host says what came of it.

use kilonova_flow::Outcome as End;
use kilonova_node_api::{Desired, Domain, Outcome, Power};
use kilonova_store::Tx;

use super::super::power::{RUNNING, SHUTDOWN};
use super::wish::event_of;
use super::{Scene, images, shelve, soft_delete, undo};
use crate::Error;
use crate::db::documents;
use crate::db::resting::{self, Why};
use crate::db::servers::{self, Fault, VmState};

/// Nova's power states.
pub(in crate::flows) const PAUSED: i64 = 3;
/// Nova's power states.
pub(in crate::flows) const SUSPENDED: i64 = 7;

/// What the server is once the operation is done; nothing when that is not what the host says.
fn goal(kind: &str, outcome: &Outcome) -> Option<(VmState, i64)> {
    match (kind, outcome) {
        ("pause", Outcome::Paused) => Some((VmState::Paused, PAUSED)),
        ("suspend", Outcome::Suspended) => Some((VmState::Suspended, SUSPENDED)),
        ("rescue", Outcome::Running) => Some((VmState::Rescued, RUNNING)),
        ("rebuild", Outcome::Stopped) => Some((VmState::Stopped, SHUTDOWN)),
        ("shelve", Outcome::Stopped) => Some((VmState::Shelved, SHUTDOWN)),
        ("delete", Outcome::Stopped) => Some((VmState::SoftDeleted, SHUTDOWN)),
        (
            "unpause" | "resume" | "unrescue" | "rebuild" | "unshelve" | "restore",
            Outcome::Running,
        ) => Some((VmState::Active, RUNNING)),
        _ => None,
    }
}

/// Whether the operation leaves the guest as it is.
fn only_looks(kind: &str) -> bool {
    matches!(kind, "createImage" | "createBackup" | "trigger_crash_dump")
}

pub(super) fn settled(tx: &mut Tx<'_>, scene: &Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    let kind = scene.operation.kind.as_str();
    if let Outcome::Failed { step, message } = outcome {
        return failed(tx, scene, &format!("{}: {step}: {message}", scene.host));
    }
    if *outcome == Outcome::Absent {
        return Ok(());
    }
    if !images::has_come(tx, scene)? {
        let why = format!("{}: snapshot: what is on the disk was not sent", scene.host);
        return failed(tx, scene, &why);
    }
    if only_looks(kind) {
        return looked(tx, scene);
    }
    let Some((vm_state, power_state)) = goal(kind, outcome) else {
        return otherwise(tx, scene, outcome);
    };
    let (id, now) = (scene.server.id, scene.now);
    scene.event(tx, &event_of(kind), None)?;
    if kind == "shelve" {
        return shelve::shelved(tx, scene);
    }
    servers::set_state(tx, id, vm_state, None, power_state, now)?;
    match kind {
        "delete" => soft_delete::rests(tx, scene)?,
        "unshelve" => shelve::forget_image(tx, scene)?,
        "restore" | "unrescue" => resting::end(tx, id)?,
        "rescue" => resting::put(tx, id, Why::Rescued, None, now)?,
        "rebuild" if vm_state == VmState::Active => servers::set_launched(tx, id, now)?,
        _ => {}
    }
    scene.finish(tx, End::Done, None)
}

/// An image was made, or a dump written; the guest is as it was.
fn looked(tx: &mut Tx<'_>, scene: &Scene<'_>) -> Result<(), Error> {
    scene.event(tx, &event_of(&scene.operation.kind), None)?;
    images::rotate(tx, scene)?;
    servers::set_task(tx, scene.server.id, None, scene.now)?;
    scene.finish(tx, End::Done, None)
}

/// The guest has done something else meanwhile: it was shut off, as only that can come between.
fn otherwise(tx: &mut Tx<'_>, scene: &Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    if *outcome != Outcome::Stopped {
        return Ok(());
    }
    let why = format!("{}: the guest is shut off, there is nothing to do it to", scene.host);
    scene.event(tx, &event_of(&scene.operation.kind), Some(&why))?;
    shut_off(tx, scene)?;
    scene.finish(tx, End::Failed, Some(&why))
}

/// The server is `SHUTOFF`, and is to stay so until it is started.
pub(super) fn shut_off(tx: &mut Tx<'_>, scene: &Scene<'_>) -> Result<(), Error> {
    let id = scene.server.id;
    if let Some(Desired::Present(domain)) =
        documents::get(tx, scene.host, id)?.map(|document| document.desired)
    {
        let domain = Domain { power: Power::Off, verb: None, rescue: None, ..*domain };
        scene.put(tx, &Desired::Present(Box::new(domain)))?;
    }
    servers::set_state(tx, id, VmState::Stopped, None, SHUTDOWN, scene.now)
}

fn failed(tx: &mut Tx<'_>, scene: &Scene<'_>, why: &str) -> Result<(), Error> {
    scene.event(tx, &event_of(&scene.operation.kind), Some(why))?;
    if scene.operation.kind != "rebuild" {
        return undo::begin(tx, scene, why);
    }
    // Its old disk may be gone: there is nothing to go back to.
    let fault = Fault::new("The host could not rebuild the guest.", why, scene.now);
    servers::set_error(tx, scene.server.id, &fault, scene.now)?;
    scene.finish(tx, End::Failed, Some(why))
}
