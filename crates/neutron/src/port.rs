//! Ports of servers.

use std::net::IpAddr;

use http::Method;
use kilonova_ids::{NetworkId, PortId, SecurityGroupId, SubnetId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::client::MAX_IDS;
use crate::values::{Query, or_default};
use crate::{Call, Error, Neutron, Profile};

/// A port. Attributes that were not requested have their defaults. Only administrators see its binding and its request
/// for resources.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Port {
    /// Its id.
    pub id: PortId,
    /// Its network.
    #[serde(default)]
    pub network_id: Option<NetworkId>,
    /// The owning project.
    #[serde(default, rename = "tenant_id")]
    pub project: String,
    /// MAC address.
    #[serde(default)]
    pub mac_address: String,
    /// The id of its server; empty if the port is free.
    #[serde(default, deserialize_with = "or_default")]
    pub device_id: String,
    /// `compute:<zone>` for a server.
    #[serde(default, deserialize_with = "or_default")]
    pub device_owner: String,
    /// `ACTIVE`, `DOWN`, `BUILD`, ….
    #[serde(default)]
    pub status: String,
    /// False if it is administratively down.
    #[serde(default)]
    pub admin_state_up: bool,
    /// Addresses, in order.
    #[serde(default)]
    pub fixed_ips: Vec<FixedIp>,
    /// Security groups.
    #[serde(default)]
    pub security_groups: Vec<String>,
    /// `immediate`, `deferred` until it has a host, or `none`.
    #[serde(default, deserialize_with = "or_default")]
    pub ip_allocation: String,
    /// False if it has neither security groups nor protection against spoofed addresses.
    #[serde(default = "yes")]
    pub port_security_enabled: bool,
    /// The name in DNS.
    #[serde(default, deserialize_with = "or_default")]
    pub dns_name: String,
    /// The host to which it is bound; empty if it is unbound.
    #[serde(default, rename = "binding:host_id", deserialize_with = "or_default")]
    pub host: String,
    /// `ovs`, `hw_veb`, …; `unbound` or `binding_failed` if it is not connected.
    #[serde(default, rename = "binding:vif_type", deserialize_with = "or_default")]
    pub vif_type: String,
    /// Details of the connection on the host.
    #[serde(default, rename = "binding:vif_details", deserialize_with = "or_default")]
    pub vif_details: Map<String, Value>,
    /// Data of the port's owner and of the compute service for the host.
    #[serde(default, rename = "binding:profile", deserialize_with = "or_default")]
    pub profile: Profile,
    /// `normal`, `direct`, `macvtap`, ….
    #[serde(default = "normal", rename = "binding:vnic_type")]
    pub vnic_type: String,
    /// The resources that it requests from resource providers.
    #[serde(default, deserialize_with = "or_default")]
    pub resource_request: Map<String, Value>,
    /// `required`, `preferred`, `legacy` or `socket`.
    #[serde(default)]
    pub numa_affinity_policy: Option<String>,
    /// The profile of its accelerator.
    #[serde(default)]
    pub device_profile: Option<String>,
    /// Its QoS policy.
    #[serde(default)]
    pub qos_policy_id: Option<String>,
    /// The QoS policy of its network.
    #[serde(default)]
    pub qos_network_policy_id: Option<String>,
}

fn yes() -> bool {
    true
}

fn normal() -> String {
    "normal".to_owned()
}

impl Port {
    /// True if Neutron could not bind it on its host. Neutron reports that with status 200.
    pub fn has_failed_binding(&self) -> bool {
        self.vif_type == "binding_failed"
    }

    /// True if it requests resources from resource providers; only administrators see that.
    pub fn requests_resources(&self) -> bool {
        match self.resource_request.get("request_groups") {
            Some(groups) => groups.as_array().is_some_and(|groups| !groups.is_empty()),
            None => !self.resource_request.is_empty(),
        }
    }

    /// True if it has a QoS policy, without which it cannot request resources. Every caller can see
    /// this.
    pub fn has_policy(&self) -> bool {
        self.qos_policy_id.is_some() || self.qos_network_policy_id.is_some()
    }

    /// True if security groups can be added to it: it has port security and addresses, or gets addresses with its host.
    pub fn can_have_groups(&self) -> bool {
        let has_address = !self.fixed_ips.is_empty() || self.ip_allocation == "deferred";
        has_address && self.port_security_enabled
    }

    /// True if a guest need not wait for the port.
    pub fn is_active(&self) -> bool {
        !self.admin_state_up || self.status == "ACTIVE"
    }
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FixedIp {
    /// Its subnet.
    pub subnet_id: SubnetId,
    /// The address.
    pub ip_address: IpAddr,
}

/// A port to create for a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewPort {
    /// The server's id, by which the port of an unfinished request can be found.
    pub device_id: String,
    /// The network.
    pub network_id: NetworkId,
    /// Always true.
    pub admin_state_up: bool,
    /// The server's project.
    #[serde(rename = "tenant_id")]
    pub project: String,
    /// Security groups; if empty, Neutron adds the project's default group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroupId>,
    /// The requested address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fixed_ips: Vec<RequestedIp>,
}

