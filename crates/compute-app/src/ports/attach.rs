//! Attaches and detaches ports of existing servers, and applies changes to ports to the documents of guests.

use jiff::Timestamp;
use kilonova_compute_db::documents::{self, Delivery};
use kilonova_compute_db::servers::{self, Server, Spec};
use kilonova_ids::{HostName, PortId, ServerId};
use kilonova_node_api::{Desired, GuestMetadata, Power};
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::PortRequest;
use super::external::SeenNetworks;
use super::networks::{PortOwner, Requested};
use crate::{Compute, Error, boot, states};

/// Attaches a port to an existing server and updates its guest.
///
/// # Errors
/// 400 and 409 with Nova's messages.
pub fn add(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    line: &PortRequest,
    seen: &SeenNetworks,
    now: Timestamp,
) -> Result<Added, Error> {
    let host = server.host.clone().ok_or_else(|| states::not_ready(server))?;
    let owner = Context { project_id: server.project_id.clone(), ..context.clone() };
    let networks = &*compute.networks;
    let by = Requested { policy: &compute.policy, context: &owner };
    let spec = Spec { networked: true, ..server.spec.clone() };
    let place = PortOwner { id: server.id, project: &server.project_id, spec: &spec, host: &host };
    if networks.is_external() {
        if seen.has_accelerator() {
            return Err(with_accelerator());
        }
        for port in seen.resources() {
            let id = port.port;
            if !boot::claim_port(tx, compute, server.id, &host, port)? {
                return Err(Refusal::bad_request(format!(
                    "Failed to allocate additional resources to instance {} for port {id}: {host} has too few.",
                    server.id
                ))
                .into());
            }
        }
        servers::set_spec(tx, server.id, &spec, now)?;
        let ordinal = networks.attach_later(tx, place, seen, now)?;
        return Ok(Added::Later(ordinal.unwrap_or_default()));
    }
    let resolved = networks.resolve_one(tx, by, line)?;
    if resolved.profile.is_some() {
        return Err(with_accelerator());
    }
    servers::set_spec(tx, server.id, &spec, now)?;
    let id = networks.attach_one(tx, place, &resolved, now)?;
    update_interfaces(tx, compute, server, &host)?;
    Ok(Added::Now(id))
}

/// A port that is being attached to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The port is attached.
    Now(PortId),
    /// [`Compute::finish_attach`] creates the port of the connection with this ordinal.
    Later(i64),
}

/// Upstream's message. A device cannot be attached to or detached from an existing guest.
fn with_accelerator() -> Error {
    Refusal::bad_request("Feature not supported with Ports that have accelerators.").into()
}

/// Detaches a port.
///
/// # Errors
/// 404 if the port is not the server's, 400 if it has a device.
pub fn remove(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    id: PortId,
    now: Timestamp,
) -> Result<(), Error> {
    let networks = &*compute.networks;
    let found = networks.ports(tx, &[server.id])?.into_iter().find(|port| port.id == id);
    let port =
        found.ok_or_else(|| Refusal::not_found(format!("Port id {id} could not be found.")))?;
    if port.is_accelerator() {
        return Err(with_accelerator());
    }
    servers::set_spec(tx, server.id, &server.spec, now)?;
    networks.detach(tx, server.id, id, now)?;
    match &server.host {
        Some(host) => update_interfaces(tx, compute, server, host),
        None => Ok(()),
    }
}

/// Updates the guest's interfaces.
fn update_interfaces(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    host: &HostName,
) -> Result<(), Error> {
    let document = documents::get(tx, host, server.id)?;
    let Some(Desired::Present(mut domain)) = document.map(|document| document.desired) else {
        return Ok(());
    };
    domain.config.interfaces = compute.networks.interfaces(tx, server.id, host)?;
    if states::has_guest(server, host) {
        domain.require_guest();
    }
    let document = Desired::Present(domain);
    Ok(documents::put_as(tx, compute, host, server.id, &document, Delivery::AsBefore)?)
}

