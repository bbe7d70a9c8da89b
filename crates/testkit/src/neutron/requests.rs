//! The requests of the API, with the checks and the messages of the real Neutron.

use std::net::Ipv4Addr;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::Identity;
use super::state::{Binding, Port, State, new_id};

type Answer = (StatusCode, Value);

/// A refusal in Neutron's form.
fn refuse(status: u16, kind: &str, message: impl Into<String>) -> Answer {
    let status = StatusCode::from_u16(status).expect("a status");
    let error = json!({"type": kind, "message": message.into(), "detail": ""});
    (status, json!({"NeutronError": error}))
}

fn not_found(kind: &str, what: &str, id: &str) -> Answer {
    refuse(404, kind, format!("{what} {id} could not be found."))
}

fn ok(body: Value) -> Answer {
    (StatusCode::OK, body)
}

/// The decoded pairs of a query.
fn pairs(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            let hex: Vec<u8> = if byte == b'%' { rest.by_ref().take(2).collect() } else { vec![] };
            let hex =
                std::str::from_utf8(&hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
            bytes.push(hex.unwrap_or(byte));
        }
        String::from_utf8(bytes).expect("UTF-8")
    };
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key), decode(value))
    };
    query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect()
}

/// Answers one request.
pub(crate) fn answer(
    state: &mut State,
    identity: &Identity,
    method: &Method,
    path: &str,
    query: &str,
    body: &Bytes,
) -> Answer {
    let (query, page) = (pairs(query), state.page_size);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let body: Value = match (body.is_empty(), serde_json::from_slice(body)) {
        (true, _) => Value::Null,
        (false, Ok(body)) => body,
        (false, Err(_)) => return refuse(400, "HTTPBadRequest", "The server could not comply"),
    };
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["extensions"]) => ok(json!({"extensions": extensions()})),
        ("GET", ["networks"]) => {
            let all = state.networks.values().filter(|one| sees_network(identity, one));
            let all = all.map(|one| network_view(identity, one));
            list("networks", NETWORK_FILTERS, (&query, page), all)
        }
        ("GET", ["networks", id]) => match state.networks.get(*id) {
            Some(network) if sees_network(identity, network) => {
                ok(json!({"network": network_view(identity, network)}))
            }
            _ => not_found("NetworkNotFound", "Network", id),
        },
        ("GET", ["subnets"]) => {
            let all = state.subnets.values().filter(|one| owns(identity, one)).cloned();
            list("subnets", &["id", "network_id", "tenant_id"], (&query, page), all)
        }
        ("GET", ["security-groups"]) => {
            let sees = |one: &&Value| owns(identity, one) || one["shared"] == true;
            let all = state.groups.values().filter(sees).cloned();
            list("security_groups", &["id", "name", "tenant_id", "shared"], (&query, page), all)
        }
        ("GET", ["floatingips"]) => list(
            "floatingips",
            &["port_id", "tenant_id"],
            (&query, page),
            state.floating.iter().cloned(),
        ),
        ("GET", ["quotas", project]) => {
            let port = state.quotas.get(*project).copied().unwrap_or(-1);
            ok(json!({"quota": {"network": -1, "port": port}}))
        }
        ("PUT", ["quotas", project]) if identity.admin => {
            let port = body["quota"]["port"].as_i64().unwrap_or(-1);
            state.quotas.insert((*project).to_owned(), port);
            ok(json!({"quota": {"network": -1, "port": port}}))
        }
        ("GET", ["auto-allocated-topology", project]) => {
            allocate_network(state, project, query.iter().any(|(_, field)| field == "dry-run"))
        }
        ("GET", ["ports"]) => {
            let sees = |port: &&Port| identity.admin || port.text("tenant_id") == identity.project;
            let all = state.ports.values().filter(sees).map(|port| port.view(identity));
            list("ports", PORT_FILTERS, (&query, page), all)
        }
        ("POST", ["ports"]) => match checked(&body, "port", CREATABLE) {
            Err(refusal) => refusal,
            Ok(()) => {
                let made = create_port(state, identity, &body);
                match made.get("NeutronError") {
                    None => (StatusCode::CREATED, made),
                    Some(error) => {
                        let status = made["status"].as_u64().unwrap_or(409);
                        let status = u16::try_from(status).ok();
                        let status = status.and_then(|one| StatusCode::from_u16(one).ok());
                        let error = json!({"NeutronError": error});
                        (status.unwrap_or(StatusCode::CONFLICT), error)
                    }
                }
            }
        },
        (_, ["ports", id, ..]) if find(state, identity, id).is_none() => {
            not_found("PortNotFound", "Port", id)
        }
        ("GET", ["ports", id]) => {
            let port = state.ports.get(*id).map(|port| port.view(identity));
            ok(json!({"port": with_fields(port.unwrap_or_default(), &query)}))
        }
        ("PUT", ["ports", id]) => match checked(&body, "port", CHANGEABLE) {
            Err(refusal) => refusal,
            Ok(()) => update_port(state, identity, id, &body["port"]),
        },
        ("DELETE", ["ports", id]) => {
            state.ports.remove(*id);
            (StatusCode::NO_CONTENT, Value::Null)
        }
        (_, ["ports", _, "bindings", ..]) if !identity.admin => ok(json!({"bindings": []})),
        ("GET", ["ports", id, "bindings"]) => {
            let port = &state.ports[*id];
            ok(json!({"bindings": port.bindings.iter().map(Binding::view).collect::<Vec<_>>()}))
        }
        ("POST", ["ports", id, "bindings"]) => create_binding(state, id, &body["binding"]),
        ("PUT", ["ports", id, "bindings", host, "activate"]) => activate(state, id, host),
        ("DELETE", ["ports", id, "bindings", host]) => delete_binding(state, id, host),
        _ => refuse(404, "HTTPNotFound", "The resource could not be found."),
    }
}

