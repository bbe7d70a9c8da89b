//! Makes the ports of a server match its goal: creates them with the user's token, binds them with
//! the service's.
//!
//! [`attach`] compares Neutron with the goal and changes only what differs, so it may be repeated after any crash; if
//! nothing differs, it only reads the ports. A port that was created for a server has the server's id as its device, so
//! a port whose creation was not confirmed is found and not created again. [`release`] undoes all of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId, SecurityGroupId, ServerId};
use kilonova_neutron::{
    BindingStatus, Call, Error, Extension, Network, NetworkFilter, Neutron, NewBinding, NewPort,
    Port, PortChange, PortFilter, Profile, RequestedIp, Type, released,
};
use kilonova_wire::{IntoRefusal, Refusal};
use serde_json::Value;

use super::check_trust;
use super::connection::{Wanted, Wish};
use super::providers::{ChangedClaims, Providers};
use crate::ports::request::{address_in_use, no_network, no_port, taken_meanwhile};

/// The server whose ports are attached, and its host.
#[derive(Debug, Clone, Copy)]
pub struct Attachment<'a> {
    /// The server.
    pub server: ServerId,
    /// Its project.
    pub project: &'a str,
    /// The host that its ports are bound to, by its name in Neutron; without a host, they are unbound but remain the
    /// server's.
    pub host: Option<&'a str>,
    /// The host on which they are also prepared.
    pub next_host: Option<&'a str>,
    /// True if there may be bindings to further hosts, which are deleted.
    pub may_have_more: bool,
    /// Its availability zone.
    pub zone: &'a str,
    /// The host name of its guest.
    pub hostname: &'a str,
    /// Its connections in order.
    pub wanted: &'a [Wanted],
    /// Security groups of new ports.
    pub groups: &'a [SecurityGroupId],
    /// The keys that the devices of ports add to `binding:profile`.
    pub devices: &'a HashMap<PortId, Profile>,
    /// The providers of the resources that ports request.
    pub providers: &'a Providers,
}

/// A port of the server, bound to its host.
#[derive(Debug, Clone)]
pub struct Attached {
    /// The port.
    pub port: Port,
    /// The port with its binding on the next host.
    pub next: Option<Port>,
    /// Its network.
    pub network: Network,
    /// The claims for its resources, if Neutron has changed them.
    pub changed_claims: Option<ChangedClaims>,
}

/// Why the ports of a server could not be attached.
#[derive(Debug)]
pub enum Failure {
    /// Neutron cannot connect a port on this host; another host may be able to.
    Host(String),
    /// No host can connect it; this becomes the server's fault.
    Request(Refusal),
    /// Neutron failed. A later attempt may succeed.
    Neutron(Error),
}

