//! The networks, ports and groups that a request names, checked before the boot with the user's token.
//!
//! The order of the checks is upstream's, and visible to clients.

use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId, SecurityGroupId};
use kilonova_neutron::{Network, NetworkFilter, Port, PortFilter, Type};
use kilonova_wire::Refusal;

use super::{ForUser, check_trust, groups, unnamed};
use crate::boot::PortResources;
use crate::ports::request::{NetworkRequest, address_in_use, ambiguous, no_network, no_port};
use crate::ports::{PortRequest, Requested};

/// The rule for connecting servers to an external network that is not shared.
const EXTERNAL: &str = "network:attach_external_network";

/// The connections that each server of a request gets.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The connections, in order.
    pub connections: Vec<Connection>,
    /// Security groups of new ports; the project's default group if there is none.
    pub groups: Vec<SecurityGroupId>,
    /// The number of servers for which the project's port quota has room, at most the requested number.
    pub servers: usize,
}

/// A connection of a server.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The origin of its port.
    pub source: Source,
    /// The tag shown to the guest.
    pub tag: Option<String>,
}

impl Connection {
    /// The port that the user supplied.
    pub fn supplied(&self) -> Option<PortId> {
        match &self.source {
            Source::Existing(port) => Some(port.id),
            Source::New { .. } | Source::Allocated => None,
        }
    }

    /// The resources that its port requests.
    pub fn resources(&self) -> Option<PortResources> {
        let Source::Existing(port) = &self.source else { return None };
        let request = port.requested().filter(|request| !request.is_empty())?;
        Some(PortResources { port: port.id, request })
    }
}

/// The port of a connection.
#[derive(Debug, Clone)]
pub enum Source {
    /// A new port, created for the server.
    New {
        /// The network.
        network: Box<Network>,
        /// The requested address.
        fixed_ip: Option<IpAddr>,
    },
    /// An existing port.
    Existing(Box<Port>),
    /// A new port on the network that Neutron creates for the project (`networks: auto`).
    Allocated,
}

/// Checks a request for at least `min` and at most `max` servers.
///
/// # Errors
/// 400, 403 and 409 with Nova's messages; 503 if Neutron fails.
pub async fn resolve(
    user: ForUser<'_>,
    by: Requested<'_>,
    request: &NetworkRequest,
    groups: &[String],
    (min, max): (usize, usize),
) -> Result<Resolved, Refusal> {
    let project = by.context.project_id.as_str();
    let groups = groups::find(user, project, groups).await?;
    let connections = match request {
        NetworkRequest::None => Vec::new(),
        NetworkRequest::Unspecified | NetworkRequest::Auto => automatic(user, by, request).await?,
        NetworkRequest::Ports(lines) => {
            if max > 1 {
                lines.iter().try_for_each(check_single_server)?;
            }
            requested(user, by, lines).await?
        }
    };
    let is_new = |connection: &&Connection| match connection.source {
        Source::New { .. } | Source::Allocated => true,
        Source::Existing(_) => false,
    };
    let new = connections.iter().filter(is_new).count();
    let servers = room(user, project, new, max).await?;
    if servers < min {
        return Err(Refusal::forbidden("Maximum number of ports exceeded"));
    }
    Ok(Resolved { connections, groups, servers })
}

/// Checks a request for one more connection of a server.
///
/// # Errors
/// Those of [`resolve`].
pub async fn resolve_one(
    user: ForUser<'_>,
    by: Requested<'_>,
    line: &PortRequest,
) -> Result<Resolved, Refusal> {
    let request = match (line.network, line.port) {
        (None, None) => NetworkRequest::Unspecified,
        (Some(_), _) | (None, Some(_)) => NetworkRequest::Ports(vec![line.clone()]),
    };
    let mut found = resolve(user, by, &request, &[], (1, 1)).await?;
    let Some(only) = found.connections.first_mut() else {
        return Err(Refusal::bad_request(format!(
            "No specific network was requested and none are available for project '{}'.",
            by.context.project_id
        )));
    };
    only.tag.clone_from(&line.tag);
    Ok(found)
}

/// Refuses settings that only one server can have.
fn check_single_server(line: &PortRequest) -> Result<(), Refusal> {
    if line.port.is_some() {
        return Err(Refusal::bad_request(
            "Unable to launch multiple instances with a single configured port ID. Please launch \
             your instance one by one with different ports.",
        ));
    }
    if line.fixed_ip.is_some() {
        return Err(Refusal::bad_request(
            "Failed to launch instances: max_count cannot be greater than 1 if an fixed_ip is \
             specified.",
        ));
    }
    Ok(())
}

/// The only network of the project, if it has one.
async fn automatic(
    user: ForUser<'_>,
    by: Requested<'_>,
    request: &NetworkRequest,
) -> Result<Vec<Connection>, Refusal> {
    let project = by.context.project_id.as_str();
    let is_auto = *request == NetworkRequest::Auto;
    let list = async |filter: NetworkFilter<'_>| {
        user.neutron.networks(user.call, filter).await.map_err(unnamed)
    };
    let mut networks = list(NetworkFilter::Project { project, ready: is_auto }).await?;
    networks.extend(list(NetworkFilter::Shared).await?);
    if networks.len() > 1 {
        return Err(ambiguous());
    }
    let source = match networks.pop() {
        Some(network) => {
            check_external(by, &network)?;
            Source::New { network: Box::new(network), fixed_ip: None }
        }
        None if is_auto => {
            let can = user.neutron.can_allocate_network(user.call, project).await;
            if !can.map_err(unnamed)? {
                return Err(Refusal::bad_request(format!(
                    "Unable to automatically allocate a network for project {project}"
                )));
            }
            Source::Allocated
        }
        None => return Ok(Vec::new()),
    };
    Ok(vec![Connection { source, tag: None }])
}

