//! How every move begins, and begins again on the next host: the migration takes the old place over,
//! the server claims a new one.

use std::collections::HashSet;

use kilonova_flow::{self as flow, Operation, Outcome as End};
use kilonova_ids::ConsumerId;
use kilonova_node_api::{Attachment, Desired, Domain, Power};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::super::start;
use super::Scene;
use super::along;
use super::course::Course;
use crate::app::boot::Placement;
use crate::app::moves::{self as claims, Search};
use crate::app::scheduler::NoHost;
use crate::app::states;
use crate::db::documents;
use crate::db::moves::{self, Kind, Move, NewMove};
use crate::db::servers::{self, FlavorOf, Server, shape};
use crate::{Compute, Error};

/// What a move begins with.
pub(super) struct Start<'a> {
    pub server: &'a Server,
    pub kind: Kind,
    /// Nova's action.
    pub action: &'static str,
    pub task: &'static str,
    pub status: &'static str,
    pub flavor: &'a FlavorOf,
}

/// The host of the server, and its guest there.
pub(super) fn guest_of(tx: &mut Tx<'_>, server: &Server) -> Result<(String, Domain), Error> {
    let host = server.host.clone().ok_or_else(|| states::not_ready(server))?;
    match documents::get(tx, &host, server.id)?.map(|document| document.desired) {
        Some(Desired::Present(domain)) => Ok((host, *domain)),
        Some(Desired::Absent) | None => Err(states::not_ready(server)),
    }
}

/// The server's own host must be up for what is done there.
pub(super) fn host_is_up(compute: &Compute, server: &Server, now: i64) -> Result<(), Error> {
    if server.host.as_deref().is_some_and(|host| compute.host_is_lost(host, now)) {
        return Err(Fault::conflict("Service is unavailable at this time.").into());
    }
    Ok(())
}

/// Writes operation and migration down.
pub(super) fn begin(
    tx: &mut Tx<'_>,
    context: &Context,
    start: &Start<'_>,
    now: i64,
) -> Result<(Operation, Move), Error> {
    let server = start.server;
    let (source, mut domain) = guest_of(tx, server)?;
    if start.kind != Kind::Live && matches!(domain.power, Power::Paused | Power::Suspended) {
        // Its row says otherwise, by an operator's word: what is in memory cannot come along.
        domain.power = Power::On;
    }
    start::begin(tx, context, server, start.action, "begin", start.task, now)?;
    let new = NewMove {
        id: ConsumerId::new_v4(),
        server: server.id,
        kind: start.kind,
        status: start.status,
        source,
        was: server.vm_state,
        old_flavor: server.spec.flavor.clone(),
        new_flavor: start.flavor.clone(),
        old_domain: domain,
        user_id: context.user_id.clone(),
        project_id: server.project_id.clone(),
    };
    moves::insert(tx, &new, now)?;
    let operation = flow::open_of(tx, server.id)?.ok_or_else(|| shape("no operation"))?;
    let migration = moves::open_of(tx, server.id)?.ok_or_else(|| shape("no migration"))?;
    Ok((operation, migration))
}

/// Has the migration hold the old place and the server a new one; or leaves all as it is and says
/// why there is none.
pub(super) fn settle_on(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    course: &Course,
    fits: &dyn Fn(&[Attachment]) -> bool,
) -> Result<Result<Placement, NoHost>, Error> {
    let (server, migration) = (&scene.server, &scene.migration);
    let mut excluded: HashSet<String> = course.tried.iter().cloned().collect();
    // What is still to be dropped on a host stands under the server's name there.
    excluded.extend(documents::of_server(tx, server.id)?.into_iter().map(|(host, _)| host));
    let options = &scene.compute.options;
    if migration.kind == Kind::Resize && options.allow_resize_to_same_host {
        excluded.remove(&migration.source);
    }
    claims::leave(tx, server.id, migration.id, &migration.source)?;
    let required = along::required(migration);
    let search = Search {
        server,
        flavor: &migration.new_flavor,
        host: course.host.as_deref(),
        force: course.force,
        excluded,
        request_id: &scene.operation.request_id,
        root_required: &required,
        fits,
    };
    let found = claims::place(tx, scene.compute, search, scene.now)?;
    match &found {
        Ok(place) => moves::set_dest(tx, migration.id, &place.host, scene.now)?,
        Err(_) => claims::take_back(tx, server.id, migration.id)?,
    }
    Ok(found)
}

/// The move found no place: nothing has changed, and the action says why.
pub(super) fn no_host(
    tx: &mut Tx<'_>,
    scene: &Scene<'_>,
    event: &str,
    reason: &NoHost,
) -> Result<(), Error> {
    let message = reason.details();
    tracing::info!(server = %scene.server.id, "{message}");
    let (operation, now) = (scene.operation, scene.now);
    flow::event(tx, operation.id, &conductor(event, Some(&message), now))?;
    moves::close(tx, scene.migration.id, "error", now)?;
    servers::set_task(tx, scene.server.id, None, now)?;
    Ok(flow::finish(tx, operation, End::Failed, Some(&message), now)?)
}

/// An event of the part that is on no host.
pub(super) fn conductor(name: &str, failure: Option<&str>, now: i64) -> flow::Event {
    flow::Event { host: None, ..start::event(name, "", failure, now, now) }
}
