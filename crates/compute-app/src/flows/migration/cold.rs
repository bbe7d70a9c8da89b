//! Resize and cold migration: the guest is shut off at the source and recreated at the destination
//! with its disk, or in place on one host.

use jiff::Timestamp;
use kilonova_compute_db::documents::Delivery;
use kilonova_compute_db::hosts;
use kilonova_compute_db::moves::{self, Kind, Status};
use kilonova_compute_db::servers::{self, FlavorOf, PowerState, Server, TaskState, VmState};
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::HostName;
use kilonova_node_api::{Attachment, Desired, Outcome, Peer, Power};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::super::operation::{Attempts, ColdMigration, ColdState, Operation};
use super::super::{begin as events, journal};
use super::begin::{self, NewMigration};
use super::roll_back::{self, FailedMove};
use super::{FlowContext, Reporter};
use crate::actions::ServerAction;
use crate::images::SeenImages;
use crate::usage::{self, ProjectUsage};
use crate::{Compute, Error, aliases, boot, numa, ports, quotas, resolve, states, unsupported};

/// The kind of a cold migration: [`Operation::Resize`] or [`Operation::Migrate`].
pub(super) type ColdKind = fn(ColdMigration) -> Operation;

/// A request for a resize or a cold migration.
#[derive(Debug, Clone)]
pub enum ColdRequest {
    /// To another flavor. The server's image may require a minimum disk size.
    Resize(Box<FlavorOf>, SeenImages),
    /// To the given host, or to any other host.
    Migrate(Option<HostName>),
}

/// Begins a resize or a cold migration. If no host fits, the action fails but the request succeeds.
///
/// # Errors
/// 409 with Nova's message when the server's state does not allow it, 403 over quota, 400 for a flavor
/// whose devices have no alias.
pub fn migrate_cold(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    request: &ColdRequest,
    now: Timestamp,
) -> Result<(), Error> {
    let (action, kind, operation, flavor): (_, _, ColdKind, _) = match request {
        ColdRequest::Resize(flavor, _) => {
            (ServerAction::Resize, Kind::Resize, Operation::Resize, flavor.as_ref())
        }
        ColdRequest::Migrate(_) => {
            (ServerAction::Migrate, Kind::Cold, Operation::Migrate, &server.spec.flavor)
        }
    };
    states::allow(context, server, action)?;
    begin::check_source_is_up(tx, compute, server, now)?;
    let guest = begin::guest_of(tx, server)?;
    if let ColdRequest::Resize(flavor, seen) = request {
        check_growth(tx, server, seen, flavor)?;
        boot::machine::check(&server.spec.image_properties, flavor)?;
        unsupported::flavor(flavor, &server.spec.image_properties)?;
    }
    aliases::check(&compute.options.pci_aliases, flavor)?;
    let new = NewMigration {
        server,
        kind,
        state: operation(ColdMigration::Begin),
        task: TaskState::ResizePrep,
        status: Status::PreMigrating,
        flavor,
        guest,
    };
    let (open, migration) = begin::begin(tx, context, new, now)?;
    let requested = match request {
        ColdRequest::Migrate(host) => host.clone(),
        ColdRequest::Resize(..) => None,
    };
    let power = migration.old_domain.power;
    let attempts = Attempts { requested, ..Attempts::default() };
    let mut ctx = FlowContext { compute, open: &open, server: server.clone(), migration, now };
    let place = match begin::claim_place(tx, &ctx, &attempts, &|_| true)? {
        Ok(place) => place,
        Err(reason) => return begin::no_host(tx, &ctx, "conductor_migrate_server", &reason),
    };
    let id = open.row.id;
    for name in ["cold_migrate", "conductor_migrate_server"] {
        flow::event(tx, id, &begin::conductor_event(name, None, now))?;
    }
    flow::event(tx, id, &events::event("compute_prep_resize", &place.host, None, now, now))?;
    let attempts = Attempts { devices: place.devices, chosen: Some(place.how), ..attempts };
    let state = ColdState { attempts, power };
    ctx.migration.dest = Some(place.host.clone());
    moves::set_status(tx, ctx.migration.id, Status::Migrating, now)?;
    if ctx.migration.same_host() || power == Power::Off {
        // The source has nothing to shut off first, so its step is complete.
        let source = &ctx.migration.source;
        flow::event(tx, id, &events::event("compute_resize_instance", source, None, now, now))?;
        return make_dest(tx, &ctx, operation, state, &place.host);
    }
    servers::set_task(tx, server.id, Some(TaskState::ResizeMigrating), now)?;
    let mut domain = ctx.migration.old_domain.clone();
    domain.power = Power::Off;
    domain.require_guest();
    ctx.put(tx, &ctx.migration.source, &Desired::Present(Box::new(domain)))?;
    ctx.advance(tx, &operation(ColdMigration::StopSource(state)))
}

