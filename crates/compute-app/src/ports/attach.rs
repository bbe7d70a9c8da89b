//! Ports for servers: at boot, and attached later.

use jiff::Timestamp;
use kilonova_access::Enforcer;
use kilonova_compute_db::documents;
use kilonova_compute_db::servers::{self, Server, Spec};
use kilonova_ids::{HostName, PortId, SecurityGroupId, ServerId};
use kilonova_network::ledger::{self as networks, Attach, NewPorts, PendingAddresses, PortSource};
use kilonova_node_api::{Desired, Interface, Power};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Context, Refusal};

use super::resolve::{ResolvedPort, ServerPorts, automatic_network, no_group, resolve_one};
use super::{PortRequest, bind, interfaces};
use crate::{Compute, Error};

/// The server that gets ports.
#[derive(Debug, Clone, Copy)]
pub struct PortOwner<'a> {
    /// Its id.
    pub id: ServerId,
    /// Its project.
    pub project: &'a str,
    /// Its requested properties.
    pub spec: &'a Spec,
    /// Its host.
    pub host: &'a HostName,
}

/// Gives a new server its ports, in the transaction that creates it.
///
/// # Errors
/// The network service's errors with Nova's messages.
pub fn attach(
    tx: &mut Tx<'_>,
    server: PortOwner<'_>,
    ports: &ServerPorts,
    new: &mut NewPorts,
    now: Timestamp,
) -> Result<Vec<Interface>, Error> {
    if ports.list.is_empty() {
        return Ok(Vec::new());
    }
    let groups = if !ports.list.iter().any(ResolvedPort::is_secure) {
        Vec::new()
    } else if ports.groups.is_empty() {
        vec![new.default_group(tx, server.project, now)?]
    } else {
        networks::groups_by_name(tx, server.project, &ports.groups, now).map_err(no_group)?
    };
    let mut pending = Vec::with_capacity(ports.list.len());
    for (ordinal, resolved) in ports.list.iter().enumerate() {
        let ordinal = i64::try_from(ordinal).unwrap_or(i64::MAX);
        let (_, addresses) = plug(tx, server, resolved, ordinal, &groups, new, now)?;
        pending.push((resolved.source, addresses));
    }
    if ports.list.iter().any(|resolved| resolved.profile.is_some()) {
        bind(tx, server.id, Some(server.host), now)?;
    }
    let interfaces = interfaces(tx, server.id, server.host)?;
    for (source, addresses) in pending {
        addresses.check(tx).map_err(|error| upstream_error(error, source))?;
    }
    Ok(interfaces)
}

/// Asks for the rows that [`attach`] needs for new ports. Call it before the transaction's first wait.
///
/// # Errors
/// Store errors only.
pub fn ask_new(tx: &mut Tx<'_>, project: &str, ports: &ServerPorts) -> Result<NewPorts, Error> {
    let with_default = ports.groups.is_empty() && ports.list.iter().any(ResolvedPort::is_secure);
    let networks = ports.list.iter().filter_map(|resolved| match resolved.source {
        PortSource::New { network, .. } => Some(network),
        PortSource::Existing(_) => None,
    });
    Ok(NewPorts::ask(tx, project, with_default, networks)?)
}

fn plug(
    tx: &mut Tx<'_>,
    server: PortOwner<'_>,
    resolved: &ResolvedPort,
    ordinal: i64,
    groups: &[SecurityGroupId],
    new: &mut NewPorts,
    now: Timestamp,
) -> Result<(PortId, PendingAddresses), Error> {
    let owner = format!("compute:{}", server.spec.availability_zone.as_deref().unwrap_or("nova"));
    let attach = Attach {
        server: server.id,
        project: server.project,
        host: Some(server.host),
        owner: &owner,
        hostname: &server.spec.hostname,
        source: resolved.source,
        tag: resolved.tag.as_deref(),
        ordinal,
        groups,
    };
    networks::attach(tx, &attach, new, now).map_err(|error| upstream_error(error, resolved.source))
}

