//! The required places of a server's devices relative to each other: `hw:gpu_topology` of a flavor and
//! `accel:topology` of a device profile.
//!
//! A topology becomes a condition of the query on the traits of device providers, so that a plan contains only
//! candidates that meet the condition, and the engine can explain why there are none. The claim checks the rows
//! of the devices again ([`check`]), because the plan may be older than the host's last report. A device whose
//! place the host does not report meets no condition.

use std::collections::BTreeSet;

use kilonova_accelerator::ledger::{self as devices, DevicePlace};
use kilonova_accelerator::{TOPOLOGY, Topology};
use kilonova_compute_db::servers::FlavorOf;
use kilonova_compute_scheduler::device_groups;
use kilonova_engine::{Alike, Candidate, Group, Query};
use kilonova_ids::{ConsumerId, ProviderId, nearness};
use kilonova_placement::World;
use kilonova_store::Tx;
use kilonova_wire::Refusal;

use super::query::Profiles;
use crate::Error;

/// The key in a group of a device profile.
pub(super) const OF_PROFILE: &str = TOPOLOGY;
/// The extra spec of a flavor.
pub const OF_FLAVOR: &str = "hw:gpu_topology";

/// The conditions that a flavor and the device profiles set on request groups. The flavor's condition applies to all
/// devices that the flavor requests, by any key; a profile's condition applies to the profile's devices.
///
/// # Errors
/// 400 for an unknown topology. A stored value may predate its validation.
pub(super) fn conditions(
    flavor: &FlavorOf,
    profiles: &Profiles,
    groups: &[Group],
) -> Result<Vec<Alike>, Error> {
    let mut all = Vec::new();
    if let Some(value) = flavor.extra_specs.get(OF_FLAVOR) {
        let of_port = |group: &&Group| {
            let suffixes = profiles
                .ports
                .iter()
                .flat_map(|port| (0..port.groups.len()).map(|index| port.suffix(index)));
            suffixes.into_iter().any(|suffix| suffix == group.suffix)
        };
        let own: Vec<Group> = groups.iter().filter(|group| !of_port(group)).cloned().collect();
        all.extend(condition(OF_FLAVOR, value, own)?);
    }
    for profile in profiles.iter() {
        let topologies: BTreeSet<&String> =
            profile.groups.iter().filter_map(|group| group.get(OF_PROFILE)).collect();
        let suffixes: Vec<String> =
            (0..profile.groups.len()).map(|index| profile.suffix(index)).collect();
        for value in topologies {
            let own = groups.iter().filter(|group| suffixes.contains(&group.suffix));
            all.extend(condition(OF_PROFILE, value, own.cloned().collect())?);
        }
    }
    Ok(all)
}

/// The condition of a topology; `None` for `any`.
fn condition(key: &str, value: &str, groups: Vec<Group>) -> Result<Option<Alike>, Error> {
    let Some(topology) = Topology::parse(value) else {
        let why =
            format!("Invalid value '{}' of {key}. {}", value.escape_debug(), Topology::allowed());
        return Err(Refusal::bad_request(why).into());
    };
    let (prefix, what) = match topology {
        Topology::Any => return Ok(None),
        Topology::SameNuma => (nearness::NUMA_NODE, "the requested devices free on one NUMA node"),
        Topology::SameSwitch => {
            (nearness::PCIE_SWITCH, "the requested devices free below one PCIe switch")
        }
        Topology::NvLink => {
            (nearness::GPU_ISLAND, "the requested devices free in one NVLink island")
        }
        Topology::NvLinkFull => (
            nearness::GPU_ISLAND,
            "a free NVLink island of exactly the requested number of devices",
        ),
        Topology::ExclusiveIsland => (
            nearness::GPU_ISLAND,
            "the requested devices free in an NVLink island that no other server uses",
        ),
    };
    let (groups, classes) = device_groups(&Query { groups, ..Query::default() });
    let constraint = format!("{key}={topology}");
    let description = format!("{what} ({constraint})");
    let whole = topology == Topology::NvLinkFull;
    let vacant = topology == Topology::ExclusiveIsland;
    Ok(Some(Alike {
        groups,
        classes,
        prefix: prefix.to_owned(),
        whole,
        vacant,
        constraint,
        description,
    }))
}

