//! Begins every move and each further attempt: the migration takes over the claims on the old host,
//! and the server claims a new place.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::moves::{self, Kind, Move, NewMove, Status};
use kilonova_compute_db::servers::{self, FlavorOf, Server, TaskState, shape};
use kilonova_compute_scheduler::NoHost;
use kilonova_flow as flow;
use kilonova_ids::{ConsumerId, HostName};
use kilonova_node_api::{Attachment, Desired, Domain, Power, Verb};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::super::begin;
use super::super::journal::{self, OpenOperation};
use super::super::operation::{Attempts, Operation};
use super::{FlowContext, confirm, device_pairing};
use crate::boot::Placement;
use crate::moves::{self as claims, Search};
use crate::numa::RunningGuest;
use crate::{Compute, Error, states, volumes};

/// The data of a new move.
pub(super) struct NewMigration<'a> {
    pub server: &'a Server,
    pub kind: Kind,
    pub state: Operation,
    pub task: TaskState,
    pub status: Status,
    pub flavor: &'a FlavorOf,
    /// The server's host and guest, from [`guest_of`].
    pub guest: (HostName, Domain),
}

/// The host of the server, and the guest that its document describes, without a verb that the move cancels.
pub(super) fn guest_of(tx: &mut Tx<'_>, server: &Server) -> Result<(HostName, Domain), Error> {
    let host = server.host.clone().ok_or_else(|| states::not_ready(server))?;
    match documents::on(tx, &host, server.id)?.map(|document| document.desired) {
        Some(Desired::Present(domain)) => {
            let verb = domain.verb.filter(|(_, verb)| !matches!(verb, Verb::Guest(_)));
            Ok((host, Domain { starts_paused: false, verb, ..*domain }))
        }
        Some(Desired::Absent) | None => Err(states::not_ready(server)),
    }
}

/// Refuses a move whose source is down.
pub(super) fn check_source_is_up(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(host) = &server.host else { return Ok(()) };
    if compute.host_is_lost(tx, host, now)? {
        return Err(Refusal::conflict("Service is unavailable at this time.").into());
    }
    Ok(())
}

/// Writes the operation and the migration.
///
/// # Errors
/// 409 if an earlier migration waits for its confirmation.
pub(super) fn begin(
    tx: &mut Tx<'_>,
    context: &Context,
    new: NewMigration<'_>,
    now: Timestamp,
) -> Result<(OpenOperation, Move), Error> {
    let server = new.server;
    let (source, mut domain) = new.guest;
    if new.kind != Kind::Live && matches!(domain.power, Power::Paused | Power::Suspended) {
        // Only `os-resetState` makes this possible. A cold move loses the memory of a suspended or
        // paused guest, so the guest boots at the destination.
        domain.power = Power::On;
    }
    // Only documents contain connection data and injected files.
    volumes::forget_connections(&mut domain.config.volumes);
    domain.config.guest.files.clear();
    let (open, begun) = begin::ask_begin(tx, context, server, Some(new.task), new.state, now)?;
    let row = NewMove {
        id: ConsumerId::new_v4(),
        server: server.id,
        kind: new.kind,
        status: new.status,
        source,
        was: server.vm_state,
        old_flavor: server.spec.flavor.clone(),
        new_flavor: new.flavor.clone(),
        old_domain: domain,
        user_id: context.user_id.clone(),
        project_id: server.project_id.clone(),
    };
    moves::insert(tx, &row, now)?;
    let inserted = moves::ask_open_of(tx, server.id)?;
    journal::begun(tx, &open, begun)?;
    let migration = moves::found_open_of(tx, inserted)?.ok_or_else(|| shape("no migration"))?;
    if migration.id != row.id {
        return Err(confirm::must_end_first(server));
    }
    Ok((open, migration))
}

/// Assigns the claims on the old host to the migration, and claims a new place for the server. If
/// there is none, all claims stay unchanged, and the reason is returned.
pub(super) fn claim_place(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    attempts: &Attempts,
    fits: &dyn Fn(&[Attachment]) -> bool,
) -> Result<Result<Placement, NoHost>, Error> {
    let (server, migration) = (&ctx.server, &ctx.migration);
    let mut excluded: HashSet<HostName> = attempts.tried.iter().cloned().collect();
    // A host that still has to remove the guest still has a document of the server, and is
    // excluded.
    let documents = documents::ask_of_server(tx, server.id)?;
    let options = &ctx.compute.options;
    claims::move_to_migration(tx, server, migration, &migration.source)?;
    let documents = documents::found(tx, documents)?;
    excluded.extend(documents.into_iter().map(|(host, _)| host));
    if migration.kind == Kind::Resize && options.allow_resize_to_same_host {
        excluded.remove(&migration.source);
    }
    let required = device_pairing::required_traits(migration);
    let has = &migration.old_domain.config;
    let running = has.numa.as_deref().filter(|_| migration.kind == Kind::Live);
    let running = running.map(|numa| RunningGuest { numa, devices: &has.devices });
    let search = Search {
        server,
        flavor: &migration.new_flavor,
        host: attempts.requested.as_ref(),
        force: attempts.force,
        excluded,
        request_id: &ctx.open.row.request_id,
        root_required: &required,
        running,
        fits,
    };
    let found = claims::place(tx, ctx.compute, search, ctx.now)?;
    match &found {
        Ok(place) => moves::set_dest(tx, migration.id, &place.host, ctx.now)?,
        Err(_) => claims::move_to_server(tx, server, migration)?,
    }
    Ok(found)
}

/// Ends a move that found no place. Nothing has changed, and the action records the reason.
pub(super) fn no_host(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    event: &str,
    reason: &NoHost,
) -> Result<(), Error> {
    let message = reason.details();
    flow::event(tx, ctx.open.row.id, &conductor_event(event, Some(&message), ctx.now))?;
    moves::close(tx, ctx.migration.id, Status::Error, ctx.now)?;
    servers::set_task(tx, ctx.server.id, None, ctx.now)?;
    journal::fail(tx, ctx.open, &message, ctx.now)
}

/// An event that happened on no host.
pub(super) fn conductor_event(name: &str, failure: Option<&str>, now: Timestamp) -> flow::Event {
    flow::Event { host: None, ..begin::event(name, &begin::nowhere(), failure, now, now) }
}