impl From<Error> for Failure {
    /// A client error from Neutron is the request's fault; an unavailable Neutron is not.
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

/// Makes the ports of a server match the goal, and returns them in the order of its connections; `None` stands for a
/// port that the server had but that no longer exists or now belongs to another server. `user` carries the user's
/// token; after a restart there is none, and the service's login replaces it.
///
/// # Errors
/// [`Failure`]. Some ports may already exist: the caller must [`release`] them. `made` receives those that are known to
/// have been created, by the positions of their connections.
pub async fn attach(
    neutron: &Neutron,
    user: Call<'_>,
    own: Call<'_>,
    attachment: &Attachment<'_>,
    made: &mut BTreeMap<usize, PortId>,
) -> Result<Vec<Option<Attached>>, Failure> {
    let logins = Logins { neutron, user, own };
    let device = attachment.server.to_string();
    let mut begun = neutron.ports(own, PortFilter::Device(&device), &[]).await?;
    let known: BTreeSet<PortId> = attachment.wanted.iter().filter_map(Wanted::port).collect();
    let mut had: HashMap<PortId, Port> = HashMap::new();
    begun.retain(|port| {
        let is_known = known.contains(&port.id);
        if is_known {
            had.insert(port.id, port.clone());
        }
        !is_known
    });
    let mut networks = Networks { logins, known: HashMap::new() };
    networks.read(attachment.wanted.iter().filter_map(Wanted::network)).await?;
    networks.read(had.values().filter_map(|port| port.network_id)).await?;
    let mut providers = attachment.providers.clone();
    let mut changed_claims = HashMap::new();
    for port in had.values() {
        if let Some(host) = attachment.host.filter(|host| port.host == *host)
            && let Some(changed) = providers.adopt(port, host)
        {
            changed_claims.insert(port.id, changed);
        }
    }
    let attachment = &Attachment { providers: &providers, ..*attachment };
    let mut attached = Vec::with_capacity(attachment.wanted.len());
    for (place, wanted) in attachment.wanted.iter().enumerate() {
        let port = match (wanted.known, &wanted.wish) {
            (Some(id), _) => match had.remove(&id) {
                Some(port) => port,
                None => {
                    attached.push(None);
                    continue;
                }
            },
            (None, Wish::Existing(id)) => match had.remove(id) {
                Some(port) => port,
                None => checked(logins, attachment, *id).await?,
            },
            (None, Wish::New { network, fixed_ip }) => {
                let network = networks.one(*network).await?;
                created(logins, attachment, &network, *fixed_ip, &mut begun).await?
            }
            (None, Wish::Allocated) => {
                let network = allocated(logins, attachment.project).await?;
                created(logins, attachment, &network, None, &mut begun).await?
            }
        };
        if wanted.is_made() {
            made.insert(place, port.id);
        }
        let network = networks.of(&port).await?;
        if wanted.known.is_none() {
            check_groups(attachment, &network)?;
        }
        if let Some(host) = attachment.host.filter(|host| port.host != *host) {
            attachment.providers.check(&port, host)?;
        }
        let had_name = port.dns_name.clone();
        let port = bound(logins, attachment, port, &network).await?;
        if wanted.known.is_none() && had_name != attachment.hostname {
            named(logins, attachment, &port, &network).await?;
        }
        if wanted.known.is_none() && wanted.is_made() && port.requests_resources() {
            return Err(uncounted(attachment.server, &network));
        }
        let next = settle_bindings(logins, attachment, &port, wanted.known.is_some()).await?;
        let changed_claims = changed_claims.remove(&port.id);
        attached.push(Some(Attached { port, next, network, changed_claims }));
    }
    Ok(attached)
}

/// The refusal of a new port that requests resources because of its network's QoS policy: nothing has been claimed for
/// it. Only administrators see the port's request, so no earlier check could refuse it.
fn uncounted(server: ServerId, network: &Network) -> Failure {
    Failure::Request(Refusal::bad_request(format!(
        "Using networks with QoS policy is not supported for instance {server}. (Network ID is {})",
        network.id
    )))
}

/// The networks of one attachment.
struct Networks<'a> {
    logins: Logins<'a>,
    known: HashMap<NetworkId, Network>,
}

impl Networks<'_> {
    async fn read(&mut self, ids: impl Iterator<Item = NetworkId>) -> Result<(), Failure> {
        let ids: BTreeSet<NetworkId> = ids.filter(|id| !self.known.contains_key(id)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<NetworkId> = ids.into_iter().collect();
        let found = self.logins.neutron.networks(self.logins.own, NetworkFilter::Ids(&ids)).await?;
        self.known.extend(found.into_iter().map(|network| (network.id, network)));
        Ok(())
    }

    async fn one(&mut self, id: NetworkId) -> Result<Network, Failure> {
        self.read([id].into_iter()).await?;
        self.known.get(&id).cloned().ok_or_else(|| lost_network(&id.to_string()))
    }

    async fn of(&mut self, port: &Port) -> Result<Network, Failure> {
        match port.network_id {
            Some(id) => self.one(id).await,
            None => Err(lost_network("")),
        }
    }
}

fn lost_network(id: &str) -> Failure {
    Failure::Request(no_network(id))
}

/// The network that Neutron creates for the project.
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

/// Refuses a network on which the security groups of a new port would have no effect.
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
    fixed_ip: Option<IpAddr>,
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
                let words = format!("Fixed IP {address} is already in use.");
                return Failure::Request(address_in_use(words));
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

/// Reads a supplied port, and refuses it if the server can no longer use it.
async fn checked(
    logins: Logins<'_>,
    attachment: &Attachment<'_>,
    id: PortId,
) -> Result<Port, Failure> {
    let server = attachment.server;
    let refuse = |words: String| Failure::Request(Refusal::bad_request(words));
    let port = logins.neutron.port(logins.own, id).await;
    let port = port.map_err(|error| match error.kind() {
        Some(Type::PortNotFound) => Failure::Request(no_port(id)),
        _ => error.into(),
    })?;
    if port.project != attachment.project {
        return Err(refuse(format!("Port {id} not usable for instance {server}.")));
    }
    if port.device_id == server.to_string() {
        return Ok(port);
    }
    if !port.device_id.is_empty() {
        return Err(Failure::Request(taken_meanwhile(id)));
    }
    // A user does not see the profile, so the request may not have been refused.
    check_trust(&port).map_err(Failure::Request)?;
    if !port.dns_name.is_empty() && port.dns_name != attachment.hostname {
        return Err(refuse(format!(
            "Port {id} not usable for instance {server}. Value {} assigned to dns_name attribute \
             does not match instance's hostname {}",
            port.dns_name, attachment.hostname
        )));
    }
    Ok(port)
}