/// A requested address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestedIp {
    /// The address.
    pub ip_address: IpAddr,
}

/// An address that a change of a port keeps, or the next one of a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ChangedIp {
    /// The subnet.
    pub subnet_id: SubnetId,
    /// The address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<IpAddr>,
}

/// A change of a port; attributes with `None` remain unchanged.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PortChange {
    /// The server's id, or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// `compute:<zone>`, or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_owner: Option<String>,
    /// The host to bind it to; `Some(None)` unbinds it.
    #[serde(rename = "binding:host_id", skip_serializing_if = "Option::is_none")]
    pub host: Option<Option<String>>,
    /// The whole profile.
    #[serde(rename = "binding:profile", skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The MAC address of a physical function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// The name in DNS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_name: Option<String>,
    /// All its security groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// All its addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_ips: Option<Vec<ChangedIp>>,
}

/// The ports to list.
#[derive(Debug, Clone, Copy)]
pub enum PortFilter<'a> {
    /// All ports that the caller can see.
    All,
    /// The ports with these ids.
    Ids(&'a [PortId]),
    /// The ports of a server.
    Device(&'a str),
    /// The ports of these servers.
    Devices(&'a [String]),
    /// The ports of a project.
    Project(&'a str),
    /// The ports with this address on a network.
    Address(NetworkId, IpAddr),
    /// The ports with an address that contains this text ([`IpSubstringFiltering`]).
    ///
    /// [`IpSubstringFiltering`]: crate::Extension::IpSubstringFiltering
    AddressPart(&'a str),
    /// The ports bound to a host.
    Host(&'a str),
    /// The DHCP ports of a network.
    Dhcp(NetworkId),
}

impl PortFilter<'_> {
    fn queries(self) -> Vec<Query> {
        let query = Query::default();
        vec![match self {
            Self::All => query,
            Self::Ids(ids) => {
                let some = |some: &[PortId]| {
                    let add = |query: Query, id: &PortId| query.with("id", id.to_string());
                    some.iter().fold(Query::default(), add)
                };
                return ids.chunks(MAX_IDS).map(some).collect();
            }
            Self::Device(device) => query.with("device_id", device),
            Self::Devices(devices) => {
                let some = |some: &[String]| {
                    some.iter().fold(Query::default(), |query, one| query.with("device_id", one))
                };
                return devices.chunks(MAX_IDS).map(some).collect();
            }
            Self::Project(project) => query.with("tenant_id", project),
            Self::Address(network, address) => query
                .with("network_id", network.to_string())
                .with("fixed_ips", format!("ip_address={address}")),
            Self::AddressPart(text) => query.with("fixed_ips", format!("ip_address_substr={text}")),
            Self::Host(host) => query.with("binding:host_id", host),
            Self::Dhcp(network) => {
                query.with("network_id", network.to_string()).with("device_owner", "network:dhcp")
            }
        }]
    }
}

impl Neutron {
    /// One port.
    ///
    /// # Errors
    /// [`PortNotFound`](crate::Type::PortNotFound) if the caller cannot see it.
    pub async fn port(&self, call: Call<'_>, id: PortId) -> Result<Port, Error> {
        self.one(call, Method::GET, &format!("/ports/{id}"), None, "port").await
    }

    /// The ports that the filter selects and the caller can see, with these fields, or with all. `id` must be among the
    /// fields.
    ///
    /// # Errors
    /// Neutron's errors.
    pub async fn ports(
        &self,
        call: Call<'_>,
        filter: PortFilter<'_>,
        fields: &[&str],
    ) -> Result<Vec<Port>, Error> {
        let mut found = Vec::new();
        for query in filter.queries() {
            found.extend(self.list(call, "/ports", "ports", &query.fields(fields)).await?);
        }
        Ok(found)
    }

    /// Creates a port. After an error, the port may exist ([`Error::may_have_effect`]) and can be
    /// found by its device id.
    ///
    /// # Errors
    /// [`OverQuota`](crate::Type::OverQuota), errors about addresses, and Neutron's other errors.
    pub async fn create_port(&self, call: Call<'_>, port: &NewPort) -> Result<Port, Error> {
        self.one(call, Method::POST, "/ports", Some(json!({"port": port})), "port").await
    }

    /// Changes a port. Idempotent. A failed binding is not an error: see
    /// [`Port::has_failed_binding`].
    ///
    /// # Errors
    /// Neutron's errors.
    pub async fn update_port(
        &self,
        call: Call<'_>,
        id: PortId,
        change: &PortChange,
    ) -> Result<Port, Error> {
        let body = json!({"port": change});
        self.one(call, Method::PUT, &format!("/ports/{id}"), Some(body), "port").await
    }

    /// Deletes a port.
    ///
    /// # Errors
    /// [`PortNotFound`](crate::Type::PortNotFound) if it does not exist, and Neutron's other
    /// errors.
    pub async fn delete_port(&self, call: Call<'_>, id: PortId) -> Result<(), Error> {
        self.delete(call, &format!("/ports/{id}")).await
    }
}
