//! Deletes a server. One transaction removes its row and releases its claims, once the host reports
//! that it has removed the guest.
//!
//! The deletion does not wait for a host that is down: the row is removed, and the server's devices there become dirty.
//! The document stays, so that the host removes the guest when it returns, and reports the removal.
//!
//! A server that is being moved may be on two hosts. The report from each host releases the claims there; the last
//! report removes the row.
//!
//! As in Nova, a client that finds a server gone expects its ports and volumes to be free. If the server has ports in
//! the external Neutron or volumes in its Cinder, its row is therefore kept until they are released, but not while its
//! host is down, and not much longer than [`RELEASE`]. The workers continue the release after the row is gone.

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::moves::{self, Move, Status};
use kilonova_compute_db::servers::{self, Server, TaskState};
use kilonova_compute_db::{documents, external_ports, left_guests, volumes as volume_rows};
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Desired, Observation, Outcome};
use kilonova_store::Tx;
use kilonova_wire::Context;

use super::journal::{self, OpenOperation};
use super::operation::{Delete, Operation};
use super::{begin, in_place, migration};
use crate::{Compute, Error, boot, moves as claims, ports, retire, volumes};

/// The maximum time that a server without a guest is kept for the release of its ports and volumes. The loop that ends
/// the wait may add its period.
pub const RELEASE: SignedDuration = SignedDuration::from_secs(30);

/// Begins the deletion and cancels every other operation. A server on no host, or only on hosts that
/// are down, is deleted immediately. Idempotent.
///
/// # Errors
/// Store errors only.
pub fn delete(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    now: Timestamp,
) -> Result<(), Error> {
    volumes::keep_deleter(tx, compute, context, server)?;
    let open = journal::open_of(tx, server.id)?;
    let documents = documents::of_server(tx, server.id)?;
    let hosts: Vec<HostName> = documents.into_iter().map(|(host, _)| host).collect();
    if let Some(deletion) = open.as_ref().filter(|open| is_deletion(open)) {
        let own = server.host.as_ref();
        end_without_hosts(tx, compute, deletion, own, &hosts, now)?;
        return Ok(());
    }
    let status = if open.is_some() { Status::Cancelled } else { Status::Confirmed };
    migration::cancel(tx, compute, server, open.as_ref(), status, now)?;
    in_place::discard_shelved_image(tx, compute, server.id)?;
    if let Some(open) = open {
        in_place::cancel(tx, compute, &open)?;
        journal::finish(tx, &open, End::Cancelled, Some("The server was deleted."), now)?;
    }
    let destroy = Operation::Delete(Delete::Destroy { reason: None });
    let task = Some(TaskState::Deleting);
    let (open, next) = begin::begin_on(tx, context, server, task, destroy, &hosts, now)?;
    for (host, next) in hosts.iter().zip(next) {
        documents::put_next(tx, compute, host, next, server.id, &Desired::Absent)?;
    }
    if !hosts.is_empty() {
        end_without_hosts(tx, compute, &open, server.host.as_ref(), &hosts, now)?;
        return Ok(());
    }
    boot::release(tx, compute, server.id)?;
    remove(tx, compute, &begin::nowhere(), &open, now)
}

fn is_deletion(open: &OpenOperation) -> bool {
    matches!(open.state, Operation::Delete(_))
}

/// Ends a deletion that waits only for hosts that are down. Returns true if the server was removed.
///
/// # Errors
/// Store errors only.
pub fn delete_without_hosts(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<bool, Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(false) };
    if open.state.is_soft_delete() {
        return soft_delete_without_host(tx, compute, server, now);
    }
    if !is_deletion(&open) {
        return Ok(false);
    }
    let own = servers::host_of(tx, server)?;
    let documents = documents::of_server(tx, server)?;
    let hosts: Vec<HostName> = documents.into_iter().map(|(host, _)| host).collect();
    end_without_hosts(tx, compute, &open, own.as_ref(), &hosts, now)
}

