//! The state of the fake, and changes to it without the API.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::Identity;

/// A binding of a port: host, status, profile and the resulting VIF.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub host: String,
    pub active: bool,
    pub vnic_type: String,
    pub profile: Map<String, Value>,
    pub vif_type: String,
    /// True if the host's agent filters with iptables.
    pub is_hybrid: bool,
}

impl Binding {
    pub(crate) fn details(&self) -> Value {
        match self.vif_type.as_str() {
            "ovs" => json!({
                "port_filter": true, "connectivity": "l2", "bridge_name": "br-int",
                "datapath_type": "netdev", "ovs_hybrid_plug": self.is_hybrid,
            }),
            _ => json!({}),
        }
    }

    pub(crate) fn view(&self) -> Value {
        let status = if self.active { "ACTIVE" } else { "INACTIVE" };
        json!({
            "host": self.host, "status": status, "vif_type": self.vif_type,
            "vif_details": self.details(), "vnic_type": self.vnic_type, "profile": self.profile,
        })
    }
}

/// A port. Its attributes are those of the API except for the binding's.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    pub body: Map<String, Value>,
    pub vnic_type: String,
    pub bindings: Vec<Binding>,
    /// True if the agent of its host mistakes it for a port that is migrating away. The Open vSwitch agent was observed
    /// to check again only when the port is updated, and the other binding must be gone by then.
    pub is_skipped: bool,
}

impl Port {
    pub(crate) fn text(&self, key: &str) -> &str {
        self.body.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn active(&self) -> Option<&Binding> {
        self.bindings.iter().find(|binding| binding.active)
    }

    /// The port as a caller sees it: only administrators see the binding.
    pub(crate) fn view(&self, identity: &Identity) -> Value {
        let mut view = self.body.clone();
        view.insert("binding:vnic_type".into(), json!(self.vnic_type));
        if identity.admin {
            let none = Binding {
                host: String::new(),
                active: true,
                vnic_type: self.vnic_type.clone(),
                profile: Map::new(),
                vif_type: "unbound".into(),
                is_hybrid: false,
            };
            let active = self.active().unwrap_or(&none);
            view.insert("binding:host_id".into(), json!(active.host));
            view.insert("binding:vif_type".into(), json!(active.vif_type));
            view.insert("binding:vif_details".into(), active.details());
            view.insert("binding:profile".into(), json!(active.profile));
            view.entry("resource_request").or_insert(Value::Null);
        } else {
            view.remove("resource_request");
        }
        Value::Object(view)
    }

    /// The address of the port on its only subnet.
    pub(crate) fn addresses(&self) -> Vec<Ipv4Addr> {
        let list = self.body.get("fixed_ips").and_then(Value::as_array);
        let one = |fixed: &Value| fixed["ip_address"].as_str()?.parse().ok();
        list.into_iter().flatten().filter_map(one).collect()
    }
}

/// The whole state of the fake.
#[derive(Debug, Default)]
pub struct State {
    /// Maximum number of objects in one answer; 0 for all of them.
    pub page_size: usize,
    pub(crate) networks: BTreeMap<String, Value>,
    pub(crate) subnets: BTreeMap<String, Value>,
    pub(crate) ports: BTreeMap<String, Port>,
    pub(crate) groups: BTreeMap<String, Value>,
    pub(crate) floating: Vec<Value>,
    pub(crate) quotas: BTreeMap<String, i64>,
    pub(crate) agents: BTreeSet<String>,
    pub(crate) hybrid: BTreeSet<String>,
    pub(crate) last_mac: u32,
    pub(crate) can_allocate: Option<bool>,
    /// The resources that QoS policies of networks guarantee their ports.
    pub(crate) guaranteed: BTreeMap<String, Value>,
}

/// A new id, as Neutron makes them.
pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

impl State {
    /// Adds a live agent, which connects ports on this host.
    pub fn add_agent(&mut self, host: &str) {
        self.agents.insert(host.to_owned());
    }

    /// Adds a live agent that connects ports on this host and filters with iptables.
    pub fn add_hybrid_agent(&mut self, host: &str) {
        self.add_agent(host);
        self.hybrid.insert(host.to_owned());
    }

    /// Removes the agent of this host, as if it had died.
    pub fn remove_agent(&mut self, host: &str) {
        self.agents.remove(host);
    }

    /// Adds a network of a project with these attributes in addition to the usual ones, and returns its id.
    pub fn add_network(&mut self, project: &str, name: &str, more: Value) -> String {
        let id = new_id();
        let mut network = json!({
            "id": id, "name": name, "tenant_id": project, "project_id": project,
            "admin_state_up": true, "status": "ACTIVE", "shared": false, "router:external": false,
            "port_security_enabled": true, "subnets": [], "mtu": 1450, "dns_domain": "",
            "provider:network_type": "vxlan", "provider:physical_network": null,
            "provider:segmentation_id": 1,
        });
        if let (Some(network), Value::Object(more)) = (network.as_object_mut(), more) {
            network.extend(more);
        }
        self.networks.insert(id.clone(), network);
        id
    }

