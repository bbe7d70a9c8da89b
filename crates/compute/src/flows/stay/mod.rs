//! What is done to a server where it is: pause, suspend, rescue, rebuild, images of it, shelving.
//!
//! ```text
//!   pause, suspend, rescue, …:  settle ──as asked──► done
//!                                 └─Failed─► undo ──as before──► as it was; the action says why
//!   createImage, createBackup:  settle ──sent──► done           (the same, and the image is gone)
//!   rebuild:                    settle ──as asked──► done │ Failed ──► ERROR with the reason
//!   shelve:                     settle ──sent──► SHELVED ─► clear ──Absent──► on no host
//!   unshelve:                   settle, or from no host: spawn ──Running──► done
//!                                                          └─Failed─► clear ──Absent──► as it was
//! ```
//!
//! A step is the whole document in another power state, or with a new verb; the devices are in it
//! throughout, so none of these can lose one. What the guest was like before is kept with the
//! operation: giving up is asking for that again, and believing the host that it is so.

mod course;
mod images;
mod settle;
mod shelve;
mod soft_delete;
mod undo;
mod unshelve;
mod wish;

use kilonova_flow::{self as flow, Operation, Outcome as End};
use kilonova_ids::{ImageId, ServerId};
use kilonova_node_api::{Desired, Domain, Observation, Rescue};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::start;
use crate::app::boot::machine;
use crate::app::{states, unsupported};
use crate::db::documents;
use crate::db::servers::{self, Server};
use crate::{Compute, Error};
use course::Course;

pub use images::{Picture, take};
pub use shelve::{offload, offload_unasked, shelve};
pub use soft_delete::{reclaim, restore, soft_delete};
pub use unshelve::{Destination, unshelve};
pub use wish::{Rebuild, Wish};

pub(super) use settle::{PAUSED, SUSPENDED};
pub(super) use shelve::drop_image;
pub(super) use soft_delete::SOFT;

/// What a step looks at.
struct Scene<'a> {
    compute: &'a Compute,
    host: &'a str,
    operation: &'a Operation,
    course: Course,
    server: Server,
    now: i64,
}

impl Scene<'_> {
    /// Writes what should be on the host, and wakes it.
    fn put(&self, tx: &mut Tx<'_>, desired: &Desired) -> Result<(), Error> {
        let generation = documents::put(tx, self.host, self.server.id, desired)?;
        self.compute.wake_on_commit(tx, self.host, generation);
        Ok(())
    }

    /// Notes what came of it on the host.
    fn event(&self, tx: &mut Tx<'_>, name: &str, failure: Option<&str>) -> Result<(), Error> {
        let event = start::event(name, self.host, failure, self.operation.created_at, self.now);
        Ok(flow::event(tx, self.operation.id, &event)?)
    }

    fn finish(&self, tx: &mut Tx<'_>, end: End, message: Option<&str>) -> Result<(), Error> {
        Ok(flow::finish(tx, self.operation, end, message, self.now)?)
    }

    fn advance(&self, tx: &mut Tx<'_>, step: &str, course: &Course) -> Result<(), Error> {
        Ok(flow::advance(tx, self.operation, step, &course.to_data()?, self.now)?)
    }
}

/// The host of the server and its guest there.
fn guest_of(tx: &mut Tx<'_>, server: &Server) -> Result<(String, Domain), Error> {
    let host = server.host.clone().ok_or_else(|| states::not_ready(server))?;
    match documents::get(tx, &host, server.id)?.map(|document| document.desired) {
        Some(Desired::Present(domain)) => Ok((host, *domain)),
        Some(Desired::Absent) => {
            Err(Fault::conflict(format!("Instance {} is being removed", server.id)).into())
        }
        None => Err(states::not_ready(server)),
    }
}

/// Asks for something to be done to the guest.
///
/// # Errors
/// 409 in Nova's words when the server is not in a state for it.
pub fn ask(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    wish: &Wish,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, wish.rule())?;
    let course = Course::default();
    begin(tx, compute, context, server, wish, course, now)
}

