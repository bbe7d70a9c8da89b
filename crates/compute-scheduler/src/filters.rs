//! The scheduler's filters, by upstream's names. The engine has already checked resources, traits
//! and devices.

use super::constraints::Constraints;
use super::extra_specs::satisfies;
use crate::fleet::{Host, Metadata};

/// One of upstream's filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Filter {
    /// `ComputeFilter`: the host is up and enabled.
    Compute,
    /// `ComputeCapabilitiesFilter`: extra specs `capabilities:…`.
    ComputeCapabilities,
    /// `ImagePropertiesFilter`: the image's hypervisor.
    ImageProperties,
    /// `ServerGroupAntiAffinityFilter`.
    ServerGroupAntiAffinity,
    /// `ServerGroupAffinityFilter`.
    ServerGroupAffinity,
    /// `DifferentHostFilter`: hint `different_host`.
    DifferentHost,
    /// `SameHostFilter`: hint `same_host`.
    SameHost,
    /// `IsolatedHostsFilter`.
    IsolatedHosts,
    /// `NumInstancesFilter`.
    NumInstances,
    /// `AggregateNumInstancesFilter`.
    AggregateNumInstances,
    /// `IoOpsFilter`.
    IoOps,
    /// `AggregateIoOpsFilter`.
    AggregateIoOps,
    /// `AggregateInstanceExtraSpecsFilter`.
    AggregateInstanceExtraSpecs,
    /// `AggregateMultiTenancyIsolation`.
    AggregateMultiTenancyIsolation,
    /// `AggregateImagePropertiesIsolation`.
    AggregateImagePropertiesIsolation,
    /// `AggregateTypeAffinityFilter`.
    AggregateTypeAffinity,
}

const NAMES: &[(&str, Filter)] = &[
    ("ComputeFilter", Filter::Compute),
    ("ComputeCapabilitiesFilter", Filter::ComputeCapabilities),
    ("ImagePropertiesFilter", Filter::ImageProperties),
    ("ServerGroupAntiAffinityFilter", Filter::ServerGroupAntiAffinity),
    ("ServerGroupAffinityFilter", Filter::ServerGroupAffinity),
    ("DifferentHostFilter", Filter::DifferentHost),
    ("SameHostFilter", Filter::SameHost),
    ("IsolatedHostsFilter", Filter::IsolatedHosts),
    ("NumInstancesFilter", Filter::NumInstances),
    ("AggregateNumInstancesFilter", Filter::AggregateNumInstances),
    ("IoOpsFilter", Filter::IoOps),
    ("AggregateIoOpsFilter", Filter::AggregateIoOps),
    ("AggregateInstanceExtraSpecsFilter", Filter::AggregateInstanceExtraSpecs),
    ("AggregateMultiTenancyIsolation", Filter::AggregateMultiTenancyIsolation),
    ("AggregateImagePropertiesIsolation", Filter::AggregateImagePropertiesIsolation),
    ("AggregateTypeAffinityFilter", Filter::AggregateTypeAffinity),
];

/// Upstream's filters whose checks the engine performs for every request.
const DONE_ALREADY: &[&str] =
    &["AllHostsFilter", "PciPassthroughFilter", "NUMATopologyFilter", "AvailabilityZoneFilter"];

impl Filter {
    /// Upstream's `enabled_filters`.
    pub const DEFAULT: [Self; 5] = [
        Self::Compute,
        Self::ComputeCapabilities,
        Self::ImageProperties,
        Self::ServerGroupAntiAffinity,
        Self::ServerGroupAffinity,
    ];

    /// Parses upstream's name. `Some(None)` for a filter whose check the engine performs, `None`
    /// for an unknown one.
    pub fn parse(name: &str) -> Option<Option<Self>> {
        if DONE_ALREADY.contains(&name) {
            return Some(None);
        }
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, filter)| Some(*filter))
    }

    /// The names of all filters.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name).chain(DONE_ALREADY.iter().copied())
    }

    /// Upstream's name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, filter)| *filter == self).map_or("", |(name, _)| name)
    }

    /// True if a host passes.
    pub fn passes(self, constraints: &Constraints<'_>, host: &Host) -> bool {
        let spec = constraints.spec;
        let group = |policy_is_anti: bool| {
            constraints.group.as_ref().is_none_or(|group| {
                let anti = group.policy == kilonova_compute_db::server_groups::Policy::AntiAffinity;
                anti != policy_is_anti || group.allows(&host.name)
            })
        };
        match self {
            Self::Compute => host.takes_servers(constraints.now),
            Self::ComputeCapabilities => spec.flavor.extra_specs.iter().all(|(key, wanted)| {
                let Some(key) = key.strip_prefix("capabilities:") else { return true };
                host.capability(key).is_some_and(|has| satisfies(&has, wanted))
            }),
            Self::ImageProperties => image_fits(constraints, host),
            Self::ServerGroupAntiAffinity => group(true),
            Self::ServerGroupAffinity => group(false),
            Self::DifferentHost => {
                constraints.different_host.is_none_or(|hosts| !hosts.contains(&host.name))
            }
            Self::SameHost => constraints.same_host.is_none_or(|hosts| hosts.contains(&host.name)),
            Self::IsolatedHosts => isolated(constraints, host),
            Self::NumInstances => {
                constraints.load(&host.name).servers < constraints.rules.max_instances_per_host
            }
            Self::AggregateNumInstances => {
                let most = host.aggregates().least("max_instances_per_host");
                let most = most.unwrap_or(constraints.rules.max_instances_per_host);
                constraints.load(&host.name).servers < most
            }
            Self::IoOps => {
                constraints.load(&host.name).busy < constraints.rules.max_io_ops_per_host
            }
            Self::AggregateIoOps => {
                let most = host.aggregates().least("max_io_ops_per_host");
                constraints.load(&host.name).busy
                    < most.unwrap_or(constraints.rules.max_io_ops_per_host)
            }
            Self::AggregateInstanceExtraSpecs => extra_specs_fit(constraints, &host.aggregates()),
            Self::AggregateMultiTenancyIsolation => tenant_fits(constraints, &host.aggregates()),
            Self::AggregateImagePropertiesIsolation => {
                image_isolated(constraints, &host.aggregates())
            }
            Self::AggregateTypeAffinity => {
                let metadata = host.aggregates();
                let mut types = metadata.values("instance_type").peekable();
                types.peek().is_none()
                    || types
                        .any(|names| names.split(',').any(|name| name.trim() == spec.flavor.name))
            }
        }
    }
}