/// Binds a port to the server's host, unless it is already bound there.
async fn bound(
    logins: Logins<'_>,
    attachment: &Attachment<'_>,
    port: Port,
    network: &Network,
) -> Result<Port, Failure> {
    let Some(host) = attachment.host else { return parked(logins, attachment, port).await };
    let id = port.id;
    let mut profile = attachment.providers.profile(&port, host);
    if let Some(device) = attachment.devices.get(&id) {
        profile.extend(device.clone());
    }
    let device = attachment.server.to_string();
    let owner = format!("compute:{}", attachment.zone);
    let is_there =
        port.host == host && !matches!(port.vif_type.as_str(), "" | "unbound" | "binding_failed");
    let is_ours = port.device_id == device && port.device_owner == owner;
    if is_there && is_ours && profile == port.profile {
        return Ok(port);
    }
    if is_ours && !is_there && attachment.may_have_more && activated(logins, &port, host).await? {
        return Ok(logins.neutron.port(logins.own, id).await?);
    }
    let has_dns = logins.neutron.has(logins.own, Extension::DnsIntegration).await?;
    let hostname = Some(attachment.hostname.to_owned());
    let change = PortChange {
        device_id: Some(device),
        device_owner: Some(owner),
        host: Some(Some(host.to_owned())),
        profile: (!profile.is_empty()).then_some(profile),
        dns_name: hostname.filter(|_| has_dns && network.dns_domain.is_empty()),
        ..PortChange::default()
    };
    let updated = logins.neutron.update_port(logins.own, id, &change).await;
    let updated = updated.map_err(|error| {
        let words = match error.kind() {
            Some(Type::MacAddressInUse) => {
                return Failure::Request(taken_meanwhile(&port.mac_address));
            }
            Some(Type::HostNotCompatibleWithFixedIps) => {
                format!("The fixed IP associated with port {id} is not compatible with the host.")
            }
            Some(Type::PortNotFound) => return Failure::Request(no_port(id)),
            _ => return Failure::from(error),
        };
        Failure::Request(Refusal::bad_request(words))
    })?;
    if updated.has_failed_binding() {
        return Err(failed_binding(id));
    }
    Ok(updated)
}

/// Unbinds a port that its server keeps: a shelved server has no host.
async fn parked(
    logins: Logins<'_>,
    attachment: &Attachment<'_>,
    port: Port,
) -> Result<Port, Failure> {
    if port.host.is_empty() || port.device_id != attachment.server.to_string() {
        return Ok(port);
    }
    let change = PortChange {
        host: Some(None),
        profile: Some(released(&port.profile)),
        ..PortChange::default()
    };
    Ok(logins.neutron.update_port(logins.own, port.id, &change).await?)
}

/// Sets the name of a port in an external DNS, with the user's token: the record belongs to the user's zone.
async fn named(
    logins: Logins<'_>,
    attachment: &Attachment<'_>,
    port: &Port,
    network: &Network,
) -> Result<(), Failure> {
    let is_external = !network.dns_domain.is_empty()
        && attachment.host.is_some()
        && logins.neutron.has(logins.own, Extension::DnsIntegration).await?;
    if !is_external {
        return Ok(());
    }
    let hostname = Some(attachment.hostname.to_owned());
    let name = PortChange { dns_name: hostname, ..PortChange::default() };
    let named = logins.neutron.update_port(logins.user, port.id, &name).await;
    named.map(drop).map_err(|error| match error.refused() {
        Some(refused) if refused.status.as_u16() == 400 => {
            Failure::Request(Refusal::bad_request(format!(
                "Invalid input received: Instance hostname {} is not a valid DNS name",
                attachment.hostname
            )))
        }
        _ => Failure::from(error),
    })
}

fn failed_binding(port: PortId) -> Failure {
    Failure::Host(format!(
        "Binding failed for port {port}, please check neutron logs for more information."
    ))
}

