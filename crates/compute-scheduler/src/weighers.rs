//! The scheduler's weighers, by upstream's names: each weigher's values are normalized to 0..1 over
//! the compared hosts and multiplied by its multiplier. The sum is the weight of the host.

use kilonova_compute_db::server_groups::Policy;
use kilonova_engine::{Query, Snapshot};
use kilonova_ids::ResourceClass;

use super::constraints::Constraints;
use super::rules::Weights;
use crate::fleet::Host;

/// Number of weighers.
const WEIGHERS: usize = 9;

/// The weighers' input for one host.
fn values(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    host: &Host,
    device_wanted: bool,
) -> [f64; WEIGHERS] {
    let (mut ram, mut cpu, mut disk, mut devices) = (0, 0, 0, 0);
    for (place, node) in world.tree(host.root).iter().flat_map(|tree| tree.nodes()).enumerate() {
        for (class, inventory) in node.inventories() {
            let free = inventory.capacity() - inventory.used;
            match (place, class.as_str()) {
                (0, "MEMORY_MB") => ram = free,
                (0, "VCPU") => cpu = free,
                (0, "DISK_GB") => disk = free,
                (0, _) => {}
                _ => devices += free.max(0),
            }
        }
    }
    let group = constraints.group.as_ref();
    let mates = |policy: Policy| {
        group.filter(|group| group.policy == policy).map_or(0, |group| group.on(&host.name))
    };
    let version = host.capability("hypervisor_version").and_then(|v| v.parse().ok());
    [
        ram as f64,
        cpu as f64,
        disk as f64,
        version.unwrap_or(0.0),
        constraints.load(&host.name).servers as f64,
        if device_wanted { devices as f64 } else { -(devices as f64) },
        mates(Policy::SoftAffinity) as f64,
        -(mates(Policy::SoftAntiAffinity) as f64),
        -(host.build_failures() as f64),
    ]
}

fn multipliers(weights: Weights) -> [f64; WEIGHERS] {
    [
        weights.ram,
        weights.cpu,
        weights.disk,
        weights.hypervisor_version,
        weights.num_instances,
        weights.pci,
        weights.soft_affinity,
        weights.soft_anti_affinity,
        weights.build_failure,
    ]
}

/// The weight of each host, in order.
pub(super) fn weigh(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    hosts: &[std::sync::Arc<Host>],
) -> Vec<f64> {
    let device_wanted = query.groups.iter().any(|group| {
        !group.suffix.is_empty() || group.resources.iter().any(|(class, _)| !is_of_host(class))
    });
    let seen: Vec<[f64; WEIGHERS]> =
        hosts.iter().map(|host| values(world, constraints, host, device_wanted)).collect();
    let mut least = [f64::INFINITY; WEIGHERS];
    let mut most = [f64::NEG_INFINITY; WEIGHERS];
    for values in &seen {
        for (at, value) in values.iter().enumerate() {
            least[at] = least[at].min(*value);
            most[at] = most[at].max(*value);
        }
    }
    hosts
        .iter()
        .zip(&seen)
        .map(|(host, values)| {
            let metadata = host.aggregates();
            let own = multipliers(constraints.rules.weights.of(metadata.all()));
            (0..WEIGHERS)
                .filter(|at| most[*at] > least[*at])
                .map(|at| own[at] * (values[at] - least[at]) / (most[at] - least[at]))
                .sum()
        })
        .collect()
}

fn is_of_host(class: &ResourceClass) -> bool {
    matches!(class.as_str(), "VCPU" | "PCPU" | "MEMORY_MB" | "DISK_GB")
}
