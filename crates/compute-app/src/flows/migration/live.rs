//! Live migration: the destination prepares everything except the guest, then the guest moves.
//!
//! ```text
//!   queued ──the source has room──► receive
//!   receive ──Ready, ports plugged──► transfer ──MigratedOut──► arrive ──Running──► done
//!      │                  └──Failed │ aborted──► abort, locate the guest (`locate_guest`)
//!      └──Failed──► drop_dest, the next host
//! ```
//!
//! One transaction switches the server to the destination once the guest has left. Devices that cannot
//! be live-migrated (a whole PCI function, an FPGA) are refused before anything is claimed.

use jiff::Timestamp;
use kilonova_compute_db::documents::Delivery;
use kilonova_compute_db::moves::{self, Kind, Status};
use kilonova_compute_db::servers::{self, PowerState, Server, TaskState, VmState, shape};
use kilonova_compute_db::{documents, external_ports, hosts, queue};
use kilonova_compute_scheduler::NoHost;
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{
    Attachment, Desired, Domain, Interface, Observation, Outcome, OutgoingMigration, Peer, Power,
    VolumeState,
};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::super::operation::{Attempts, LiveMigration, Operation, Transit};
use super::super::{begin as events, journal};
use super::begin::{self, NewMigration};
use super::device_pairing::{check_movable, check_source, pair_devices, unfit_hosts};
use super::locate_guest::{self, Asked};
use super::roll_back::{self, FailedMove};
use super::{FlowContext, Reporter, load};
use crate::actions::ServerAction;
use crate::boot::Placement;
use crate::ports::external;
use crate::{Compute, Error, aliases, moves as claims, numa, ports, states};

/// A request for a live migration.
#[derive(Debug, Clone, Default)]
pub struct LiveRequest {
    /// The destination.
    pub host: Option<HostName>,
    /// True if that host is used regardless of its zone.
    pub force: bool,
    /// True if the request itself, rather than the action, fails when no host fits (before 2.34).
    pub refuse_without_host: bool,
}

/// Begins a live migration.
///
/// # Errors
/// 409 with Nova's message when the server's state does not allow it, 400 for devices that cannot be live-migrated and,
/// before 2.34, if no host fits.
pub fn migrate_live(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    request: &LiveRequest,
    now: Timestamp,
) -> Result<(), Error> {
    let (source, domain) = begin::guest_of(tx, server)?;
    check_movable(server, &domain.config.devices)?;
    check_topology(server, &domain)?;
    check_source(compute, server, &source, &domain.config.devices)?;
    states::allow(context, server, ServerAction::LiveMigrate)?;
    aliases::check(&compute.options.pci_aliases, &server.spec.flavor)?;
    for host in [Some(&source), request.host.as_ref()].into_iter().flatten() {
        if compute.host_is_lost(tx, host, now)? {
            let words = format!("Compute service of {host} is unavailable at this time.");
            return Err(Refusal::bad_request(words).into());
        }
    }
    let new = NewMigration {
        server,
        kind: Kind::Live,
        state: Operation::LiveMigration(LiveMigration::Begin),
        task: TaskState::Migrating,
        status: Status::Preparing,
        flavor: &server.spec.flavor,
        guest: (source.clone(), domain),
    };
    let (open, migration) = begin::begin(tx, context, new, now)?;
    let attempts =
        Attempts { requested: request.host.clone(), force: request.force, ..Attempts::default() };
    let ctx = FlowContext { compute, open: &open, server: server.clone(), migration, now };
    let event = "conductor_live_migrate_instance";
    match claim_place(tx, &ctx, &attempts)? {
        Ok(place) => {
            flow::event(tx, open.row.id, &begin::conductor_event(event, None, now))?;
            let (devices, chosen) = (place.devices, Some(place.how));
            let attempts = Attempts { devices, chosen, ..attempts };
            if is_at_limit(tx, compute, &source)? {
                moves::set_status(tx, ctx.migration.id, Status::Queued, now)?;
                let queued = LiveMigration::Queued(attempts);
                return ctx.advance(tx, &Operation::LiveMigration(queued));
            }
            receive(tx, &ctx, attempts, &place.host)
        }
        Err(reason) if request.refuse_without_host => {
            let words = if context.is_admin() { reason.details() } else { reason.message() };
            Err(Refusal::bad_request(words).into())
        }
        Err(reason) => begin::no_host(tx, &ctx, event, &reason),
    }
}