const NETWORK_FILTERS: &[&str] =
    &["id", "tenant_id", "shared", "admin_state_up", "router:external", "name"];
const PORT_FILTERS: &[&str] =
    &["id", "device_id", "device_owner", "network_id", "tenant_id", "fixed_ips", "binding:host_id"];
const CREATABLE: &[&str] = &[
    "network_id",
    "tenant_id",
    "project_id",
    "admin_state_up",
    "device_id",
    "device_owner",
    "fixed_ips",
    "security_groups",
    "name",
    "mac_address",
    "dns_name",
    "binding:host_id",
    "binding:profile",
    "binding:vnic_type",
];
const CHANGEABLE: &[&str] = &[
    "admin_state_up",
    "device_id",
    "device_owner",
    "fixed_ips",
    "security_groups",
    "name",
    "mac_address",
    "dns_name",
    "binding:host_id",
    "binding:profile",
    "binding:vnic_type",
];

fn extensions() -> Vec<Value> {
    let aliases = [
        "binding",
        "binding-extended",
        "dns-integration",
        "fip-port-details",
        "ip-substring-filtering",
        "multi-provider",
        "port-resource-request-groups",
        "security-groups-shared-filtering",
        "segment",
    ];
    aliases.into_iter().map(|alias| json!({"alias": alias, "name": alias})).collect()
}

fn owns(identity: &Identity, object: &Value) -> bool {
    identity.admin || object["tenant_id"] == identity.project.as_str()
}

fn sees_network(identity: &Identity, network: &Value) -> bool {
    owns(identity, network) || network["shared"] == true || network["router:external"] == true
}

/// The caller's view of a network: only administrators see its segment.
fn network_view(identity: &Identity, network: &Value) -> Value {
    let mut view = network.clone();
    if let (false, Some(view)) = (identity.admin, view.as_object_mut()) {
        view.retain(|key, _| !key.starts_with("provider:") && key != "segments");
    }
    view
}

fn find<'a>(state: &'a State, identity: &Identity, id: &str) -> Option<&'a Port> {
    let port = state.ports.get(id);
    port.filter(|port| identity.admin || port.text("tenant_id") == identity.project)
}