/// Checks the conditions on the devices of a candidate that a consumer has just claimed, and closes the island
/// that the consumer requests for itself.
///
/// # Errors
/// [`Error::Moved`] if a condition does not hold; store errors.
pub(super) fn check(
    tx: &mut Tx<'_>,
    world: &World,
    consumer: ConsumerId,
    candidate: &Candidate,
    alike: &[Alike],
) -> Result<(), Error> {
    for condition in alike {
        let providers = providers(candidate, condition);
        let Some(one_of_them) = providers.first().copied() else { continue };
        if condition.whole {
            devices::expect_island_of(tx, one_of_them)?;
        }
        let all: Vec<ProviderId> = providers.iter().copied().collect();
        let places = devices::device_places(tx, &all)?;
        let Some(first) = places.first().filter(|_| places.len() == all.len()) else {
            return Err(Error::Moved);
        };
        let at = |place: &DevicePlace| match condition.prefix.as_str() {
            nearness::NUMA_NODE => place.node.map(|node| node.to_string()),
            nearness::PCIE_SWITCH => place.switch.clone(),
            _ => place.island.clone(),
        };
        let Some(one) = at(first) else { return Err(Error::Moved) };
        if places.iter().any(|place| at(place).as_deref() != Some(&*one)) {
            return Err(Error::Moved);
        }
        if condition.whole && island(tx, one_of_them, condition)? != providers {
            return Err(Error::Moved);
        }
        if condition.vacant && !devices::close_island(tx, world, consumer, one_of_them)? {
            return Err(Error::Moved);
        }
    }
    Ok(())
}

/// The providers that are in the island of `provider` and offer a class of the condition.
fn island(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    condition: &Alike,
) -> Result<BTreeSet<ProviderId>, Error> {
    let all = devices::island_of(tx, provider)?.into_iter();
    let offering = all.filter(|(_, class)| condition.classes.contains(class));
    Ok(offering.map(|(provider, _)| provider).collect())
}

/// The providers of a candidate to which a condition applies.
fn providers(candidate: &Candidate, condition: &Alike) -> BTreeSet<ProviderId> {
    let of_class = |provider: &ProviderId| {
        candidate
            .allocations
            .iter()
            .any(|(known, class, _)| known == provider && condition.classes.contains(class))
    };
    let groups = candidate.mappings.iter().filter(|(suffix, _)| condition.groups.contains(suffix));
    groups.flat_map(|(_, providers)| providers).copied().filter(of_class).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kilonova_ids::{DeviceProfileId, PortId};

    use super::super::query::{ProfileGroups, query_of};
    use super::*;
    use crate::aliases::Aliases;
    use crate::extra_specs;

    fn flavor(specs: &[(&str, &str)]) -> FlavorOf {
        let mut flavor = crate::resolve::empty_flavor();
        let specs = specs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        flavor.extra_specs = specs.collect();
        flavor
    }

    fn profile(port: Option<PortId>, topology: Option<&str>) -> ProfileGroups {
        let mut group = BTreeMap::from([("resources:PGPU".to_owned(), "1".to_owned())]);
        let second = group.clone();
        group.extend(topology.map(|value| (OF_PROFILE.to_owned(), value.to_owned())));
        ProfileGroups { id: DeviceProfileId::nil(), groups: vec![group, second], port }
    }

    /// The conditions of a query: the constraint, the groups and the classes.
    fn of(flavor: &FlavorOf, profiles: &Profiles) -> Result<Vec<String>, Error> {
        let query = query_of(flavor, &BTreeMap::new(), profiles, &Aliases::new(), 0)?;
        let shown = |one: &Alike| {
            let classes: Vec<String> = one.classes.iter().map(ToString::to_string).collect();
            format!("{} [{}] {}", one.constraint, one.groups.join(","), classes.join(","))
        };
        Ok(query.alike.iter().map(shown).collect())
    }

    #[test]
    fn a_flavors_condition_is_on_all_devices_but_those_of_ports() {
        let specs = [
            ("hw:gpu_topology", "same-switch"),
            ("resources:VGPU", "1"),
            ("resources1:CUSTOM_H100", "1"),
            ("resources2:VCPU", "1"),
        ];
        let port = PortId::nil();
        let profiles = Profiles {
            flavor: Some(profile(None, None)),
            ports: vec![profile(Some(port), Some("nvlink"))],
            resources: Vec::new(),
        };
        let found = of(&flavor(&specs), &profiles).expect("the topology is known");
        assert_eq!(
            found,
            [
                "hw:gpu_topology=same-switch [,1,device_profile_0,device_profile_1] CUSTOM_H100,PGPU,VGPU"
                    .to_owned(),
                format!("accel:topology=nvlink [device_profile_0{port},device_profile_1{port}] PGPU"),
            ]
        );
        assert!(!profiles.may_program(), "a topology loads no bitstream");
    }

    #[test]
    fn every_known_topology_is_accepted_and_no_other() {
        let none = Profiles::default();
        for topology in Topology::ALL {
            let word = topology.word();
            assert!(extra_specs::check(OF_FLAVOR, word).is_ok(), "{word}");
            let specs = [(OF_FLAVOR, word), ("resources1:VGPU", "1")];
            let found = of(&flavor(&specs), &none).expect(word);
            assert_eq!(found.len(), usize::from(topology != Topology::Any), "{word}");
        }
        let profiles =
            Profiles { flavor: Some(profile(None, Some("near"))), ..Profiles::default() };
        let error = of(&flavor(&[]), &profiles).expect_err("an unknown topology");
        let Error::Refused(refusal) = error else { panic!("{error}") };
        assert!(refusal.message.contains("Invalid value 'near' of accel:topology"), "{refusal:?}");
    }
}
