//! Policy targets of networks, subnets, ports and security groups, with the attribute names that
//! Neutron's rules use.

use crate::db::networks::Network;
use crate::db::ports::Port;
use crate::db::subnets::Subnet;

/// Attribute names and values.
pub(crate) type Fields<'a> = Vec<(&'a str, &'a str)>;

fn flag(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// A resource of a project.
pub(crate) fn of_project(project: &str) -> Fields<'_> {
    vec![("project_id", project), ("tenant_id", project)]
}

/// A resource of a project on a network.
pub(crate) fn on_network<'a>(project: &'a str, network: &'a Network) -> Fields<'a> {
    let mut fields = of_project(project);
    fields.push(("network:project_id", &network.project));
    fields.push(("shared", flag(network.flag("shared"))));
    fields.push(("router:external", flag(network.flag("router:external"))));
    fields
}

/// A network.
pub(crate) fn network(network: &Network) -> Fields<'_> {
    on_network(&network.project, network)
}

/// A subnet.
pub(crate) fn subnet<'a>(subnet: &'a Subnet, network: &'a Network) -> Fields<'a> {
    on_network(&subnet.record.project, network)
}

/// A port with its current or requested `device_owner`.
pub(crate) fn port<'a>(project: &'a str, owner: &'a str, network: &'a Network) -> Fields<'a> {
    let mut fields = on_network(project, network);
    fields.push(("device_owner", owner));
    fields
}

/// An existing port. Once detached from its server, it is no longer treated as a compute port.
pub(crate) fn of_port<'a>(one: &'a Port, network: &'a Network) -> Fields<'a> {
    let owner = one.record.text("device_owner");
    let detached = one.device_id.is_empty() && owner.starts_with("compute:");
    port(&one.record.project, if detached { "" } else { owner }, network)
}

/// A security group of a project, or a rule in it.
pub(crate) fn group(project: &str) -> Fields<'_> {
    let mut fields = of_project(project);
    fields.push(("security_group:project_id", project));
    fields.push(("shared", flag(false)));
    fields
}