/// The objects of a list that match the query. Refuses an attribute by which Neutron does not
/// filter, like its extension `filter-validation`.
fn list(
    key: &str,
    filters: &[&str],
    (query, page): (&[(String, String)], usize),
    all: impl Iterator<Item = Value>,
) -> Answer {
    let known = |key: &str| ["fields", "limit", "marker"].contains(&key) || filters.contains(&key);
    let unknown = query.iter().find(|(key, _)| !known(key));
    if let Some((unknown, _)) = unknown {
        let message = format!("[{unknown:?}] is invalid attribute for filtering");
        return refuse(400, "HTTPBadRequest", message.replace('"', "'"));
    }
    let matching = all.filter(|one| {
        filters.iter().all(|filter| {
            let wanted: Vec<&String> =
                query.iter().filter(|(key, _)| key == filter).map(|(_, value)| value).collect();
            wanted.is_empty() || wanted.iter().any(|wanted| matches(one, filter, wanted))
        })
    });
    let marker = query.iter().find(|(key, _)| key == "marker").map(|(_, id)| id.as_str());
    let mut found: Vec<Value> = matching
        .filter(|one| marker.is_none_or(|marker| one["id"].as_str() > Some(marker)))
        .collect();
    let has_more = page > 0 && found.len() > page;
    let mut answer = json!({});
    if has_more {
        found.truncate(page);
        let last = found.last().and_then(|last| last["id"].as_str()).unwrap_or_default();
        let own = query.iter().filter(|(key, _)| key != "marker" && key != "limit");
        let own: String = own.map(|(key, value)| format!("{key}={value}&")).collect();
        // Neutron behind a proxy does not know its own address.
        let href = format!("http://neutron.invalid/v2.0/?{own}limit={page}&marker={last}");
        answer[format!("{key}_links")] = json!([{"rel": "next", "href": href}]);
    }
    answer[key] = found.into_iter().map(|one| with_fields(one, query)).collect();
    ok(answer)
}

fn matches(one: &Value, filter: &str, wanted: &str) -> bool {
    if filter == "fixed_ips" {
        let (key, value) = wanted.split_once('=').unwrap_or((wanted, ""));
        let list = one["fixed_ips"].as_array().into_iter().flatten();
        let mut texts = list.filter_map(|fixed| fixed["ip_address"].as_str());
        return match key {
            "ip_address" => texts.any(|text| text == value),
            "ip_address_substr" => texts.any(|text| text.contains(value)),
            _ => false,
        };
    }
    match &one[filter] {
        Value::Bool(have) => *have == matches!(wanted, "True" | "true" | "1"),
        Value::String(have) => have == wanted,
        _ => false,
    }
}

fn with_fields(mut one: Value, query: &[(String, String)]) -> Value {
    let fields: Vec<&str> =
        query.iter().filter(|(key, _)| key == "fields").map(|(_, field)| field.as_str()).collect();
    if let (false, Some(object)) = (fields.is_empty(), one.as_object_mut()) {
        object.retain(|key, _| fields.contains(&key.as_str()));
    }
    one
}

/// Creates a project's network, or reports that it could (`fields=dry-run`).
fn allocate_network(state: &mut State, project: &str, is_dry: bool) -> Answer {
    match state.can_allocate {
        None => return refuse(404, "HTTPNotFound", "The resource could not be found."),
        Some(false) => {
            let message = "Deployment error: No default router:external network.";
            return refuse(409, "AutoAllocationFailure", message);
        }
        Some(true) => {}
    }
    let id = if is_dry {
        "dry-run=pass".to_owned()
    } else {
        let name = "auto_allocated_network";
        let known =
            state.networks.values().find(|one| one["tenant_id"] == project && one["name"] == name);
        match known.and_then(|one| one["id"].as_str()).map(str::to_owned) {
            Some(id) => id,
            None => {
                let id = state.add_network(project, name, json!({}));
                state.add_subnet(&id, "10.55.0.0/28");
                id
            }
        }
    };
    ok(json!({"auto_allocated_topology": {"id": id, "tenant_id": project}}))
}

