//! A server is put on the shelf: its disk becomes an image, its place is given back.

use kilonova_flow::Outcome as End;
use kilonova_node_api::{Desired, Outcome};
use kilonova_store::Tx;
use kilonova_wire::Context;

use super::super::power::SHUTDOWN;
use super::super::start;
use super::course::Course;
use super::wish::event_of;
use super::{Picture, Scene, Wish, images};
use crate::app::{boot, nics, states};
use crate::db::documents;
use crate::db::resting::{self, Why};
use crate::db::servers::{self, Server, VmState};
use crate::{Compute, Error};

/// The host is asked to drop the guest; whoever waits long is asked again.
pub(super) const CLEAR: &str = "clear";

/// Begins `shelve`.
///
/// # Errors
/// 409 in Nova's words when the server is not in a state for it; 503 without an image service.
pub fn shelve(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "shelve")?;
    let picture = Picture { name: format!("{}-shelved", server.name), ..Picture::default() };
    let image = images::reserve(tx, compute, context, server, &picture, now)?;
    let course = Course { image: Some(image), ..Course::default() };
    super::begin(tx, compute, context, server, &Wish::Shelve(image), course, now)
}

/// The image is there and the guest is shut off.
pub(super) fn shelved(tx: &mut Tx<'_>, scene: &Scene<'_>) -> Result<(), Error> {
    let (id, now) = (scene.server.id, scene.now);
    resting::put(tx, id, Why::Shelved, scene.course.image, now)?;
    let at_once = scene.compute.options.shelved_offload_time == 0;
    let task = at_once.then_some("shelving_offloading");
    servers::set_state(tx, id, VmState::Shelved, task, SHUTDOWN, now)?;
    if !at_once {
        return scene.finish(tx, End::Done, None);
    }
    // The image is the server's now, not the operation's.
    let course = Course { image: None, ..scene.course.clone() };
    scene.advance(tx, CLEAR, &course)?;
    scene.put(tx, &Desired::Absent)
}

/// Begins `shelveOffload`.
///
/// # Errors
/// 409 in Nova's words when the server is not shelved.
pub fn offload(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "shelveOffload")?;
    let (host, _) = super::guest_of(tx, server)?;
    let course = Course {
        vm_state: server.vm_state.as_str().to_owned(),
        power_state: server.power_state,
        ..Course::default()
    };
    let how = start::Begin {
        kind: "shelveOffload",
        step: CLEAR,
        task: Some("shelving_offloading"),
        data: course.to_data()?,
    };
    start::begin_with(tx, context, server, how, now)?;
    let generation = documents::put(tx, &host, server.id, &Desired::Absent)?;
    compute.wake_on_commit(tx, &host, generation);
    Ok(())
}

/// Begins `shelveOffload` for a server that has been shelved long enough, if it still is.
///
/// # Errors
/// The database's.
pub fn offload_unasked(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: kilonova_ids::ServerId,
    now: i64,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(()) };
    let nobody = start::nobody(&server);
    if states::check(&nobody, &server, "shelveOffload").is_err() {
        return Ok(());
    }
    offload(tx, compute, &nobody, &server, now)
}

/// Nothing of the server is left on its host: it holds nothing any more.
pub(super) fn cleared(tx: &mut Tx<'_>, scene: &Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    let (id, now) = (scene.server.id, scene.now);
    match outcome {
        Outcome::Absent => {
            documents::forget(tx, scene.host, id)?;
            boot::release(tx, scene.compute, id)?;
            nics::set_host(tx, id, None, now)?;
            servers::set_state(tx, id, VmState::ShelvedOffloaded, None, SHUTDOWN, now)?;
            scene.event(tx, &event_of("shelveOffload"), None)?;
            scene.finish(tx, End::Done, None)
        }
        Outcome::Failed { step, message } => {
            let why = format!("{}: {step}: {message}", scene.host);
            tracing::warn!(server = %id, "cannot be offloaded yet: {why}");
            if scene.course.reason.as_deref() != Some(&why) {
                scene.event(tx, &event_of("shelveOffload"), Some(&why))?;
            }
            let course = Course { reason: Some(why), ..scene.course.clone() };
            scene.advance(tx, CLEAR, &course)
        }
        _ => Ok(()),
    }
}

/// The server is back, or gone: the image it was kept in is of no use.
pub(super) fn forget_image(tx: &mut Tx<'_>, scene: &Scene<'_>) -> Result<(), Error> {
    drop_image(tx, scene.compute, scene.server.id)
}

/// [`forget_image`], whatever is being done.
pub(in crate::flows) fn drop_image(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: kilonova_ids::ServerId,
) -> Result<(), Error> {
    if let Some(image) = resting::image(tx, server)? {
        images::discard(tx, compute, image)?;
    }
    resting::end(tx, server)
}
