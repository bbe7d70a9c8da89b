//! A server comes back from the shelf: started where it is, or made anew from its image wherever
//! there is room for it and its devices.

use kilonova_flow::{self as flow, Outcome as End};
use kilonova_node_api::{Desired, Outcome};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::super::power::RUNNING;
use super::super::start;
use super::course::Course;
use super::wish::event_of;
use super::{Scene, Wish, shelve};
use crate::app::aliases;
use crate::app::boot;
use crate::app::moves::{self, Search};
use crate::app::nics;
use crate::app::scheduler::NoHost;
use crate::app::states;
use crate::db::servers::{self, Server, Spec, VmState, shape};
use crate::db::{documents, resting};
use crate::{Compute, Error};

/// The new host makes the guest.
pub(super) const SPAWN: &str = "unshelve";
/// The new host could not, and drops what it has; whoever waits long is asked again.
pub(super) const CLEAR: &str = "clear_unshelve";

/// Where it is to go.
#[derive(Debug, Clone, Default)]
pub struct Destination {
    /// Another zone (2.77); an inner nothing takes away the one that it had (2.91).
    pub zone: Option<Option<String>>,
    /// This host (2.91).
    pub host: Option<String>,
}

/// Begins `unshelve`.
///
/// # Errors
/// 409 in Nova's words when the server is not shelved, or is on its host and is to go elsewhere.
pub fn unshelve(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    to: &Destination,
    now: i64,
) -> Result<(), Error> {
    states::check(context, server, "unshelve")?;
    if server.vm_state == VmState::Shelved {
        if to.zone.is_some() || to.host.is_some() {
            return Err(Fault::conflict(format!(
                "Specifying an availability zone or a host when unshelving server \"{}\" with status \
                 \"SHELVED\" is not supported. The server status must be SHELVED_OFFLOADED.",
                server.id
            ))
            .into());
        }
        return super::begin(tx, compute, context, server, &Wish::Unshelve, Course::default(), now);
    }
    aliases::check(&compute.options.pci_aliases, &server.spec.flavor)?;
    elsewhere(tx, compute, context, server, to, now)
}

fn elsewhere(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    to: &Destination,
    now: i64,
) -> Result<(), Error> {
    let mut server = server.clone();
    if let Some(zone) = &to.zone {
        server.spec = Spec { availability_zone: zone.clone(), ..server.spec };
        let (name, description) = (server.name.clone(), server.description.clone());
        servers::set_text(tx, server.id, &name, description.as_deref(), &server.spec, now)?;
    }
    let course = Course {
        vm_state: server.vm_state.as_str().to_owned(),
        power_state: server.power_state,
        host: to.host.clone(),
        ..Course::default()
    };
    let how = start::Begin {
        kind: "unshelve",
        step: SPAWN,
        task: Some("unshelving"),
        data: course.to_data()?,
    };
    start::begin_with(tx, context, &server, how, now)?;
    let operation = flow::open_of(tx, server.id)?.ok_or_else(|| shape("no operation"))?;
    let Err(reason) = place(tx, compute, &server, &operation, &course, now)? else { return Ok(()) };
    let message = reason.details();
    tracing::info!(server = %server.id, "{message}");
    flow::event(tx, operation.id, &scheduled(Some(&message), now))?;
    servers::set_task(tx, server.id, None, now)?;
    Ok(flow::finish(tx, &operation, End::Failed, Some(&message), now)?)
}

fn scheduled(failure: Option<&str>, now: i64) -> flow::Event {
    flow::Event { host: None, ..start::event("schedule_instances", "", failure, now, now) }
}

/// Claims a place on a host that has not failed yet and has the guest made there; or says why there
/// is none.
fn place(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    operation: &flow::Operation,
    course: &Course,
    now: i64,
) -> Result<Result<(), NoHost>, Error> {
    let search = Search {
        server,
        flavor: &server.spec.flavor,
        host: course.host.as_deref(),
        force: false,
        excluded: course.tried.iter().cloned().collect(),
        request_id: &operation.request_id,
        root_required: &[],
        fits: &|_| true,
    };
    let place = match moves::place(tx, compute, search, now)? {
        Ok(place) => place,
        Err(reason) => return Ok(Err(reason)),
    };
    flow::event(tx, operation.id, &scheduled(None, now))?;
    let course = Course { chosen: Some(place.how), ..course.clone() };
    flow::advance(tx, operation, SPAWN, &course.to_data()?, now)?;
    let image = resting::image(tx, server.id)?.or(server.spec.image);
    let spec = Spec { image, ..server.spec.clone() };
    let nics = nics::of_guest(tx, server, &place.host)?;
    let zone = compute.zone_of(Some(&place.host));
    let whole = boot::Whole { spec: &spec, ..boot::Whole::of(server, &zone) };
    let document = boot::desired(&whole, place.devices, nics);
    nics::set_host(tx, server.id, Some(&place.host), now)?;
    let generation = documents::put(tx, &place.host, server.id, &document)?;
    compute.wake_on_commit(tx, &place.host, generation);
    Ok(Ok(()))
}

pub(super) fn spawned(tx: &mut Tx<'_>, scene: &Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    match outcome {
        Outcome::Running => {
            let (id, now) = (scene.server.id, scene.now);
            servers::set_state(tx, id, VmState::Active, None, RUNNING, now)?;
            shelve::forget_image(tx, scene)?;
            scene.event(tx, &event_of("unshelve"), None)?;
            scene.finish(tx, End::Done, None)
        }
        Outcome::Failed { step, message } => {
            let why = format!("{}: {step}: {message}", scene.host);
            scene.event(tx, &event_of("unshelve"), Some(&why))?;
            let mut course = Course { reason: Some(why), ..scene.course.clone() };
            course.tried.push(scene.host.to_owned());
            scene.advance(tx, CLEAR, &course)?;
            scene.put(tx, &Desired::Absent)
        }
        _ => Ok(()),
    }
}

/// Nothing is left of the try: another host is tried, or the server is on its shelf as before, and
/// holds nothing.
pub(super) fn cleared(tx: &mut Tx<'_>, scene: &Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    if *outcome != Outcome::Absent {
        return Ok(());
    }
    let (id, now) = (scene.server.id, scene.now);
    documents::forget(tx, scene.host, id)?;
    boot::release(tx, scene.compute, id)?;
    nics::set_host(tx, id, None, now)?;
    let course = &scene.course;
    let reason = course.reason.as_deref().unwrap_or_default();
    let message = if course.tried.len() < scene.compute.options.max_attempts {
        let found = place(tx, scene.compute, &scene.server, scene.operation, course, now)?;
        let Err(why) = found else { return Ok(()) };
        format!("{} Last failure: {reason}", why.details())
    } else {
        format!(
            "Exceeded maximum number of retries. Exhausted all hosts available for retrying the \
             unshelve of instance {id}. Last failure: {reason}"
        )
    };
    servers::set_state(tx, id, course.was(), None, course.power_state, now)?;
    scene.finish(tx, End::Failed, Some(&message))
}
