//! Builds the candidates query from a flavor, image traits, aliases and device profiles, as Nova's
//! `scheduler/utils.py` does: `resources[S]:*`, `trait[S]:*`, `group_policy`, profile groups as
//! `device_profile_<n>`, the requests of ports in an external Neutron as groups named by their ids.

use std::collections::BTreeMap;

use kilonova_compute_db::port_claims::PortClaim;
use kilonova_compute_db::servers::{FlavorOf, Spec};
use kilonova_compute_scheduler::owners;
use kilonova_engine::{Group, Query};
use kilonova_ids::{DeviceProfileId, PortId, ProviderId, ResourceClass};
use kilonova_neutron::{RequestGroup, ResourceRequest};
use kilonova_node_api::GUEST_NUMA;
use kilonova_topology::GuestTopology;
use kilonova_wire::Refusal;

use super::near;
use crate::aliases::{self, Aliases};
use crate::{Error, numa};

/// A device profile in a boot.
#[derive(Debug, Clone)]
pub struct ProfileGroups {
    /// Its id.
    pub id: DeviceProfileId,
    /// Its groups, in order.
    pub groups: Vec<BTreeMap<String, String>>,
    /// Its port; `None` for the flavor's profile.
    pub port: Option<PortId>,
}

/// The resources that a port in an external Neutron requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortResources {
    /// The port.
    pub port: PortId,
    /// Its request.
    pub request: ResourceRequest,
}

impl PortResources {
    /// True if these claims match the request: one for each group, with its amounts.
    pub(crate) fn is_claimed_by(&self, claims: &[&PortClaim]) -> bool {
        let groups = &self.request.groups;
        let is_claimed = |group: &RequestGroup| {
            claims.iter().any(|claim| claim.group == group.id && claim.resources == group.resources)
        };
        claims.len() == groups.len() && groups.iter().all(is_claimed)
    }
}

/// The device profiles of a server's flavor and ports, and the resources that its ports request.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    /// The flavor's profile.
    pub flavor: Option<ProfileGroups>,
    /// One for each port with a device.
    pub ports: Vec<ProfileGroups>,
    /// One for each port that requests resources.
    pub resources: Vec<PortResources>,
}

impl Profiles {
    /// All profiles, the flavor's first.
    pub fn iter(&self) -> impl Iterator<Item = &ProfileGroups> {
        self.flavor.iter().chain(&self.ports)
    }

    /// True if one of the profiles names a bitstream.
    pub(crate) fn may_program(&self) -> bool {
        self.iter().any(ProfileGroups::may_program)
    }
}

impl ProfileGroups {
    /// Number of devices that a group requests.
    pub(crate) fn count_of(group: &BTreeMap<String, String>) -> i64 {
        group
            .iter()
            .filter(|(key, _)| key.starts_with("resources"))
            .filter_map(|(_, value)| value.trim().parse::<i64>().ok())
            .sum()
    }

    /// Number of devices that the profile requests.
    pub fn count(&self) -> i64 {
        self.groups.iter().map(Self::count_of).sum()
    }

    /// The suffix of a group, in upstream's form.
    pub(crate) fn suffix(&self, index: usize) -> String {
        match self.port {
            None => format!("device_profile_{index}"),
            Some(port) => format!("device_profile_{index}{port}"),
        }
    }

    /// True if the profile names a bitstream, so that devices may have to be programmed.
    pub(crate) fn may_program(&self) -> bool {
        let mut keys = self.groups.iter().flat_map(|group| group.keys());
        keys.any(|key| key.starts_with("accel:") && key != near::OF_PROFILE)
    }
}

fn empty(suffix: &str) -> Group {
    Group {
        suffix: suffix.to_owned(),
        resources: Vec::new(),
        required: Vec::new(),
        forbidden: Vec::new(),
        member_of: Vec::new(),
        forbidden_aggregates: Vec::new(),
        in_tree: None,
    }
}

/// The flavor's resources on a host: the root disk of a server without an image is a volume, which
/// uses none of the host's disk.
pub fn on_host(spec: &Spec, flavor: &FlavorOf) -> FlavorOf {
    let disk = if spec.image.is_none() { 0 } else { flavor.disk };
    FlavorOf { disk, ..flavor.clone() }
}

