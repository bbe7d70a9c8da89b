//! The API view of ports.

use std::net::IpAddr;

use kilonova_access::Caller;
use kilonova_ids::SubnetId;
use kilonova_store::Tx;
use serde_json::{Value, json};

use super::super::targets::{self, Target};
use super::super::{Reach, dhcp, networks};
use super::visible;
use crate::attributes::AttributeRules;
use crate::db::networks::Network;
use crate::db::ports::{self as rows, Port};
use crate::record::Body;
use crate::{Error, NetworkOptions, VnicType};

/// Views of the ports visible to the caller.
pub(crate) fn views(
    tx: &mut Tx<'_>,
    options: &NetworkOptions,
    caller: &Caller,
    device: Option<String>,
    network: Option<String>,
) -> Result<Vec<Body>, Error> {
    let reach = Reach::of(caller);
    let query = rows::PortQuery { viewer: reach.viewer().map(str::to_owned), device, network };
    let mut networks = networks::Cache::default();
    let rules = AttributeRules::of(caller, "get_port");
    let mut views = Vec::new();
    for port in rows::list(tx, &query)? {
        let network = networks.get(tx, port.network)?;
        let target = targets::of_port(&port, network);
        if visible(caller, reach, &port, network, &target) {
            views.push(view_on(&port, options, &rules, &target));
        }
    }
    Ok(views)
}

/// The view of one port.
pub(crate) fn view(
    port: &Port,
    network: &Network,
    options: &NetworkOptions,
    caller: &Caller,
) -> Body {
    let rules = AttributeRules::of(caller, "get_port");
    view_on(port, options, &rules, &targets::of_port(port, network))
}

/// Active if it is bound, or serves DHCP.
pub(crate) fn status(port: &Port) -> &'static str {
    let active = port.host.is_some() || port.record.text("device_owner") == dhcp::OWNER;
    if active { "ACTIVE" } else { "DOWN" }
}

/// The view of a port with its policy target.
fn view_on(
    port: &Port,
    options: &NetworkOptions,
    rules: &AttributeRules<'_>,
    target: &Target<'_>,
) -> Body {
    let mut view = port.record.view();
    // By the address as text, as upstream (`order_by` of `Port.fixed_ips` in `neutron/db/models_v2.py`).
    let ips = port.addresses.iter().map(|(subnet, ip)| (ip.to_string(), subnet));
    let mut ips: Vec<(String, &SubnetId)> = ips.collect();
    ips.sort_unstable();
    let ips: Vec<Value> = ips
        .into_iter()
        .map(|(ip, subnet)| json!({"subnet_id": subnet, "ip_address": ip}))
        .collect();
    let bound = port.host.is_some();
    let special = port.vnic_type != VnicType::Normal;
    let vif = if !bound {
        "unbound"
    } else if special {
        "hostdev_physical"
    } else {
        "bridge"
    };
    let details =
        if bound { json!({"port_filter": !special, "connectivity": "l2"}) } else { json!({}) };
    for (key, value) in [
        ("network_id", json!(port.network)),
        ("mac_address", json!(port.mac)),
        ("fixed_ips", json!(ips)),
        ("device_id", json!(port.device_id)),
        ("status", json!(status(port))),
        ("ip_allocation", json!(if ips.is_empty() { "none" } else { "immediate" })),
        ("dns_assignment", names(port, options)),
        ("resource_request", Value::Null),
        ("qos_network_policy_id", Value::Null),
        ("binding:host_id", json!(port.host.as_deref().unwrap_or_default())),
        ("binding:vif_type", json!(vif)),
        ("binding:vif_details", details),
        ("binding:profile", profile(port)),
    ] {
        view.insert(key.to_owned(), value);
    }
    let pairs = view.get_mut("allowed_address_pairs").and_then(Value::as_array_mut);
    for pair in pairs.into_iter().flatten().filter_map(Value::as_object_mut) {
        // A pair without a MAC address shows the port's current one; upstream stores the one at the pair's creation.
        pair.entry("mac_address").or_insert_with(|| json!(port.mac));
    }
    rules.hide(&mut view, target);
    view
}

/// The user's binding profile, plus the device that the ledger assigned.
fn profile(port: &Port) -> Value {
    let mut profile = port.record.body.get("binding:profile").cloned().unwrap_or(json!({}));
    if let (Some(arq), Some(slot)) = (port.arq, &port.pci_slot) {
        profile["arq_uuid"] = json!(arq);
        profile["pci_slot"] = json!(slot);
    }
    profile
}

fn names(port: &Port, options: &NetworkOptions) -> Value {
    let name = port.record.text("dns_name");
    let of = |(_, ip): &(SubnetId, IpAddr)| {
        let host = if name.is_empty() {
            format!("host-{}", ip.to_string().replace(['.', ':'], "-"))
        } else {
            name.to_owned()
        };
        json!({"hostname": host, "ip_address": ip, "fqdn": format!("{host}.{}", options.dns_domain)})
    };
    port.addresses.iter().map(of).collect()
}
