//! Back to what was before.

use kilonova_flow::Outcome as End;
use kilonova_node_api::{Desired, Outcome, Power};
use kilonova_store::Tx;

use super::course::Course;
use super::{Scene, images, settle};
use crate::Error;
use crate::db::servers::{self, Fault};

/// The host is asked for the guest as it was.
pub(super) const STEP: &str = "undo";

pub(super) fn begin(tx: &mut Tx<'_>, scene: &Scene<'_>, why: &str) -> Result<(), Error> {
    if let Some(image) = scene.course.image {
        images::discard(tx, scene.compute, image)?;
    }
    let course = Course { reason: Some(why.to_owned()), image: None, ..scene.course.clone() };
    scene.advance(tx, STEP, &course)?;
    match &scene.course.former {
        Some(former) => scene.put(tx, &Desired::Present(former.clone())),
        None => Ok(()),
    }
}

pub(super) fn undone(tx: &mut Tx<'_>, scene: &Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    let power = scene.course.former.as_ref().map_or(Power::Off, |former| former.power);
    let reason = scene.course.reason.clone().unwrap_or_default();
    match (outcome, power) {
        (Outcome::Absent, _) => return Ok(()),
        // Nothing of it is in memory, so nothing can have been lost.
        (Outcome::Failed { step, message }, Power::Off | Power::Suspended) => {
            tracing::warn!(server = %scene.server.id, "not as before yet: {}: {step}: {message}", scene.host);
            as_before(tx, scene)?;
        }
        (Outcome::Failed { step, message }, _) => {
            let message = format!("{reason}. Not undone: {step}: {message}");
            let told = format!(
                "The host could not carry out {}, and could not bring the guest back.",
                scene.operation.kind
            );
            let fault = Fault::new(&told, message, scene.now);
            servers::set_error(tx, scene.server.id, &fault, scene.now)?;
        }
        (Outcome::Stopped, Power::On | Power::Paused | Power::Suspended) => {
            settle::shut_off(tx, scene)?;
        }
        _ => as_before(tx, scene)?,
    }
    scene.finish(tx, End::Failed, Some(&reason))
}

/// An `ERROR` that was there stays, with its reason.
fn as_before(tx: &mut Tx<'_>, scene: &Scene<'_>) -> Result<(), Error> {
    let (id, was) = (scene.server.id, scene.course.was());
    if was == scene.server.vm_state {
        return servers::set_task(tx, id, None, scene.now);
    }
    servers::set_state(tx, id, was, None, scene.course.power_state, scene.now)
}
