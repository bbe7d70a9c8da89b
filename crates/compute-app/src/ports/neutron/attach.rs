//! The ports of a server after its commit: created with the user's token, bound with the service's.
//!
//! Each request may be repeated. A port that was created for the server has its id as device, so that a
//! port whose creation was not confirmed is found and not created again. [`release`] undoes all of it.

use std::collections::{BTreeSet, HashMap};

use kilonova_ids::{NetworkId, PortId, SecurityGroupId, ServerId};
use kilonova_neutron::{
    Call, Error, Extension, Network, NetworkFilter, Neutron, NewPort, Port, PortChange, PortFilter,
    RequestedIp, Type, released,
};
use kilonova_wire::{IntoRefusal, Refusal};

use super::resolve::{Connection, Source};

/// The server that gets ports, and its place.
#[derive(Debug, Clone, Copy)]
pub struct Attachment<'a> {
    /// The server.
    pub server: ServerId,
    /// Its project.
    pub project: &'a str,
    /// Its host, as Neutron knows it.
    pub host: &'a str,
    /// Its availability zone.
    pub zone: &'a str,
    /// The host name of its guest.
    pub hostname: &'a str,
    /// Its connections in order.
    pub connections: &'a [Connection],
    /// Security groups of new ports.
    pub groups: &'a [SecurityGroupId],
}

/// A port of the server, bound to its host.
#[derive(Debug, Clone)]
pub struct Attached {
    /// The port.
    pub port: Port,
    /// Its network.
    pub network: Network,
    /// True if it was created for the server, and goes with it.
    pub made: bool,
    /// The tag shown to the guest.
    pub tag: Option<String>,
}

/// Why a server does not get its ports.
#[derive(Debug)]
pub enum Failure {
    /// Neutron cannot connect a port on this host; another host may do.
    Host(String),
    /// No host would do: the reason for the server's fault.
    Request(Refusal),
    /// Neutron failed. The same attempt may succeed later.
    Neutron(Error),
}

impl From<Error> for Failure {
    /// An error that Neutron repeats is the request's; one of Neutron itself is not.
    fn from(error: Error) -> Self {
        match error.refused() {
            Some(refused) if refused.status.is_client_error() => {
                Self::Request(error.into_refusal())
            }
            _ => Self::Neutron(error),
        }
    }
}

/// The two logins of an attachment.
#[derive(Clone, Copy)]
struct Logins<'a> {
    neutron: &'a Neutron,
    user: Call<'a>,
    own: Call<'a>,
}

/// Creates and binds the ports of a server, in the order of its connections. `user` has the user's
/// token; after a restart there is none, and the service's login stands in for it.
///
/// # Errors
/// [`Failure`]. Ports may be left: [`release`] them.
pub async fn attach(
    neutron: &Neutron,
    user: Call<'_>,
    own: Call<'_>,
    attachment: &Attachment<'_>,
) -> Result<Vec<Attached>, Failure> {
    let logins = Logins { neutron, user, own };
    let device = attachment.server.to_string();
    let supplied = supplied(attachment.connections);
    let mut begun = neutron.ports(own, PortFilter::Device(&device), &[]).await?;
    begun.retain(|port| !supplied.contains(&port.id));
    let mut networks = known_networks(logins, attachment).await?;
    let mut attached = Vec::with_capacity(attachment.connections.len());
    for connection in attachment.connections {
        let (port, network, made) = match &connection.source {
            Source::New { network, fixed_ip } => {
                let port = created(logins, attachment, network, *fixed_ip, &mut begun).await?;
                (port, Network::clone(network), true)
            }
            Source::Allocated => {
                let network = allocated(logins, attachment.project).await?;
                let port = created(logins, attachment, &network, None, &mut begun).await?;
                (port, network, true)
            }
            Source::Existing(port) => {
                let port = checked(logins, attachment, port.id).await?;
                let network = port.network_id.and_then(|id| networks.remove(&id));
                let network = network.ok_or_else(|| lost_network(&port))?;
                networks.insert(network.id, network.clone());
                (port, network, false)
            }
        };
        check_groups(attachment, &network)?;
        let port = bound(logins, attachment, &port, &network).await?;
        // Only administrators see the request. The claim did not count it, as the port did not exist.
        if made && port.requests_resources() {
            return Err(Failure::Request(Refusal::bad_request(format!(
                "Using networks with QoS policy is not supported for instance {}. (Network ID is {})",
                attachment.server, network.id
            ))));
        }
        attached.push(Attached { port, network, made, tag: connection.tag.clone() });
    }
    Ok(attached)
}

