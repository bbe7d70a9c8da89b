//! The additional routes of a router (`extraroute`, `extraroute-atomic`).

use std::collections::HashSet;
use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{RouterId, SubnetId};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::{Value, json};

use super::super::{subnets, targets};
use super::{noted, seen};
use crate::db::routers::{self as rows, Router};
use crate::db::subnets as subnet_rows;
use crate::error::{invalid_value, malformed, refused};
use crate::record::Body;
use crate::{Error, values};

fn routes(router: &Router) -> Vec<Value> {
    router.body.get("routes").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn hop(route: &Value) -> Option<IpAddr> {
    route["nexthop"].as_str()?.parse().ok()
}

/// Refuses routes whose next hop is on no subnet of the router, or is an address of the router.
pub(super) fn check(tx: &mut Tx<'_>, router: &Router) -> Result<(), Error> {
    let routes = routes(router);
    if routes.is_empty() {
        return Ok(());
    }
    let wrong = |why: &str| -> Error {
        refused(
            Kind::BadRequest,
            "InvalidRoutes",
            format!("Invalid format for routes: {}, {why}", Value::Array(routes.clone())),
        )
        .into()
    };
    let (mut prefixes, mut own) = (Vec::new(), Vec::new());
    for port in rows::ports(tx, router.id)? {
        for (subnet, address) in port.addresses {
            own.push(address);
            if let Some(subnet) = subnet_rows::find(tx, subnet)? {
                prefixes.push(subnets::cidr(&subnet.record)?);
            }
        }
    }
    for hop in routes.iter().filter_map(hop) {
        if !prefixes.iter().any(|prefix| prefix.contains(hop)) {
            return Err(wrong("the nexthop is not connected with router"));
        }
        if own.contains(&hop) {
            return Err(wrong("the nexthop is used by router"));
        }
    }
    Ok(())
}

/// True if the next hop of one of the router's routes is on this subnet.
pub(super) fn needs(tx: &mut Tx<'_>, router: &Router, subnet: SubnetId) -> Result<bool, Error> {
    let routes = routes(router);
    if routes.is_empty() {
        return Ok(false);
    }
    let Some(subnet) = subnet_rows::find(tx, subnet)? else { return Ok(false) };
    let prefix = subnets::cidr(&subnet.record)?;
    Ok(routes.iter().filter_map(hop).any(|hop| prefix.contains(hop)))
}

/// The routes in a request. As in upstream, only the resulting routes of the router are limited. A route that the router
/// already has is not validated again: an earlier release accepted more, and what it accepted can be removed.
fn sent_routes(sent: &Body, has: &[Value]) -> Result<Vec<Value>, Refusal> {
    let router = sent.get("router").and_then(Value::as_object);
    let router = router.ok_or_else(|| malformed("Unable to find 'router' in request body"))?;
    let value = router.get("routes").unwrap_or(&Value::Null);
    let has: HashSet<_> = has.iter().map(values::route_key).collect();
    let is_known = |route: &&Value| {
        let fields = route.as_object().map(Body::len);
        fields == Some(2) && has.contains(&values::route_key(route))
    };
    let invalid = |why| invalid_value("routes", why);
    let Some(listed) = value.as_array() else {
        return values::any_routes(value).map_err(invalid);
    };
    let (mut known, new): (Vec<Value>, Vec<Value>) =
        listed.iter().cloned().partition(|route| is_known(&route));
    known.extend(values::any_routes(&new.into()).map_err(invalid)?);
    Ok(known)
}

/// Adds routes to a router.
pub(crate) fn add(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: RouterId,
    sent: &Body,
    now: Timestamp,
) -> Result<Router, Error> {
    change(tx, caller, id, sent, "add_extraroutes", now, |mut has, new| {
        has.extend(new);
        has
    })
}

/// Removes routes from a router.
pub(crate) fn remove(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: RouterId,
    sent: &Body,
    now: Timestamp,
) -> Result<Router, Error> {
    change(tx, caller, id, sent, "remove_extraroutes", now, |mut has, gone| {
        let gone: HashSet<_> = gone.iter().map(values::route_key).collect();
        has.retain(|route| !gone.contains(&values::route_key(route)));
        has
    })
}

fn change(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: RouterId,
    sent: &Body,
    rule: &str,
    now: Timestamp,
    change: impl Fn(Vec<Value>, Vec<Value>) -> Vec<Value>,
) -> Result<Router, Error> {
    let mut router = seen(tx, caller, id)?;
    targets::router(&router).may(caller, rule)?;
    let has = routes(&router);
    let sent = sent_routes(sent, &has)?;
    let changed = change(has, sent);
    let mut seen = HashSet::new();
    let all: Vec<_> =
        changed.iter().filter(|route| seen.insert(values::route_key(route))).collect();
    values::check_number_of_routes(all.len()).map_err(|why| invalid_value("routes", why))?;
    let mut set = Body::new();
    set.insert("routes".into(), json!(all));
    router.change(set, now);
    rows::update(tx, &router)?;
    check(tx, &router)?;
    noted(tx, id)?;
    Ok(router)
}