/// Refuses a guest without the NUMA topology that its flavor requests: such a guest started before topologies were
/// supported, and cells cannot be added to a running guest.
fn check_topology(server: &Server, domain: &Domain) -> Result<(), Error> {
    let spec = &server.spec;
    let is_requested = numa::is_requested(&spec.flavor, &spec.image_properties);
    if is_requested == domain.config.numa.is_some() {
        return Ok(());
    }
    let words = format!(
        "Instance {} started before its flavor's NUMA topology was supported. Migrate it with openstack server \
         migrate, which shuts it off.",
        server.id
    );
    Err(Refusal::bad_request(words).into())
}

/// True if the host already has `max_concurrent_live_migrations` outgoing guests. The check writes the host's row, so
/// that concurrent checks conflict.
fn is_at_limit(tx: &mut Tx<'_>, compute: &Compute, host: &HostName) -> Result<bool, Error> {
    let most = compute.options.max_concurrent_live_migrations;
    if most <= 0 {
        return Ok(false);
    }
    documents::next(tx, host)?;
    Ok(queue::leaving(tx, host)? >= most)
}

/// Starts queued live migrations from a source, up to its limit.
///
/// # Errors
/// Store errors only.
pub fn start_queued(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    now: Timestamp,
) -> Result<(), Error> {
    for server in queue::waiting(tx, host)? {
        if is_at_limit(tx, compute, host)? {
            return Ok(());
        }
        leave_queue(tx, compute, server, now)?;
    }
    Ok(())
}

fn leave_queue(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(()) };
    let Operation::LiveMigration(LiveMigration::Queued(attempts)) = &open.state else {
        return Ok(());
    };
    let Some((server, migration)) = load(tx, &open)? else { return Ok(()) };
    let ctx = FlowContext { compute, open: &open, server, migration, now };
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    let attempts = attempts.clone();
    if compute.host_is_lost(tx, &dest, now)? {
        let attempts = Attempts { reason: Some(format!("{dest} went down.")), ..attempts };
        return roll_back::release_untouched_dest(tx, &ctx, FailedMove::Live(attempts.into()));
    }
    receive(tx, &ctx, attempts, &dest)
}

/// Claims a place whose devices can replace those of the guest.
fn claim_place(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    attempts: &Attempts,
) -> Result<Result<Placement, NoHost>, Error> {
    let has = &ctx.migration.old_domain.config.devices;
    let fits = |devices: &[Attachment]| pair_devices(has, devices, None).is_some();
    let found = begin::claim_place(tx, ctx, attempts, &fits)?;
    let requested = attempts.requested.as_ref();
    Ok(found.map_err(|why| match unfit_hosts(ctx.compute, &ctx.migration, requested) {
        Some(unfit) => why.and(unfit),
        None => why,
    }))
}

/// Tries the next host after one has failed. Returns the reason if there is none.
pub(super) fn next_host(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    attempts: &Attempts,
) -> Result<Result<(), NoHost>, Error> {
    match claim_place(tx, ctx, attempts)? {
        Err(why) => Ok(Err(why)),
        Ok(place) => {
            let (devices, chosen) = (place.devices, Some(place.how));
            let attempts = Attempts { devices, chosen, ..attempts.clone() };
            receive(tx, ctx, attempts, &place.host)?;
            Ok(Ok(()))
        }
    }
}

fn receive(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    attempts: Attempts,
    dest: &HostName,
) -> Result<(), Error> {
    let now = ctx.now;
    for (name, host) in [
        ("compute_check_can_live_migrate_destination", dest),
        ("compute_check_can_live_migrate_source", &ctx.migration.source),
    ] {
        flow::event(tx, ctx.open.row.id, &events::event(name, host, None, now, now))?;
    }
    moves::set_status(tx, ctx.migration.id, Status::Preparing, now)?;
    let incoming = guest_at_dest(tx, ctx, &attempts.devices, dest, Power::Incoming)?;
    ctx.put_as(tx, dest, incoming)?;
    ctx.advance(tx, &Operation::LiveMigration(LiveMigration::Receive(attempts)))
}