/// Takes a server out of rescue that is in it for too long (`rescue_timeout`), if it still is.
///
/// # Errors
/// The database's.
pub fn unrescue_unasked(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(()) };
    let nobody = start::nobody(&server);
    if states::check(&nobody, &server, "unrescue").is_err() {
        return Ok(());
    }
    ask(tx, compute, &nobody, &server, &Wish::Unrescue, now)
}

/// [`ask`], of a server that was found to be in a state for it.
fn begin(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    wish: &Wish,
    course: Course,
    now: i64,
) -> Result<(), Error> {
    let (host, mut domain) = guest_of(tx, server)?;
    let course = Course {
        former: Some(Box::new(Domain { verb: None, ..domain.clone() })),
        vm_state: server.vm_state.as_str().to_owned(),
        power_state: server.power_state,
        ..course
    };
    let how = start::Begin {
        kind: wish.kind(),
        step: wish.step(),
        task: wish.task(),
        data: course.to_data()?,
    };
    let operation = start::begin_with(tx, context, server, how, now)?;
    wish.apply(&mut domain, operation);
    if let Wish::Rescue(image) = wish {
        domain.rescue = Some(rescue(tx, server, *image)?);
    }
    let generation = documents::put(tx, &host, server.id, &Desired::Present(Box::new(domain)))?;
    compute.wake_on_commit(tx, &host, generation);
    Ok(())
}

/// How a server is mended from an image: as that image says of itself.
fn rescue(tx: &mut Tx<'_>, server: &Server, image: Option<ImageId>) -> Result<Rescue, Error> {
    let spec = &server.spec;
    let other = match image.filter(|_| image != spec.image) {
        Some(id) => kilonova_image::find(tx, id)?,
        None => None,
    };
    let properties = other.map_or_else(|| spec.image_properties.clone(), |image| image.properties);
    machine::check(&properties, &spec.flavor)?;
    if let Some(image) = image.filter(|_| image != spec.image) {
        unsupported::image(image, &properties)?;
    }
    Ok(machine::rescue(spec, image, &properties))
}

/// Whether an operation of this kind is one of these.
pub(super) fn is_one(operation: &Operation) -> bool {
    wish::KINDS.contains(&operation.kind.as_str())
        || (operation.kind == "delete" && operation.step == SOFT)
        || (operation.kind == "delete" && operation.step == undo::STEP)
}

/// The server goes, or something else takes the operation's place: an image that it was to make will
/// not come, and its host is not asked for it any more.
///
/// # Errors
/// The database's.
pub(super) fn call_off(
    tx: &mut Tx<'_>,
    compute: &Compute,
    operation: &Operation,
) -> Result<(), Error> {
    if !is_one(operation) {
        return Ok(());
    }
    if let Some(image) = Course::of(operation)?.image {
        images::discard(tx, compute, image)?;
    }
    let id = operation.subject;
    let Some(host) = servers::host_of(tx, id)? else { return Ok(()) };
    match documents::get(tx, &host, id)?.map(|document| document.desired) {
        Some(Desired::Present(domain))
            if domain.verb.is_some_and(|(asked_by, _)| asked_by == operation.id) =>
        {
            let quiet = Desired::Present(Box::new(Domain { verb: None, ..*domain }));
            let generation = documents::put(tx, &host, id, &quiet)?;
            compute.wake_on_commit(tx, &host, generation);
            Ok(())
        }
        _ => Ok(()),
    }
}

pub(super) fn observed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    operation: &Operation,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, operation.subject)? else {
        return Ok(flow::finish(tx, operation, End::Cancelled, None, now)?);
    };
    let course = Course::of(operation)?;
    let scene = Scene { compute, host, operation, course, server, now };
    match operation.step.as_str() {
        undo::STEP => undo::undone(tx, &scene, &observation.outcome),
        shelve::CLEAR => shelve::cleared(tx, &scene, &observation.outcome),
        unshelve::SPAWN => unshelve::spawned(tx, &scene, &observation.outcome),
        unshelve::CLEAR => unshelve::cleared(tx, &scene, &observation.outcome),
        _ => settle::settled(tx, &scene, &observation.outcome),
    }
}