/// Deletes a server permanently if the host that should shut it off for its soft deletion is down.
fn soft_delete_without_host(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<bool, Error> {
    let Some(server) = servers::find(tx, server)? else { return Ok(false) };
    let Some(host) = &server.host else { return Ok(false) };
    if !compute.host_is_lost(tx, host, now)? {
        return Ok(false);
    }
    delete(tx, compute, &begin::owner_context(&server), &server, now)?;
    Ok(true)
}

/// Implements [`delete_without_hosts`] for an open deletion. `own` is the server's host, and `hosts` are those with its
/// documents.
fn end_without_hosts(
    tx: &mut Tx<'_>,
    compute: &Compute,
    open: &OpenOperation,
    own: Option<&HostName>,
    hosts: &[HostName],
    now: Timestamp,
) -> Result<bool, Error> {
    let server = open.row.subject;
    for host in hosts {
        if !compute.host_is_lost(tx, host, now)? {
            return Ok(false);
        }
    }
    let Some(last) = hosts.last() else { return Ok(false) };
    tracing::warn!(
        %server, host = %last,
        "a server was deleted while its host is down; its devices stay dirty until the host's agent is back"
    );
    for host in hosts {
        claims::abandon_claims_of_migrations(tx, compute, server, host)?;
        if own == Some(host) {
            boot::abandon(tx, compute, server)?;
        }
    }
    let remark = Some("The host is down; it removes the guest when it is back.");
    remove_now(tx, compute, own.unwrap_or(last), open, remark, now)?;
    Ok(true)
}

/// Handles a host's report on a removal for which no operation waits: the host was down and is back, or the server has
/// moved away.
pub(super) fn dropped(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    let server = observation.server;
    match &observation.outcome {
        Outcome::Absent => {
            left_guests::expect(tx, host, server)?;
            // A migration and its server hold claims on different hosts, except after a resize on
            // one host.
            let held = moves::held_on(tx, server, host)?;
            let is_left = left_guests::has(tx, host, server)?;
            documents::forget(tx, host, server)?;
            let own = held.iter().all(Move::same_host);
            migration::source_removed(tx, &held, now)?;
            claims::drop_moves(tx, compute, server, host, held)?;
            if own {
                boot::reclaim(tx, compute, host, boot::consumer_of(server))?;
            }
            if is_left { retire::left_guest_removed(tx, compute, host, server) } else { Ok(()) }
        }
        Outcome::Failed { step, message } => {
            tracing::warn!(
                %server, %host,
                "host failed to remove the guest: {step}: {message}; retrying"
            );
            Ok(())
        }
        Outcome::Running
        | Outcome::Paused
        | Outcome::Suspended
        | Outcome::Stopped
        | Outcome::Ready
        | Outcome::Working { .. }
        | Outcome::MigratingOut(_)
        | Outcome::MigratedOut => Ok(()),
    }
}

pub(super) fn destroyed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    reason: Option<&str>,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    let (server, row) = (observation.server, &open.row);
    match &observation.outcome {
        Outcome::Absent => {
            let consumer = boot::consumer_of(server);
            documents::expect_of_server(tx, server)?;
            moves::expect_held_on(tx, server, host)?;
            servers::expect_host_of(tx, server)?;
            boot::expect_held(tx, consumer)?;
            let documents = documents::of_server(tx, server)?;
            let moved = moves::held_on(tx, server, host)?;
            let own = servers::host_of(tx, server)?;
            let held = boot::held(tx, consumer)?;
            let hosts = documents.into_iter().map(|(host, _)| host);
            let left: Vec<HostName> = hosts.filter(|other| other != host).collect();
            // Two hosts that remove the guest concurrently conflict on this row, so one of them is the
            // last.
            servers::set_task(tx, server, Some(TaskState::Deleting), now)?;
            documents::forget(tx, host, server)?;
            migration::source_removed(tx, &moved, now)?;
            claims::drop_moves(tx, compute, server, host, moved)?;
            // The server's own host removes its present guest.
            if own.as_ref() != Some(host) && left_guests::has(tx, host, server)? {
                retire::left_guest_removed(tx, compute, host, server)?;
            }
            let actor = boot::actor_of(row);
            if left.is_empty() {
                boot::release_held(tx, compute, &actor, consumer, held)?;
                return remove(tx, compute, host, open, now);
            }
            let mut own = own;
            if own.as_ref() == Some(host) {
                boot::release_held(tx, compute, &actor, consumer, held)?;
                ports::set_host(tx, &*compute.networks, server, None, now)?;
                own = None;
            }
            end_without_hosts(tx, compute, open, own.as_ref(), &left, now)?;
            Ok(())
        }
        Outcome::Failed { step, message } => {
            let why = format!("{host}: {step}: {message}");
            tracing::warn!(%server, "host failed to destroy the guest: {why}; retrying");
            if reason != Some(&why) {
                let (name, since) = ("compute_terminate_instance", row.updated_at);
                flow::event(tx, row.id, &begin::event(name, host, Some(&why), since, now))?;
            }
            let destroy = Operation::Delete(Delete::Destroy { reason: Some(why) });
            journal::advance(tx, open, &destroy, now)
        }
        Outcome::Running
        | Outcome::Paused
        | Outcome::Suspended
        | Outcome::Stopped
        | Outcome::Ready
        | Outcome::Working { .. }
        | Outcome::MigratingOut(_)
        | Outcome::MigratedOut => Ok(()),
    }
}

