//! Policy targets of the network service's resources, with the attribute names that Neutron's rules use.
//!
//! As in `neutron/pecan_wsgi/hooks/policy_enforcement.py`, the target of an operation has the attributes of the stored
//! resource and those that the request sends. Lists and objects are left out: no check can compare them.

use std::borrow::Cow;

use newtype_uuid::TypedUuidKind;
use serde_json::Value;

use crate::db::floating::FloatingIp;
use crate::db::groups::{Group, Rule};
use crate::db::networks::Network;
use crate::db::ports::Port;
use crate::db::routers::Router;
use crate::db::subnets::Subnet;
use crate::record::{Body, Record};

type Pair<'a> = (&'a str, Cow<'a, str>);

/// Attribute names and values.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    /// The owners of a resource and the attributes of its network, which no request can replace.
    fixed: Vec<Pair<'a>>,
    /// The attributes of the resource.
    own: Vec<Pair<'a>>,
}

impl<'a> Target<'a> {
    fn fix(mut self, name: &'a str, value: impl Into<Cow<'a, str>>) -> Self {
        self.fixed.push((name, value.into()));
        self
    }

    /// Adds the attributes of a stored resource.
    fn stored<K: TypedUuidKind>(mut self, record: &'a Record<K>) -> Self {
        self.own.push(("id", record.id.to_string().into()));
        self.own.extend(attributes(&record.body));
        self
    }

    /// Adds attributes of a stored resource that its body does not have.
    fn derived<const N: usize>(mut self, pairs: [Pair<'a>; N]) -> Self {
        self.own.extend(pairs);
        self
    }

    /// Adds the attributes that a request sends. They replace those of the stored resource.
    pub(crate) fn sent(mut self, body: &'a Body) -> Self {
        self.own = attributes(body).chain(self.own).collect();
        self
    }

    /// The names and values for rules.
    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        self.fixed.iter().chain(&self.own).map(|(name, value)| (*name, value.as_ref())).collect()
    }
}

/// The values of a body as Python writes them.
fn attributes(body: &Body) -> impl Iterator<Item = Pair<'_>> {
    body.iter().filter_map(|(name, value)| {
        let text = match value {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            Value::Bool(value) => Cow::Borrowed(flag(*value)),
            Value::Null => Cow::Borrowed("None"),
            Value::Number(number) => Cow::Owned(number.to_string()),
            Value::Array(_) | Value::Object(_) => return None,
        };
        Some((name.as_str(), text))
    })
}

fn flag(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// The target with no attribute but its project: of quotas, and of resources that do not exist yet.
pub(crate) fn of_project(project: &str) -> Target<'_> {
    Target { fixed: Vec::new(), own: Vec::new() }
        .fix("project_id", project)
        .fix("tenant_id", project)
}

/// A router.
pub(crate) fn router(router: &Router) -> Target<'_> {
    of_project(&router.project).stored(router).derived([("status", "ACTIVE".into())])
}

/// A floating IP.
pub(crate) fn floating(one: &FloatingIp) -> Target<'_> {
    let fixed = one.fixed;
    of_project(&one.record.project).stored(&one.record).derived([
        ("floating_network_id", one.network.to_string().into()),
        ("floating_ip_address", one.address.to_string().into()),
        ("port_id", or_none(fixed.map(|fixed| fixed.port))),
        ("fixed_ip_address", or_none(fixed.map(|fixed| fixed.address))),
        ("router_id", or_none(fixed.map(|fixed| fixed.router))),
        ("status", super::floating::status(one).into()),
    ])
}

fn or_none(value: Option<impl ToString>) -> Cow<'static, str> {
    value.map_or(Cow::Borrowed("None"), |value| value.to_string().into())
}

/// A resource of a project on a network.
pub(crate) fn on_network<'a>(project: &'a str, network: &'a Network) -> Target<'a> {
    of_project(project)
        .fix("network:project_id", network.project.as_str())
        .fix("network_id", network.id.to_string())
        .fix("shared", flag(network.flag("shared")))
        .fix("router:external", flag(network.flag("router:external")))
}

/// A network.
pub(crate) fn network(network: &Network) -> Target<'_> {
    of_project(&network.project)
        .fix("network:project_id", network.project.as_str())
        .stored(network)
        .derived(["shared", "router:external"].map(|name| (name, flag(network.flag(name)).into())))
        .derived([("status", "ACTIVE".into())])
}

/// A subnet.
pub(crate) fn subnet<'a>(subnet: &'a Subnet, network: &'a Network) -> Target<'a> {
    on_network(&subnet.record.project, network).stored(&subnet.record)
}

/// A port with its current or requested `device_owner`.
pub(crate) fn port<'a>(project: &'a str, owner: &'a str, network: &'a Network) -> Target<'a> {
    on_network(project, network).fix("device_owner", owner)
}

/// An existing port. Once detached from its server, it is no longer treated as a compute port.
pub(crate) fn of_port<'a>(one: &'a Port, network: &'a Network) -> Target<'a> {
    let owner = one.record.text("device_owner");
    let detached = one.device_id.is_empty() && owner.starts_with("compute:");
    port_with(one, if detached { "" } else { owner }, network)
}

/// An existing port with this `device_owner`.
pub(crate) fn port_with<'a>(one: &'a Port, owner: &'a str, network: &'a Network) -> Target<'a> {
    let host = one.host.as_deref().unwrap_or_default();
    port(&one.record.project, owner, network).stored(&one.record).derived([
        ("mac_address", one.mac.as_str().into()),
        ("device_id", one.device_id.as_str().into()),
        ("binding:host_id", host.into()),
        ("status", super::ports::status(one).into()),
    ])
}

/// A new security group of a project, or a new rule in one.
pub(crate) fn new_group(project: &str) -> Target<'_> {
    of_project(project).fix("security_group:project_id", project).fix("shared", flag(false))
}

/// A security group.
pub(crate) fn group(group: &Group) -> Target<'_> {
    new_group(&group.project).stored(group)
}

/// A rule in a security group, which belongs to the same project.
pub(crate) fn rule(rule: &Rule) -> Target<'_> {
    let group = rule.group.to_string();
    new_group(&rule.record.project)
        .stored(&rule.record)
        .derived([("security_group_id", group.into())])
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn body(value: Value) -> Body {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn a_request_replaces_attributes_but_no_owner() {
        let stored = body(json!({"name": "a", "shared": true, "mtu": 1500, "tags": []}));
        let one: Network = Record::new("red", stored, Timestamp::UNIX_EPOCH);
        let sent = body(json!({"name": "b", "shared": false, "network:project_id": "blue"}));
        let target = network(&one).sent(&sent);
        let pairs = target.pairs();
        let value = |name| pairs.iter().find(|(have, _)| *have == name).map(|(_, value)| *value);
        assert_eq!(value("name"), Some("b"));
        assert_eq!(value("shared"), Some("False"));
        assert_eq!(value("mtu"), Some("1500"));
        assert_eq!(value("network:project_id"), Some("red"));
        assert_eq!(value("tags"), None);
        let sent = body(json!({"shared": false}));
        let target = on_network("blue", &one).sent(&sent);
        assert!(target.pairs().contains(&("shared", "True")), "the network's attribute");
    }
}
