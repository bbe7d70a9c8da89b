//! `[pci] alias`: the devices that a flavor's `pci_passthrough:alias` requests, as request groups.
//!
//! As in upstream with PCI devices in Placement, each device has its own group, so that two functions
//! may be on the same card or on different ones (`group_policy`). This module defines the meaning of
//! `NAME:COUNT,…`; the configuration defines the aliases.

use std::collections::BTreeMap;

use kilonova_compute_db::servers::FlavorOf;
use kilonova_compute_scheduler::owners;
use kilonova_engine::{Candidate, Group};
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_topology::PciPolicy;
use kilonova_wire::Refusal;

use crate::Error;

const KEY: &str = "pci_passthrough:alias";
/// The prefix of the suffix of each alias's group. It contains a dot, which suffixes in extra specs cannot contain.
const SUFFIX: &str = "_pci_alias.";
/// Maximum number of devices that one flavor may request.
const MOST: usize = 256;

/// The requirements of one device of an alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// The resource class; one unit is allocated.
    pub resource_class: ResourceClass,
    /// Traits that the provider must have.
    pub required: Vec<String>,
    /// Traits that the provider must not have.
    pub forbidden: Vec<String>,
    /// How near the device must be to a guest with a topology, unless the guest's flavor or image sets a policy.
    pub numa_policy: Option<PciPolicy>,
}

/// Nova's policy for devices of an alias that sets none.
const USUAL_POLICY: PciPolicy = PciPolicy::Legacy;

/// The configured aliases by name.
pub type Aliases = BTreeMap<String, Alias>;

/// Refuses a flavor that names an undefined alias: a server must not run without the devices that
/// it requests.
///
/// # Errors
/// 400 with Nova's message.
pub fn check(aliases: &Aliases, flavor: &FlavorOf) -> Result<(), Error> {
    wanted(aliases, flavor).map(drop)
}

/// One group for each device that the flavor requests.
///
/// # Errors
/// 400 with Nova's message for an undefined alias or a malformed list.
pub(crate) fn groups(aliases: &Aliases, flavor: &FlavorOf) -> Result<Vec<Group>, Error> {
    let each = wanted(aliases, flavor)?.into_iter().enumerate().map(|(number, alias)| {
        let mut group = Group {
            suffix: suffix(number, alias),
            resources: vec![(alias.resource_class.clone(), 1)],
            required: alias.required.iter().map(|name| vec![name.clone()]).collect(),
            forbidden: alias.forbidden.clone(),
            ..Group::default()
        };
        owners::of_alias(&mut group);
        group
    });
    Ok(each.collect())
}

/// The suffix of a device's group. It contains the policy of the alias, so that the claim, which reads
/// only the candidate, applies the policy with which the request was planned.
fn suffix(number: usize, alias: &Alias) -> String {
    format!("{SUFFIX}{number}.{}", alias.numa_policy.unwrap_or(USUAL_POLICY).as_str())
}

/// The alias of each requested device, in the order of the flavor.
fn wanted<'a>(aliases: &'a Aliases, flavor: &FlavorOf) -> Result<Vec<&'a Alias>, Error> {
    let Some(value) = flavor.extra_specs.get(KEY) else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for one in value.split(',') {
        let (name, count) = one.split_once(':').unwrap_or((one, ""));
        let Some(alias) = aliases.get(name.trim()) else {
            let name = name.trim().escape_debug();
            return Err(Refusal::bad_request(format!("PCI alias {name} is not defined")).into());
        };
        let count: usize = count.trim().parse().map_err(|_| wrong(value, "is not NAME:COUNT"))?;
        if count > MOST - all.len() {
            return Err(wrong(value, &format!("asks for more than {MOST} devices")));
        }
        all.extend(std::iter::repeat_n(alias, count));
    }
    Ok(all)
}

fn wrong(value: &str, why: &str) -> Error {
    let value = value.escape_debug();
    Refusal::bad_request(format!(
        "Invalid input for extra spec {KEY}: {value} {why}. Correct the flavor."
    ))
    .into()
}

/// The devices that a candidate takes from one provider for aliases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenByAlias {
    /// The number of devices.
    pub count: i64,
    /// The strictest policy of their aliases.
    pub policy: PciPolicy,
}