/// Activates the binding that was prepared on the host. Returns false if there is none.
async fn activated(logins: Logins<'_>, port: &Port, host: &str) -> Result<bool, Failure> {
    if !logins.neutron.has(logins.own, Extension::BindingExtended).await? {
        return Ok(false);
    }
    match logins.neutron.activate_binding(logins.own, port.id, host).await {
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            Some(Type::PortBindingAlreadyActive) => Ok(true),
            Some(Type::PortBindingNotFound) => Ok(false),
            _ => Err(error.into()),
        },
    }
}

/// Prepares the port on the next host, and deletes its bindings to any host other than the current and the next one.
/// Returns the port with its binding on the next host.
///
/// The Open vSwitch agent of the destination ignores a port while the source's binding exists, and receives no
/// notification of that binding's deletion. Any update of the port makes it check again. The state of a port that the
/// server had before (`is_known`) shows whether that update is still due, so a crash after the deletion does no harm.
async fn settle_bindings(
    logins: Logins<'_>,
    attachment: &Attachment<'_>,
    port: &Port,
    is_known: bool,
) -> Result<Option<Port>, Failure> {
    let next = attachment.next_host;
    if next.is_none() && !attachment.may_have_more {
        return Ok(None);
    }
    let Logins { neutron, own, .. } = logins;
    if !neutron.has(own, Extension::BindingExtended).await? {
        // The port is bound to the next host after the guest has arrived.
        return Ok(next.map(|_| port.clone()));
    }
    let (mut prepared, mut has_deleted) = (None, false);
    if let Some(next) = next {
        attachment.providers.check(port, next)?;
    }
    for binding in neutron.bindings(own, port.id).await? {
        let names_providers =
            |host: &str| attachment.providers.are_in(&binding.profile, port, host);
        if next.is_some_and(|next| next == binding.host && names_providers(next)) {
            prepared = Some(binding);
        } else if binding.status == BindingStatus::Inactive {
            match neutron.delete_binding(own, port.id, &binding.host).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                Ok(()) | Err(_) => has_deleted = true,
            }
        }
    }
    let Some(next) = next else {
        let is_due = has_deleted || is_known && port.status != "ACTIVE";
        if attachment.host.is_some() && is_due {
            let device_owner = Some(port.device_owner.clone());
            let change = PortChange { device_owner, ..PortChange::default() };
            neutron.update_port(own, port.id, &change).await?;
        }
        return Ok(None);
    };
    let binding = match prepared {
        Some(binding) => binding,
        None => {
            let new = NewBinding {
                host: next.to_owned(),
                vnic_type: port.vnic_type.clone(),
                profile: attachment.providers.profile(port, next),
            };
            neutron.create_binding(own, port.id, &new).await.map_err(|error| {
                match error.kind() {
                    Some(Type::PortBindingError) => failed_binding(port.id),
                    _ => error.into(),
                }
            })?
        }
    };
    if matches!(binding.vif_type.as_str(), "" | "unbound" | "binding_failed") {
        return Err(failed_binding(port.id));
    }
    Ok(Some(Port {
        host: binding.host,
        vif_type: binding.vif_type,
        vif_details: binding.vif_details,
        profile: binding.profile,
        ..port.clone()
    }))
}

/// The keys that the device of a port adds to its profile.
pub fn device_profile(arq: &str, slot: &str) -> Profile {
    [("arq_uuid", arq), ("pci_slot", slot)]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), Value::from(value)))
        .collect()
}

/// Releases the ports of a server: supplied ones are unbound, which leaves their owner's keys in the profile, and all
/// others are deleted. It may be repeated, and ignores ports that no longer exist. `user` carries the user's token, if
/// it is still known: only the user can change names in an external DNS.
///
/// # Errors
/// Errors from Neutron; every port is attempted first.
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

/// [`release`] for one port, if it is still the server's.
///
/// # Errors
/// Errors from Neutron.
pub async fn unbind(
    neutron: &Neutron,
    user: Option<Call<'_>>,
    own: Call<'_>,
    server: ServerId,
    (port, is_supplied): (PortId, bool),
) -> Result<(), Error> {
    let found = match neutron.port(own, port).await {
        Err(error) if error.is_not_found() => return Ok(()),
        found => found?,
    };
    if found.device_id != server.to_string() {
        return Ok(());
    }
    let ended = match is_supplied {
        true => unbound(neutron, user, own, &found).await,
        false => neutron.delete_port(own, port).await,
    };
    match ended {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
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
