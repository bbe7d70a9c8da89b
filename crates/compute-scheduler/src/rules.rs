//! The operator's settings of the scheduler: nova.conf's `[filter_scheduler]` and `[scheduler]`,
//! with their names and defaults.

use super::filters::Filter;
use kilonova_ids::HostName;

/// The settings of the scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// `enabled_filters`, in order.
    pub filters: Vec<Filter>,
    /// The multipliers of the weighers.
    pub weights: Weights,
    /// `host_subset_size`: the host is selected at random from at most this many of the best hosts.
    pub host_subset_size: usize,
    /// `packing`, our own: how the host and the device are chosen.
    pub packing: Packing,
    /// `hosts_weighed`, our own: with upstream's weighers, the maximum number of hosts compared for one server.
    /// Upstream compares all hosts, so its cost grows with the cloud.
    pub hosts_weighed: usize,
    /// `max_instances_per_host`, for `NumInstancesFilter`.
    pub max_instances_per_host: i64,
    /// `max_io_ops_per_host`, for `IoOpsFilter`.
    pub max_io_ops_per_host: i64,
    /// `isolated_images`, for `IsolatedHostsFilter`.
    pub isolated_images: Vec<String>,
    /// `isolated_hosts`.
    pub isolated_hosts: Vec<HostName>,
    /// `restrict_isolated_hosts_to_isolated_images`.
    pub restrict_isolated_hosts_to_isolated_images: bool,
    /// `aggregate_image_properties_isolation_namespace`.
    pub aggregate_image_properties_isolation_namespace: Option<String>,
    /// `aggregate_image_properties_isolation_separator`.
    pub aggregate_image_properties_isolation_separator: String,
    /// `[scheduler] limit_tenants_to_placement_aggregate`: if aggregates name a project in
    /// `filter_tenant_id…`, the project uses only hosts in these aggregates.
    pub limit_tenants_to_placement_aggregate: bool,
    /// `[scheduler] placement_aggregate_required_for_tenants`: a project without such an aggregate
    /// has no valid host.
    pub placement_aggregate_required_for_tenants: bool,
    /// `[scheduler] enable_isolated_aggregate_filtering`: hosts in an aggregate with
    /// `trait:…=required` accept only servers that require that trait.
    pub enable_isolated_aggregate_filtering: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            filters: Filter::DEFAULT.to_vec(),
            weights: Weights::default(),
            host_subset_size: 1,
            packing: Packing::default(),
            hosts_weighed: 32,
            max_instances_per_host: 50,
            max_io_ops_per_host: 8,
            isolated_images: Vec::new(),
            isolated_hosts: Vec::new(),
            restrict_isolated_hosts_to_isolated_images: true,
            aggregate_image_properties_isolation_namespace: None,
            aggregate_image_properties_isolation_separator: ".".to_owned(),
            limit_tenants_to_placement_aggregate: false,
            placement_aggregate_required_for_tenants: false,
            enable_isolated_aggregate_filtering: false,
        }
    }
}

impl Rules {
    /// True if scheduling needs the load of each host: how many servers it has, and how many of them are busy.
    pub fn count_servers(&self) -> bool {
        use Filter::{AggregateIoOps, AggregateNumInstances, IoOps, NumInstances};
        let counted = [AggregateIoOps, AggregateNumInstances, IoOps, NumInstances];
        self.weights.num_instances != 0.0 || self.filters.iter().any(|one| counted.contains(one))
    }
}

/// How the host of a server is chosen among those that pass the filters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Packing {
    /// By upstream's weighers, among a window of hosts.
    Upstream,
    /// By the cost of the hosts' states, with these weights, among all hosts.
    Cost(kilonova_packing::Weights),
}

impl Packing {
    /// The values of `packing` by name.
    pub const NAMED: [(&str, Self); 4] = [
        ("fragmentation", Self::Cost(kilonova_packing::Weights::FRAGMENTATION)),
        ("balanced", Self::Cost(kilonova_packing::Weights::BALANCED)),
        ("spread", Self::Cost(kilonova_packing::Weights::SPREAD)),
        ("upstream", Self::Upstream),
    ];

    /// The multipliers of upstream's weighers that [`Packing::Cost`] replaces.
    pub fn replaced_multipliers() -> &'static [&'static str] {
        KEYS.split_at(REPLACED).0
    }
}

impl Default for Packing {
    fn default() -> Self {
        Self::Cost(kilonova_packing::Weights::default())
    }
}

/// Multipliers of the weighers. 0 disables a weigher, and a negative multiplier inverts it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// `ram_weight_multiplier`: free memory.
    pub ram: f64,
    /// `cpu_weight_multiplier`: free processors.
    pub cpu: f64,
    /// `disk_weight_multiplier`: free disk.
    pub disk: f64,
    /// `hypervisor_version_weight_multiplier`.
    pub hypervisor_version: f64,
    /// `num_instances_weight_multiplier`.
    pub num_instances: f64,
    /// `pci_weight_multiplier`: keeps servers without devices off hosts with free devices.
    /// Upstream counts only PCI devices, Kilonova devices of every kind.
    pub pci: f64,
    /// `soft_affinity_weight_multiplier`.
    pub soft_affinity: f64,
    /// `soft_anti_affinity_weight_multiplier`.
    pub soft_anti_affinity: f64,
    /// `build_failure_weight_multiplier`: hosts with recent build failures come last.
    pub build_failure: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            ram: 1.0,
            cpu: 1.0,
            disk: 1.0,
            hypervisor_version: 1.0,
            num_instances: 0.0,
            pci: 1.0,
            soft_affinity: 1.0,
            soft_anti_affinity: 1.0,
            build_failure: 1_000_000.0,
        }
    }
}

impl Weights {
    /// The multipliers for a host. The metadata of its aggregates overrides these values; of several values for one
    /// key, the smallest applies.
    #[must_use]
    pub fn of<'a>(self, metadata: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let (usual, mut own) = (self, [None::<f64>; 9]);
        for (key, value) in metadata {
            let place = KEYS.iter().position(|known| *known == key);
            if let (Some(place), Ok(value)) = (place, value.trim().parse::<f64>()) {
                own[place] = Some(own[place].map_or(value, |least| least.min(value)));
            }
        }
        let [ram, cpu, disk, version, servers, pci, soft, anti, failure] = own;
        Self {
            ram: ram.unwrap_or(usual.ram),
            cpu: cpu.unwrap_or(usual.cpu),
            disk: disk.unwrap_or(usual.disk),
            hypervisor_version: version.unwrap_or(usual.hypervisor_version),
            num_instances: servers.unwrap_or(usual.num_instances),
            pci: pci.unwrap_or(usual.pci),
            soft_affinity: soft.unwrap_or(usual.soft_affinity),
            soft_anti_affinity: anti.unwrap_or(usual.soft_anti_affinity),
            build_failure: failure.unwrap_or(usual.build_failure),
        }
    }
}

/// The number of weighers that [`Packing::Cost`] replaces; their keys come first in [`KEYS`].
const REPLACED: usize = 6;

const KEYS: [&str; 9] = [
    "ram_weight_multiplier",
    "cpu_weight_multiplier",
    "disk_weight_multiplier",
    "hypervisor_version_weight_multiplier",
    "num_instances_weight_multiplier",
    "pci_weight_multiplier",
    "soft_affinity_weight_multiplier",
    "soft_anti_affinity_weight_multiplier",
    "build_failure_weight_multiplier",
];
