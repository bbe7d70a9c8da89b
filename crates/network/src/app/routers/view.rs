//! The API view of routers.

use kilonova_access::Caller;
use kilonova_store::Tx;
use serde_json::{Value, json};

use super::super::{Reach, targets, zones};
use super::visible;
use crate::Error;
use crate::attributes::AttributeRules;
use crate::db::routers::{self as rows, Router, RouterPort};
use crate::record::Body;

/// Views of the routers visible to the caller.
pub(crate) fn views(tx: &mut Tx<'_>, caller: &Caller) -> Result<Vec<Body>, Error> {
    let reach = Reach::of(caller);
    let mut routers = rows::list(tx, reach.viewer())?;
    routers.retain(|router| visible(caller, reach, router));
    let gateways = rows::gateways(tx, routers.iter().map(|router| router.id))?;
    let rules = AttributeRules::of(caller, "get_router");
    Ok(routers.iter().map(|router| view(router, gateways.get(&router.id), &rules)).collect())
}

/// The view of one router.
pub(crate) fn shown(tx: &mut Tx<'_>, router: &Router, caller: &Caller) -> Result<Body, Error> {
    let ports = rows::ports(tx, router.id)?;
    let rules = AttributeRules::of(caller, "get_router");
    Ok(view(router, ports.iter().find(|port| port.gateway), &rules))
}

fn view(router: &Router, gateway: Option<&RouterPort>, rules: &AttributeRules<'_>) -> Body {
    let mut view = router.view();
    let snat = view.remove("enable_snat").unwrap_or(json!(true));
    let ip = |(subnet, ip): &(_, _)| json!({"subnet_id": subnet, "ip_address": ip});
    let gateway = gateway.map(|port| {
        let fixed: Vec<Value> = port.addresses.iter().map(ip).collect();
        json!({"network_id": port.network, "enable_snat": snat, "external_fixed_ips": fixed})
    });
    for (key, value) in [
        ("status", json!("ACTIVE")),
        ("external_gateway_info", json!(gateway)),
        ("availability_zones", json!([zones::ZONE])),
    ] {
        view.insert(key.to_owned(), value);
    }
    rules.hide(&mut view, &targets::router(router));
    view
}