/// Records a change to a server's name, host name or metadata, all of which its host serves to the guest. The hosts
/// receive the change soon, like a change to a port. A guest without ports cannot request metadata.
///
/// # Errors
/// Store errors only.
pub fn record_guest_change(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
) -> Result<(), Error> {
    if server.host.is_none() || !server.spec.networked {
        return Ok(());
    }
    compute.networks.record_guest_change(tx, server.id, kilonova_wire::time::now())
}

/// Updates the server's documents after a change to a port, a network or the server's own data, if they differ.
///
/// Returns false if the caller must repeat the call later: a document is held back, the guest is migrating, or an
/// operation is in progress and only the server's own data has changed.
///
/// # Errors
/// Store errors only.
pub fn refresh(tx: &mut Tx<'_>, compute: &Compute, server: ServerId) -> Result<bool, Error> {
    let mut present = Vec::new();
    let held = match compute.networks.is_external() {
        true => documents::held(tx, server)?,
        false => Vec::new(),
    };
    for (host, document) in documents::of_server(tx, server)? {
        // A held document must be delivered first.
        if held.iter().any(|(on, _)| *on == host) {
            return Ok(false);
        }
        let Desired::Present(domain) = document.desired else { continue };
        let on_its_way = matches!(domain.power, Power::Incoming | Power::AsIs);
        if domain.outgoing_migration.is_some() || on_its_way {
            return Ok(false);
        }
        present.push((host, domain));
    }
    if present.is_empty() {
        return Ok(true);
    }
    let Some(row) = servers::find(tx, server)? else { return Ok(true) };
    let groups = boot::group_names(tx, compute, &row)?;
    let mut complete = true;
    for (host, mut domain) in present {
        let now = compute.networks.interfaces(tx, server, &host)?;
        let guest = boot::guest_metadata_with(compute, &row, Some(&host), groups.clone());
        // The files belong to the config drive that the host has, or is creating.
        let guest = GuestMetadata { files: domain.config.guest.files.clone(), ..guest };
        let is_current = domain.config.guest == guest && domain.config.display_name == row.name;
        if domain.config.interfaces == now {
            if is_current {
                continue;
            }
            if row.task_state.is_some() {
                complete = false;
                continue;
            }
        }
        domain.config.interfaces = now;
        domain.config.guest = guest;
        domain.config.display_name.clone_from(&row.name);
        if states::has_guest(&row, &host) {
            domain.require_guest();
        }
        documents::put(tx, compute, &host, server, &Desired::Present(domain))?;
    }
    Ok(complete)
}

/// Adds a security group to all ports of a server, or removes it from them.
///
/// # Errors
/// 404 if the group does not exist, or is not on the server, or the server has no ports; 400 if a port cannot have
/// groups.
pub fn set_group(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    name: &str,
    add: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let networks = &*compute.networks;
    let changed = networks.set_group(tx, &server.project_id, server.id, name, add, now)?;
    if changed == 0 && !add { Err(not_associated(server, name)) } else { Ok(()) }
}

/// Records that a group was added to ports, or removed from them, if another service manages the ports.
///
/// # Errors
/// 404 if the group to remove was not on the server.
pub fn group_changed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    name: &str,
    add: bool,
    changed: usize,
) -> Result<(), Error> {
    if changed == 0 && !add {
        return Err(not_associated(server, name));
    }
    compute.networks.record_guest_change(tx, server.id, kilonova_wire::time::now())
}

/// The refusal of a security group for a server without ports (`nova/network/security_group_api.py`).
pub(super) fn without_ports(server: ServerId) -> Refusal {
    Refusal::not_found(format!("instance_id {server} could not be found as device id on any ports"))
}

/// The refusal of a security group for a server with a port that cannot have groups.
pub(super) fn cannot_apply() -> Refusal {
    Refusal::bad_request(
        "Network requires port_security_enabled and subnet associated in order to apply security \
         groups.",
    )
}

fn not_associated(server: &Server, name: &str) -> Error {
    Refusal::not_found(format!(
        "Security group {} not associated with the instance {}",
        name.escape_debug(),
        server.id
    ))
    .into()
}
