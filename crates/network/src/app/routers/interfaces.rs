//! The interfaces of a router: its ports on the networks that it routes between.

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{PortId, RouterId, SubnetId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use kilonova_wire::time;
use serde_json::{Value, json};

use super::super::addresses::FixedIp;
use super::super::{ports as port_app, subnets, targets};
use super::{INTERFACE, KIND, check_overlap, noted, routes, seen};
use crate::Error;
use crate::db::ports::{self, Port};
use crate::db::routers::{self as rows, Router, RouterPort};
use crate::db::{floating, subnets as subnet_rows};
use crate::error::{bad, malformed, not_found, refused};
use crate::record::Body;

/// The subnet and the port in a request.
fn sent_ids(sent: &Body) -> Result<(Option<SubnetId>, Option<PortId>), Refusal> {
    let text = |key: &str| -> Result<Option<&str>, Refusal> {
        match sent.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(malformed(format!("'{other}' is not a valid UUID"))),
        }
    };
    let wrong = |text: &str| bad(KIND, format!("'{}' is not a valid UUID", text.escape_debug()));
    let subnet = text("subnet_id")?;
    let port = text("port_id")?;
    let subnet = subnet.map(|text| parse_uuid_like(text).ok_or_else(|| wrong(text)));
    let port = port.map(|text| parse_uuid_like(text).ok_or_else(|| wrong(text)));
    match (subnet.transpose()?, port.transpose()?) {
        (None, None) => Err(bad(KIND, "Either subnet_id or port_id must be specified")),
        found => Ok(found),
    }
}

/// Adds an interface on a subnet, or with an existing port. Returns the API view of the interface.
pub(crate) fn add(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: RouterId,
    sent: &Body,
    now: Timestamp,
) -> Result<Body, Error> {
    let mut router = seen(tx, caller, id)?;
    targets::router(&router).may(caller, "add_router_interface")?;
    let (subnet, port) = sent_ids(sent)?;
    if subnet.is_some() && port.is_some() {
        return Err(bad(KIND, "Cannot specify both subnet-id and port-id").into());
    }
    router.change(Body::new(), now);
    rows::update(tx, &router)?;
    let has = rows::ports(tx, id)?;
    let port = match (subnet, port) {
        (Some(subnet), _) => on_subnet(tx, caller, &router, &has, subnet, now)?,
        (None, Some(port)) => with_port(tx, caller, &router, &has, port, now)?,
        (None, None) => {
            return Err(bad(KIND, "Either subnet_id or port_id must be specified").into());
        }
    };
    rows::add_port(tx, id, port.record.id, port.network, false)?;
    for (subnet, _) in &port.addresses {
        // The subnet's gateway address must not change concurrently.
        subnet_rows::touch(tx, *subnet)?;
        if !rows::add_subnet(tx, id, *subnet, port.record.id)? {
            let why = format!("Router already has a port on subnet {subnet}");
            return Err(bad(KIND, why).into());
        }
    }
    rows::bind_new(tx, id, now)?;
    noted(tx, id)?;
    let subnets = port.addresses.iter().map(|(subnet, _)| *subnet).collect();
    Ok(view(&router, &port, subnets))
}

/// Creates a port with the gateway address of the subnet.
fn on_subnet(
    tx: &mut Tx<'_>,
    caller: &Caller,
    router: &Router,
    has: &[RouterPort],
    id: SubnetId,
    now: Timestamp,
) -> Result<Port, Error> {
    let (subnet, network) = subnets::seen(tx, caller, id)?;
    let gateway = subnet.record.text("gateway_ip").parse().ok();
    let Some(gateway) = gateway else {
        return Err(bad(KIND, "Subnet for router interface must have a gateway IP").into());
    };
    // Only an administrator may use the gateway address of another project's subnet.
    if subnet.record.project != caller.project_id && !caller.is_admin() {
        return Err(bad(KIND, format!(
            "Cannot add interface to router because subnet {id} is not owned by project making the \
             request"
        ))
        .into());
    }
    check_overlap(tx, has, id, &subnets::cidr(&subnet.record)?)?;
    let device = router.id.to_string();
    let port = port_app::serving(&router.project, network.id, INTERFACE, &device, now);
    let requested = [FixedIp { subnet: Some(id), address: Some(gateway) }];
    port_app::insert(tx, port, true, Some(&requested))
}

