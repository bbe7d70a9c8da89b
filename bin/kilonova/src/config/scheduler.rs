//! `[scheduler]` and `[filter_scheduler]`, as in nova.conf.

use kilonova_compute_scheduler::{Filter, Packing, Rules, Weights};

use super::File;
use super::compute::number;
use crate::failure::Failure;
use kilonova_ids::HostName;

const GROUP: &str = "filter_scheduler";

/// The known options, by group.
pub(super) const KNOWN: [(&str, &str); 31] = [
    ("scheduler", "limit_tenants_to_placement_aggregate"),
    ("scheduler", "placement_aggregate_required_for_tenants"),
    ("scheduler", "enable_isolated_aggregate_filtering"),
    (GROUP, "enabled_filters"),
    (GROUP, "host_subset_size"),
    (GROUP, "hosts_weighed"),
    (GROUP, "packing"),
    (GROUP, "packing_fragment_weight"),
    (GROUP, "packing_device_fragment_weight"),
    (GROUP, "packing_starved_weight"),
    (GROUP, "packing_partly_used_weight"),
    (GROUP, "packing_scarcity_weight"),
    (GROUP, "packing_broken_weight"),
    (GROUP, "packing_islands_weight"),
    (GROUP, "packing_emptiness_weight"),
    (GROUP, "max_instances_per_host"),
    (GROUP, "max_io_ops_per_host"),
    (GROUP, "isolated_images"),
    (GROUP, "isolated_hosts"),
    (GROUP, "restrict_isolated_hosts_to_isolated_images"),
    (GROUP, "aggregate_image_properties_isolation_namespace"),
    (GROUP, "aggregate_image_properties_isolation_separator"),
    (GROUP, "ram_weight_multiplier"),
    (GROUP, "cpu_weight_multiplier"),
    (GROUP, "disk_weight_multiplier"),
    (GROUP, "hypervisor_version_weight_multiplier"),
    (GROUP, "num_instances_weight_multiplier"),
    (GROUP, "pci_weight_multiplier"),
    (GROUP, "soft_affinity_weight_multiplier"),
    (GROUP, "soft_anti_affinity_weight_multiplier"),
    (GROUP, "build_failure_weight_multiplier"),
];

pub(super) fn read(file: &File) -> Result<Rules, Failure> {
    let usual = Rules::default();
    let yes = |group, option, usual| {
        Ok::<_, Failure>(file.parse(group, option, "true or false")?.unwrap_or(usual))
    };
    let words = |option| -> Vec<String> {
        let text = file.get(GROUP, option).unwrap_or_default();
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let namespace = "aggregate_image_properties_isolation_namespace";
    let separator = "aggregate_image_properties_isolation_separator";
    Ok(Rules {
        filters: filters(file, usual.filters)?,
        weights: weights(file)?,
        host_subset_size: number(file, GROUP, "host_subset_size", 1, usual.host_subset_size)?,
        packing: packing(file)?,
        hosts_weighed: number(file, GROUP, "hosts_weighed", 1, usual.hosts_weighed)?,
        max_instances_per_host: number(
            file,
            GROUP,
            "max_instances_per_host",
            1,
            usual.max_instances_per_host,
        )?,
        max_io_ops_per_host: number(
            file,
            GROUP,
            "max_io_ops_per_host",
            1,
            usual.max_io_ops_per_host,
        )?,
        isolated_images: words("isolated_images"),
        isolated_hosts: words("isolated_hosts").into_iter().map(HostName::verbatim).collect(),
        restrict_isolated_hosts_to_isolated_images: yes(
            GROUP,
            "restrict_isolated_hosts_to_isolated_images",
            usual.restrict_isolated_hosts_to_isolated_images,
        )?,
        aggregate_image_properties_isolation_namespace: file
            .get(GROUP, namespace)
            .map(str::to_owned),
        aggregate_image_properties_isolation_separator: file
            .get(GROUP, separator)
            .map_or(usual.aggregate_image_properties_isolation_separator, str::to_owned),
        limit_tenants_to_placement_aggregate: yes(
            "scheduler",
            "limit_tenants_to_placement_aggregate",
            false,
        )?,
        placement_aggregate_required_for_tenants: yes(
            "scheduler",
            "placement_aggregate_required_for_tenants",
            false,
        )?,
        enable_isolated_aggregate_filtering: yes(
            "scheduler",
            "enable_isolated_aggregate_filtering",
            false,
        )?,
    })
}

fn filters(file: &File, usual: Vec<Filter>) -> Result<Vec<Filter>, Failure> {
    const OPTION: &str = "enabled_filters";
    let Some(text) = file.get(GROUP, OPTION) else { return Ok(usual) };
    let mut filters = Vec::new();
    for name in text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty()) {
        match Filter::parse(name) {
            Some(Some(filter)) if filters.contains(&filter) => {}
            Some(Some(filter)) => filters.push(filter),
            Some(None) => {}
            None => {
                let known = Filter::names().collect::<Vec<_>>().join(", ");
                let why = format!("{name} is not a filter; expected {known}");
                return Err(file.wrong(GROUP, OPTION, &why));
            }
        }
    }
    Ok(filters)
}

