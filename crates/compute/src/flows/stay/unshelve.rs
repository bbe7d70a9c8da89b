//! A server comes back from the shelf: started where it is, or made anew from its image wherever
//! there is room for it and its devices.

use std::collections::HashSet;

use kilonova_flow::{self as flow, Outcome as End};
use kilonova_node_api::{Desired, Outcome, Power};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::super::power::RUNNING;
use super::super::start;
use super::course::Course;
use super::wish::event_of;
use super::{Scene, Wish, shelve};
use crate::app::boot;
use crate::app::moves::{self, Search};
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
    let search = Search {
        server: &server,
        flavor: &server.spec.flavor,
        host: to.host.as_deref(),
        force: false,
        excluded: HashSet::new(),
        request_id: &operation.request_id,
        fits: &|_| true,
    };
    let schedule = |failure: Option<&str>| flow::Event {
        host: None,
        ..start::event("schedule_instances", "", failure, now, now)
    };
    let place = match moves::place(tx, compute, search, now)? {
        Ok(place) => place,
        Err(reason) => {
            let message = format!("No valid host was found. {reason}");
            tracing::info!(server = %server.id, "{message}");
            flow::event(tx, operation.id, &schedule(Some(&message)))?;
            servers::set_task(tx, server.id, None, now)?;
            return Ok(flow::finish(tx, &operation, End::Failed, Some(&message), now)?);
        }
    };
    flow::event(tx, operation.id, &schedule(None))?;
    let image = resting::image(tx, server.id)?.or(server.spec.image);
    let spec = Spec { image, ..server.spec.clone() };
    let document = boot::desired(server.seq, &server.name, &spec, place.devices, Power::On, None);
    servers::set_host(tx, server.id, Some(&place.host), now)?;
    let generation = documents::put(tx, &place.host, server.id, &document)?;
    compute.wake_on_commit(tx, &place.host, generation);
    Ok(())
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
            let course = Course { reason: Some(why), ..scene.course.clone() };
            scene.advance(tx, CLEAR, &course)?;
            scene.put(tx, &Desired::Absent)
        }
        _ => Ok(()),
    }
}

/// Nothing is left of the try: the server is on its shelf as before, and holds nothing.
pub(super) fn cleared(tx: &mut Tx<'_>, scene: &Scene<'_>, outcome: &Outcome) -> Result<(), Error> {
    if *outcome != Outcome::Absent {
        return Ok(());
    }
    let (id, now) = (scene.server.id, scene.now);
    documents::forget(tx, scene.host, id)?;
    boot::release(tx, scene.compute, id)?;
    servers::set_host(tx, id, None, now)?;
    let course = &scene.course;
    servers::set_state(tx, id, course.was(), None, course.power_state, now)?;
    scene.finish(tx, End::Failed, course.reason.as_deref())
}
