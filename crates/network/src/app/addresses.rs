//! Which addresses a port gets: those that are asked for, or one of each family that the network has.
//!
//! Whoever takes the next free one writes the subnet's cursor, so that two at once go one after the
//! other; the key of the table sees to it that no address has two owners whatever happens.

use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId, SubnetId};
use kilonova_store::Tx;

use super::subnets;
use crate::Error;
use crate::address::{self, next_free, number};
use crate::db::ports;
use crate::db::subnets::{self as rows, Subnet};
use crate::error::{not_found, refused};

/// One address that is asked for; either of the two, or both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FixedIp {
    /// On this subnet.
    pub subnet: Option<SubnetId>,
    /// This one.
    pub address: Option<IpAddr>,
}

/// Gives a port its addresses, in order. Without a wish it gets one of each family, as far as the
/// network has subnets.
pub(crate) fn give(
    tx: &mut Tx<'_>,
    port: PortId,
    network: NetworkId,
    asked: Option<&[FixedIp]>,
) -> Result<Vec<(SubnetId, IpAddr)>, Error> {
    let all = rows::of_network(tx, network)?;
    let mut given = Vec::new();
    match asked {
        None => {
            for four in [true, false] {
                let of_family = family(&all, four)?;
                if of_family.is_empty() {
                    continue;
                }
                let place = next(tx, port, given.len(), network, &of_family)?;
                given.push(place);
            }
        }
        Some(asked) => {
            for wish in asked {
                let place = one(tx, port, given.len(), network, &all, *wish)?;
                given.push(place);
            }
        }
    }
    Ok(given)
}

fn family(all: &[Subnet], four: bool) -> Result<Vec<&Subnet>, Error> {
    let mut of_family = Vec::new();
    for subnet in all {
        if subnets::cidr(&subnet.record)?.base().is_ipv4() == four {
            of_family.push(subnet);
        }
    }
    Ok(of_family)
}

fn one(
    tx: &mut Tx<'_>,
    port: PortId,
    ordinal: usize,
    network: NetworkId,
    all: &[Subnet],
    wish: FixedIp,
) -> Result<(SubnetId, IpAddr), Error> {
    let named = match wish.subnet {
        None => None,
        Some(id) => {
            let here = all.iter().find(|subnet| subnet.record.id == id);
            let here = match here {
                Some(subnet) => subnet,
                None if rows::find(tx, id)?.is_none() => return Err(not_found("subnet", id).into()),
                None => {
                    return Err(refused(400, "InvalidInput", format!(
                        "Invalid input for operation: Failed to create port on network {network}, \
                         because fixed_ips included invalid subnet {id}."
                    ))
                    .into());
                }
            };
            Some(here)
        }
    };
    match (named, wish.address) {
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
        let words = format!("IP address {ip} is not a valid IP for {of}.");
        return Err(refused(400, code, words).into());
    };
    let id = subnet.record.id;
    if ports::take(tx, port, ordinal, id, ip)? {
        return Ok((id, ip));
    }
    Err(refused(
        409,
        "IpAddressAlreadyAllocated",
        format!("IP address {ip} already allocated in subnet {id}"),
    )
    .into())
}

/// The next free address of the first subnet that has one.
fn next(
    tx: &mut Tx<'_>,
    port: PortId,
    ordinal: usize,
    network: NetworkId,
    among: &[&Subnet],
) -> Result<(SubnetId, IpAddr), Error> {
    for subnet in among {
        let id = subnet.record.id;
        let like = subnets::cidr(&subnet.record)?.base();
        let pools = subnets::pools(&subnet.record)?;
        let cursor = address::number_of(&subnet.cursor)?;
        let free = next_free(&pools, cursor, |range| ports::taken(tx, id, range))?;
        let Some(free) = free else { continue };
        rows::set_cursor(tx, id, &address::key(free))?;
        let ip = address::address(like, free);
        if ports::take(tx, port, ordinal, id, ip)? {
            return Ok((id, ip));
        }
    }
    Err(refused(
        409,
        "IpAddressGenerationFailure",
        format!("No more IP addresses available on network {network}."),
    )
    .into())
}
