//! The gateway of a router: its port on an external network.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{NetworkId, SubnetId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::time;
use serde_json::Value;

use super::super::addresses::{self, FixedIp};
use super::super::{networks, ports as port_app, subnets};
use super::{GATEWAY, KIND, check_overlap};
use crate::Error;
use crate::db::routers::{self as rows, Router, RouterPort};
use crate::db::{floating, ports, subnets as subnet_rows};
use crate::error::{bad, not_found, refused};
use crate::record::Body;

/// Sets the gateway, or changes it. A gateway on the requested network keeps its port.
pub(super) fn set(
    tx: &mut Tx<'_>,
    caller: &Caller,
    router: &Router,
    wanted: &Value,
    now: Timestamp,
) -> Result<(), Error> {
    let text = wanted["network_id"].as_str().unwrap_or_default();
    let id = parse_uuid_like::<NetworkId>(text).ok_or_else(|| not_found("network", text))?;
    let network = networks::seen(tx, caller, id)?;
    let internal = || bad(KIND, format!("Network {id} is not an external network"));
    networks::check_external(tx, &network, internal)?;
    let requested = port_app::fixed_ips_in(&wanted["external_fixed_ips"]);
    let all = rows::ports(tx, router.id)?;
    let (gateways, interfaces): (Vec<RouterPort>, Vec<RouterPort>) =
        all.into_iter().partition(|port| port.gateway);
    if let Some(has) = gateways.into_iter().next() {
        if has.network == id {
            return match requested.as_deref().filter(|all| !is(all, &has)) {
                Some(requested) => change_addresses(tx, &has, requested, now),
                None => Ok(()),
            };
        }
        remove(tx, router, &has)?;
    }
    for subnet in subnet_rows::of_network(tx, id)? {
        let prefix = subnets::cidr(&subnet.record)?;
        check_overlap(tx, &interfaces, subnet.record.id, &prefix)?;
    }
    // The port has no project, so that no quota counts it; the network's owner sees it.
    let port = port_app::serving("", id, GATEWAY, &router.id.to_string(), now);
    let port = port_app::insert(tx, port, true, requested.as_deref())?;
    if port.addresses.is_empty() {
        return Err(bad(KIND, format!("No IPs available for external network {id}")).into());
    }
    rows::add_port(tx, router.id, port.record.id, id, true)?;
    Ok(rows::bind_new(tx, router.id, now)?)
}

/// True if the port has the requested addresses already. As upstream, a request whose subnets and addresses are those of
/// the port, both as sets, changes none (`_check_for_external_ip_change` in `neutron/db/l3_db.py`).
fn is(requested: &[FixedIp], has: &RouterPort) -> bool {
    let subnets: BTreeSet<SubnetId> = requested.iter().filter_map(|one| one.subnet).collect();
    let addresses: BTreeSet<IpAddr> = requested.iter().filter_map(|one| one.address).collect();
    let are_same = has.addresses.iter().map(|(subnet, _)| *subnet).collect::<BTreeSet<_>>()
        == subnets
        && has.addresses.iter().map(|(_, address)| *address).collect::<BTreeSet<_>>() == addresses;
    if are_same {
        return true;
    }
    requested.len() == has.addresses.len()
        && requested.iter().all(|one| {
            has.addresses.iter().any(|(subnet, address)| {
                one.subnet.is_none_or(|id| id == *subnet)
                    && one.address.is_none_or(|wanted| wanted == *address)
            })
        })
}

/// Gives the gateway's port other addresses. The port and the floating IPs that need the gateway remain, as in
/// `_update_current_gw_port` of `neutron/db/l3_db.py`.
fn change_addresses(
    tx: &mut Tx<'_>,
    has: &RouterPort,
    requested: &[FixedIp],
    now: Timestamp,
) -> Result<(), Error> {
    let id = has.port;
    let mut port = ports::find(tx, id)?.ok_or_else(|| not_found("port", id))?;
    ports::release(tx, id)?;
    let keep = port_app::keep(requested, &has.addresses);
    addresses::allocate(tx, id, has.network, None, Some(&keep))?;
    port.record.change(Body::new(), now);
    Ok(ports::update(tx, &port)?)
}

/// Removes the gateway, if the router has one.
pub(super) fn clear(tx: &mut Tx<'_>, router: &Router) -> Result<(), Error> {
    match rows::ports(tx, router.id)?.into_iter().find(|port| port.gateway) {
        Some(port) => remove(tx, router, &port),
        None => Ok(()),
    }
}

fn remove(tx: &mut Tx<'_>, router: &Router, port: &RouterPort) -> Result<(), Error> {
    if floating::is_used_by_router(tx, router.id, None)? {
        return Err(refused(
            Kind::Conflict,
            "RouterExternalGatewayInUseByFloatingIp",
            format!(
                "Gateway cannot be updated for router {}, since a gateway to external network {} is \
                 required by one or more floating IPs.",
                router.id, port.network
            ),
        )
        .into());
    }
    rows::remove_port(tx, port.port)?;
    Ok(ports::delete(tx, port.port, time::now())?)
}
