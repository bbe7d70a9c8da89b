//! The last view of a port, as its row keeps it. Server lists, documents and metadata use it and never query Neutron.
//! Pure.

use std::collections::HashMap;

use kilonova_ids::{HostName, ServerId, SubnetId};
use kilonova_network::VnicType;
use kilonova_network::ledger::{Fixed, GroupFacts, ServerPort};
use kilonova_neutron::{FloatingIp, Port, ResourceRequest, SecurityGroup, Subnet};
use kilonova_node_api::Interface;
use serde::{Deserialize, Serialize};

use super::journal::PortRow;
use crate::ports::neutron::{Attached, BoundPort, interface};

/// A port as it was last read from Neutron.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PortView {
    /// The interface of the guest.
    pub interface: Interface,
    /// The subnet of each address of the interface.
    pub subnets: Vec<SubnetId>,
    /// The name of the network.
    pub network_name: String,
    /// The host that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// `normal`, `direct`, ….
    pub vnic_type: String,
    /// The device profile of its accelerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_profile: Option<String>,
    /// The resources that it requests, if it ever requested any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequest>,
    /// Its security groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupView>,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The owning project.
    pub project: String,
}

/// The resources that the views of a server's ports need in addition to the ports.
#[derive(Debug, Default)]
pub(super) struct ViewContext {
    /// The subnets of the addresses.
    pub subnets: Vec<Subnet>,
    /// The DHCP ports of the networks.
    pub dhcp: Vec<Port>,
    /// The floating IPs of the ports.
    pub floating: Vec<FloatingIp>,
    /// The security groups of the ports.
    pub groups: HashMap<String, SecurityGroup>,
}

impl PortView {
    /// The view of a port.
    ///
    /// # Errors
    /// The reason why none of our hosts can connect it.
    pub(super) fn of(
        attached: &Attached,
        port: &Port,
        tag: Option<&str>,
        context: &ViewContext,
        ovs_bridge: &str,
    ) -> Result<Self, String> {
        let dhcp: Vec<Port> = context
            .dhcp
            .iter()
            .filter(|dhcp| dhcp.network_id == Some(attached.network.id))
            .cloned()
            .collect();
        let bound = BoundPort {
            port,
            network: &attached.network,
            subnets: &context.subnets,
            dhcp: &dhcp,
            tag,
        };
        let mut interface = interface(&bound, ovs_bridge)?;
        for address in &mut interface.addresses {
            let own = context.floating.iter().filter(|floating| {
                floating.port_id == Some(port.id)
                    && floating.fixed_ip_address == Some(address.address)
            });
            address.floating = own.map(|floating| floating.floating_ip_address).collect();
        }
        let known = port
            .fixed_ips
            .iter()
            .filter(|fixed| interface.addresses.iter().any(|one| one.address == fixed.ip_address));
        let groups = port.security_groups.iter().map(|id| match context.groups.get(id) {
            Some(group) => GroupView {
                id: id.clone(),
                name: group.name.clone(),
                description: group.description.clone(),
                project: group.project.clone(),
            },
            None => GroupView {
                id: id.clone(),
                name: id.clone(),
                description: String::new(),
                project: String::new(),
            },
        });
        Ok(Self {
            subnets: known.map(|fixed| fixed.subnet_id).collect(),
            interface,
            network_name: attached.network.name.clone(),
            host: (!port.host.is_empty()).then(|| HostName::verbatim(port.host.as_str())),
            vnic_type: port.vnic_type.clone(),
            device_profile: port.device_profile.clone(),
            resources: None,
            groups: groups.collect(),
        })
    }

    /// Its addresses, each followed by a space.
    pub(super) fn addresses(&self) -> String {
        let fixed = self.interface.addresses.iter().map(|address| address.address);
        fixed.map(|address| format!("{address} ")).collect()
    }

    /// The port as views show it.
    pub(super) fn server_port(&self, server: ServerId, row: &PortRow) -> ServerPort {
        let interface = &self.interface;
        let fixed = interface.addresses.iter().zip(&self.subnets);
        let fixed = fixed.map(|(address, subnet)| Fixed {
            address: address.address,
            subnet: *subnet,
            prefix: address.prefix,
            gateway: address.gateway,
            dns: address.dns.clone(),
            routes: address.routes.clone(),
            dhcp: address.dhcp,
            dhcp_server: address.dhcp_server,
            ipv6_mode: address.six,
            floating: address.floating.clone(),
        });
        ServerPort {
            server,
            id: interface.port,
            mac: interface.mac.clone(),
            host: self.host.clone(),
            tag: row.tag.clone(),
            created_for_server: !row.is_supplied,
            vnic_type: VnicType::parse(&self.vnic_type).unwrap_or_default(),
            device_profile: self.device_profile.clone(),
            arq: None,
            groups: self.groups.iter().map(|group| group.id.clone()).collect(),
            network: interface.network,
            network_name: self.network_name.clone(),
            network_type: interface.network_type.clone(),
            physical_network: interface.physical_network.clone(),
            segmentation_id: interface.vlan,
            mtu: interface.mtu,
            dhcp_mac: None,
            fixed: fixed.collect(),
        }
    }

    /// Its security groups, for `os-security-groups`.
    pub(super) fn group_facts(&self) -> impl Iterator<Item = GroupFacts> {
        self.groups.iter().filter_map(|group| {
            Some(GroupFacts {
                id: group.id.parse().ok()?,
                name: group.name.clone(),
                description: group.description.clone(),
                project: group.project.clone(),
            })
        })
    }
}