/// Refuses a body without the object, and attributes that Neutron does not know.
fn checked(body: &Value, key: &str, known: &[&str]) -> Result<(), Answer> {
    let Some(object) = body[key].as_object() else {
        let message = format!("Unable to find '{key}' in request body");
        return Err(refuse(400, "HTTPBadRequest", message));
    };
    let unknown = object.keys().find(|name| !known.contains(&name.as_str()));
    unknown.map_or(Ok(()), |unknown| {
        let message = format!("Unrecognized attribute(s) '{unknown}'");
        Err(refuse(400, "HTTPBadRequest", message))
    })
}

/// An error of [`create_port`], with its status.
fn failed(status: u16, kind: &str, message: String) -> Value {
    json!({"status": status, "NeutronError": {"type": kind, "message": message, "detail": ""}})
}

/// Creates a port; the answer has a `port` or a `NeutronError` with its `status`.
pub(crate) fn create_port(state: &mut State, identity: &Identity, body: &Value) -> Value {
    let asked = &body["port"];
    let network_id = asked["network_id"].as_str().unwrap_or_default().to_owned();
    let Some(network) = state.networks.get(&network_id).filter(|one| sees_network(identity, one))
    else {
        let message = format!("Network {network_id} could not be found.");
        return failed(404, "NetworkNotFound", message);
    };
    let project = asked["tenant_id"].as_str().unwrap_or(&identity.project).to_owned();
    let secure = network["port_security_enabled"] == true;
    let quota = state.quotas.get(&project).copied().unwrap_or(-1);
    let used = state.ports.values().filter(|port| port.text("tenant_id") == project).count();
    if quota >= 0 && i64::try_from(used).unwrap_or(i64::MAX) >= quota {
        let message = "Quota exceeded for resources: ['port'].".to_owned();
        return failed(409, "OverQuota", message);
    }
    let fixed_ips = match allocate(state, &network_id, &asked["fixed_ips"]) {
        Ok(fixed_ips) => fixed_ips,
        Err(refusal) => return refusal,
    };
    let groups = match &asked["security_groups"] {
        Value::Array(groups) => json!(groups),
        _ if !secure => json!([]),
        _ => json!([default_group(state, &project)]),
    };
    state.last_mac += 1;
    let mac = state.last_mac.to_be_bytes();
    let mac = format!("fa:16:3e:{:02x}:{:02x}:{:02x}", mac[1], mac[2], mac[3]);
    let id = new_id();
    let text = |key: &str| asked[key].as_str().unwrap_or_default();
    let fields = json!({
        "id": id, "name": text("name"), "network_id": network_id, "tenant_id": project,
        "project_id": project, "admin_state_up": true, "mac_address": mac, "status": "DOWN",
        "device_id": text("device_id"), "device_owner": text("device_owner"), "fixed_ips": fixed_ips,
        "security_groups": groups, "port_security_enabled": secure, "dns_name": text("dns_name"),
        "ip_allocation": if fixed_ips.is_empty() { "none" } else { "immediate" },
        "allowed_address_pairs": [], "revision_number": 1,
    });
    let vnic_type = asked["binding:vnic_type"].as_str().unwrap_or("normal").to_owned();
    let mut body = fields.as_object().cloned().unwrap_or_default();
    if let Some(request) = state.guaranteed.get(&network_id) {
        body.insert("qos_network_policy_id".into(), json!(new_id()));
        body.insert("resource_request".into(), request.clone());
    }
    let port = Port { body, vnic_type, bindings: Vec::new(), is_skipped: false };
    let view = port.view(identity);
    state.ports.insert(id, port);
    json!({"port": view})
}

fn default_group(state: &mut State, project: &str) -> String {
    let found = state
        .groups
        .iter()
        .find(|(_, group)| group["name"] == "default" && group["tenant_id"] == project);
    match found.map(|(id, _)| id.clone()) {
        Some(id) => id,
        None => state.add_group(project, "default", false),
    }
}