/// Builds the query for one server, from its flavor and the properties of its image.
///
/// # Errors
/// 400 for an extra spec whose amount is not a number, an undefined alias or an unknown topology.
pub fn query_of(
    flavor: &FlavorOf,
    properties: &BTreeMap<String, String>,
    profiles: &Profiles,
    aliases: &Aliases,
    seed: u64,
) -> Result<Query, Error> {
    let disk = flavor.disk + flavor.ephemeral + (flavor.swap + 1023) / 1024;
    let amounts = [("VCPU", flavor.vcpus), ("MEMORY_MB", flavor.ram), ("DISK_GB", disk)];
    let mut base: BTreeMap<ResourceClass, i64> =
        amounts.map(|(class, amount)| (ResourceClass::verbatim(class), amount)).into();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut isolate = false;
    for (key, value) in &flavor.extra_specs {
        if key == "group_policy" {
            isolate = value == "isolate";
        } else if let Some((suffix, class)) = resources(key) {
            let amount = amount(key, value)?;
            if suffix.is_empty() {
                base.insert(class, amount);
            } else if amount > 0 {
                let group = groups.entry(suffix.to_owned()).or_insert_with(|| empty(suffix));
                group.resources.push((class, amount));
            }
        } else if let Some((suffix, name)) = split(key, "trait") {
            let group = groups.entry(suffix.to_owned()).or_insert_with(|| empty(suffix));
            demand(group, name, value);
        }
    }
    for (key, value) in properties {
        if let Some(name) = key.strip_prefix("trait:").filter(|_| value == "required") {
            let group = groups.entry(String::new()).or_insert_with(|| empty(""));
            demand(group, name.trim(), value);
        }
    }
    let numa = numa::requested(flavor, properties);
    let mut root_required = vec![owners::of_root()];
    if let Some(guest) = &numa.topology {
        root_required.push(GUEST_NUMA.to_owned());
        cpus(guest, &groups, &mut base);
        if let Some(has_threads) = guest.needs().hyperthreading {
            let group = groups.entry(String::new()).or_insert_with(|| empty(""));
            demand(group, numa::THREADS, if has_threads { "required" } else { "forbidden" });
        }
    }
    let mut unsuffixed = groups.remove("").unwrap_or_else(|| empty(""));
    unsuffixed.resources = base.into_iter().filter(|(_, amount)| *amount > 0).collect();
    let mut all = vec![unsuffixed];
    all.extend(groups.into_values());
    all.iter_mut().for_each(owners::of_flavor);
    all.extend(aliases::groups(aliases, flavor)?);
    if profiles.flavor.is_some() {
        root_required.push("COMPUTE_ACCELERATORS".to_owned());
    }
    for profile in profiles.iter() {
        for (index, spec) in profile.groups.iter().enumerate() {
            let mut group = empty(&profile.suffix(index));
            for (key, value) in spec {
                if let Some((_, class)) = resources(key) {
                    group.resources.push((class, amount(key, value)?));
                } else if let Some((_, name)) = split(key, "trait") {
                    demand(&mut group, name, value);
                }
            }
            owners::of_profile(&mut group);
            all.push(group);
        }
    }
    root_required.sort_unstable();
    let alike = near::conditions(flavor, profiles, &all)?;
    let mut same_subtree = Vec::new();
    for PortResources { request, .. } in &profiles.resources {
        all.extend(request.groups.iter().map(of_port));
        same_subtree.extend(subtree(request));
    }
    Ok(Query {
        groups: all,
        isolate,
        same_subtree,
        alike,
        root_required,
        root_forbidden: vec!["COMPUTE_STATUS_DISABLED".to_owned()],
        limit: None,
        seed,
    })
}

/// Builds the query for the resources of ports that are added to a server, in the tree of its host.
pub(crate) fn query_of_ports(ports: &[PortResources], root: ProviderId) -> Query {
    let group = |group| Group { in_tree: Some(root), ..of_port(group) };
    let requests = ports.iter().map(|port| &port.request);
    Query {
        groups: requests.clone().flat_map(|request| &request.groups).map(group).collect(),
        same_subtree: requests.filter_map(subtree).collect(),
        seed: rand::random(),
        ..Query::default()
    }
}

/// The groups of a request whose providers must be in one subtree.
fn subtree(request: &ResourceRequest) -> Option<Vec<String>> {
    let is_known = |id: &String| request.groups.iter().any(|group| group.id == *id);
    let ids = &request.same_subtree;
    (!ids.is_empty() && ids.iter().all(is_known)).then(|| ids.clone())
}

/// A group of a port's request. As for flavors, an unknown class or trait is not an error: no host has it, so there
/// are no candidates.
fn of_port(group: &RequestGroup) -> Group {
    let amounts = group.resources.iter().filter(|(_, amount)| **amount > 0);
    let amount =
        |(class, amount): (&String, &i64)| (ResourceClass::verbatim(class.as_str()), *amount);
    Group {
        resources: amounts.map(amount).collect(),
        required: group.required.iter().map(|name| vec![name.clone()]).collect(),
        ..empty(&group.id)
    }
}

/// Requests the CPUs of a topology, dedicated ones as `PCPU`, except those that groups with a suffix already request.
fn cpus(
    guest: &GuestTopology,
    groups: &BTreeMap<String, Group>,
    base: &mut BTreeMap<ResourceClass, i64>,
) {
    let needs = guest.needs();
    for (name, amount) in [("VCPU", needs.shared), ("PCPU", needs.dedicated)] {
        let class = ResourceClass::verbatim(name);
        let elsewhere = groups.values().flat_map(|group| &group.resources);
        let elsewhere = elsewhere.filter(|(other, _)| *other == class).map(|(_, amount)| *amount);
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        base.insert(class.clone(), amount.saturating_sub(elsewhere.sum()).max(0));
    }
}

/// The suffix and the class of `resources1:VGPU`. As in upstream, an unknown class is not an
/// error here: no host offers it, so there are no candidates.
fn resources(key: &str) -> Option<(&str, ResourceClass)> {
    split(key, "resources").map(|(suffix, class)| (suffix, ResourceClass::verbatim(class)))
}

/// Splits `resources1:VGPU` into suffix `1` and name `VGPU`.
fn split<'a>(key: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    key.strip_prefix(kind)?.split_once(':').map(|(suffix, name)| (suffix, name.trim()))
}

fn demand(group: &mut Group, name: &str, value: &str) {
    match value {
        "required" => group.required.push(vec![name.to_owned()]),
        "forbidden" => group.forbidden.push(name.to_owned()),
        _ => {}
    }
}

fn amount(key: &str, value: &str) -> Result<i64, Error> {
    match value.trim().parse::<i64>() {
        Ok(amount) if amount >= 0 => Ok(amount),
        _ => Err(Refusal::bad_request(format!(
            "Invalid input for extra spec {key}: {value} is not a number of resources. Correct the \
             flavor or the device profile."
        ))
        .into()),
    }
}
