//! Network interfaces of guests.

use std::net::{IpAddr, Ipv6Addr};

use kilonova_ids::{NetworkId, PortId};
use serde::{Deserialize, Serialize};

use crate::SixMode;

/// A network interface of a guest, with everything that a host needs to attach it and to describe
/// it to the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The port.
    pub port: PortId,
    /// Hardware address.
    pub mac: String,
    /// The network.
    pub network: NetworkId,
    /// `flat` or `vlan`.
    pub network_type: String,
    /// The physical network.
    pub physical_network: String,
    /// The VLAN id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i64>,
    /// MTU in bytes.
    pub mtu: i64,
    /// Fixed addresses, in order.
    pub addresses: Vec<Address>,
    /// The host device that serves as this interface and is also among the guest's devices: a PCI
    /// address, or the UUID of a mediated device. `None` for a tap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The device tag in the guest's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// MAC address of the DHCP server on this network. It is the same on every host, and visible
    /// only to the host's own guests. `None` if there is no DHCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_mac: Option<String>,
    /// The backend of the interface if an external Neutron binds the port. `None` on our own
    /// networks, for which the agent creates the bridge and the packet filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vif: Option<Vif>,
}

/// The trait of hosts whose agents realize [`Vif::OvsHybrid`].
pub const OVS_HYBRID_PLUG: &str = "CUSTOM_OVS_HYBRID_PLUG";

/// The backend of an interface that Neutron's agent on the host connects (`binding:vif_type`). A VF
/// or a PF needs none: it is a device, with the VLAN of its network, if any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Vif {
    /// A tap on an Open vSwitch bridge. libvirt adds it with the port's id, by which Neutron's
    /// agent or OVN finds it.
    Ovs {
        /// The bridge, such as `br-int`.
        bridge: String,
    },
    /// A tap on a bridge of its own, which a veth pair connects to an Open vSwitch bridge: between them, Neutron's
    /// agent filters packets with iptables (`ovs_hybrid_plug`). The agent creates both. A host gets it only if it has
    /// the trait [`OVS_HYBRID_PLUG`]: agents of earlier builds cannot read it.
    OvsHybrid {
        /// The Open vSwitch bridge, such as `br-int`.
        bridge: String,
    },
    /// A macvtap on a link of the host.
    Macvtap {
        /// The link.
        source: String,
        /// Its mode.
        mode: MacvtapMode,
    },
}

/// The mode of a macvtap, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MacvtapMode {
    /// Guests reach each other through the link.
    Bridge,
    /// Guests reach each other through the switch outside.
    Vepa,
    /// Guests do not reach each other.
    Private,
    /// The guest has exclusive use of the link.
    Passthrough,
}

impl MacvtapMode {
    /// The kernel's name, which is libvirt's too.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Vepa => "vepa",
            Self::Private => "private",
            Self::Passthrough => "passthrough",
        }
    }
}

/// A fixed address of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// Prefix length.
    pub prefix: u8,
    /// The default gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// DNS servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
    /// Destination and next hop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<(String, IpAddr)>,
    /// True if DHCP assigns the address.
    pub dhcp: bool,
    /// The DHCP server: the host's own address on the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_server: Option<IpAddr>,
    /// The IPv6 address mode of the subnet, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub six: Option<SixMode>,
    /// The floating IPs that map to it; the guest sees them only in its metadata.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub floating: Vec<IpAddr>,
}

impl Interface {
    /// Name of its tap on the host: `tap` and the first characters of the port's id.
    pub fn tap(&self) -> String {
        self.named("tap")
    }

    /// Name of the bridge of a hybrid plug, as upstream names it. Neutron's agent looks up the tap by name, but not
    /// this bridge.
    pub fn hybrid_bridge(&self) -> String {
        self.named("qbr")
    }

    /// Names of the veth pair of a hybrid plug: the end at its own bridge, and the end at Open vSwitch.
    pub fn hybrid_pair(&self) -> (String, String) {
        (self.named("qvb"), self.named("qvo"))
    }

    fn named(&self, prefix: &str) -> String {
        let id = self.port.to_string();
        format!("{prefix}{}", id.get(..11).unwrap_or(&id))
    }

    /// True if a guest can keep the attachment of the other interface for this one.
    pub fn is_plugged_like(&self, other: &Self) -> bool {
        self.port == other.port
            && self.mac == other.mac
            && self.network == other.network
            && self.device == other.device
            && self.vlan == other.vlan
            && self.mtu == other.mtu
            && self.vif == other.vif
    }

    /// The IPv6 link-local address that is derived from the MAC address (EUI-64).
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        link_local(&self.mac)
    }

    /// True if it is a tap on a bridge that the agent creates for the network.
    pub fn uses_own_bridge(&self) -> bool {
        self.device.is_none() && self.vif.is_none()
    }

    /// The Open vSwitch bridge of a hybrid plug; `None` for other interfaces.
    pub fn hybrid_plug(&self) -> Option<&str> {
        match &self.vif {
            Some(Vif::OvsHybrid { bridge }) if self.device.is_none() => Some(bridge),
            Some(Vif::OvsHybrid { .. } | Vif::Ovs { .. } | Vif::Macvtap { .. }) | None => None,
        }
    }

    /// The Open vSwitch bridge of a tap that libvirt plugs itself; `None` for other interfaces.
    pub fn native_plug(&self) -> Option<&str> {
        match &self.vif {
            Some(Vif::Ovs { bridge }) if self.device.is_none() => Some(bridge),
            Some(Vif::Ovs { .. } | Vif::OvsHybrid { .. } | Vif::Macvtap { .. }) | None => None,
        }
    }

    /// True if the agent creates links for it.
    pub fn needs_links(&self) -> bool {
        self.uses_own_bridge() || self.hybrid_plug().is_some()
    }

    /// Name of the bridge that the agent creates for the network.
    pub fn bridge(&self) -> String {
        let id = self.network.to_string();
        format!("brq{}", id.get(..11).unwrap_or(&id))
    }
}

/// The IPv6 link-local address that is derived from a MAC address (EUI-64).
pub fn link_local(mac: &str) -> Option<Ipv6Addr> {
    let bytes: Vec<u8> =
        mac.split(':').map(|part| u8::from_str_radix(part, 16)).collect::<Result<_, _>>().ok()?;
    let [a, b, c, d, e, f] = bytes.try_into().ok()?;
    Some(Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}