/// Refuses a local disk that would shrink, a flavor over the quota, and one that is too small for the
/// server's image. A root volume keeps its size, whatever the flavor's disk. (Upstream: `resize` in
/// `nova/compute/api.py`, `migrate_disk_and_power_off` in `nova/virt/libvirt/driver.py`.)
fn check_growth(
    tx: &mut Tx<'_>,
    server: &Server,
    seen: &SeenImages,
    flavor: &FlavorOf,
) -> Result<(), Error> {
    let old = &server.spec.flavor;
    if server.spec.image.is_some() {
        if flavor.disk == 0 && old.disk != 0 {
            let why = "Resize to zero disk flavor is not allowed.";
            return Err(Refusal::bad_request(why).into());
        }
        does_not_shrink(old.disk, flavor.disk)?;
    }
    does_not_shrink(server.spec.ephemeral_gb(), flavor.ephemeral)?;
    let grown = ProjectUsage {
        instances: 0,
        cores: (flavor.vcpus - old.vcpus).max(0),
        ram: (flavor.ram - old.ram).max(0),
    };
    let (project, user) = (&server.project_id, &server.user_id);
    // The limits and the image share a round trip.
    let limits = quotas::ask_both(tx, project, Some(user))?;
    // An image of an external Glance was looked up only if the old flavor has no disk.
    let image = server.spec.image.map(|image| seen.used(tx, image)).transpose()?.flatten();
    usage::check_asked(tx, project, user, grown, limits)?;
    let Some(image) = image else { return Ok(()) };
    resolve::fits_memory(image.min_ram, flavor.ram)?;
    // With a disk of 0 GiB, the old flavor did not limit the image's size.
    if old.disk == 0 {
        resolve::fits_disk(&image, flavor.disk)?;
    }
    Ok(())
}

/// Refuses a flavor with a smaller disk than the server's, both in GiB.
fn does_not_shrink(server: i64, flavor: i64) -> Result<(), Refusal> {
    if flavor < server {
        return Err(Refusal::bad_request(format!(
            "Unable to resize disk down: the server has {server} GiB, the flavor {flavor} GiB. Choose \
             a flavor with as much disk."
        )));
    }
    Ok(())
}

/// Applies a host's report to a cold migration.
pub(super) fn observed(
    tx: &mut Tx<'_>,
    ctx: FlowContext<'_>,
    kind: ColdKind,
    cold: &ColdMigration,
    by: Reporter,
    outcome: &Outcome,
) -> Result<(), Error> {
    let failed = |state: &ColdState| FailedMove::Cold(kind, state.clone());
    match cold {
        ColdMigration::StopSource(state) if by.is_source => {
            source_stopped(tx, &ctx, kind, state, outcome)
        }
        ColdMigration::MakeDest(state) if by.is_dest => dest_made(tx, &ctx, kind, state, outcome),
        ColdMigration::DropDest(state) if by.is_dest => {
            roll_back::dest_dropped(tx, ctx, failed(state), outcome)
        }
        ColdMigration::Restore(state) if by.is_source => {
            roll_back::restored(tx, ctx, failed(state), outcome)
        }
        ColdMigration::Begin
        | ColdMigration::StopSource(_)
        | ColdMigration::MakeDest(_)
        | ColdMigration::DropDest(_)
        | ColdMigration::Restore(_) => Ok(()),
    }
}

