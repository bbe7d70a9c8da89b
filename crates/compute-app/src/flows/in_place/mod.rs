//! Changes to a guest on its host: pause, suspend, rescue, rebuild, snapshot, shelve.
//!
//! ```text
//!   pause, suspend, rescue, …:  settle ──as requested──► done
//!                                 └─Failed─► undo ──as before──► state as before; the action records why
//!   soft delete:                likewise; if the host has lost the guest, deleted permanently
//!                                 unless the server is shelved: its image has the data
//!   createImage, createBackup:  settle ──uploaded──► done     (on failure likewise, image discarded)
//!   rebuild:                    settle ──as requested──► done │ Failed ──► ERROR with the reason
//!     of a root volume:         reimage ──Cinder has replaced its data──► settle
//!   shelve:                     settle ──uploaded──► SHELVED ─► clear ──Absent──► on no host
//!   unshelve, on its host:      settle
//!   unshelve, on no host:       unshelve ──Running──► done
//!                                 └─Failed─► clear_unshelve ──Absent──► next host │ as before
//! ```
//!
//! Each step is the whole document with another power state or a new verb. The devices stay in it
//! throughout, so none of these flows can lose one. The operation keeps the guest's configuration
//! from before the change; a rollback requests that configuration and trusts the host's report.

mod command;
mod reimage;
mod roll_back;
mod settle;
mod shelve;
mod snapshot;
mod soft_delete;
mod unshelve;

use jiff::Timestamp;
use kilonova_compute_db::documents::{self, Delivery};
use kilonova_compute_db::servers::{self, Server, VmState};
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Desired, Domain, Outcome, Rescue};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::begin;
use super::journal::{self, OpenOperation};
use super::operation::{Before, InPlace, InPlaceStep, Offload, Operation, Unshelve};
use crate::actions::ServerAction;
use crate::boot::machine;
use crate::{Compute, Error, images, states, unsupported};

pub(crate) use reimage::{not_reimaged, reimaged};

pub use command::{Rebuild, RescueImage, ServerCommand};
pub use shelve::{offload, offload_expired, shelve, shelved_image};
pub use snapshot::snapshot;
pub use soft_delete::{reclaim, restore, soft_delete};
pub use unshelve::{UnshelveTarget, unshelve};

pub(super) use shelve::discard_shelved_image;

/// The open operation that a report advances, with its server and the reporting host.
struct FlowContext<'a> {
    compute: &'a Compute,
    host: &'a HostName,
    open: &'a OpenOperation,
    server: Server,
    now: Timestamp,
}

impl<'a> FlowContext<'a> {
    /// Loads the server; an operation whose server is gone is cancelled.
    fn load(
        tx: &mut Tx<'_>,
        compute: &'a Compute,
        host: &'a HostName,
        open: &'a OpenOperation,
        now: Timestamp,
    ) -> Result<Option<Self>, Error> {
        let Some(server) = servers::find(tx, open.row.subject)? else {
            journal::finish(tx, open, End::Cancelled, None, now)?;
            return Ok(None);
        };
        Ok(Some(Self { compute, host, open, server, now }))
    }

    fn put(&self, tx: &mut Tx<'_>, desired: &Desired) -> Result<(), Error> {
        let delivery = match desired {
            Desired::Present(_) => Delivery::AsBefore,
            Desired::Absent => Delivery::Now,
        };
        Ok(documents::put_as(tx, self.compute, self.host, self.server.id, desired, delivery)?)
    }

    /// Adds the event that Nova records on the host for the action, if it records one.
    fn event(
        &self,
        tx: &mut Tx<'_>,
        action: ServerAction,
        failure: Option<&str>,
    ) -> Result<(), Error> {
        let Some(name) = action.row().event else { return Ok(()) };
        let row = &self.open.row;
        let event = begin::event(name, self.host, failure, row.created_at, self.now);
        Ok(flow::event(tx, row.id, &event)?)
    }

    fn finish(&self, tx: &mut Tx<'_>, end: End, message: Option<&str>) -> Result<(), Error> {
        journal::finish(tx, self.open, end, message, self.now)
    }

    /// Ends the operation because it failed.
    fn fail(&self, tx: &mut Tx<'_>, why: &str) -> Result<(), Error> {
        journal::fail(tx, self.open, why, self.now)
    }

    fn advance(&self, tx: &mut Tx<'_>, state: &Operation) -> Result<(), Error> {
        journal::advance(tx, self.open, state, self.now)
    }
}

/// The host of the server, and the guest that its document describes. The host must already have the guest: a change
/// other than a rebuild never creates it.
fn guest_of(tx: &mut Tx<'_>, server: &Server) -> Result<(HostName, Domain), Error> {
    let host = server.host.clone().ok_or_else(|| states::not_ready(server))?;
    match documents::on(tx, &host, server.id)?.map(|document| document.desired) {
        Some(Desired::Present(domain)) => {
            // The move that brought the guest has ended.
            let domain = Domain {
                starts_paused: false,
                existing: true,
                from: None,
                kept_machine_type: server.machine_type.clone(),
                ..*domain
            };
            Ok((host, domain))
        }
        Some(Desired::Absent) => {
            Err(Refusal::conflict(format!("Instance {} is being removed", server.id)).into())
        }
        None => Err(states::not_ready(server)),
    }
}

/// Begins a command.
///
/// # Errors
/// 409 with Nova's message when the server's state does not allow the command.
pub fn command(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    command: &ServerCommand,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, command.action())?;
    begin(tx, compute, context, server, command, now)
}

