//! Policy targets of the network service's resources, with the attribute names that Neutron's rules use.
//!
//! As in `neutron/pecan_wsgi/hooks/policy_enforcement.py`, the target of an operation has the attributes of the stored
//! resource and those that the request sends. Lists and objects are left out: no check can compare them.

use std::borrow::Cow;
use std::fmt::Display;

use kilonova_access::Caller;
use kilonova_wire::Refusal;
use newtype_uuid::TypedUuidKind;
use serde_json::Value;

use crate::db::floating::FloatingIp;
use crate::db::groups::{Group, Rule};
use crate::db::networks::Network;
use crate::db::ports::Port;
use crate::db::routers::Router;
use crate::db::subnets::Subnet;
use crate::record::{Body, Record};

/// A value of a target, written only for a rule that needs it.
#[derive(Clone, Copy)]
enum Source<'a> {
    Text(&'a str),
    Shown(&'a dyn Display),
}

impl<'a> Source<'a> {
    fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Shown(value) => Cow::Owned(value.to_string()),
        }
    }

    fn or_none(value: Option<&'a impl Display>) -> Self {
        value.map_or(Self::Text("None"), |value| Self::Shown(value))
    }
}

impl<'a> From<&'a str> for Source<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

type Pair<'a> = (&'a str, Source<'a>);

/// Attribute names and values.
pub(crate) struct Target<'a> {
    /// The owners of a resource and the attributes of its network, which no request can replace.
    fixed: Vec<Pair<'a>>,
    /// The attributes that the request sends. They replace those of the stored resource.
    sent: Option<&'a Body>,
    /// The attributes of the stored resource.
    stored: Option<&'a Body>,
    /// Attributes of the stored resource that its body does not have.
    derived: Vec<Pair<'a>>,
}

impl<'a> Target<'a> {
    fn fix(mut self, name: &'a str, value: impl Into<Source<'a>>) -> Self {
        self.fixed.push((name, value.into()));
        self
    }

    /// Adds the attributes of a stored resource.
    fn stored<K: TypedUuidKind>(mut self, record: &'a Record<K>) -> Self {
        self.stored = Some(&record.body);
        self.derived([("id", Source::Shown(&record.id))])
    }

    /// Adds attributes of a stored resource that its body does not have.
    fn derived<const N: usize>(mut self, pairs: [Pair<'a>; N]) -> Self {
        self.derived.extend(pairs);
        self
    }

    /// Adds the attributes that a request sends. They replace those of the stored resource.
    pub(crate) fn sent(mut self, body: &'a Body) -> Self {
        self.sent = Some(body);
        self
    }

    fn value(&self, name: &str) -> Option<Cow<'a, str>> {
        let among = |pairs: &[Pair<'a>]| {
            pairs.iter().find(|(have, _)| *have == name).map(|(_, value)| value.text())
        };
        let of = |body: Option<&'a Body>| written(body?.get(name)?);
        among(&self.fixed)
            .or_else(|| of(self.sent))
            .or_else(|| of(self.stored))
            .or_else(|| among(&self.derived))
    }

    /// True if the rule allows the caller to act on the target. Writes only the values that the rule needs: the default
    /// rules need few, and lists have many objects.
    pub(crate) fn allows(&self, caller: &Caller, rule: &str) -> bool {
        let needs = caller.policy().needs(rule).iter();
        let values: Vec<_> =
            needs.filter_map(|name| Some((name.as_str(), self.value(name)?))).collect();
        let pairs: Vec<_> = values.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        caller.allows(rule, &pairs)
    }

    /// Refuses the caller unless the rule allows the target.
    ///
    /// # Errors
    /// A 403 that names the rule.
    pub(crate) fn may(&self, caller: &Caller, rule: &str) -> Result<(), Refusal> {
        match self.allows(caller, rule) {
            true => Ok(()),
            false => Err(caller.policy().refusal(rule)),
        }
    }
}

/// A value of a body as Python writes it; `None` for lists and objects.
fn written(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(value) => Some(Cow::Borrowed(flag(*value))),
        Value::Null => Some(Cow::Borrowed("None")),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Array(_) | Value::Object(_) => None,
    }
}

fn flag(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// The target with no attribute but its project: of quotas, and of resources that do not exist yet.
pub(crate) fn of_project(project: &str) -> Target<'_> {
    Target { fixed: Vec::with_capacity(8), sent: None, stored: None, derived: Vec::new() }
        .fix("project_id", project)
        .fix("tenant_id", project)
}

/// A router.
pub(crate) fn router(router: &Router) -> Target<'_> {
    of_project(&router.project).stored(router).derived([("status", "ACTIVE".into())])
}

/// A floating IP.
pub(crate) fn floating(one: &FloatingIp) -> Target<'_> {
    let fixed = one.fixed.as_ref();
    of_project(&one.record.project).stored(&one.record).derived([
        ("floating_network_id", Source::Shown(&one.network)),
        ("floating_ip_address", Source::Shown(&one.address)),
        ("port_id", Source::or_none(fixed.map(|fixed| &fixed.port))),
        ("fixed_ip_address", Source::or_none(fixed.map(|fixed| &fixed.address))),
        ("router_id", Source::or_none(fixed.map(|fixed| &fixed.router))),
        ("status", super::floating::status(one).into()),
    ])
}

/// A resource of a project on a network.
pub(crate) fn on_network<'a>(project: &'a str, network: &'a Network) -> Target<'a> {
    of_project(project)
        .fix("network:project_id", network.project.as_str())
        .fix("network_id", Source::Shown(&network.id))
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
    new_group(&rule.record.project)
        .stored(&rule.record)
        .derived([("security_group_id", Source::Shown(&rule.group))])
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
        let value = |name| target.value(name);
        assert_eq!(value("name").as_deref(), Some("b"));
        assert_eq!(value("shared").as_deref(), Some("False"));
        assert_eq!(value("mtu").as_deref(), Some("1500"));
        assert_eq!(value("network:project_id").as_deref(), Some("red"));
        assert_eq!(value("id"), Some(one.id.to_string().into()));
        assert_eq!(value("tags"), None);
        let sent = body(json!({"mtu": []}));
        assert_eq!(network(&one).sent(&sent).value("mtu").as_deref(), Some("1500"));
        let sent = body(json!({"shared": false}));
        let target = on_network("blue", &one).sent(&sent);
        assert_eq!(target.value("shared").as_deref(), Some("True"), "the network's attribute");
    }
}
