//! The flows: each advances the durable operations of one kind.
//!
//! ```text
//!   create:     spawn ──Running──► done    (paused until its ports are plugged: `plugging`)
//!                 └─Failed─► clear ──Absent──► spawn (next host) │ ERROR, everything released
//!   delete:     destroy ──Absent──► row and claims removed
//!                 ├─ports or volumes of the cloud─► release ──ports and volumes released──► row removed
//!                 └─host down─► row removed, devices dirty; freed when the host reports Absent
//!   power:      settle ──as requested──► done │ Failed ──► as before (start, stop) │ ERROR with the reason (reboot)
//!   in_place:   changes to a guest on its host, shelving (see there)
//!   migration:  moves; the only flows that handle reports from two hosts (see there)
//!   power_sync: guests whose state changes while no operation is open
//! ```
//!
//! Each step is one transaction, started by a command, a host's report, an event of another service or a loop. A step
//! never waits and never calls another service. It usually writes a document; the host's report on that document starts
//! the next step.

mod begin;
mod create;
mod delete;
mod desired_state;
mod in_place;
pub mod journal;
mod migration;
pub mod operation;
mod plugging;
mod power;
mod power_sync;
mod progress;
mod reset_state;

use jiff::Timestamp;
use journal::OpenOperation;
use kilonova_compute_db::{documents, moves, resting, servers};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Desired, Document, Observation, Outcome};
use kilonova_store::Tx;
use operation::{Delete, Operation};

use crate::{Compute, Error, volumes};

pub use begin::{
    end_recorded, fail_recorded, record_action, record_failure, record_in_progress,
    record_late_failure, record_until_failed, service_context,
};
pub(crate) use create::is_plugging;
pub use create::{abort_build, fail_build, fail_slow_build};
pub use delete::{RELEASE, delete, delete_without_hosts, end_release, released};
pub use in_place::{
    Rebuild, RescueImage, ServerCommand, UnshelveTarget, command, offload, offload_expired,
    reclaim, restore, shelve, shelved_image, snapshot, soft_delete, unrescue_expired, unshelve,
};
pub(crate) use in_place::{not_reimaged, reimaged};
pub use migration::{
    ColdRequest, EvacuateRequest, LiveRequest, abandon_dest, abort, address_of, allow_end,
    ask_source_again, confirm, confirm_expired, evacuate, force_complete, initial_progress,
    locate_guest, migrate_cold, migrate_live, required_for_running, revert, start_queued,
    unmigratable_device,
};
pub use plugging::{ports_late, ports_not_plugged, ports_plugged};
pub use power::{PowerCommand, change_power, force_reboot};
pub use reset_state::reset_state;

/// Announces the first reads of [`observe`], so that they share a round trip with another
/// statement.
///
/// # Errors
/// Store errors only.
pub fn expect(tx: &mut Tx<'_>, host: &HostName, observation: &Observation) -> Result<(), Error> {
    documents::expect(tx, host, observation.server)?;
    journal::expect_open_of(tx, observation.server)
}

/// Announces the reads that a change to a server makes after reading the server's row.
///
/// # Errors
/// Store errors only.
pub fn expect_change(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    journal::expect_open_of(tx, server)?;
    Ok(documents::expect_of_server(tx, server)?)
}

/// Announces the reads that [`confirm`] makes after reading the server's row.
///
/// # Errors
/// Store errors only.
pub fn expect_confirm(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    Ok(moves::expect_open_of(tx, server)?)
}

/// Announces the reads that [`delete`] makes after reading the server's row.
///
/// # Errors
/// Store errors only.
pub fn expect_delete(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    expect_change(tx, server)?;
    moves::expect_open_of(tx, server)?;
    Ok(resting::expect_image(tx, server)?)
}

/// Applies one report from a host. A report on an older document changes nothing. Without an open operation, a report
/// is about a guest whose state changed on its own, a late removal, or a guest that no document names (generation 0).
///
/// # Errors
/// [`Error::Unreadable`] when the server's open operation cannot be read; store errors.
pub fn observe(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(document) = documents::get(tx, host, observation.server)? else {
        return match observation.generation {
            0 => power_sync::orphan(tx, compute, host, observation, now),
            _ => Ok(()),
        };
    };
    if document.generation != observation.generation {
        return Ok(());
    }
    apply(tx, compute, host, document, observation, now)?;
    // The report may have moved the server to this host.
    match observation.machine_type.as_deref().filter(is_machine_type) {
        Some(machine_type) => {
            Ok(servers::set_machine_type(tx, observation.server, host, machine_type)?)
        }
        None => Ok(()),
    }
}