fn source_stopped(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    kind: ColdKind,
    state: &ColdState,
    outcome: &Outcome,
) -> Result<(), Error> {
    let (source, row) = (&ctx.migration.source, &ctx.open.row);
    let name = "compute_resize_instance";
    match outcome {
        Outcome::Stopped => {
            let done = events::event(name, source, None, row.created_at, ctx.now);
            flow::event(tx, row.id, &done)?;
            let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
            make_dest(tx, ctx, kind, state.clone(), &dest)
        }
        Outcome::Failed { step, message } => {
            let why = format!("{source}: {step}: {message}");
            let failed = events::event(name, source, Some(&why), row.created_at, ctx.now);
            flow::event(tx, row.id, &failed)?;
            let mut state = state.clone();
            state.attempts.reason = Some(why);
            roll_back::release_untouched_dest(tx, ctx, FailedMove::Cold(kind, state))
        }
        Outcome::Running
        | Outcome::Paused
        | Outcome::Suspended
        | Outcome::Ready
        | Outcome::Working { .. }
        | Outcome::MigratingOut(_)
        | Outcome::MigratedOut
        | Outcome::Absent => Ok(()),
    }
}

/// Sends the destination the guest's document.
pub(super) fn make_dest(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    kind: ColdKind,
    state: ColdState,
    dest: &HostName,
) -> Result<(), Error> {
    // The destination reports when it has the disk; on one host the disk is already there.
    let task =
        if ctx.migration.same_host() { TaskState::ResizeFinish } else { TaskState::ResizeMigrated };
    servers::set_task(tx, ctx.server.id, Some(task), ctx.now)?;
    let document = guest_at_dest(tx, ctx, state.attempts.devices.clone(), state.power)?;
    ctx.put_as(tx, dest, document)?;
    ctx.advance(tx, &kind(ColdMigration::MakeDest(state)))
}

/// The guest at the destination, and when to deliver its document. The guest has its new flavor and devices, and the
/// source's disk unless it is evacuated.
pub(super) fn guest_at_dest(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    devices: Vec<Attachment>,
    power: Power,
) -> Result<(Desired, Delivery), Error> {
    let (migration, flavor) = (&ctx.migration, &ctx.migration.new_flavor);
    let mut domain = migration.old_domain.clone();
    domain.config.display_name.clone_from(&ctx.server.name);
    domain.config.vcpus = flavor.vcpus;
    domain.config.memory_mb = flavor.ram;
    domain.config.boot.root_gb = if domain.config.is_volume_backed() { 0 } else { flavor.disk };
    let spec = ctx.server.spec.clone().with_flavor(flavor.clone());
    domain.config.boot.ephemeral_gb = spec.ephemeral_gb();
    domain.config.boot.swap_mb = spec.swap_mb();
    domain.config.machine = boot::machine::of(&ctx.server.spec, flavor);
    domain.config.guest.dedicated_cpus = boot::dedicated_cpus(&ctx.server.spec, flavor);
    domain.kept_machine_type.clone_from(&ctx.server.machine_type);
    domain.power = power;
    domain.existing = migration.same_host();
    domain.config.devices = devices;
    domain.config.numa = numa::of_claimed(tx, &ctx.server, flavor)?;
    let mut delivery = Delivery::Now;
    if let Some(dest) = &migration.dest {
        let ports = ports::of_guest(tx, &*ctx.compute.networks, &ctx.server, dest)?;
        (domain.config.interfaces, delivery) = (ports.interfaces, ports.delivery);
        if migration.kind == Kind::Evacuation {
            // A resized guest runs immediately, as upstream.
            domain.starts_paused = ports.are_awaited && power == Power::On;
            let guest = boot::guest_metadata(tx, ctx.compute, &ctx.server, Some(dest))?;
            // As upstream, the new config drive has none of the files of the boot (`evacuate` in `nova/compute/api.py`). Other
            // moves take the drive along.
            domain.config.guest = guest.without_files();
            // The disks are created anew. The image of a guest that was unshelved is deleted (upstream: `_unshelve_instance`
            // in `nova/compute/manager.py` restores the server's `image_ref`).
            domain.config.boot.image =
                ctx.server.spec.image.filter(|_| !domain.config.is_volume_backed());
            if domain.config.is_volume_backed() {
                domain.config.machine = boot::machine::of_started(&ctx.server.spec, flavor);
            }
        }
    }
    // A verb that the source carried out must not be repeated at the destination.
    domain.verb = domain.verb.filter(|_| migration.same_host());
    domain.from = None;
    if !migration.same_host() && migration.kind != Kind::Evacuation {
        let host = migration.source.clone();
        let address = hosts::by_name(tx, &host)?.map(|host| host.host_ip).unwrap_or_default();
        domain.from = Some(Peer { host, address });
    }
    Ok((Desired::Present(Box::new(domain)), delivery))
}

