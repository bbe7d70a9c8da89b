//! Address allocation for ports: the requested addresses, or one of each family on the network,
//! plus the address derived from the port's MAC address on each subnet with automatic addresses.
//!
//! Allocating the next free address writes the subnet's cursor, which serializes concurrent
//! allocations. The table's primary key rules out a second owner in any case.

use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId, SubnetId};
use kilonova_store::{Asked, Tx};

use super::subnets;
use crate::Error;
use crate::address::{self, first_part, next_free, number};
use crate::db::ports;
use crate::db::subnets::{self as rows, Subnet};
use crate::error::{not_found, refused};
use kilonova_wire::refusal::Kind;

/// A requested fixed IP: a subnet, an address, or both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FixedIp {
    /// The subnet.
    pub subnet: Option<SubnetId>,
    /// The address.
    pub address: Option<IpAddr>,
}

/// Allocates a port's addresses in order. If none are requested, the port receives one address of each family for which
/// the network has a subnet.
pub(crate) fn allocate(
    tx: &mut Tx<'_>,
    port: PortId,
    network: NetworkId,
    mac: Option<&str>,
    requested: Option<&[FixedIp]>,
) -> Result<Vec<(SubnetId, IpAddr)>, Error> {
    let all = rows::of_network(tx, network)?;
    let (given, pending) = begin(tx, port, network, &all, mac, requested)?;
    pending.check(tx)?;
    Ok(given)
}

/// Allocations whose answers have not been read.
#[must_use = "an address may be in use"]
pub(crate) struct Pending {
    network: NetworkId,
    asked: Vec<Asked>,
}

impl Pending {
    /// Fails if an address has turned out to be in use.
    pub fn check(self, tx: &mut Tx<'_>) -> Result<(), Error> {
        for asked in self.asked {
            if !ports::is_done(tx, asked)? {
                return Err(exhausted(self.network));
            }
        }
        Ok(())
    }
}

/// Announces the first read of a call of [`begin`] without requested addresses.
pub(crate) fn expect(tx: &mut Tx<'_>, all: &[Subnet]) -> Result<(), Error> {
    for ipv4 in [true, false] {
        let Some(subnet) = family(all, ipv4)?.first().copied() else { continue };
        let pools = subnets::pools(&subnet.record)?;
        if let Some(range) = first_part(&pools, address::number_of(&subnet.cursor)?) {
            ports::expect_allocated(tx, subnet.record.id, range)?;
        }
    }
    Ok(())
}

/// The addresses that a MAC address determines on the subnets with automatic addresses.
fn automatic(all: &[Subnet], mac: Option<&str>) -> Result<Vec<(SubnetId, IpAddr)>, Error> {
    let mut given = Vec::new();
    let Some(mac) = mac else { return Ok(given) };
    for subnet in all.iter().filter(|subnet| subnets::is_automatic(&subnet.record)) {
        let address = address::eui64(&subnets::cidr(&subnet.record)?, mac);
        given.extend(address.map(|address| (subnet.record.id, address)));
    }
    Ok(given)
}

/// [`allocate`] on a network with these subnets, but leaves the last answers pending. For a port of the service itself,
/// `mac` is `None`, because it has no automatic addresses.
pub(crate) fn begin(
    tx: &mut Tx<'_>,
    port: PortId,
    network: NetworkId,
    all: &[Subnet],
    mac: Option<&str>,
    requested: Option<&[FixedIp]>,
) -> Result<(Vec<(SubnetId, IpAddr)>, Pending), Error> {
    let (mut given, mut pending) = (Vec::new(), Pending { network, asked: Vec::new() });
    let automatic = automatic(all, mac)?;
    let implied = requested.is_none_or(|requested| !requested.is_empty());
    match requested {
        None => {
            // All addresses are chosen before the first write, which would invalidate the announced
            // reads.
            let mut chosen = Vec::new();
            for ipv4 in [true, false] {
                let of_family = family(all, ipv4)?;
                if !of_family.is_empty() {
                    chosen.push(choose(tx, network, &of_family)?);
                }
            }
            for choice in chosen {
                pending.asked.push(take(tx, port, given.len(), &choice)?);
                given.push((choice.subnet, choice.ip));
            }
        }
        Some(requested) => {
            for request in requested {
                let request = of_automatic(&automatic, all, mac, *request)?;
                let place = one(tx, port, given.len(), network, all, request)?;
                given.push(place);
            }
        }
    }
    for (subnet, ip) in automatic.into_iter().filter(|_| implied) {
        if !given.contains(&(subnet, ip)) {
            pending.asked.push(ports::ask_allocate(tx, port, given.len(), subnet, ip)?);
            given.push((subnet, ip));
        }
    }
    Ok((given, pending))
}

