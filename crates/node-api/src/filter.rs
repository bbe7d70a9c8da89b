//! Packet filters: the security groups of the ports on a host.
//!
//! They travel with the documents, under the same generation counter and always complete: the
//! newest copy is sufficient. The rules and member addresses of a group appear once, however many
//! ports use it.

use std::net::IpAddr;

use kilonova_ids::{PortId, SecurityGroupId};
use serde::{Deserialize, Serialize};

/// The packet filters of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// The settings of each port. A port without an entry lets nothing through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortFilter>,
    /// The security groups of those ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<FilterGroup>,
    /// The members of groups that rules name as remote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<FilterGroupMembers>,
}

/// The filter settings of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFilter {
    /// The port.
    pub port: PortId,
    /// True if the port is administratively up; otherwise nothing passes.
    pub up: bool,
    /// True if port security is on: anti-spoofing and security groups apply. Otherwise everything
    /// passes.
    pub secure: bool,
    /// Its security groups. Without any, only the traffic that assigns the guest's address passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<SecurityGroupId>,
    /// Its allowed address pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<AllowedAddressPair>,
}

/// An allowed address pair (Neutron).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedAddressPair {
    /// The MAC address; the port's own if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The addresses.
    pub prefix: Prefix,
}

/// An address prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Prefix {
    /// The network address.
    pub address: IpAddr,
    /// Its length in bits.
    pub length: u8,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterGroup {
    /// Its id.
    pub id: SecurityGroupId,
    /// Its name, for the guests' metadata.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FilterRule>,
}

/// A rule that allows traffic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FilterRule {
    /// The direction.
    pub direction: Direction,
    /// True if it is for IPv6; otherwise it is for IPv4.
    pub six: bool,
    /// The protocol number; any if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// First and last port; for ICMP, the type and the optional code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u16>,
    /// See `first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u16>,
    /// The remote side; any address if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
}

/// The direction of traffic, as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the guest.
    Ingress,
    /// From the guest.
    Egress,
}

/// The remote side of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remote {
    /// Any address in a prefix.
    Prefix(Prefix),
    /// The members of a group, listed in [`Filters::members`].
    Group(SecurityGroupId),
}

/// The addresses of a group's members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterGroupMembers {
    /// The group.
    pub group: SecurityGroupId,
    /// The addresses of the ports in the group, on all hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Prefix>,
}

impl Prefix {
    /// The prefix of a single address.
    pub fn one(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Parses `10.0.0.0/24` or a single address.
    pub fn parse(text: &str) -> Option<Self> {
        let Some((address, length)) = text.split_once('/') else {
            return text.parse().ok().map(Self::one);
        };
        let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
        (length <= Self::one(address).length).then_some(Self { address, length })
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.address)?;
        if *self == Self::one(self.address) { Ok(()) } else { write!(f, "/{}", self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_parsed_and_displayed() {
        for text in ["10.0.0.0/24", "10.0.0.7", "fd00::/64", "fd00::1", "0.0.0.0/0"] {
            assert_eq!(Prefix::parse(text).map(|p| p.to_string()).as_deref(), Some(text));
        }
        assert_eq!(
            Prefix::parse("10.0.0.7/32").map(|p| p.to_string()).as_deref(),
            Some("10.0.0.7")
        );
        for wrong in ["", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1"] {
            assert_eq!(Prefix::parse(wrong), None, "{wrong}");
        }
    }
}