/// The packing. A file that sets the multiplier of a replaced weigher, but not `packing`, selects `upstream`.
fn packing(file: &File) -> Result<Packing, Failure> {
    const OPTION: &str = "packing";
    let named = match file.get(GROUP, OPTION).map(str::trim) {
        Some(name) => {
            Packing::NAMED.into_iter().find(|(known, _)| *known == name).ok_or_else(|| {
                let known = Packing::NAMED.map(|(known, _)| known).join(", ");
                file.wrong(
                    GROUP,
                    OPTION,
                    &format!("{name} is not a set of weights; expected one of {known}"),
                )
            })?
        }
        None if is_upstreams(file) => ("upstream", Packing::Upstream),
        None => ("balanced", Packing::default()),
    };
    let (_, Packing::Cost(mut weights)) = named else { return Ok(Packing::Upstream) };
    for (option, value) in [
        ("packing_fragment_weight", &mut weights.fragment),
        ("packing_device_fragment_weight", &mut weights.device_fragment),
        ("packing_starved_weight", &mut weights.starved),
        ("packing_partly_used_weight", &mut weights.partly_used),
        ("packing_scarcity_weight", &mut weights.scarcity),
        ("packing_broken_weight", &mut weights.broken),
        ("packing_islands_weight", &mut weights.islands),
        ("packing_emptiness_weight", &mut weights.emptiness),
    ] {
        *value = multiplier(file, option, *value)?;
    }
    Ok(Packing::Cost(weights))
}

fn is_upstreams(file: &File) -> bool {
    Packing::replaced_multipliers().iter().any(|option| file.get(GROUP, option).is_some())
}

fn multiplier(file: &File, option: &str, usual: f64) -> Result<f64, Failure> {
    match file.parse::<f64>(GROUP, option, "a number")? {
        Some(value) if !value.is_finite() => {
            Err(file.wrong(GROUP, option, &format!("{value} is not a finite number")))
        }
        value => Ok(value.unwrap_or(usual)),
    }
}

fn weights(file: &File) -> Result<Weights, Failure> {
    let usual = Weights::default();
    let weight = |option: &str, usual: f64| multiplier(file, option, usual);
    Ok(Weights {
        ram: weight("ram_weight_multiplier", usual.ram)?,
        cpu: weight("cpu_weight_multiplier", usual.cpu)?,
        disk: weight("disk_weight_multiplier", usual.disk)?,
        hypervisor_version: weight(
            "hypervisor_version_weight_multiplier",
            usual.hypervisor_version,
        )?,
        num_instances: weight("num_instances_weight_multiplier", usual.num_instances)?,
        pci: weight("pci_weight_multiplier", usual.pci)?,
        soft_affinity: weight("soft_affinity_weight_multiplier", usual.soft_affinity)?,
        soft_anti_affinity: weight(
            "soft_anti_affinity_weight_multiplier",
            usual.soft_anti_affinity,
        )?,
        build_failure: weight("build_failure_weight_multiplier", usual.build_failure)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::adapter::testing;

    fn packing_of(text: &str) -> Result<Packing, String> {
        let text = format!("[filter_scheduler]\n{text}");
        testing::read(&text, |file, _| read(file)).map(|rules| rules.packing)
    }

    #[test]
    fn packing_is_named_and_its_weights_can_be_changed() {
        assert_eq!(packing_of(""), Ok(Packing::default()));
        for (name, set) in Packing::NAMED {
            assert_eq!(packing_of(&format!("packing = {name}\n")), Ok(set));
        }
        let Ok(Packing::Cost(changed)) =
            packing_of("packing = fragmentation\npacking_starved_weight = 7.5\n")
        else {
            panic!("it is valid")
        };
        let ("fragmentation", Packing::Cost(usual)) = Packing::NAMED[0] else {
            panic!("it is first")
        };
        assert!((changed.starved - 7.5).abs() < f64::EPSILON);
        assert!((changed.fragment - usual.fragment).abs() < f64::EPSILON);
    }

    #[test]
    fn a_file_with_upstreams_multipliers_keeps_its_meaning() {
        for option in Packing::replaced_multipliers() {
            let file = format!("{option} = 1.0\n");
            assert_eq!(packing_of(&file), Ok(Packing::Upstream), "{option}");
            let named = packing_of(&format!("{file}packing = balanced\n"));
            assert_eq!(named, Ok(Packing::default()), "{option}");
        }
        let kept = packing_of("soft_affinity_weight_multiplier = 2.0\n");
        assert_eq!(kept, Ok(Packing::default()), "packing keeps this weigher");
    }

    #[test]
    fn an_unknown_set_and_a_weight_that_is_no_number_are_refused() {
        let refused = packing_of("packing = tight\n").expect_err("it is unknown");
        assert!(refused.contains("fragmentation, balanced, spread, upstream"), "{refused}");
        packing_of("packing_starved_weight = inf\n").expect_err("an infinite weight is refused");
    }
}
