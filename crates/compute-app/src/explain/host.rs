//! Explains what is still on a host that is being drained: guests, guests to remove, and claims of
//! migrations.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kilonova_accelerator::ledger::{self as devices, HeldHandles};
use kilonova_compute_db::documents::{self, OfServer};
use kilonova_compute_db::drains::{self, Drain, DrainMove};
use kilonova_compute_db::moves::{self, Move};
use kilonova_compute_db::servers::{self, Server};
use kilonova_compute_db::{cells, external_ports, hosts};
use kilonova_compute_scheduler::fleet::Fleet;
use kilonova_flow as flow;
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::Desired;
use kilonova_store::Tx;

use super::server::{HostNow, paused_on};
use super::words::{Awaited, awaited, state_of};
use crate::{Error, flows, services};

/// A server with a guest, a guest to remove or a claim on the host.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Its id.
    pub id: ServerId,
    /// The server; `None` if it is deleted.
    pub server: Option<Server>,
    /// True if the host's document requests the guest. Otherwise the host is removing the guest, or only a migration
    /// has a claim here.
    pub present: bool,
    /// Addresses of its devices on this host.
    pub devices: Vec<String>,
    /// A device that prevents its live migration.
    pub stays: Option<String>,
    /// The operation in progress.
    pub operation: Option<flow::Operation>,
    /// Why this controller cannot read the operation.
    pub unreadable: Option<String>,
    /// The event that the operation waits for.
    pub awaited: Option<Awaited>,
    /// Its open migration.
    pub open: Option<Move>,
}

/// A host and everything on it.
#[derive(Debug, Clone)]
pub struct HostExplanation {
    /// The host.
    pub host: HostNow,
    /// Servers with a guest, a guest to remove or a claim on it.
    pub guests: Vec<Guest>,
    /// Number of accelerators that are not free.
    pub devices_held: i64,
    /// Its drain with the moves, if one runs or has ended.
    pub drain: Option<(Drain, Vec<DrainMove>)>,
    /// True if it offers its CPUs and memory by NUMA cell.
    pub divided: bool,
    /// Why it does not offer them by cell, although it is configured to.
    pub undivided: Option<String>,
}

/// Reads the explanation; `None` if the host does not exist.
///
/// # Errors
/// Store errors only.
pub fn explain_host(
    tx: &mut Tx<'_>,
    fleet: &Fleet,
    name: &HostName,
    now: Timestamp,
) -> Result<Option<HostExplanation>, Error> {
    let Some(row) = hosts::by_name(tx, name)? else { return Ok(None) };
    let up = services::is_up(fleet, &row, now);
    let mut ids: BTreeSet<ServerId> = servers::ids_on(tx, name)?.into_iter().collect();
    ids.extend(documents::servers_on(tx, name)?);
    ids.extend(moves::servers_held_on(tx, name)?);
    let guests = guests(tx, name, ids.into_iter().collect())?;
    let devices_held = devices::held_on(tx, std::slice::from_ref(name))?;
    let devices_held = devices_held.into_values().map(HeldHandles::all).sum();
    // A controller of an earlier version enables a host without deleting its drain, so an enabled host has none.
    let drain = match drains::of_host(tx, name)?.filter(|_| !row.enabled) {
        Some(drain) => Some((drain, drains::moves(tx, name)?)),
        None => None,
    };
    let cells::StoredCells { divided, undivided, .. } = cells::of_host(tx, name)?;
    let host = HostNow { row, up };
    Ok(Some(HostExplanation { host, guests, devices_held, drain, divided, undivided }))
}

/// The guests of the servers with these ids. Asks for all rows before it reads any, so that they share a round trip.
fn guests(tx: &mut Tx<'_>, host: &HostName, ids: Vec<ServerId>) -> Result<Vec<Guest>, Error> {
    let servers = servers::ask_some(tx, &ids)?;
    let operations = flow::ask_open_of_some(tx, &ids)?;
    let opened = moves::ask_open_of_some(tx, &ids)?;
    let written = documents::ask_of_servers(tx, &ids)?;
    let waiting = external_ports::ask_waiting_of(tx, &ids)?;
    let mut servers = servers::those(tx, servers)?;
    let mut operations = flow::all_opened(tx, operations)?;
    let mut open = moves::found_open_of_some(tx, opened)?;
    let mut documents = documents::of_those(tx, written)?;
    let waiting = external_ports::those_waiting(tx, waiting)?;
    let rows = ids.into_iter().map(|id| Rows {
        id,
        server: servers.remove(&id),
        operation: operations.remove(&id),
        open: open.remove(&id),
        documents: documents.remove(&id).unwrap_or_default(),
        waits: waiting.contains(&id),
    });
    Ok(rows.map(|rows| guest(host, rows)).collect())
}

/// The rows about a server.
struct Rows {
    id: ServerId,
    server: Option<Server>,
    operation: Option<flow::Operation>,
    open: Option<Move>,
    documents: OfServer,
    /// True if its guest waits for its ports to be plugged.
    waits: bool,
}

fn guest(host: &HostName, rows: Rows) -> Guest {
    let Rows { id, server, operation, open, documents: OfServer { documents, lacking }, waits } =
        rows;
    let here = documents.iter().find(|(name, _)| name == host).map(|(_, one)| &one.desired);
    let domain = match here {
        Some(Desired::Present(domain)) => Some(domain),
        Some(Desired::Absent) | None => None,
    };
    let removing: Vec<HostName> = documents
        .iter()
        .filter(|(_, one)| one.desired == Desired::Absent)
        .map(|(name, _)| name.clone())
        .collect();
    let own = server.as_ref().and_then(|server| server.host.as_ref());
    let plugging = paused_on(&documents).filter(|_| waits);
    let (state, unreadable) = state_of(operation.as_ref());
    let awaited = state
        .as_ref()
        .map(|state| awaited(state, own, open.as_ref(), &removing, &lacking, plugging));
    let devices = domain.map(|domain| domain.config.devices.as_slice()).unwrap_or_default();
    Guest {
        id,
        present: domain.is_some(),
        devices: devices.iter().map(flows::address_of).map(str::to_owned).collect(),
        stays: flows::unmigratable_device(devices).map(str::to_owned),
        server,
        operation,
        unreadable,
        awaited,
        open,
    }
}