/// Removes the server's row, unless its ports and volumes must be released first. Its claims have already been
/// released.
fn remove(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    now: Timestamp,
) -> Result<(), Error> {
    if begin_release(tx, compute, open.row.subject, now)? {
        let release = Operation::Delete(Delete::Release { host: host.clone() });
        return journal::advance(tx, open, &release, now);
    }
    remove_now(tx, compute, host, open, None, now)
}

/// Starts the release of the server's ports and volumes. Returns false if no other service has ports or volumes of the
/// server.
fn begin_release(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<bool, Error> {
    let has_volumes = volumes::end(tx, compute, server, now)?;
    if !has_volumes && compute.neutron.is_none() {
        return Ok(false);
    }
    // Our own ports are free immediately, because their devices were just released.
    Ok(compute.networks.detach_all(tx, server, now)? || has_volumes)
}

/// Removes the server's row, even if other services still hold resources for it. `remark` gives the reason.
fn remove_now(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    remark: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    ports::delete(tx, &*compute.networks, open.row.subject, now)?;
    volumes::end(tx, compute, open.row.subject, now)?;
    let done = begin::event("compute_terminate_instance", host, None, open.row.created_at, now);
    flow::event(tx, open.row.id, &flow::Event { details: remark.map(str::to_owned), ..done })?;
    journal::finish(tx, open, End::Done, None, now)
}

/// Removes the row of a server whose ports or volumes have just been released, if no ports or volumes remain.
///
/// # Errors
/// Store errors only.
pub fn released(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some((open, host)) = releasing(tx, server)? else { return Ok(()) };
    // A release of ports and a concurrent release of volumes conflict here, so the later one finds
    // nothing left.
    servers::set_task(tx, server, Some(TaskState::Deleting), now)?;
    let is_left = external_ports::find(tx, server)?.is_some() || volume_rows::has_any(tx, server)?;
    if is_left { Ok(()) } else { remove_now(tx, compute, &host, &open, None, now) }
}

/// Removes the row of a server whose ports and volumes take longer than [`RELEASE`] to be released.
///
/// # Errors
/// Store errors only.
pub fn end_release(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some((open, host)) = releasing(tx, server)? else { return Ok(()) };
    tracing::warn!(
        %server,
        "a server was deleted before Neutron and Cinder have released its ports and volumes; still trying"
    );
    let remark = Some("Neutron or Cinder has not released all ports and volumes yet.");
    remove_now(tx, compute, &host, &open, remark, now)
}

/// The server's deletion, if it waits for other services, and the last host that had the guest.
fn releasing(
    tx: &mut Tx<'_>,
    server: ServerId,
) -> Result<Option<(OpenOperation, HostName)>, Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(None) };
    let Operation::Delete(Delete::Release { host }) = &open.state else { return Ok(None) };
    let host = host.clone();
    Ok(Some((open, host)))
}
