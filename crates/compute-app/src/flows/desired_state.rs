//! Compares each observation with its document, whether or not an operation is open.
//!
//! A guest in its desired state uses nothing beyond its document. The claims that a finished resize on the same host
//! still holds are therefore released. A server is set to `ERROR`, with the reason, if its guest fails while no
//! operation is open. The same happens, in any power state, if the host has removed or rebuilt the guest: the database
//! has then lost commits.
//!
//! This module must never act on reports from hosts that a server has left.

use jiff::Timestamp;
use kilonova_compute_db::moves;
use kilonova_compute_db::servers::{self, Fault, PowerState, Server, VmState};
use kilonova_ids::HostName;
use kilonova_node_api::{Domain, Observation, Outcome, Power, REBUILT_STEP, REMOVED_STEP};
use kilonova_store::Tx;

use super::journal::OpenOperation;
use super::operation::Action;
use crate::{Compute, Error, moves as claims};

/// An observation of a guest that should exist on the host according to its document.
pub(super) struct Report<'a> {
    pub host: &'a HostName,
    pub domain: &'a Domain,
    pub observation: &'a Observation,
    pub open: Option<&'a OpenOperation>,
}

/// Compares an observation with its document.
///
/// # Errors
/// Store errors only.
pub(super) fn check(
    tx: &mut Tx<'_>,
    compute: &Compute,
    report: &Report<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    match &report.observation.outcome {
        Outcome::Running | Outcome::Stopped | Outcome::Paused | Outcome::Suspended
            if report.open.is_none_or(|open| open.state.action() != Action::Create) =>
        {
            let held = moves::held_on(tx, report.observation.server, report.host)?;
            if held.is_empty() || !held.iter().all(|held| held.same_host() && !held.open) {
                return Ok(());
            }
            claims::release_claims_of_migrations(
                tx,
                compute,
                report.observation.server,
                report.host,
            )
        }
        // A revert asks the source first, and has not left the destination yet.
        Outcome::Failed { step, message }
            if step == REMOVED_STEP
                && report.open.is_none_or(|open| open.state.action() == Action::RevertResize) =>
        {
            removed(tx, report, format!("{}: {step}: {message}", report.host), now)
        }
        Outcome::Failed { step, message } if step == REBUILT_STEP && report.open.is_none() => {
            rebuilt(tx, report, format!("{}: {step}: {message}", report.host), now)
        }
        Outcome::Failed { step, message }
            if report.open.is_none() && !report.observation.outcome.leaves_guest() =>
        {
            failed(tx, report, &format!("{}: {step}: {message}", report.host), now)
        }
        Outcome::Running
        | Outcome::Stopped
        | Outcome::Paused
        | Outcome::Suspended
        | Outcome::Failed { .. }
        | Outcome::Ready
        | Outcome::Working { .. }
        | Outcome::MigratingOut(_)
        | Outcome::MigratedOut
        | Outcome::Absent => Ok(()),
    }
}

/// Sets a server to `ERROR` if its guest should run, but the host failed to keep it running.
fn failed(tx: &mut Tx<'_>, report: &Report<'_>, why: &str, now: Timestamp) -> Result<(), Error> {
    let Some(server) = servers::find(tx, report.observation.server)? else { return Ok(()) };
    let runs = matches!(server.vm_state, VmState::Active | VmState::Paused)
        && matches!(report.domain.power, Power::On | Power::Paused);
    if !runs || server.host.as_ref() != Some(report.host) {
        return Ok(());
    }
    tracing::warn!(
        server = %server.id,
        "the guest no longer runs: {why}; the server is in ERROR: fix the cause, then openstack server \
         reboot --hard"
    );
    let fault = Fault::new("The host could not keep the guest running.", why, now);
    Ok(servers::set_error(tx, server.id, &fault, now)?)
}

/// Sets a server to `ERROR` if its host has removed the guest at the request of a document that the database has lost.
/// Clears the power state of a resized server, so that the resize cannot be confirmed, even after `os-resetState`.
fn removed(tx: &mut Tx<'_>, report: &Report<'_>, why: String, now: Timestamp) -> Result<(), Error> {
    let Some(server) = here(tx, report)? else { return Ok(()) };
    // No operation other than a revert is open, so an open move has finished.
    if moves::open_of(tx, server.id)?.is_some() {
        servers::set_power(tx, server.id, PowerState::NoState, now)?;
    }
    contradicted(tx, &server, "The host has removed the guest.", why, now)
}

/// Sets a server to `ERROR` if its host has rebuilt the guest at the request of a document that the database has lost. The
/// host keeps the guest and its disks, and follows no document of the earlier rebuild.
fn rebuilt(tx: &mut Tx<'_>, report: &Report<'_>, why: String, now: Timestamp) -> Result<(), Error> {
    let Some(server) = here(tx, report)? else { return Ok(()) };
    contradicted(tx, &server, "The host has rebuilt the guest.", why, now)
}

/// The reported server, if it is on the reporting host.
fn here(tx: &mut Tx<'_>, report: &Report<'_>) -> Result<Option<Server>, Error> {
    let server = servers::find(tx, report.observation.server)?;
    Ok(server.filter(|server| server.host.as_ref() == Some(report.host)))
}

/// Records that a host contradicts the database. A shelved server needs only its image, not its guest. A resized
/// server keeps its state, because its guest may be at the source, and a revert starts it there.
fn contradicted(
    tx: &mut Tx<'_>,
    server: &Server,
    message: &str,
    why: String,
    now: Timestamp,
) -> Result<(), Error> {
    match server.vm_state {
        VmState::Active
        | VmState::Paused
        | VmState::Suspended
        | VmState::Stopped
        | VmState::Rescued => {
            tracing::warn!(server = %server.id, "{message} {why}");
            Ok(servers::set_error(tx, server.id, &Fault::new(message, why, now), now)?)
        }
        VmState::Resized => {
            tracing::warn!(server = %server.id, "a resized server keeps its state: {message} {why}");
            Ok(())
        }
        VmState::Building
        | VmState::Shelved
        | VmState::ShelvedOffloaded
        | VmState::SoftDeleted
        | VmState::Error
        | VmState::Deleted => Ok(()),
    }
}