/// The ports that the user supplied.
fn supplied(connections: &[Connection]) -> BTreeSet<PortId> {
    let of = |connection: &Connection| match &connection.source {
        Source::Existing(port) => Some(port.id),
        Source::New { .. } | Source::Allocated => None,
    };
    connections.iter().filter_map(of).collect()
}

/// The networks of the supplied ports.
async fn known_networks(
    logins: Logins<'_>,
    attachment: &Attachment<'_>,
) -> Result<HashMap<NetworkId, Network>, Failure> {
    let of = |connection: &Connection| match &connection.source {
        Source::Existing(port) => port.network_id,
        Source::New { .. } | Source::Allocated => None,
    };
    let ids: BTreeSet<NetworkId> = attachment.connections.iter().filter_map(of).collect();
    let ids: Vec<NetworkId> = ids.into_iter().collect();
    let found = logins.neutron.networks(logins.own, NetworkFilter::Ids(&ids)).await?;
    Ok(found.into_iter().map(|network| (network.id, network)).collect())
}

fn lost_network(port: &Port) -> Failure {
    let id = port.network_id.map_or_else(String::new, |id| id.to_string());
    Failure::Request(Refusal::bad_request(format!("Network {id} could not be found.")))
}

/// The network that Neutron makes for the project.
async fn allocated(logins: Logins<'_>, project: &str) -> Result<Network, Failure> {
    let cannot = |error: Error| match error.refused() {
        Some(refused) if refused.status.is_client_error() => {
            Failure::Request(Refusal::bad_request(format!(
                "Unable to automatically allocate a network for project {project}"
            )))
        }
        _ => Failure::Neutron(error),
    };
    let id = logins.neutron.allocate_network(logins.user, project).await.map_err(cannot)?;
    logins.neutron.network(logins.user, id).await.map_err(cannot)
}

/// Refuses groups where they have no effect.
fn check_groups(attachment: &Attachment<'_>, network: &Network) -> Result<(), Failure> {
    let can = match network.port_security_enabled {
        true => !network.subnets.is_empty(),
        false => attachment.groups.is_empty(),
    };
    if can {
        return Ok(());
    }
    Err(Failure::Request(Refusal::bad_request(
        "Network requires port_security_enabled and subnet associated in order to apply security \
         groups.",
    )))
}

/// A port of the server on a network: one that an earlier attempt created, or a new one.
async fn created(
    logins: Logins<'_>,
    attachment: &Attachment<'_>,
    network: &Network,
    fixed_ip: Option<std::net::IpAddr>,
    begun: &mut Vec<Port>,
) -> Result<Port, Failure> {
    check_groups(attachment, network)?;
    let fits = |port: &Port| {
        let has = |ip| port.fixed_ips.iter().any(|fixed| fixed.ip_address == ip);
        port.network_id == Some(network.id) && fixed_ip.is_none_or(has)
    };
    if let Some(at) = begun.iter().position(fits) {
        return Ok(begun.remove(at));
    }
    let new = NewPort {
        device_id: attachment.server.to_string(),
        network_id: network.id,
        admin_state_up: true,
        project: attachment.project.to_owned(),
        security_groups: attachment.groups.to_vec(),
        fixed_ips: fixed_ip.into_iter().map(|ip_address| RequestedIp { ip_address }).collect(),
    };
    let port = logins.neutron.create_port(logins.user, &new).await;
    let id = network.id;
    let address = fixed_ip.map_or_else(String::new, |ip| ip.to_string());
    let port = port.map_err(|error| {
        let words = match error.kind() {
            Some(Type::InvalidIpForNetwork) => format!(
                "Invalid input received: Fixed IP {address} is not a valid ip address for network \
                 {id}."
            ),
            Some(Type::IpAddressInUse | Type::IpAddressAlreadyAllocated) => {
                format!("Fixed IP {address} is already in use.")
            }
            Some(Type::IpAddressGenerationFailure) => {
                format!("No fixed IP addresses available for network: {id}")
            }
            Some(Type::OverQuota) => "Maximum number of ports exceeded".to_owned(),
            _ => return Failure::from(error),
        };
        Failure::Request(Refusal::bad_request(words))
    })?;
    Ok(port)
}

/// A supplied port, unless another server was faster.
async fn checked(
    logins: Logins<'_>,
    attachment: &Attachment<'_>,
    id: PortId,
) -> Result<Port, Failure> {
    let server = attachment.server;
    let refuse = |words: String| Failure::Request(Refusal::bad_request(words));
    let port = logins.neutron.port(logins.own, id).await;
    let port = port.map_err(|error| match error.kind() {
        Some(Type::PortNotFound) => refuse(format!("Port id {id} could not be found.")),
        _ => error.into(),
    })?;
    if port.project != attachment.project {
        return Err(refuse(format!("Port {id} not usable for instance {server}.")));
    }
    if port.device_id == server.to_string() {
        return Ok(port);
    }
    if !port.device_id.is_empty() {
        return Err(refuse(format!("Port {id} is still in use.")));
    }
    if !port.dns_name.is_empty() && port.dns_name != attachment.hostname {
        return Err(refuse(format!(
            "Port {id} not usable for instance {server}. Value {} assigned to dns_name attribute \
             does not match instance's hostname {}",
            port.dns_name, attachment.hostname
        )));
    }
    Ok(port)
}