/// The document of the guest at the destination, and when to deliver it.
pub(super) fn guest_at_dest(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    devices: &[Attachment],
    dest: &HostName,
    power: Power,
) -> Result<(Desired, Delivery), Error> {
    let mut domain = ctx.migration.old_domain.clone();
    domain.kept_machine_type.clone_from(&ctx.server.machine_type);
    domain.config.display_name.clone_from(&ctx.server.name);
    domain.config.devices = devices.to_vec();
    domain.config.numa = numa::of_claimed(tx, &ctx.server, &ctx.migration.new_flavor)?;
    let ports = ports::of_incoming_guest(tx, &*ctx.compute.networks, &ctx.server, dest)?;
    domain.config.interfaces = ports.interfaces;
    domain.power = power;
    domain.existing = power != Power::Incoming;
    domain.verb = None;
    domain.from = None;
    if power == Power::Incoming {
        let host = ctx.migration.source.clone();
        let address = hosts::by_name(tx, &host)?.map(|host| host.host_ip).unwrap_or_default();
        domain.from = Some(Peer { host, address });
    }
    Ok((Desired::Present(Box::new(domain)), ports.delivery))
}

/// Handles a host's report on a live migration.
pub(super) fn observed(
    tx: &mut Tx<'_>,
    ctx: FlowContext<'_>,
    live: &LiveMigration,
    by: Reporter,
    observation: &Observation,
) -> Result<(), Error> {
    let outcome = &observation.outcome;
    match live {
        LiveMigration::Receive(attempts) if by.is_dest => {
            let volumes = observation.volumes.clone().unwrap_or_default();
            received(tx, &ctx, attempts, outcome, volumes)
        }
        LiveMigration::Transfer(transit) if by.is_source => {
            locate_guest::source_reported(tx, &ctx, Asked::Send, transit, outcome)
        }
        LiveMigration::Abort(transit) if by.is_source => {
            locate_guest::source_reported(tx, &ctx, Asked::Stop, transit, outcome)
        }
        LiveMigration::Locate(transit) if by.is_source => {
            locate_guest::source_reported(tx, &ctx, Asked::Report, transit, outcome)
        }
        LiveMigration::Locate(transit) if by.is_dest => {
            locate_guest::dest_reported(tx, &ctx, transit, outcome)
        }
        LiveMigration::Arrive(_) if by.is_dest => arrived(tx, &ctx, outcome),
        LiveMigration::DropDest(transit) if by.is_dest => {
            roll_back::dest_dropped(tx, ctx, FailedMove::Live(transit.clone()), outcome)
        }
        LiveMigration::Restore(transit) if by.is_source => {
            roll_back::restored(tx, ctx, FailedMove::Live(transit.clone()), outcome)
        }
        LiveMigration::Begin
        | LiveMigration::Queued(_)
        | LiveMigration::Receive(_)
        | LiveMigration::Transfer(_)
        | LiveMigration::Abort(_)
        | LiveMigration::Locate(_)
        | LiveMigration::Arrive(_)
        | LiveMigration::DropDest(_)
        | LiveMigration::Restore(_) => Ok(()),
    }
}

/// Handles the destination's report that it is ready or has failed.
fn received(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    attempts: &Attempts,
    outcome: &Outcome,
    volumes: Vec<VolumeState>,
) -> Result<(), Error> {
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    let (row, now) = (&ctx.open.row, ctx.now);
    let name = "compute_pre_live_migration";
    match outcome {
        Outcome::Ready if waits_for_ports(tx, ctx.compute, ctx.server.id, &dest)? => {
            // The transaction of the last port's event writes the same row, so one of the two sees the other's change.
            external_ports::wait(tx, ctx.server.id, now)?;
            ports_plugged(tx, ctx.compute, ctx.server.id, &dest)
        }
        Outcome::Ready => {
            if ctx.compute.neutron.is_some() {
                external_ports::end_wait(tx, ctx.server.id)?;
            }
            flow::event(tx, row.id, &events::event(name, &dest, None, row.updated_at, now))?;
            moves::set_status(tx, ctx.migration.id, Status::Running, now)?;
            send(tx, ctx, &attempts.devices, false, Some(volumes))?;
            let transfer = LiveMigration::Transfer(attempts.clone().into());
            ctx.advance(tx, &Operation::LiveMigration(transfer))
        }
        Outcome::Failed { step, message } => {
            let why = format!("{dest}: {step}: {message}");
            let failed = events::event(name, &dest, Some(&why), row.updated_at, now);
            flow::event(tx, row.id, &failed)?;
            let attempts = Attempts { reason: Some(why), ..attempts.clone() };
            roll_back::drop_dest(tx, ctx, FailedMove::Live(attempts.into()))
        }
        Outcome::Running
        | Outcome::Paused
        | Outcome::Suspended
        | Outcome::Stopped
        | Outcome::Working { .. }
        | Outcome::MigratingOut(_)
        | Outcome::MigratedOut
        | Outcome::Absent => Ok(()),
    }
}