/// The addresses of a new port: the requested ones, or the next of the network's first subnet.
fn allocate(state: &State, network: &str, asked: &Value) -> Result<Vec<Value>, Value> {
    let subnets: Vec<&Value> =
        state.subnets.values().filter(|one| one["network_id"] == network).collect();
    let on = state.ports.values().filter(|port| port.text("network_id") == network);
    let used: Vec<Ipv4Addr> = on.flat_map(Port::addresses).collect();
    let range = |subnet: &Value| {
        let (base, bits) = subnet["cidr"].as_str()?.split_once('/')?;
        let base = u32::from(base.parse::<Ipv4Addr>().ok()?);
        let size = 1_u32.checked_shl(32 - bits.parse::<u32>().ok()?)?;
        Some((base, size))
    };
    let fixed = |subnet: &Value, address: Ipv4Addr| json!({"subnet_id": subnet["id"], "ip_address": address});
    let mut found = Vec::new();
    for one in asked.as_array().into_iter().flatten() {
        let address: Ipv4Addr =
            one["ip_address"].as_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
                failed(400, "HTTPBadRequest", "Invalid input for fixed_ips.".to_owned())
            })?;
        let within = |subnet: &&&Value| {
            range(subnet).is_some_and(|(base, size)| u32::from(address).wrapping_sub(base) < size)
        };
        let Some(subnet) = subnets.iter().find(within) else {
            let message = format!(
                "IP address {address} is not a valid IP for any of the subnets on the specified \
                 network."
            );
            return Err(failed(400, "InvalidIpForNetwork", message));
        };
        if used.contains(&address) {
            let id = subnet["id"].as_str().unwrap_or_default();
            let message = format!("IP address {address} already allocated in subnet {id}");
            return Err(failed(409, "IpAddressAlreadyAllocated", message));
        }
        found.push(fixed(subnet, address));
    }
    if !found.is_empty() || subnets.is_empty() {
        return Ok(found);
    }
    for subnet in &subnets {
        let Some((base, size)) = range(subnet) else { continue };
        // The first address is the gateway's; the last one is for broadcasts.
        let mut free = (base + 2..base + size - 1).map(Ipv4Addr::from);
        if let Some(address) = free.find(|address| !used.contains(address)) {
            return Ok(vec![fixed(subnet, address)]);
        }
    }
    let message = format!("No more IP addresses available on network {network}.");
    Err(failed(409, "IpAddressGenerationFailure", message))
}

fn update_port(state: &mut State, identity: &Identity, id: &str, change: &Value) -> Answer {
    let mut change = change.as_object().cloned().unwrap_or_default();
    if let Some(asked) = change.get("fixed_ips").and_then(Value::as_array).cloned() {
        let network = state.ports[id].text("network_id").to_owned();
        let mut fixed_ips = Vec::new();
        for one in asked {
            if one.get("ip_address").is_some() {
                fixed_ips.push(one);
                continue;
            }
            let Ok(next) = allocate(state, &network, &Value::Null) else {
                let message = format!("No more IP addresses available on network {network}.");
                return refuse(409, "IpAddressGenerationFailure", message);
            };
            fixed_ips.extend(next);
        }
        change.insert("fixed_ips".into(), fixed_ips.into());
    }
    if let Some(key) =
        change.keys().find(|key| key.starts_with("binding:host") || *key == "binding:profile")
        && !identity.admin
    {
        let rule = format!("(rule:update_port and rule:update_port:{key}) is disallowed by policy");
        return refuse(403, "PolicyNotAuthorized", rule);
    }
    if let Some(mac) = change.get("mac_address") {
        let network = state.ports[id].text("network_id").to_owned();
        let other = state.ports.iter().any(|(other, port)| {
            other != id
                && port.text("network_id") == network
                && port.body.get("mac_address") == Some(mac)
        });
        if other {
            let mac = mac.as_str().unwrap_or_default();
            let message = format!(
                "Unable to complete operation for network {network}. The mac address {mac} is in use."
            );
            return refuse(409, "MacAddressInUse", message);
        }
    }
    let (agents, hybrid) = (state.agents.clone(), state.hybrid.clone());
    let port = state.ports.get_mut(id).expect("the caller found it");
    let mut profile: Option<Map<String, Value>> = None;
    let mut host: Option<String> = None;
    for (key, value) in change {
        match key.as_str() {
            "binding:host_id" => host = Some(value.as_str().unwrap_or_default().to_owned()),
            "binding:profile" => profile = Some(value.as_object().cloned().unwrap_or_default()),
            "binding:vnic_type" => {
                port.vnic_type = value.as_str().unwrap_or("normal").to_owned();
            }
            _ => {
                port.body.insert(key, value);
            }
        }
    }
    if port.bindings.iter().all(|binding| binding.active) {
        port.is_skipped = false;
    }
    if host.is_some() || profile.is_some() {
        let before = port.active().cloned();
        let host = host.or_else(|| before.as_ref().map(|one| one.host.clone())).unwrap_or_default();
        let moved = before
            .as_ref()
            .is_none_or(|before| before.host != host || before.vif_type == "binding_failed");
        let profile = profile.or_else(|| before.as_ref().map(|one| one.profile.clone()));
        let vif_type = match (host.is_empty(), agents.contains(&host)) {
            (true, _) => "unbound",
            (false, true) => "ovs",
            (false, false) => "binding_failed",
        };
        port.bindings.retain(|binding| !binding.active);
        let vnic_type = port.vnic_type.clone();
        let vif_type = vif_type.to_owned();
        let profile = profile.unwrap_or_default();
        let is_hybrid = hybrid.contains(&host);
        let binding = Binding { host, active: true, vnic_type, profile, vif_type, is_hybrid };
        port.bindings.insert(0, binding);
        if moved {
            port.body.insert("status".into(), json!("DOWN"));
        }
    }
    ok(json!({"port": port.view(identity)}))
}