/// Completes a request for a subnet with automatic addresses: adds the port's automatic address, the only one allowed
/// there.
fn of_automatic(
    automatic: &[(SubnetId, IpAddr)],
    all: &[Subnet],
    mac: Option<&str>,
    mut request: FixedIp,
) -> Result<FixedIp, Error> {
    let mut named = None;
    for subnet in all.iter().filter(|subnet| mac.is_some() && subnets::is_automatic(&subnet.record))
    {
        let cidr = subnets::cidr(&subnet.record)?;
        let is_its = match (request.subnet, request.address) {
            (Some(id), _) => id == subnet.record.id,
            (None, Some(ip)) => cidr.contains(ip),
            (None, None) => false,
        };
        if is_its {
            named = Some(subnet.record.id);
        }
    }
    let Some(id) = named else { return Ok(request) };
    let own = automatic.iter().find(|(subnet, _)| *subnet == id).map(|(_, ip)| *ip);
    match request.address {
        Some(ip) if Some(ip) != own => Err(refused(
            Kind::BadRequest,
            "AllocationOnAutoAddressSubnet",
            format!(
                "IPv6 address {ip} cannot be directly assigned to a port on subnet {id} as the \
                 subnet is configured for automatic addresses"
            ),
        )
        .into()),
        _ => {
            request.subnet = Some(id);
            request.address = own;
            Ok(request)
        }
    }
}

/// The subnets of an address family, except those with automatic addresses.
fn family(all: &[Subnet], ipv4: bool) -> Result<Vec<&Subnet>, Error> {
    let mut of_family = Vec::new();
    for subnet in all.iter().filter(|subnet| !subnets::is_automatic(&subnet.record)) {
        if subnets::cidr(&subnet.record)?.base().is_ipv4() == ipv4 {
            of_family.push(subnet);
        }
    }
    Ok(of_family)
}

/// A requested subnet of a network, among all subnets of the network.
///
/// # Errors
/// 404 for a subnet that does not exist, and 400 for one of another network (`_get_subnet_for_fixed_ip` in
/// `neutron/db/ipam_backend_mixin.py`); store errors.
pub(crate) fn named<'a>(
    tx: &mut Tx<'_>,
    network: NetworkId,
    all: &'a [Subnet],
    id: SubnetId,
) -> Result<&'a Subnet, Error> {
    if let Some(subnet) = all.iter().find(|subnet| subnet.record.id == id) {
        return Ok(subnet);
    }
    if rows::find(tx, id)?.is_none() {
        return Err(not_found("subnet", id).into());
    }
    let why = format!(
        "Invalid input for operation: Failed to create port on network {network}, because fixed_ips \
         included invalid subnet {id}."
    );
    Err(refused(Kind::BadRequest, "InvalidInput", why).into())
}

fn one(
    tx: &mut Tx<'_>,
    port: PortId,
    ordinal: usize,
    network: NetworkId,
    all: &[Subnet],
    request: FixedIp,
) -> Result<(SubnetId, IpAddr), Error> {
    let named = match request.subnet {
        None => None,
        Some(id) => Some(named(tx, network, all, id)?),
    };
    match (named, request.address) {
        (Some(subnet), None) => next(tx, port, ordinal, network, &[subnet]),
        (None, None) => next(tx, port, ordinal, network, &all.iter().collect::<Vec<_>>()),
        (named, Some(ip)) => exactly(tx, port, ordinal, all, named, ip),
    }
}