/// True if the memory copy must wait until the destination has plugged the ports.
fn waits_for_ports(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    dest: &HostName,
) -> Result<bool, Error> {
    let waits = compute.neutron.as_ref().is_some_and(|cloud| cloud.waits_before_transfer());
    Ok(waits && external::is_awaited_on(tx, server, dest)?)
}

/// The destination that is preparing for a server's live migration; `None` if there is no such migration.
///
/// # Errors
/// Store errors only; also for the functions below.
pub(in crate::flows) fn preparing(
    tx: &mut Tx<'_>,
    server: ServerId,
) -> Result<Option<HostName>, Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(None) };
    let Operation::LiveMigration(LiveMigration::Receive(_)) = &open.state else { return Ok(None) };
    Ok(moves::open_of(tx, server)?.and_then(|migration| migration.dest))
}

/// Handles the event that the destination of a live migration has plugged a port. After the last port, asks the
/// destination to report its readiness again, because that report contains what the source needs.
pub(in crate::flows) fn ports_plugged(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    dest: &HostName,
) -> Result<(), Error> {
    let waits = external_ports::waits_since(tx, server)?.is_some();
    if !waits || waits_for_ports(tx, compute, server, dest)? {
        return Ok(());
    }
    external_ports::end_wait(tx, server)?;
    if let Some(document) = documents::get(tx, dest, server)? {
        documents::put(tx, compute, dest, server, &document.desired)?;
    }
    Ok(())
}

/// Ends a live migration's wait for its ports after a timeout.
pub(in crate::flows) fn ports_late(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    dest: &HostName,
) -> Result<(), Error> {
    tracing::warn!(
        %server, host = %dest,
        "the destination of a live migration has not plugged the ports in time; the migration proceeds without them: see \
         the logs of Neutron and of its agent on the host"
    );
    external_ports::plug_next(tx, server)?;
    ports_plugged(tx, compute, server, dest)
}

/// Fails the destination of a live migration because it cannot plug the ports.
pub(in crate::flows) fn ports_not_plugged(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    dest: &HostName,
    failed: Outcome,
    now: Timestamp,
) -> Result<(), Error> {
    if !waits_for_ports(tx, compute, server, dest)? {
        return Ok(());
    }
    tracing::warn!(
        %server, host = %dest,
        "the destination of a live migration has not plugged the ports: see the logs of Neutron and of its agent on the \
         host, or set [compute] live_migration_wait_for_vif_plug to false if Neutron sends no event before the guest \
         arrives"
    );
    external_ports::end_wait(tx, server)?;
    let Some(document) = documents::get(tx, dest, server)? else { return Ok(()) };
    let observation = Observation::new(server, document.generation, failed);
    super::super::observe(tx, compute, dest, &observation, now)
}

/// Requests the outgoing migration from the source. `volumes` is the destination's report on its volumes; `None` if the
/// source already has it.
pub(super) fn send(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    to_devices: &[Attachment],
    force: bool,
    volumes: Option<Vec<VolumeState>>,
) -> Result<(), Error> {
    let Some(host) = ctx.migration.dest.clone() else { return Ok(()) };
    let address = hosts::by_name(tx, &host)?.map(|host| host.host_ip).unwrap_or_default();
    let mut domain = ctx.migration.old_domain.clone();
    let volumes = match volumes {
        Some(volumes) => volumes,
        None => sent_volumes(tx, ctx)?,
    };
    let to = Peer { host, address };
    // The server's own claims are at the destination.
    let numa = numa::of_claimed(tx, &ctx.server, &ctx.migration.new_flavor)?;
    let cells = domain.config.numa.as_deref().zip(numa.as_deref());
    let devices = pair_devices(&domain.config.devices, to_devices, cells)
        .ok_or_else(|| shape("devices of a move do not match"))?;
    let interfaces = reconnected(tx, ctx, &to.host)?;
    let outgoing = OutgoingMigration { to, devices, force, volumes, numa, interfaces };
    domain.outgoing_migration = Some(Box::new(outgoing));
    ctx.put(tx, &ctx.migration.source, &Desired::Present(Box::new(domain)))
}

