//! Work that no signal starts: servers whose worker died, guests whose ports are not plugged in time, and
//! ports in Neutron whose servers are gone.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::{external_ports, slow};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_neutron::PortFilter;
use kilonova_store::Tx;
use kilonova_wire::{IntoRefusal, time};
use tokio::task::{JoinError, JoinSet};

use super::settle::AT_ONCE;
use super::{Attempt, CloudNeutron, own, settle};
use crate::ports::neutron::release;
use crate::{Compute, Error, flows};

impl CloudNeutron {
    /// Queues the servers that are due, and ends the wait of guests whose ports are not plugged in time.
    pub(crate) async fn process_due(&self, compute: &Compute) -> Result<(), Error> {
        let due = |tx: &mut Tx<'_>| Ok::<_, Error>(external_ports::due(tx, time::now())?);
        for server in compute.store.read(due).await? {
            self.queue.push(server);
        }
        // A controller of an earlier version may have received the event and ignored it.
        let plugged = |tx: &mut Tx<'_>| {
            let mut waiting = external_ports::waiting(tx, time::now())?;
            let unplugged = external_ports::unplugged(tx, &waiting)?;
            waiting.retain(|server| !unplugged.contains(server));
            Ok::<_, Error>(waiting)
        };
        for server in compute.store.read(plugged).await? {
            let own = compute.clone();
            let run = move |tx: &mut Tx<'_>| flows::ports_plugged(tx, &own, server, time::now());
            if let Err(error) = compute.store.write(run).await {
                tracing::warn!(%server, %error, "cannot resume a guest whose ports are plugged; retrying in the next round");
            }
        }
        // Even if no timeout is configured now, guests may still wait because of an earlier configuration.
        let before = time::before(time::now(), self.options.vif_plugging_timeout);
        let late = move |tx: &mut Tx<'_>| {
            let mut late = external_ports::waiting(tx, before)?;
            // Builds of earlier versions are marked by their step only.
            late.extend(slow::plugs(tx, before)?);
            Ok::<_, Error>(BTreeSet::from_iter(late))
        };
        let is_fatal = self.options.vif_plugging_is_fatal && self.waits_for_plugs();
        let mut running = JoinSet::new();
        let mut result = Ok(());
        for server in compute.store.read(late).await? {
            if running.len() >= AT_ONCE {
                result = result.and(ended(running.join_next().await));
            }
            running.spawn(end_late(compute.clone(), server, before, is_fatal));
        }
        // The failure of one task must not stop the others in the middle of their calls.
        while !running.is_empty() {
            result = result.and(ended(running.join_next().await));
        }
        result
    }
}

/// The result of a task that has ended; a panic is logged where it happens.
fn ended(task: Option<Result<Result<(), Error>, JoinError>>) -> Result<(), Error> {
    task.and_then(Result::ok).unwrap_or(Ok(()))
}

/// Ends the wait of a guest that has waited for its ports since `before` or longer. If this fails the guest's operation
/// (`is_fatal`), the ports are first read from Neutron until it answers, or until it has been unavailable for longer
/// than the operator allows.
async fn end_late(
    compute: Compute,
    server: ServerId,
    before: Timestamp,
    is_fatal: bool,
) -> Result<(), Error> {
    // The event may have been lost, so the port is read from Neutron before anything fails.
    let ask = move |tx: &mut Tx<'_>| {
        let now = time::now();
        // A refresh must not shorten the pause after failed attempts.
        let is_paused = external_ports::find(tx, server)?
            .is_some_and(|row| row.attempts > 0 && row.due_at.is_some_and(|due| due > now));
        if !is_paused {
            external_ports::refresh(tx, server, now)?;
        }
        Ok::<_, Error>(())
    };
    compute.store.write(ask).await?;
    let has_answered = match settle(&compute, server).await? {
        // Another worker is reading the port, or the next attempt is due later; a later round sees the result.
        Attempt::None => return Ok(()),
        Attempt::Made => true,
        Attempt::Failed(failed) => failed.is_answer(),
    };
    let timeout =
        compute.neutron.as_ref().map_or(SignedDuration::ZERO, |cloud| cloud.options.timeout);
    let own = compute.clone();
    let end = move |tx: &mut Tx<'_>| {
        let now = time::now();
        // The wait may have ended meanwhile and another one begun, for example on the next host.
        let since = external_ports::waits_since(tx, server)?.filter(|since| *since < before);
        if since.is_none() && !flows::is_plugging(tx, server)? {
            return Ok(());
        }
        let is_over = since.is_none_or(|since| since < time::before(before, timeout));
        if is_fatal && !has_answered && !is_over {
            return Ok(());
        }
        match is_fatal {
            true => flows::ports_not_plugged(tx, &own, server, now),
            false => flows::ports_late(tx, &own, server, now),
        }
    };
    compute.store.write(end).await
}

/// Releases the ports in Neutron of servers that were deleted here. Ports of servers that were never ours are not
/// touched.
///
/// # Errors
/// Store errors; 503 if Neutron does not answer.
pub async fn sweep(compute: &Compute) -> Result<(), Error> {
    let Some(cloud) = &compute.neutron else { return Ok(()) };
    let fields = ["id", "device_id", "device_owner"];
    let ports = cloud.client.ports(own(), PortFilter::All, &fields).await;
    let ports = ports.map_err(IntoRefusal::into_refusal)?;
    let servers: BTreeSet<ServerId> = ports
        .iter()
        .filter(|port| port.device_owner.is_empty() || port.device_owner.starts_with("compute:"))
        .filter_map(|port| parse_uuid_like(&port.device_id))
        .collect();
    let servers: Vec<ServerId> = servers.into_iter().collect();
    let gone = move |tx: &mut Tx<'_>| Ok::<_, Error>(external_ports::deleted(tx, &servers)?);
    for server in compute.store.read(gone).await? {
        tracing::warn!(%server, "Neutron has ports of a deleted server; releasing them");
        // A user may have supplied them; no record shows that any more, so none is deleted.
        let device = server.to_string();
        let ports = cloud.client.ports(own(), PortFilter::Device(&device), &["id"]).await;
        let all = ports.map_err(IntoRefusal::into_refusal)?.iter().map(|port| port.id).collect();
        if let Err(error) = release(&cloud.client, None, own(), server, &all).await {
            tracing::warn!(%server, %error, "cannot release ports; the next sweep retries");
        }
    }
    Ok(())
}