/// Ends the rescue of a server that exceeds `rescue_timeout`.
///
/// # Errors
/// Store errors only.
pub fn unrescue_expired(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(()) };
    let context = begin::owner_context(&server);
    if states::allow(&context, &server, ServerAction::Unrescue).is_err() {
        return Ok(());
    }
    begin(tx, compute, &context, &server, &ServerCommand::Unrescue, now)
}

/// [`command`] for a server whose state was checked.
fn begin(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    command: &ServerCommand,
    now: Timestamp,
) -> Result<(), Error> {
    let (host, mut domain) = guest_of(tx, server)?;
    let mut former = Box::new(Domain { verb: None, ..domain.clone() });
    // The journal keeps its rows for long after the operation. Only documents contain injected files.
    former.config.guest.files.clear();
    let before =
        Before { domain: former, vm_state: server.vm_state, power_state: server.power_state };
    let change = InPlace { change: command.change(), before, step: command.step() };
    let state = Operation::InPlace(change);
    let hosts = std::slice::from_ref(&host);
    let (open, next) = begin::begin_on(tx, context, server, command.task(), state, hosts, now)?;
    command.apply(&mut domain, open.row.id, server.vm_state);
    // Until Cinder has replaced the data of a root volume, the guest keeps its type.
    if let ServerCommand::Rebuild(rebuild) = command
        && !rebuild.reimages
    {
        servers::clear_machine_type(tx, server.id)?;
    }
    if let ServerCommand::Rescue(image) = command {
        domain.config.rescue = Some(rescue(server, image.as_ref())?);
    }
    let document = Desired::Present(Box::new(domain));
    for next in next {
        let delivery = Delivery::AsBefore;
        documents::put_next_as(tx, compute, &host, next, server.id, &document, delivery)?;
    }
    Ok(())
}

/// The rescue configuration implied by the image's properties.
fn rescue(server: &Server, image: Option<&RescueImage>) -> Result<Rescue, Error> {
    let spec = &server.spec;
    let other = image.filter(|image| spec.image != Some(image.id));
    let properties = other.map_or(&spec.image_properties, |image| &image.properties);
    machine::check(properties, &spec.flavor)?;
    if let Some(image) = other {
        unsupported::image(image.id, properties)?;
    }
    let image = image.map(|image| image.id).or(spec.image);
    Ok(machine::rescue(spec, image, properties))
}

/// Cleans up after a cancelled operation: its unfinished image is discarded, and its verb is
/// removed from the document. Operations of other flows are left unchanged.
///
/// # Errors
/// Store errors only.
pub(super) fn cancel(
    tx: &mut Tx<'_>,
    compute: &Compute,
    open: &OpenOperation,
) -> Result<(), Error> {
    match &open.state {
        Operation::InPlace(change) => {
            if let Some(image) = change.change.image() {
                images::discard(tx, compute, image)?;
            }
            if change.step == InPlaceStep::Reimage {
                reimage::give_back(tx, compute, open.row.subject, None)?;
            }
        }
        Operation::Offload(_) | Operation::Unshelve(_) => {}
        Operation::Create(_)
        | Operation::Delete(_)
        | Operation::Power(_)
        | Operation::Resize(_)
        | Operation::Migrate(_)
        | Operation::Revert(_)
        | Operation::Evacuate(_)
        | Operation::LiveMigration(_)
        | Operation::Recorded(_) => return Ok(()),
    }
    let id = open.row.subject;
    let Some(host) = servers::host_of(tx, id)? else { return Ok(()) };
    if let Some(Desired::Present(domain)) =
        documents::get(tx, &host, id)?.map(|document| document.desired)
        && domain.verb.as_ref().is_some_and(|(operation, _)| *operation == open.row.id)
    {
        let quiet = Desired::Present(Box::new(Domain { verb: None, ..*domain }));
        documents::put_as(tx, compute, &host, id, &quiet, Delivery::AsBefore)?;
    }
    Ok(())
}

/// Handles a host's report on a change in place.
pub(super) fn changed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    change: &InPlace,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(ctx) = FlowContext::load(tx, compute, host, open, now)? else { return Ok(()) };
    // The data of a shelved server is in its image, so its soft deletion is undone instead.
    let is_elsewhere = change.before.vm_state == VmState::Shelved;
    let is_final = outcome.lacks_guest() || outcome.keeps_later_rebuild();
    if open.state.is_soft_delete() && is_final && !is_elsewhere {
        return soft_delete::permanently(tx, &ctx, outcome);
    }
    match &change.step {
        InPlaceStep::Settle => settle::settled(tx, &ctx, change, outcome),
        InPlaceStep::Reimage => reimage::released(tx, &ctx, change, outcome),
        InPlaceStep::Undo { reason } => {
            roll_back::rolled_back(tx, &ctx, &change.before, reason, outcome)
        }
    }
}

/// Handles a host's report on the removal of a shelved guest.
pub(super) fn offloaded(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    offload: &Offload,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(ctx) = FlowContext::load(tx, compute, host, open, now)? else { return Ok(()) };
    shelve::cleared(tx, &ctx, offload, outcome)
}

/// Handles a host's report on the boot of an offloaded server.
pub(super) fn unshelved(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    unshelve: &Unshelve,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(ctx) = FlowContext::load(tx, compute, host, open, now)? else { return Ok(()) };
    match unshelve {
        Unshelve::Spawn(state) => unshelve::spawned(tx, &ctx, state, outcome),
        Unshelve::Clear(state) => unshelve::cleared(tx, &ctx, state, outcome),
    }
}