/// The connections that the request lists.
async fn requested(
    user: ForUser<'_>,
    by: Requested<'_>,
    lines: &[PortRequest],
) -> Result<Vec<Connection>, Refusal> {
    let mut ports: Vec<Port> = Vec::new();
    let mut ids: Vec<NetworkId> = Vec::new();
    for line in lines {
        match (line.port, line.network) {
            (Some(id), _) => {
                if ports.iter().any(|port| port.id == id) {
                    return Err(in_use(id));
                }
                ports.push(existing(user, id).await?);
            }
            (None, Some(network)) => {
                if let Some(address) = line.fixed_ip {
                    check_address(user, network, address).await?;
                }
                ids.push(network);
            }
            (None, None) => return Err(no_network("None")),
        }
    }
    let networks = user.neutron.networks(user.call, NetworkFilter::Ids(&ids)).await;
    let networks = networks.map_err(unnamed)?;
    if let Some(bare) = networks.iter().find(|network| network.subnets.is_empty()) {
        let id = bare.id;
        return Err(Refusal::bad_request(format!(
            "Network {id} requires a subnet in order to boot instances on."
        )));
    }
    let mut lost: Vec<String> = ids
        .iter()
        .filter(|id| networks.iter().all(|one| one.id != **id))
        .map(ToString::to_string)
        .collect();
    lost.dedup();
    if !lost.is_empty() {
        return Err(no_network(lost.join(", ")));
    }
    networks.iter().try_for_each(|network| check_external(by, network))?;
    let (mut ports, mut networks) = (ports.into_iter(), networks.into_iter());
    let mut connections = Vec::with_capacity(lines.len());
    for line in lines {
        let source = match line.port {
            Some(id) => ports.next().map(Box::new).map(Source::Existing).ok_or_else(|| no_port(id)),
            None => {
                let new =
                    |network| Source::New { network: Box::new(network), fixed_ip: line.fixed_ip };
                networks.next().map(new).ok_or_else(|| no_network("None"))
            }
        };
        connections.push(Connection { source: source?, tag: line.tag.clone() });
    }
    Ok(connections)
}

fn in_use(port: PortId) -> Refusal {
    Refusal::conflict(format!("Port {port} is still in use."))
}

/// A port that the request names.
async fn existing(user: ForUser<'_>, id: PortId) -> Result<Port, Refusal> {
    let port = user.neutron.port(user.call, id).await;
    let port = port.map_err(|error| match error.kind() {
        Some(Type::PortNotFound) => no_port(id),
        _ => unnamed(error),
    })?;
    if !port.device_id.is_empty() {
        return Err(in_use(id));
    }
    check_trust(&port)?;
    let has_own_way = matches!(port.ip_allocation.as_str(), "deferred" | "none");
    if !has_own_way && port.fixed_ips.is_empty() {
        let words = format!("Port {id} requires a FixedIP in order to be used.");
        return Err(Refusal::bad_request(words));
    }
    Ok(port)
}

/// Refuses a requested address that a port already has.
async fn check_address(
    user: ForUser<'_>,
    network: NetworkId,
    address: IpAddr,
) -> Result<(), Refusal> {
    let filter = PortFilter::Address(network, address);
    let taken = user.neutron.ports(user.call, filter, &["id", "device_id"]).await;
    match taken.map_err(unnamed)?.first() {
        None => Ok(()),
        Some(port) => Err(address_in_use(format!(
            "Fixed IP address {address} is already in use on instance {}.",
            port.device_id
        ))),
    }
}

/// Refuses an external network that the caller must not use.
fn check_external(by: Requested<'_>, network: &Network) -> Result<(), Refusal> {
    let may = !network.external || network.shared || by.policy.allows_own(by.context, EXTERNAL);
    if may {
        return Ok(());
    }
    let id = network.id;
    let words = format!("It is not allowed to create an interface on external network {id}");
    Err(Refusal::forbidden(words))
}

/// The number of servers, at most `max`, for which the quota has room.
async fn room(user: ForUser<'_>, project: &str, new: usize, max: usize) -> Result<usize, Refusal> {
    if new == 0 {
        return Ok(max);
    }
    let quota = user.neutron.port_quota(user.call, project).await.map_err(unnamed)?;
    let Some(quota) = quota else { return Ok(max) };
    let used = user.neutron.ports(user.call, PortFilter::Project(project), &["id"]).await;
    let used = used.map_err(unnamed)?.len();
    let quota = usize::try_from(quota).unwrap_or(0);
    if used > quota {
        return Err(Refusal::forbidden(format!(
            "The number of defined ports: {used} is over the limit: {quota}"
        )));
    }
    Ok(max.min((quota - used) / new))
}