/// The devices that a candidate takes for aliases, by provider.
pub(crate) fn taken(candidate: &Candidate) -> BTreeMap<ProviderId, TakenByAlias> {
    let mut taken: BTreeMap<ProviderId, TakenByAlias> = BTreeMap::new();
    for (suffix, providers) in &candidate.mappings {
        let Some(rest) = suffix.strip_prefix(SUFFIX) else { continue };
        let policy = rest.split_once('.').and_then(|(_, name)| PciPolicy::parse(name));
        let policy = policy.unwrap_or(USUAL_POLICY);
        for provider in providers {
            let known = taken.entry(*provider).or_insert(TakenByAlias { count: 0, policy });
            known.count += 1;
            known.policy = known.policy.stricter(policy);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use newtype_uuid::GenericUuid;
    use uuid::Uuid;

    use super::*;

    fn aliases() -> Aliases {
        let alias = |class: &str| Alias {
            resource_class: ResourceClass::verbatim(class),
            required: vec!["CUSTOM_GOLD".to_owned()],
            forbidden: vec!["CUSTOM_OLD".to_owned()],
            numa_policy: (class == "CUSTOM_B").then_some(PciPolicy::Required),
        };
        [("a1".to_owned(), alias("CUSTOM_A")), ("b c".to_owned(), alias("CUSTOM_B"))].into()
    }

    fn asked(value: &str) -> Result<Vec<(String, String)>, String> {
        let mut flavor = crate::resolve::empty_flavor();
        flavor.extra_specs.insert(KEY.to_owned(), value.to_owned());
        let groups = groups(&aliases(), &flavor).map_err(|error| match error {
            Error::Refused(fault) => format!("{:?}: {}", fault.kind, fault.message),
            other => other.to_string(),
        })?;
        let short = groups.into_iter().map(|group| {
            assert!(group.required.contains(&vec!["CUSTOM_GOLD".to_owned()]), "{group:?}");
            assert_eq!(group.forbidden, ["CUSTOM_OLD"]);
            (group.suffix, format!("{}:{}", group.resources[0].0, group.resources[0].1))
        });
        Ok(short.collect())
    }

    #[test]
    fn each_device_is_a_group_of_its_own() {
        let shown = |value| {
            asked(value).expect(value).into_iter().map(|(suffix, what)| suffix + "=" + &what)
        };
        assert_eq!(
            shown("a1:2, b c:1").collect::<Vec<_>>(),
            [
                "_pci_alias.0.legacy=CUSTOM_A:1",
                "_pci_alias.1.legacy=CUSTOM_A:1",
                "_pci_alias.2.required=CUSTOM_B:1"
            ]
        );
        assert_eq!(shown("a1:1,a1:1").count(), 2);
        assert_eq!(shown("a1:0").count(), 0);
        assert_eq!(shown("a1:256").count(), MOST);
        let without = crate::resolve::empty_flavor();
        assert_eq!(
            groups(&Aliases::new(), &without).expect("a flavor without aliases is valid"),
            []
        );
    }

    #[test]
    fn what_is_not_defined_or_no_list_is_refused() {
        for (value, why) in [
            ("a2:1", "BadRequest: PCI alias a2 is not defined"),
            ("a1:1, A1:1", "BadRequest: PCI alias A1 is not defined"),
            ("a2", "BadRequest: PCI alias a2 is not defined"),
            ("", "BadRequest: PCI alias  is not defined"),
            (
                "a1",
                "BadRequest: Invalid input for extra spec pci_passthrough:alias: a1 is not NAME:COUNT",
            ),
            ("a1:-1", "a1:-1 is not NAME:COUNT"),
            ("a1:1:1", "a1:1:1 is not NAME:COUNT"),
            ("a1:256,a1:1", "asks for more than 256 devices"),
            ("a1:99999999999999999999999", "is not NAME:COUNT"),
        ] {
            let message = asked(value).expect_err(value);
            assert!(message.contains(why), "{value}: {message}");
        }
    }

    #[test]
    fn a_provider_has_the_strictest_policy_of_its_devices() {
        let provider = |number: u128| ProviderId::from_untyped_uuid(Uuid::from_u128(number));
        let mappings = [
            ("_pci_alias.0.preferred", 1),
            ("_pci_alias.1.socket", 1),
            ("_pci_alias.2.legacy", 2),
            ("_pci_alias.3.required", 2),
            ("_gpu", 3),
        ];
        let mappings = mappings.map(|(suffix, number)| (suffix.to_owned(), vec![provider(number)]));
        let candidate =
            Candidate { root: provider(9), allocations: Vec::new(), mappings: mappings.to_vec() };
        let taken = taken(&candidate);
        let all: Vec<_> = taken.into_values().map(|one| (one.count, one.policy)).collect();
        assert_eq!(all, [(2, PciPolicy::Socket), (2, PciPolicy::Required)]);
    }
}
