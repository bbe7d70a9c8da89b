//! What a host lets through to guests and from them: the security groups of its guests' ports.
//!
//! They travel beside the documents, under the same counter and always whole: whoever has the newest
//! has all. A group's rules and the addresses of its members are said once, however many ports have it.

use std::net::IpAddr;

use kilonova_ids::{PortId, SecurityGroupId};
use serde::{Deserialize, Serialize};

/// All that a host must know of security groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// What is set on the ports of its guests. A port that is not named lets nothing through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortFilter>,
    /// The groups that those have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// The members of the groups that rules name as the other side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Members>,
}

/// What is set on a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFilter {
    /// Which.
    pub port: PortId,
    /// Whether anything goes through it.
    pub up: bool,
    /// Whether it is held to its own addresses and to its groups; else all goes through.
    pub secure: bool,
    /// Its groups. Without any, nothing goes through but what gives the guest its address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<SecurityGroupId>,
    /// What it may call its own beside its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
}

/// Addresses that a port may use beside its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// With this hardware address; the port's own without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// These.
    pub prefix: Prefix,
}

/// Addresses that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Prefix {
    /// The first of them.
    pub address: IpAddr,
    /// Bits that they share.
    pub length: u8,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Which.
    pub id: SecurityGroupId,
    /// What it lets through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// Something that is let through.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rule {
    /// Which way.
    pub direction: Direction,
    /// Of IPv6, else of IPv4.
    pub six: bool,
    /// Number of the protocol; any without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// First and last port; type and code for ICMP, where the code may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u16>,
    /// See `first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u16>,
    /// Who is on the other side; anybody without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
}

/// Which way a packet goes, as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the guest.
    Ingress,
    /// From the guest.
    Egress,
}

/// The other side of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remote {
    /// Whoever has one of these addresses.
    Prefix(Prefix),
    /// The members of a group, which [`Filters::members`] names.
    Group(SecurityGroupId),
}

/// The addresses of a group's members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// The group.
    pub group: SecurityGroupId,
    /// The addresses of the ports that have it, on whatever host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Prefix>,
}

impl Prefix {
    /// The prefix that is one address.
    pub fn one(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Reads `10.0.0.0/24`, or an address alone.
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
    fn prefixes_are_read_and_shown() {
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