/// Applies a report on the current document.
fn apply(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    document: Document,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    let open = journal::open_of(tx, observation.server)?;
    volumes::observed(tx, compute, host, &document.desired, observation, now)?;
    if let (Desired::Present(_), Some(open)) = (&document.desired, &open) {
        expect_advance(tx, open)?;
    }
    if let Desired::Present(domain) = &document.desired {
        let report = desired_state::Report { host, domain, observation, open: open.as_ref() };
        desired_state::check(tx, compute, &report, now)?;
    }
    if plugging::is_there(&document.desired, &observation.outcome) {
        return plugging::reported(tx, compute, open.as_ref(), observation.server, now);
    }
    let Some(open) = open else {
        return match document.desired {
            Desired::Absent => delete::dropped(tx, compute, host, observation, now),
            Desired::Present(domain) => {
                power_sync::observed(tx, compute, host, *domain, observation, now)
            }
        };
    };
    if is_bound_to_own_host(&open.state)
        && servers::host_of(tx, observation.server)?.as_deref() != Some(host)
    {
        // The server has moved away from this host, and the operation changes it on its new one.
        return match document.desired {
            Desired::Absent => delete::dropped(tx, compute, host, observation, now),
            Desired::Present(_) => Ok(()),
        };
    }
    if let Outcome::Working { phase } = observation.outcome {
        return progress::working(tx, &open, phase, now);
    }
    advance(tx, compute, host, &document.desired, &open, observation, now)
}

/// True for a name that a machine type of libvirt can have.
fn is_machine_type(name: &&str) -> bool {
    (1..=64).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Announces the reads with which a report advances the open operation, so that they share the round trip of
/// [`desired_state::check`].
fn expect_advance(tx: &mut Tx<'_>, open: &OpenOperation) -> Result<(), Error> {
    let server = open.row.subject;
    if open.state.is_move() {
        servers::expect(tx, server)?;
        return Ok(moves::expect_open_of(tx, server)?);
    }
    if is_bound_to_own_host(&open.state) {
        Ok(servers::expect_host_of(tx, server)?)
    } else {
        Ok(())
    }
}

/// True if only the server's own host advances the operation. The source of a finished move may still
/// report; its reports neither complete nor fail the operation.
fn is_bound_to_own_host(state: &Operation) -> bool {
    match state {
        Operation::Power(_)
        | Operation::InPlace(_)
        | Operation::Offload(_)
        | Operation::Unshelve(_)
        | Operation::Recorded(_) => true,
        Operation::Create(_)
        | Operation::Delete(_)
        | Operation::Resize(_)
        | Operation::Migrate(_)
        | Operation::Revert(_)
        | Operation::Evacuate(_)
        | Operation::LiveMigration(_) => false,
    }
}

fn advance(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    desired: &Desired,
    open: &OpenOperation,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    match &open.state {
        Operation::Create(create) => {
            create::observed(tx, compute, host, open, create, observation, now)
        }
        Operation::Delete(Delete::Destroy { reason }) => {
            delete::destroyed(tx, compute, host, open, reason.as_deref(), observation, now)
        }
        Operation::Delete(Delete::Release { .. }) => {
            delete::dropped(tx, compute, host, observation, now)
        }
        Operation::Power(power) => {
            power::settled(tx, compute, host, open, *power, observation, now)
        }
        Operation::InPlace(change) => {
            in_place::changed(tx, compute, host, open, change, &observation.outcome, now)
        }
        Operation::Offload(offload) => {
            in_place::offloaded(tx, compute, host, open, offload, &observation.outcome, now)
        }
        Operation::Unshelve(unshelve) => {
            in_place::unshelved(tx, compute, host, open, unshelve, &observation.outcome, now)
        }
        Operation::Resize(_)
        | Operation::Migrate(_)
        | Operation::Revert(_)
        | Operation::Evacuate(_)
        | Operation::LiveMigration(_) => {
            if *desired == Desired::Absent && !migration::waits_for(tx, open, host)? {
                return delete::dropped(tx, compute, host, observation, now);
            }
            migration::observed(tx, compute, host, open, observation, now)
        }
        // Recorded operations are closed from the start, so no host reports on them.
        Operation::Recorded(_) => Ok(()),
    }
}