fn upstream_error(error: kilonova_network::Error, source: PortSource) -> Error {
    let kilonova_network::Error::Refused(fault) = error else { return error.into() };
    let words = match (fault.code, source) {
        ("PortInUse", _) => return Refusal::conflict(fault.message).into(),
        ("PortNotFound", PortSource::Existing(id)) => format!("Port id {id} could not be found."),
        ("IpAddressGenerationFailure", PortSource::New { network, .. }) => {
            format!("No fixed IP addresses available for network: {network}")
        }
        ("IpAddressAlreadyAllocated", PortSource::New { fixed_ip: Some(ip), .. }) => {
            format!("Fixed IP address {ip} is already in use.")
        }
        _ => fault.message,
    };
    Refusal::bad_request(words).into()
}

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
    now: Timestamp,
) -> Result<PortId, Error> {
    let host = server.host.clone().ok_or_else(|| crate::states::not_ready(server))?;
    let owner = Context { project_id: server.project_id.clone(), ..context.clone() };
    let resolved = if line.network.is_none() && line.port.is_none() {
        any(tx, &compute.policy, &owner, line)?
    } else {
        resolve_one(tx, &compute.policy, &owner, line)?
    };
    if resolved.profile.is_some() {
        return Err(with_accelerator());
    }
    let groups = match resolved.source {
        PortSource::New { secure: true, .. } => {
            networks::groups_by_name(tx, &server.project_id, &[], now).map_err(no_group)?
        }
        _ => Vec::new(),
    };
    let spec = Spec { networked: true, ..server.spec.clone() };
    servers::set_spec(tx, server.id, &spec, now)?;
    let has = networks::of_server(tx, server.id)?;
    let place = PortOwner { id: server.id, project: &server.project_id, spec: &spec, host: &host };
    let ordinal = i64::try_from(has.len()).unwrap_or(i64::MAX);
    let new = &mut NewPorts::default();
    let (id, addresses) = plug(tx, place, &resolved, ordinal, &groups, new, now)?;
    addresses.check(tx).map_err(|error| upstream_error(error, resolved.source))?;
    update_interfaces(tx, compute, server.id, &host)?;
    Ok(id)
}

/// The one network that there is.
fn any(
    tx: &mut Tx<'_>,
    policy: &Enforcer,
    owner: &Context,
    line: &PortRequest,
) -> Result<ResolvedPort, Error> {
    let only = automatic_network(tx, policy, owner)?.pop();
    let only = only.ok_or_else(|| {
        Refusal::bad_request(format!(
            "No specific network was requested and none are available for project '{}'.",
            owner.project_id
        ))
    })?;
    Ok(ResolvedPort { tag: line.tag.clone(), ..only })
}

/// Upstream's message. A device cannot be attached to or detached from an existing guest.
fn with_accelerator() -> Error {
    Refusal::bad_request("Feature not supported with Ports that have accelerators.").into()
}

/// Detaches a port.
///
/// # Errors
/// 404 for a port that is not the server's, 400 for a port with a device.
pub fn remove(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    id: PortId,
    now: Timestamp,
) -> Result<(), Error> {
    let found = networks::of_server(tx, server.id)?.into_iter().find(|port| port.id == id);
    let port =
        found.ok_or_else(|| Refusal::not_found(format!("Port id {id} could not be found.")))?;
    if port.is_accelerator() {
        return Err(with_accelerator());
    }
    servers::set_spec(tx, server.id, &server.spec, now)?;
    networks::detach(tx, server.id, id, now)?;
    match &server.host {
        Some(host) => update_interfaces(tx, compute, server.id, host),
        None => Ok(()),
    }
}

/// Updates the guest's interfaces.
fn update_interfaces(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    host: &HostName,
) -> Result<(), Error> {
    let document = documents::get(tx, host, server)?;
    let Some(Desired::Present(mut domain)) = document.map(|document| document.desired) else {
        return Ok(());
    };
    domain.config.interfaces = interfaces(tx, server, host)?;
    Ok(documents::put(tx, compute, host, server, &Desired::Present(domain))?)
}

/// Applies a change of a port or a network to the server's documents, if they differ.
///
/// Returns false if the guest is migrating: the caller must repeat the call later.
///
/// # Errors
/// Store errors only.
pub fn refresh(tx: &mut Tx<'_>, compute: &Compute, server: ServerId) -> Result<bool, Error> {
    let mut present = Vec::new();
    for (host, document) in documents::of_server(tx, server)? {
        let Desired::Present(domain) = document.desired else { continue };
        let on_its_way = matches!(domain.power, Power::Incoming | Power::AsIs);
        if domain.outgoing_migration.is_some() || on_its_way {
            return Ok(false);
        }
        present.push((host, domain));
    }
    for (host, mut domain) in present {
        let now = interfaces(tx, server, &host)?;
        if domain.config.interfaces != now {
            domain.config.interfaces = now;
            documents::put(tx, compute, &host, server, &Desired::Present(domain))?;
        }
    }
    Ok(true)
}

/// Adds a security group to all ports of a server, or removes it.
///
/// # Errors
/// 404 if the group does not exist, or is not on the server.
pub fn set_group(
    tx: &mut Tx<'_>,
    server: &Server,
    name: &str,
    add: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let named = [name.to_owned()];
    let missing =
        || Refusal::not_found(format!("Security group {} not found.", name.escape_debug()));
    let found = networks::groups_by_name(tx, &server.project_id, &named, now);
    let found = found.map_err(|error| match error {
        kilonova_network::Error::Refused(refusal) if refusal.kind == Kind::NotFound => {
            missing().into()
        }
        other => Error::from(other),
    })?;
    let Some(group) = found.first() else { return Err(missing().into()) };
    let changed = networks::set_groups(tx, server.id, *group, add, now)?;
    if changed == 0 && !add {
        return Err(Refusal::not_found(format!(
            "Security group {} not associated with the instance {}",
            name.escape_debug(),
            server.id
        ))
        .into());
    }
    Ok(())
}
