//! Test data of this crate.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilonova_ids::{NetworkId, PortId, SecurityGroupId, ServerId};
use kilonova_node::DesiredNetworks;
use kilonova_node_api::{
    Address, Direction, FilterGroup, FilterGroupMembers, FilterRule, Filters, Interface,
    PortFilter, Prefix, Remote,
};

use crate::config::{HostNetworkConfig, Uplink};

pub(crate) fn network(number: u8) -> NetworkId {
    format!("{number:02x}111111-2222-4333-8444-555555555555").parse().expect("the value is a UUID")
}

pub(crate) fn port(number: u8) -> PortId {
    format!("{number:02x}aaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee").parse().expect("the value is a UUID")
}

pub(crate) fn group(number: u8) -> SecurityGroupId {
    format!("{number:02x}999999-8888-4777-8666-555555555555").parse().expect("the value is a UUID")
}

pub(crate) fn prefix(text: &str) -> Prefix {
    Prefix::parse(text).expect("the prefix is valid")
}

pub(crate) fn config() -> HostNetworkConfig {
    let uplinks = [("physnet1".to_owned(), Uplink::Interface("up0".into()))];
    HostNetworkConfig { uplinks: uplinks.into(), ..HostNetworkConfig::default() }
}

/// An interface on network 1, flat, with the address 10.0.0.<number>.
pub(crate) fn interface(number: u8) -> Interface {
    let address = |text: &str| text.parse().expect("the address is valid");
    Interface {
        port: port(number),
        mac: format!("fa:16:3e:00:00:{number:02x}"),
        network: network(1),
        network_type: "flat".into(),
        physical_network: "physnet1".into(),
        vlan: None,
        mtu: 1450,
        addresses: vec![Address {
            address: address(&format!("10.0.0.{number}")),
            prefix: 24,
            gateway: Some(address("10.0.0.1")),
            dns: vec![address("10.0.0.53"), address("10.0.0.54")],
            routes: vec![("192.168.7.0/24".into(), address("10.0.0.9"))],
            dhcp: true,
            dhcp_server: Some(address("10.0.0.254")),
            six: None,
            floating: Vec::new(),
        }],
        device: None,
        tag: None,
        dhcp_mac: Some("fa:16:3e:dc:dc:dc".into()),
        vif: None,
    }
}

pub(crate) fn wanted(interfaces: Vec<Interface>, filters: Filters) -> DesiredNetworks {
    let server = |at: usize| -> ServerId {
        format!("{at:08x}-0000-4000-8000-000000000000").parse().expect("the value is a UUID")
    };
    let guests: BTreeMap<_, _> =
        interfaces.into_iter().enumerate().map(|(at, one)| (server(at), vec![one])).collect();
    DesiredNetworks { guests, filters: Arc::new(filters), ..DesiredNetworks::default() }
}

/// Ports in group 1, the default group: all egress, ingress from members.
pub(crate) fn filters(ports: &[u8]) -> Filters {
    let all = |direction, six, remote| FilterRule {
        direction,
        six,
        protocol: None,
        first: None,
        last: None,
        remote,
    };
    let own = || Some(Remote::Group(group(1)));
    Filters {
        ports: ports
            .iter()
            .map(|number| PortFilter {
                port: port(*number),
                up: true,
                secure: true,
                groups: vec![group(1)],
                pairs: Vec::new(),
            })
            .collect(),
        groups: vec![FilterGroup {
            id: group(1),
            name: String::new(),
            rules: vec![
                all(Direction::Ingress, false, own()),
                all(Direction::Ingress, true, own()),
                all(Direction::Egress, false, None),
                all(Direction::Egress, true, None),
            ],
        }],
        members: vec![FilterGroupMembers {
            group: group(1),
            addresses: ports.iter().map(|number| prefix(&format!("10.0.0.{number}"))).collect(),
        }],
    }
}
