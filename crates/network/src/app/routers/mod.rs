//! Routers between networks and to an external network. Each router runs on one host, which the compute service
//! chooses. Every change to a router is one transaction, which also records the change for the host.

mod gateway;
mod interfaces;
mod routes;
mod view;

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{RouterId, SubnetId};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use serde_json::Value;

use super::{Reach, quotas, subnets, targets, zones};
use crate::address::Cidr;
use crate::attributes::{
    Attribute, empty, no, none, nothing, of_change, of_new, owner, permitted, yes,
};
use crate::db::changes::{self, NetworkChange};
use crate::db::floating;
use crate::db::ports::Port;
use crate::db::routers::{self as rows, Router, RouterPort};
use crate::db::subnets::{self as subnet_rows, Subnet};
use crate::error::{bad, not_found, refused};
use crate::record::{Body, Record};
use crate::{Error, values};

pub(crate) use interfaces::{add as add_interface, remove as remove_interface};
pub(crate) use routes::{add as add_routes, remove as remove_routes};
pub(crate) use view::{shown, views};

pub(crate) const KIND: &str = "router";

/// The `device_owner` of an interface's port.
pub(crate) const INTERFACE: &str = "network:router_interface";
/// The `device_owner` of a gateway's port.
pub(crate) const GATEWAY: &str = "network:router_gateway";

/// The attributes.
pub(crate) const ATTRIBUTES: &[Attribute] = &[
    Attribute::new("name", values::text, empty),
    Attribute::new("description", values::long_text, empty),
    Attribute::new("admin_state_up", values::flag, yes),
    Attribute::new("external_gateway_info", values::gateway, none),
    Attribute::new("routes", values::routes, nothing),
    Attribute::new("distributed", values::only_false, no),
    Attribute::new("ha", values::only_false, no),
    Attribute::new("availability_zone_hints", values::zone_hints, nothing).fixed(),
    Attribute::new("flavor_id", values::only_none, none).fixed(),
    Attribute::new("enable_ndp_proxy", values::only_false, no),
    Attribute::new("tags", values::tags, nothing),
];

/// The router, if visible to the caller.
pub(crate) fn seen(tx: &mut Tx<'_>, caller: &Caller, id: RouterId) -> Result<Router, Error> {
    let router = rows::find(tx, id)?.filter(|router| visible(caller, Reach::of(caller), router));
    Ok(router.ok_or_else(|| not_found(KIND, id))?)
}

fn visible(caller: &Caller, reach: Reach<'_>, router: &Router) -> bool {
    reach.covers(&router.project) && targets::router(router).allows(caller, "get_router")
}

/// True unless the request for a gateway disables SNAT. Earlier requests have no effect.
fn snat(wanted: &Value) -> bool {
    wanted.get("enable_snat").and_then(Value::as_bool).unwrap_or(true)
}

pub(crate) fn create(
    tx: &mut Tx<'_>,
    caller: &Caller,
    sent: &Body,
    now: Timestamp,
) -> Result<Router, Error> {
    let project = owner(caller, sent)?;
    let mut body = of_new(ATTRIBUTES, sent)?;
    let mut set = body.clone();
    set.retain(|name, _| sent.contains_key(name));
    permitted(
        ATTRIBUTES,
        "create_router",
        caller,
        &set,
        &targets::of_project(&project).sent(&body),
    )?;
    if body["routes"].as_array().is_some_and(|routes| !routes.is_empty()) {
        return Err(crate::error::malformed("Attribute 'routes' not allowed in POST").into());
    }
    quotas::check(tx, &project, quotas::ROUTER, 1)?;
    zones::check_hints(&body)?;
    let wanted = body.remove("external_gateway_info").unwrap_or(Value::Null);
    body.insert("enable_snat".into(), snat(&wanted).into());
    let router = Record::new(&project, body, now);
    rows::insert(tx, &router)?;
    if !wanted.is_null() {
        gateway::set(tx, caller, &router, &wanted, now)?;
    }
    noted(tx, router.id)?;
    Ok(router)
}