/// Turns an existing port into an interface; refuses a port that a device uses. Only `device_id` and `device_owner`
/// change, as in `_add_interface_by_port` of `neutron/db/l3_db.py`. Hosts filter the ports of servers only.
fn with_port(
    tx: &mut Tx<'_>,
    caller: &Caller,
    router: &Router,
    has: &[RouterPort],
    id: PortId,
    now: Timestamp,
) -> Result<Port, Error> {
    let (mut port, network) = port_app::seen(tx, caller, id)?;
    if !port.device_id.is_empty() {
        return Err(refused(Kind::Conflict, "PortInUse", format!(
            "Unable to complete operation on port {id} for network {}. Port already has an attached \
             device {}.",
            network.id, port.device_id
        ))
        .into());
    }
    targets::of_port(&port, &network).may(caller, "update_port")?;
    if port.addresses.is_empty() {
        return Err(bad(KIND, "Router port must have at least one fixed IP").into());
    }
    if port.addresses.iter().filter(|(_, address)| address.is_ipv4()).count() > 1 {
        return Err(bad(KIND, "Cannot have multiple IPv4 subnets on router port").into());
    }
    for (subnet, _) in &port.addresses {
        let Some(found) = subnet_rows::find(tx, *subnet)? else { continue };
        check_overlap(tx, has, *subnet, &subnets::cidr(&found.record)?)?;
    }
    port.device_id = router.id.to_string();
    let groups = port.record.texts("security_groups");
    let mut body = Body::new();
    body.insert("device_owner".into(), json!(INTERFACE));
    port.record.change(body, now);
    ports::update(tx, &port)?;
    // The port keeps its groups, but its addresses no longer count as members' addresses.
    port_app::record_change(tx, &port, &groups)?;
    Ok(port)
}

/// Removes an interface by its subnet or its port, and deletes the port. Returns the API view of
/// the interface.
pub(crate) fn remove(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: RouterId,
    sent: &Body,
    now: Timestamp,
) -> Result<Body, Error> {
    let mut router = seen(tx, caller, id)?;
    targets::router(&router).may(caller, "remove_router_interface")?;
    let (subnet, port) = sent_ids(sent)?;
    router.change(Body::new(), now);
    rows::update(tx, &router)?;
    let all = rows::ports(tx, id)?;
    let found = all.iter().filter(|has| !has.gateway).find(|has| match port {
        Some(port) => has.port == port,
        None => has.addresses.iter().any(|(of, _)| Some(*of) == subnet),
    });
    let Some(found) = found else {
        return Err(match (port, subnet) {
            (Some(port), _) => refused(
                Kind::NotFound,
                "RouterInterfaceNotFound",
                format!("Router {id} does not have an interface with id {port}"),
            ),
            (None, Some(subnet)) => {
                subnets::seen(tx, caller, subnet)?;
                refused(
                    Kind::NotFound,
                    "RouterInterfaceNotFoundForSubnet",
                    format!("Router {id} has no interface on subnet {subnet}"),
                )
            }
            (None, None) => not_found(KIND, id),
        }
        .into());
    };
    if let (Some(subnet), Some(port)) = (subnet, port)
        && !found.addresses.iter().any(|(of, _)| *of == subnet)
    {
        return Err(refused(
            Kind::Conflict,
            "SubnetMismatchForPort",
            format!("Subnet on port {port} does not match the requested subnet {subnet}."),
        )
        .into());
    }
    for (subnet, _) in &found.addresses {
        let needed = |code, by: &str| {
            refused(
                Kind::Conflict,
                code,
                format!(
                    "Router interface for subnet {subnet} on router {id} cannot be deleted, as it is \
                 required by one or more {by}."
                ),
            )
        };
        if floating::is_used_by_router(tx, id, Some(*subnet))? {
            return Err(needed("RouterInterfaceInUseByFloatingIP", "floating IPs").into());
        }
        if routes::needs(tx, &router, *subnet)? {
            return Err(needed("RouterInterfaceInUseByRoute", "routes").into());
        }
    }
    let gone = ports::find(tx, found.port)?.ok_or_else(|| not_found("port", found.port))?;
    rows::remove_port(tx, found.port)?;
    ports::delete(tx, found.port, time::now())?;
    noted(tx, id)?;
    let subnets = found.addresses.iter().map(|(subnet, _)| *subnet).collect();
    Ok(view(&router, &gone, subnets))
}

fn view(router: &Router, port: &Port, subnets: Vec<SubnetId>) -> Body {
    let view = json!({"id": router.id, "tenant_id": router.project, "project_id": router.project,
        "port_id": port.record.id, "network_id": port.network, "subnet_id": subnets.first(),
        "subnet_ids": subnets, "tags": router.body.get("tags")});
    view.as_object().cloned().unwrap_or_default()
}