fn create_binding(state: &mut State, id: &str, asked: &Value) -> Answer {
    let host = asked["host"].as_str().unwrap_or_default().to_owned();
    let has_agent = state.agents.contains(&host);
    let port = state.ports.get_mut(id).expect("the caller found it");
    if port.bindings.iter().any(|binding| binding.host == host) {
        let message = format!("Binding for port {id} on host {host} already exists.");
        return refuse(409, "PortBindingAlreadyExists", message);
    }
    if !has_agent {
        let message =
            format!("Binding for port {id} on host {host} could not be created or updated.");
        return refuse(500, "PortBindingError", message);
    }
    let active = port.bindings.is_empty();
    let vnic_type = asked["vnic_type"].as_str().unwrap_or("normal").to_owned();
    let profile = asked["profile"].as_object().cloned().unwrap_or_default();
    let is_hybrid = state.hybrid.contains(&host);
    let binding = Binding { host, active, vnic_type, profile, vif_type: "ovs".into(), is_hybrid };
    let view = binding.view();
    port.bindings.push(binding);
    (StatusCode::CREATED, json!({"binding": view}))
}

fn no_binding(id: &str, host: &str) -> Answer {
    refuse(
        404,
        "PortBindingNotFound",
        format!("Binding for port {id} for host {host} could not be found."),
    )
}

fn activate(state: &mut State, id: &str, host: &str) -> Answer {
    let port = state.ports.get_mut(id).expect("the caller found it");
    match port.bindings.iter().find(|binding| binding.host == host) {
        None => return no_binding(id, host),
        Some(binding) if binding.active => {
            let message = format!("Binding for port {id} on host {host} is already active.");
            return refuse(409, "PortBindingAlreadyActive", message);
        }
        Some(_) => {}
    }
    for binding in &mut port.bindings {
        if binding.active {
            binding.vif_type = "unbound".into();
        }
        binding.active = binding.host == host;
    }
    port.body.insert("status".into(), json!("DOWN"));
    port.is_skipped = true;
    // Unlike other answers, this one is not wrapped in a key.
    ok(port.active().map(Binding::view).unwrap_or_default())
}

fn delete_binding(state: &mut State, id: &str, host: &str) -> Answer {
    let port = state.ports.get_mut(id).expect("the caller found it");
    let Some(at) = port.bindings.iter().position(|binding| binding.host == host) else {
        return no_binding(id, host);
    };
    if port.bindings.remove(at).active {
        // As observed on a real Neutron: the port is deleted with its only active binding.
        state.ports.remove(id);
    }
    (StatusCode::NO_CONTENT, Value::Null)
}