fn exactly(
    tx: &mut Tx<'_>,
    port: PortId,
    ordinal: usize,
    all: &[Subnet],
    named: Option<&Subnet>,
    ip: IpAddr,
) -> Result<(SubnetId, IpAddr), Error> {
    let fits = |subnet: &Subnet| -> Result<bool, Error> {
        let cidr = subnets::cidr(&subnet.record)?;
        Ok(cidr.contains(ip) && cidr.usable().contains(number(ip)))
    };
    let mut found = None;
    for subnet in named.map_or_else(|| all.iter().collect(), |subnet| vec![subnet]) {
        if found.is_none() && fits(subnet)? {
            found = Some(subnet);
        }
    }
    let Some(subnet) = found else {
        let (code, of) = match named {
            Some(_) => ("InvalidIpForSubnet", "the specified subnet"),
            None => ("InvalidIpForNetwork", "any of the subnets on the specified network"),
        };
        let message = format!("IP address {ip} is not a valid IP for {of}.");
        return Err(refused(Kind::BadRequest, code, message).into());
    };
    let id = subnet.record.id;
    if ports::allocate(tx, port, ordinal, id, ip)? {
        return Ok((id, ip));
    }
    Err(refused(
        Kind::Conflict,
        "IpAddressAlreadyAllocated",
        format!("IP address {ip} already allocated in subnet {id}"),
    )
    .into())
}

/// Allocates one more address to a port: the next free one of the first of these subnets that has one.
pub(crate) fn next(
    tx: &mut Tx<'_>,
    port: PortId,
    ordinal: usize,
    network: NetworkId,
    among: &[&Subnet],
) -> Result<(SubnetId, IpAddr), Error> {
    let choice = choose(tx, network, among)?;
    let asked = take(tx, port, ordinal, &choice)?;
    if ports::is_done(tx, asked)? {
        return Ok((choice.subnet, choice.ip));
    }
    Err(exhausted(network))
}

/// Allocates the next free IPv4 address of a network to a port: on the named subnet, or on the first subnet with a free
/// address.
pub(crate) fn allocate_ipv4(
    tx: &mut Tx<'_>,
    port: PortId,
    network: NetworkId,
    all: &[Subnet],
    named: Option<SubnetId>,
) -> Result<(SubnetId, IpAddr), Error> {
    let mut among = family(all, true)?;
    among.retain(|subnet| named.is_none_or(|id| id == subnet.record.id));
    next(tx, port, 0, network, &among)
}

/// A free address.
struct Choice {
    subnet: SubnetId,
    number: u128,
    ip: IpAddr,
}

/// The next free address of the first subnet that has one.
fn choose(tx: &mut Tx<'_>, network: NetworkId, among: &[&Subnet]) -> Result<Choice, Error> {
    for subnet in among {
        let id = subnet.record.id;
        let like = subnets::cidr(&subnet.record)?.base();
        let pools = subnets::pools(&subnet.record)?;
        let cursor = address::number_of(&subnet.cursor)?;
        let free = next_free(&pools, cursor, |range| ports::allocated(tx, id, range))?;
        if let Some(number) = free {
            return Ok(Choice { subnet: id, number, ip: address::address(like, number) });
        }
    }
    Err(exhausted(network))
}

/// Requests the allocation of a chosen address, and moves the subnet's cursor.
fn take(tx: &mut Tx<'_>, port: PortId, ordinal: usize, choice: &Choice) -> Result<Asked, Error> {
    rows::set_cursor(tx, choice.subnet, &address::key(choice.number))?;
    Ok(ports::ask_allocate(tx, port, ordinal, choice.subnet, choice.ip)?)
}

fn exhausted(network: NetworkId) -> Error {
    refused(
        Kind::Conflict,
        "IpAddressGenerationFailure",
        format!("No more IP addresses available on network {network}."),
    )
    .into()
}