/// True if the hypervisor has the type and version that the image requires.
fn image_fits(constraints: &Constraints<'_>, host: &Host) -> bool {
    let property = |key: &str| constraints.spec.image_properties.get(key).map(String::as_str);
    let kind = host.capability("hypervisor_type").unwrap_or_default();
    let kind_fits = property("img_hv_type").is_none_or(|wanted| {
        let alike = |name: &str| {
            if name.eq_ignore_ascii_case("kvm") { "qemu" } else { name }.to_lowercase()
        };
        alike(wanted) == alike(&kind) || kind == "simulated"
    });
    let version_fits = property("img_hv_requested_version").is_none_or(|wanted| {
        host.capability("hypervisor_version").is_some_and(|has| satisfies(&has, wanted))
    });
    kind_fits && version_fits
}

fn isolated(constraints: &Constraints<'_>, host: &Host) -> bool {
    let rules = constraints.rules;
    if rules.isolated_hosts.is_empty() && rules.isolated_images.is_empty() {
        return true;
    }
    let host = rules.isolated_hosts.contains(&host.name);
    let image = constraints
        .spec
        .image
        .is_some_and(|image| rules.isolated_images.contains(&image.to_string()));
    if rules.restrict_isolated_hosts_to_isolated_images { host == image } else { !image || host }
}

/// True if all extra specs without a scope, or with this filter's scope, match the aggregates'
/// metadata.
fn extra_specs_fit(constraints: &Constraints<'_>, metadata: &Metadata) -> bool {
    constraints.spec.flavor.extra_specs.iter().all(|(key, wanted)| {
        let key = match key.split_once(':') {
            None => key.as_str(),
            Some(("aggregate_instance_extra_specs", key)) => key,
            Some(_) => return true,
        };
        let mut values = metadata.values(key).flat_map(|values| values.split(',')).peekable();
        if wanted == "!" {
            return values.peek().is_none();
        }
        values.any(|has| satisfies(has.trim(), wanted))
    })
}

/// True if the project may use the host: `filter_tenant_id…` in the metadata reserves the host for
/// the projects that it lists.
fn tenant_fits(constraints: &Constraints<'_>, metadata: &Metadata) -> bool {
    let mut tenants = metadata.values_by_prefix("filter_tenant_id").peekable();
    tenants.peek().is_none()
        || tenants.any(|ids| ids.split(',').any(|id| id.trim() == constraints.project_id))
}

fn image_isolated(constraints: &Constraints<'_>, metadata: &Metadata) -> bool {
    let rules = constraints.rules;
    let separator = rules.aggregate_image_properties_isolation_separator.as_str();
    let prefix = rules
        .aggregate_image_properties_isolation_namespace
        .as_ref()
        .map(|namespace| format!("{namespace}{separator}"));
    metadata.all().all(|(key, values)| {
        if prefix.as_ref().is_some_and(|prefix| !key.starts_with(prefix.as_str())) {
            return true;
        }
        match constraints.spec.image_properties.get(key) {
            None => true,
            Some(has) => values.split(',').any(|value| value.trim() == has),
        }
    })
}

/// Upstream's pre-filters on aggregates; returns the reason if the host is excluded.
pub(super) fn prefilter(constraints: &Constraints<'_>, host: &Host) -> Option<&'static str> {
    let rules = constraints.rules;
    if rules.limit_tenants_to_placement_aggregate {
        let own = |metadata: &Metadata| {
            let mut tenants = metadata.values_by_prefix("filter_tenant_id");
            tenants.any(|ids| ids.split(',').any(|id| id.trim() == constraints.project_id))
        };
        let some = constraints.fleet.any_aggregates(own);
        if (some && !own(&host.aggregates()))
            || (!some && rules.placement_aggregate_required_for_tenants)
        {
            return Some("not in an aggregate whose filter_tenant_id names the project");
        }
    }
    if rules.enable_isolated_aggregate_filtering {
        let metadata = host.aggregates();
        let mut kept =
            metadata.all().filter(|(key, value)| key.starts_with("trait:") && *value == "required");
        let asked = |key: &str| {
            let flavor = constraints.spec.flavor.extra_specs.get(key);
            flavor
                .or_else(|| constraints.spec.image_properties.get(key))
                .is_some_and(|v| v == "required")
        };
        if kept.any(|(key, _)| !asked(key)) {
            return Some("in an aggregate with a required trait that the server does not require");
        }
    }
    None
}