/// The interfaces that the destination connects differently from the source, according to its document.
fn reconnected(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    dest: &HostName,
) -> Result<Vec<Interface>, Error> {
    let here = &ctx.migration.old_domain.config.interfaces;
    if here.iter().all(|interface| interface.vif.is_none()) {
        return Ok(Vec::new());
    }
    let document = documents::get(tx, dest, ctx.server.id)?;
    let Some(Desired::Present(domain)) = document.map(|document| document.desired) else {
        return Ok(Vec::new());
    };
    let mut there = domain.config.interfaces;
    there.retain(|one| {
        let old = here.iter().find(|old| old.port == one.port);
        one.device.is_none() && old.is_some_and(|old| old.vif != one.vif)
    });
    Ok(there)
}

/// The volumes that were named in the migration request to the source.
fn sent_volumes(tx: &mut Tx<'_>, ctx: &FlowContext<'_>) -> Result<Vec<VolumeState>, Error> {
    let document = documents::get(tx, &ctx.migration.source, ctx.server.id)?;
    Ok(match document.map(|document| document.desired) {
        Some(Desired::Present(domain)) => {
            domain.outgoing_migration.map(|outgoing| outgoing.volumes).unwrap_or_default()
        }
        Some(Desired::Absent) | None => Vec::new(),
    })
}

/// Switches the server to the destination in one transaction, once the guest has left the source.
pub(super) fn departed(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    transit: &Transit,
) -> Result<(), Error> {
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    let (id, now, source) = (ctx.server.id, ctx.now, &ctx.migration.source);
    let row = &ctx.open.row;
    let left = events::event("compute_live_migration", source, None, row.updated_at, now);
    flow::event(tx, row.id, &left)?;
    ports::set_host(tx, &*ctx.compute.networks, id, Some(&dest), now)?;
    moves::set_status(tx, ctx.migration.id, Status::PostMigrating, now)?;
    let power = ctx.migration.old_domain.power;
    let guest = guest_at_dest(tx, ctx, &transit.attempts.devices, &dest, power)?;
    ctx.put_as(tx, &dest, guest)?;
    ctx.put(tx, source, &Desired::Absent)?;
    ctx.advance(tx, &Operation::LiveMigration(LiveMigration::Arrive(transit.clone())))?;
    start_queued(tx, ctx.compute, source, now)
}

/// Handles the destination's report on the arrived guest.
fn arrived(tx: &mut Tx<'_>, ctx: &FlowContext<'_>, outcome: &Outcome) -> Result<(), Error> {
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    let (id, now, row) = (ctx.server.id, ctx.now, &ctx.open.row);
    let name = "compute_post_live_migration_at_destination";
    let (state, power_state) = match outcome {
        Outcome::Running => (VmState::Active, PowerState::Running),
        Outcome::Paused => (VmState::Paused, PowerState::Paused),
        Outcome::Stopped => (VmState::Stopped, PowerState::Shutdown),
        Outcome::Failed { step, message } => {
            let why = format!("{dest}: {step}: {message}");
            let failed = events::event(name, &dest, Some(&why), row.updated_at, now);
            flow::event(tx, row.id, &failed)?;
            moves::close(tx, ctx.migration.id, Status::Error, now)?;
            let summary = "The destination could not complete the live migration.";
            let fault = servers::Fault::new(summary, &*why, now);
            servers::set_error(tx, id, &fault, now)?;
            return journal::fail(tx, ctx.open, &why, now);
        }
        Outcome::Suspended
        | Outcome::Ready
        | Outcome::Working { .. }
        | Outcome::MigratingOut(_)
        | Outcome::MigratedOut
        | Outcome::Absent => return Ok(()),
    };
    flow::event(tx, row.id, &events::event(name, &dest, None, row.updated_at, now))?;
    servers::set_state(tx, id, state, None, power_state, now)?;
    moves::close(tx, ctx.migration.id, Status::Completed, now)?;
    if ctx.compute.host_is_lost(tx, &ctx.migration.source, now)? {
        claims::abandon_claims_of_migrations(tx, ctx.compute, id, &ctx.migration.source)?;
    }
    ports::record_guest_change(tx, ctx.compute, &ctx.server)?;
    journal::finish(tx, ctx.open, End::Done, None, now)
}