    /// Adds a subnet of a network, such as `10.99.0.0/29`, and returns its id.
    ///
    /// # Panics
    /// When there is no such network.
    pub fn add_subnet(&mut self, network: &str, cidr: &str) -> String {
        let id = new_id();
        let base: Ipv4Addr = cidr.split('/').next().expect("a range").parse().expect("an address");
        let gateway = Ipv4Addr::from(u32::from(base) + 1);
        let owner = self.networks.get_mut(network).expect("the network exists");
        let project = owner["tenant_id"].clone();
        owner["subnets"].as_array_mut().expect("a list").push(json!(id));
        let subnet = json!({
            "id": id, "network_id": network, "cidr": cidr, "ip_version": 4, "gateway_ip": gateway,
            "enable_dhcp": true, "dns_nameservers": [], "host_routes": [], "name": "",
            "ipv6_address_mode": null, "ipv6_ra_mode": null, "tenant_id": project.clone(),
            "project_id": project,
        });
        self.subnets.insert(id.clone(), subnet);
        id
    }

    /// Adds a security group of a project and returns its id.
    pub fn add_group(&mut self, project: &str, name: &str, shared: bool) -> String {
        let id = new_id();
        let group = json!({
            "id": id, "name": name, "description": "", "tenant_id": project, "project_id": project,
            "shared": shared, "security_group_rules": [],
        });
        self.groups.insert(id.clone(), group);
        id
    }

    /// Adds a free port of a project and returns its id.
    ///
    /// # Panics
    /// When the network has no free address.
    pub fn add_port(&mut self, project: &str, network: &str, vnic_type: &str) -> String {
        let identity = Identity { project: project.to_owned(), admin: true };
        let body = json!({"port": {
            "network_id": network, "tenant_id": project, "binding:vnic_type": vnic_type,
        }});
        let made = super::requests::create_port(self, &identity, &body);
        made["port"]["id"].as_str().expect("the port is created").to_owned()
    }

    /// Adds a floating IP of a port.
    pub fn add_floating_ip(&mut self, port: &str, fixed: &str, address: &str) {
        self.floating.push(json!({
            "id": new_id(), "port_id": port, "fixed_ip_address": fixed,
            "floating_ip_address": address, "status": "ACTIVE",
        }));
    }

    /// Sets the port quota of a project.
    pub fn set_port_quota(&mut self, project: &str, ports: i64) {
        self.quotas.insert(project.to_owned(), ports);
    }

    /// Adds the extension with which Neutron creates networks for projects that have none, provided that its operator
    /// has prepared this. Without this call the fake does not have the extension.
    pub fn set_allocation(&mut self, is_prepared: bool) {
        self.can_allocate = Some(is_prepared);
    }

    /// Changes an attribute of a port without the API.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn change_port(&mut self, port: &str, key: &str, value: Value) {
        let port = self.ports.get_mut(port).expect("the port exists");
        port.body.insert(key.to_owned(), value);
    }

    /// Gives a port a QoS policy that guarantees these resources, as `resource_request` shows.
    pub fn set_resource_request(&mut self, port: &str, request: Value) {
        self.change_port(port, "qos_policy_id", json!(new_id()));
        self.change_port(port, "resource_request", request);
    }

    /// Changes the policy of a bound port: its request, and the groups that its binding names, as Neutron writes both
    /// after changing the allocations.
    ///
    /// # Panics
    /// When the port is not bound.
    pub fn change_policy(&mut self, port: &str, request: Value, allocation: Value) {
        self.set_resource_request(port, request);
        let port = self.ports.get_mut(port).expect("the port exists");
        let binding = port.bindings.iter_mut().find(|binding| binding.active);
        let binding = binding.expect("the port is bound");
        binding.profile.insert("allocation".to_owned(), allocation);
    }

    /// Gives a network a QoS policy that guarantees its new ports these resources.
    pub fn guarantee(&mut self, network: &str, request: Value) {
        self.guaranteed.insert(network.to_owned(), request);
    }

    /// Gives a port an unconnected binding with this profile.
    ///
    /// # Panics
    /// When there is no such port, or the profile is not an object.
    pub fn set_profile(&mut self, port: &str, profile: Value) {
        let port = self.ports.get_mut(port).expect("the port exists");
        port.bindings = vec![Binding {
            host: String::new(),
            active: true,
            vnic_type: port.vnic_type.clone(),
            profile: profile.as_object().expect("an object").clone(),
            vif_type: "unbound".into(),
            is_hybrid: false,
        }];
    }

    /// Sets the status of a port, as if its host had connected it or not.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn set_status(&mut self, port: &str, status: &str) {
        let port = self.ports.get_mut(port).expect("the port exists");
        port.body.insert("status".into(), json!(status));
    }

    /// All ports as an administrator sees them.
    pub fn ports(&self) -> Vec<Value> {
        let admin = Identity { project: String::new(), admin: true };
        self.ports.values().map(|port| port.view(&admin)).collect()
    }

    /// A port as an administrator sees it; null if there is none.
    pub fn port(&self, id: &str) -> Value {
        let admin = Identity { project: String::new(), admin: true };
        self.ports.get(id).map_or(Value::Null, |port| port.view(&admin))
    }

    /// True if the agent of a port's host does not connect it because it mistakes it for a port that is migrating away.
    pub fn is_skipped(&self, id: &str) -> bool {
        self.ports.get(id).is_some_and(|port| port.is_skipped)
    }

    /// The hosts of the bindings of a port, the active one first.
    pub fn hosts_of(&self, id: &str) -> Vec<String> {
        let mut bindings = self.ports.get(id).map(|port| port.bindings.clone()).unwrap_or_default();
        bindings.sort_by_key(|binding| !binding.active);
        bindings.into_iter().map(|binding| binding.host).collect()
    }

    /// Deletes a port without the API.
    pub fn remove_port(&mut self, id: &str) {
        self.ports.remove(id);
    }
}