pub(crate) fn update(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: RouterId,
    sent: &Body,
    now: Timestamp,
) -> Result<Router, Error> {
    let mut router = seen(tx, caller, id)?;
    targets::router(&router).may(caller, "update_router")?;
    let mut set = of_change(ATTRIBUTES, sent)?;
    permitted(ATTRIBUTES, "update_router", caller, &set, &targets::router(&router).sent(&set))?;
    let gateway = set.remove("external_gateway_info");
    if let Some(wanted) = &gateway {
        set.insert("enable_snat".into(), snat(wanted).into());
    }
    router.change(set, now);
    rows::update(tx, &router)?;
    match gateway {
        Some(Value::Null) => gateway::clear(tx, &router)?,
        Some(wanted) => gateway::set(tx, caller, &router, &wanted, now)?,
        None => {}
    }
    routes::check(tx, &router)?;
    noted(tx, id)?;
    Ok(router)
}

pub(crate) fn delete(tx: &mut Tx<'_>, caller: &Caller, id: RouterId) -> Result<(), Error> {
    let router = seen(tx, caller, id)?;
    targets::router(&router).may(caller, "delete_router")?;
    rows::touch(tx, id)?;
    if rows::ports(tx, id)?.iter().any(|port| !port.gateway) {
        let message = format!("Router {id} still has ports");
        return Err(refused(Kind::Conflict, "RouterInUse", message).into());
    }
    gateway::clear(tx, &router)?;
    rows::delete(tx, id)?;
    noted(tx, id)
}

/// Records a change to the router for its host.
fn noted(tx: &mut Tx<'_>, id: RouterId) -> Result<(), Error> {
    Ok(changes::record(tx, NetworkChange::Router(id))?)
}

/// Refuses to change or delete a port that belongs to a router or to a floating IP.
pub(crate) fn check_port(tx: &mut Tx<'_>, port: &Port) -> Result<(), Error> {
    let id = port.record.id;
    if rows::of_port(tx, id)?.is_none() && !floating::reserves(tx, id)? {
        return Ok(());
    }
    let owner = port.record.text("device_owner");
    Err(refused(
        Kind::Conflict,
        "ServicePortInUse",
        format!("Port {id} cannot be deleted directly via the port API: has device owner {owner}."),
    )
    .into())
}

/// Refuses to change the gateway address of a subnet while a router uses it.
pub(crate) fn check_gateway(tx: &mut Tx<'_>, subnet: &Subnet, set: &Body) -> Result<(), Error> {
    let old = subnet.record.body.get("gateway_ip").unwrap_or(&Value::Null);
    if set.get("gateway_ip").is_none_or(|new| new == old) {
        return Ok(());
    }
    let has = rows::on_subnet(tx, subnet.record.id)?;
    match has.iter().find(|router| *old == serde_json::json!(router.address)) {
        None => Ok(()),
        Some(router) => Err(refused(
            Kind::Conflict,
            "GatewayIpInUse",
            format!(
                "Current gateway ip {} already in use by port {}. Unable to update.",
                router.address, router.port
            ),
        )
        .into()),
    }
}

/// Refuses a subnet that overlaps with a subnet of the router's ports.
fn check_overlap(
    tx: &mut Tx<'_>,
    ports: &[RouterPort],
    new: SubnetId,
    prefix: &Cidr,
) -> Result<(), Error> {
    for (id, _) in ports.iter().flat_map(|port| &port.addresses) {
        if *id == new {
            return Err(bad(KIND, format!("Router already has a port on subnet {new}")).into());
        }
        let Some(other) = subnet_rows::find(tx, *id)? else { continue };
        let cidr = subnets::cidr(&other.record)?;
        if cidr.overlaps(prefix) {
            return Err(bad(
                KIND,
                format!("Cidr {prefix} of subnet {new} overlaps with cidr {cidr} of subnet {id}"),
            )
            .into());
        }
    }
    Ok(())
}