/// Binds a port to the server's host.
async fn bound(
    logins: Logins<'_>,
    attachment: &Attachment<'_>,
    port: &Port,
    network: &Network,
) -> Result<Port, Failure> {
    let id = port.id;
    let has_dns = logins.neutron.has(logins.own, Extension::DnsIntegration).await?;
    let has_external_dns = has_dns && !network.dns_domain.is_empty();
    let hostname = || Some(attachment.hostname.to_owned());
    let change = PortChange {
        device_id: Some(attachment.server.to_string()),
        device_owner: Some(format!("compute:{}", attachment.zone)),
        host: Some(Some(attachment.host.to_owned())),
        profile: (!port.profile.is_empty()).then(|| port.profile.clone()),
        dns_name: if has_dns && !has_external_dns { hostname() } else { None },
        ..PortChange::default()
    };
    let updated = logins.neutron.update_port(logins.own, id, &change).await;
    let updated = updated.map_err(|error| {
        let words = match error.kind() {
            Some(Type::MacAddressInUse) => format!("Port {} is still in use.", port.mac_address),
            Some(Type::HostNotCompatibleWithFixedIps) => {
                format!("The fixed IP associated with port {id} is not compatible with the host.")
            }
            Some(Type::PortNotFound) => format!("Port id {id} could not be found."),
            _ => return Failure::from(error),
        };
        Failure::Request(Refusal::bad_request(words))
    })?;
    if updated.has_failed_binding() {
        return Err(Failure::Host(format!(
            "Binding failed for port {id}, please check neutron logs for more information."
        )));
    }
    if has_external_dns {
        // The record belongs to the user's zone, so the user's token names it.
        let name = PortChange { dns_name: hostname(), ..PortChange::default() };
        let named = logins.neutron.update_port(logins.user, id, &name).await;
        named.map_err(|error| match error.refused() {
            Some(refused) if refused.status.as_u16() == 400 => {
                Failure::Request(Refusal::bad_request(format!(
                    "Invalid input received: Instance hostname {} is not a valid DNS name",
                    attachment.hostname
                )))
            }
            _ => Failure::from(error),
        })?;
    }
    Ok(updated)
}

/// Releases the ports of a server: supplied ones are unbound, with the keys of their owner left in the
/// profile, and all others are deleted. Repeating it is harmless, and so is a port that is gone. `user`
/// has the user's token, if there still is one: names in an external DNS are the user's.
///
/// # Errors
/// Neutron's, after every port was tried.
pub async fn release(
    neutron: &Neutron,
    user: Option<Call<'_>>,
    own: Call<'_>,
    server: ServerId,
    supplied: &BTreeSet<PortId>,
) -> Result<(), Error> {
    let device = server.to_string();
    let ports = neutron.ports(own, PortFilter::Device(&device), &[]).await?;
    let mut failed = None;
    for port in &ports {
        let ended = match supplied.contains(&port.id) {
            true => unbound(neutron, user, own, port).await,
            false => neutron.delete_port(own, port.id).await,
        };
        match ended {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(%server, port = %port.id, %error, "failed to release a port; retrying");
                failed = Some(error);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn unbound(
    neutron: &Neutron,
    user: Option<Call<'_>>,
    own: Call<'_>,
    port: &Port,
) -> Result<(), Error> {
    let has_dns = neutron.has(own, Extension::DnsIntegration).await?;
    let network = match port.network_id {
        Some(id) if has_dns => Some(neutron.network(own, id).await?),
        Some(_) | None => None,
    };
    let is_external = network.is_some_and(|network| !network.dns_domain.is_empty());
    let unnamed = || has_dns.then(String::new);
    let change = PortChange {
        device_id: Some(String::new()),
        device_owner: Some(String::new()),
        host: Some(None),
        profile: Some(released(&port.profile)),
        dns_name: if is_external { None } else { unnamed() },
        ..PortChange::default()
    };
    neutron.update_port(own, port.id, &change).await?;
    if let (true, Some(user)) = (is_external, user) {
        let change = PortChange { dns_name: unnamed(), ..PortChange::default() };
        if let Err(error) = neutron.update_port(user, port.id, &change).await {
            tracing::warn!(port = %port.id, %error, "the port keeps its name in the external DNS");
        }
    }
    Ok(())
}
