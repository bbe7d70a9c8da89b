//! Unshelve: the guest is started on its host, or recreated from its image on a host with room for the
//! server and its devices.

use jiff::Timestamp;
use kilonova_compute_db::servers::{self, PowerState, Server, Spec, TaskState, VmState};
use kilonova_compute_db::{documents, resting};
use kilonova_compute_scheduler::NoHost;
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::HostName;
use kilonova_node_api::{Desired, Outcome};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::super::{begin, journal};
use super::{FlowContext, ServerCommand, shelve};
use crate::actions::ServerAction;
use crate::flows::journal::OpenOperation;
use crate::flows::operation::{Operation, Unshelve, UnshelveState};
use crate::moves::{self, Search};
use crate::{Compute, Error, aliases, boot, ports, states, volumes};

/// The requested zone and host for an unshelved server.
#[derive(Debug, Clone, Default)]
pub struct UnshelveTarget {
    /// Another zone (2.77); an inner `None` removes the server's zone (2.91).
    pub zone: Option<Option<String>>,
    /// A host (2.91).
    pub host: Option<HostName>,
}

/// Begins `unshelve`.
///
/// # Errors
/// 409 with Nova's message when the server is not shelved, is on its host while another place is
/// requested, or would be in another zone than the requested host.
pub fn unshelve(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    target: &UnshelveTarget,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, ServerAction::Unshelve)?;
    if server.vm_state == VmState::Shelved {
        if target.zone.is_some() || target.host.is_some() {
            return Err(Refusal::conflict(format!(
                "Specifying an availability zone or a host when unshelving server \"{}\" with status \
                 \"SHELVED\" is not supported. The server status must be SHELVED_OFFLOADED.",
                server.id
            ))
            .into());
        }
        return super::begin(tx, compute, context, server, &ServerCommand::Unshelve, now);
    }
    check_host(compute, server, target)?;
    aliases::check(&compute.options.pci_aliases, &server.spec.flavor)?;
    begin_offloaded(tx, compute, context, server, target, now)
}

/// Refuses a host outside the zone that the server has afterwards: the requested zone, or else its own
/// (`_ensure_host_in_az` in `nova/compute/api.py`).
fn check_host(compute: &Compute, server: &Server, target: &UnshelveTarget) -> Result<(), Refusal> {
    let zone = target.zone.as_ref().unwrap_or(&server.spec.availability_zone);
    let (Some(host), Some(zone)) = (&target.host, zone) else { return Ok(()) };
    if compute.zone_of(Some(host)) == *zone {
        return Ok(());
    }
    let (host, zone) = (host.escape_debug(), zone.escape_debug());
    Err(Refusal::conflict(format!("Host \"{host}\" is not in the availability zone \"{zone}\".")))
}

fn begin_offloaded(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    target: &UnshelveTarget,
    now: Timestamp,
) -> Result<(), Error> {
    let mut server = server.clone();
    if let Some(zone) = &target.zone {
        server.spec = Spec { availability_zone: zone.clone(), ..server.spec };
        let (name, description) = (server.name.clone(), server.description.clone());
        servers::set_text(tx, server.id, &name, description.as_deref(), &server.spec, now)?;
    }
    let state = UnshelveState {
        vm_state: server.vm_state,
        power_state: server.power_state,
        requested: target.host.clone(),
        chosen: None,
        tried: Vec::new(),
        reason: None,
    };
    let spawn = Operation::Unshelve(Unshelve::Spawn(state.clone()));
    let open = begin::begin(tx, context, &server, Some(TaskState::Unshelving), spawn, now)?;
    let Err(reason) = place(tx, compute, &server, &open, &state, now)? else { return Ok(()) };
    let message = reason.details();
    flow::event(tx, open.row.id, &scheduled(Some(&message), now))?;
    servers::set_task(tx, server.id, None, now)?;
    journal::fail(tx, &open, &message, now)
}

fn scheduled(failure: Option<&str>, now: Timestamp) -> flow::Event {
    flow::Event {
        host: None,
        ..begin::event("schedule_instances", &begin::nowhere(), failure, now, now)
    }
}