/// The destination's report on the guest.
pub(super) enum Made {
    /// The guest has this power state, as requested.
    As(PowerState),
    /// The destination failed.
    Failed(String),
    /// Not yet.
    NotYet,
}

impl Made {
    pub(super) fn of(outcome: &Outcome, wanted: Power, dest: &HostName) -> Self {
        match (outcome, wanted) {
            (Outcome::Running, Power::On) => Self::As(PowerState::Running),
            (Outcome::Stopped, Power::Off) => Self::As(PowerState::Shutdown),
            (Outcome::Failed { step, message }, _) => {
                Self::Failed(format!("{dest}: {step}: {message}"))
            }
            (Outcome::Running, _)
            | (Outcome::Stopped, _)
            | (
                Outcome::Paused
                | Outcome::Suspended
                | Outcome::Ready
                | Outcome::Working { .. }
                | Outcome::MigratingOut(_)
                | Outcome::MigratedOut
                | Outcome::Absent,
                _,
            ) => Self::NotYet,
        }
    }
}

fn dest_made(
    tx: &mut Tx<'_>,
    ctx: &FlowContext<'_>,
    kind: ColdKind,
    state: &ColdState,
    outcome: &Outcome,
) -> Result<(), Error> {
    let Some(dest) = ctx.migration.dest.clone() else { return Ok(()) };
    let (id, now, row) = (ctx.server.id, ctx.now, &ctx.open.row);
    let name = "compute_finish_resize";
    match Made::of(outcome, state.power, &dest) {
        Made::NotYet => Ok(()),
        Made::Failed(why) => {
            let failed = events::event(name, &dest, Some(&why), row.updated_at, now);
            flow::event(tx, row.id, &failed)?;
            let mut state = state.clone();
            state.attempts.reason = Some(why);
            roll_back::drop_dest(tx, ctx, FailedMove::Cold(kind, state))
        }
        Made::As(power_state) => {
            flow::event(tx, row.id, &events::event(name, &dest, None, row.updated_at, now))?;
            ports::set_host(tx, &*ctx.compute.networks, id, Some(&dest), now)?;
            servers::set_flavor(tx, &ctx.server, &ctx.migration.new_flavor, now)?;
            servers::set_state(tx, id, VmState::Resized, None, power_state, now)?;
            servers::set_relaunched(tx, id, now)?;
            moves::set_status(tx, ctx.migration.id, Status::Finished, now)?;
            ports::record_guest_change(tx, ctx.compute, &ctx.server)?;
            journal::finish(tx, ctx.open, End::Done, None, now)
        }
    }
}