/// Claims a place on a host that has not failed yet and sends that host the guest's document. Returns the reason if no
/// place is found.
fn place(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    open: &OpenOperation,
    state: &UnshelveState,
    now: Timestamp,
) -> Result<Result<(), NoHost>, Error> {
    // A host that still has to remove an earlier guest still has a document of the server, and is excluded.
    let documents = documents::of_server(tx, server.id)?;
    let with_document = documents.into_iter().map(|(host, _)| host);
    let search = Search {
        server,
        flavor: &server.spec.flavor,
        host: state.requested.as_ref(),
        force: false,
        excluded: state.tried.iter().cloned().chain(with_document).collect(),
        request_id: &open.row.request_id,
        root_required: &[],
        running: None,
        fits: &|_| true,
    };
    let place = match moves::place(tx, compute, search, now)? {
        Ok(place) => place,
        Err(reason) => return Ok(Err(reason)),
    };
    flow::event(tx, open.row.id, &scheduled(None, now))?;
    let state = UnshelveState { chosen: Some(place.how), ..state.clone() };
    journal::advance(tx, open, &Operation::Unshelve(Unshelve::Spawn(state)), now)?;
    let image = resting::image(tx, server.id)?.or(server.spec.image);
    // As upstream, the new config drive has none of the files of the boot (`_unshelve_instance` in
    // `nova/compute/manager.py`).
    let spec = Spec { image, files: Vec::new(), ..server.spec.clone() };
    let ports = ports::of_guest(tx, &*compute.networks, server, &place.host)?;
    let zone = compute.zone_of(Some(&place.host));
    let source = boot::GuestSource { spec: &spec, ..boot::GuestSource::of(server, &zone) };
    let volumes = volumes::placeholders(tx, compute, server.id)?;
    let delivery = ports.delivery;
    let mut document = boot::desired(&source, place.devices, place.numa, ports, volumes);
    if let Desired::Present(domain) = &mut document {
        domain.config.machine = boot::machine::of_started(&spec, &spec.flavor);
        domain.kept_machine_type.clone_from(&server.machine_type);
    }
    ports::set_host(tx, &*compute.networks, server.id, Some(&place.host), now)?;
    documents::put_as(tx, compute, &place.host, server.id, &document, delivery)?;
    Ok(Ok(()))
}

pub(super) fn spawned(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    state: &UnshelveState,
    outcome: &Outcome,
) -> Result<(), Error> {
    match outcome {
        Outcome::Running => {
            let (id, now) = (ctx.server.id, ctx.now);
            servers::set_state(tx, id, VmState::Active, None, PowerState::Running, now)?;
            servers::set_relaunched(tx, id, now)?;
            shelve::discard_shelved_image(tx, ctx.compute, id)?;
            ctx.event(tx, ServerAction::Unshelve, None)?;
            ctx.finish(tx, End::Done, None)
        }
        Outcome::Failed { step, message } => {
            let why = format!("{}: {step}: {message}", ctx.host);
            ctx.event(tx, ServerAction::Unshelve, Some(&why))?;
            let mut state = UnshelveState { reason: Some(why), ..state.clone() };
            state.tried.push(ctx.host.clone());
            ctx.advance(tx, &Operation::Unshelve(Unshelve::Clear(state)))?;
            ctx.put(tx, &Desired::Absent)
        }
        Outcome::Paused
        | Outcome::Suspended
        | Outcome::Stopped
        | Outcome::Ready
        | Outcome::Working { .. }
        | Outcome::MigratingOut(_)
        | Outcome::MigratedOut
        | Outcome::Absent => Ok(()),
    }
}

/// Tries the next host after the failed attempt was rolled back. If there is none, the server remains offloaded and has
/// no claims.
pub(super) fn cleared(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    state: &UnshelveState,
    outcome: &Outcome,
) -> Result<(), Error> {
    if *outcome != Outcome::Absent {
        return Ok(());
    }
    let (id, now) = (ctx.server.id, ctx.now);
    documents::forget(tx, ctx.host, id)?;
    boot::release(tx, ctx.compute, id)?;
    ports::set_host(tx, &*ctx.compute.networks, id, None, now)?;
    let reason = state.reason.as_deref().unwrap_or_default();
    let message = if state.tried.len() < ctx.compute.options.max_attempts {
        let found = place(tx, ctx.compute, &ctx.server, ctx.open, state, now)?;
        let Err(why) = found else { return Ok(()) };
        format!("{} Last failure: {reason}", why.details())
    } else {
        format!(
            "Exceeded maximum number of retries. Exhausted all hosts available for retrying the \
             unshelve of instance {id}. Last failure: {reason}"
        )
    };
    servers::set_state(tx, id, state.vm_state, None, state.power_state, now)?;
    ctx.fail(tx, &message)
}
