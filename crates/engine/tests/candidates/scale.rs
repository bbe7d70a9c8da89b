//! Effort, counted in steps rather than time: wide trees and large clouds stay cheap, whether or
//! not a request fits.

use kilonova_engine::{Alike, Query, Snapshot};

use crate::build::{With, forest, gpu_host, group, query};

const HOSTS: u128 = 2_000;

fn eight_groups(units: i64) -> Query {
    let names = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let mut groups = vec![group("", &[("VCPU", 4), ("MEMORY_MB", 1024)])];
    groups.extend(names.iter().map(|suffix| group(suffix, &[("VGPU", units)])));
    Query { limit: Some(1000), ..query(groups) }
}

/// The number of candidates, and the steps it took to find them.
fn effort(snapshot: &Snapshot, query: &Query) -> (usize, u64) {
    let mut search = snapshot.search(query).unwrap();
    let found = search.by_ref().count();
    (found, search.steps())
}

#[test]
fn eight_groups_over_eight_gpus_on_many_hosts() {
    let snapshot = forest((0..HOSTS).map(|n| gpu_host(1 + 100 * n, 8, 1)));
    let (found, steps) = effort(&snapshot, &eight_groups(1));
    assert_eq!(found, 1000);
    assert!(steps < 1000 * 80, "{steps} steps");
}

#[test]
fn isolated_groups_over_roomy_gpus() {
    let snapshot = forest((0..HOSTS).map(|n| gpu_host(1 + 100 * n, 8, 16)));
    let (found, steps) = effort(&snapshot, &Query { isolate: true, ..eight_groups(2) });
    assert_eq!(found, 1000);
    assert!(steps < 1000 * 80, "{steps} steps");
}

#[test]
fn one_gpu_too_few_is_refuted_at_the_top() {
    let snapshot = forest((0..HOSTS).map(|n| gpu_host(1 + 100 * n, 7, 16)));
    let (found, steps) = effort(&snapshot, &Query { isolate: true, ..eight_groups(1) });
    assert_eq!(found, 0);
    assert!(steps <= 2 * HOSTS as u64, "{steps} steps");
}

#[test]
fn usage_that_differs_everywhere_does_not_hide_that_it_cannot_fit() {
    let snapshot = forest((0..HOSTS).map(|n| {
        let mut tree = gpu_host(1 + 100 * n, 8, 16);
        for (used, provider) in (0..).zip(&mut tree[1..]) {
            provider.inventories[0].1.used = 15 - used % 7;
        }
        tree
    }));
    let (found, steps) = effort(&snapshot, &eight_groups(5));
    assert_eq!(found, 0);
    assert!(steps <= 2 * HOSTS as u64, "{steps} steps");
}

#[test]
fn full_regions_are_stepped_over() {
    let snapshot = forest((0..HOSTS).map(|n| {
        let units = i64::from(n == HOSTS / 2);
        gpu_host(1 + 100 * n, 8, units)
    }));
    let (found, steps) = effort(&snapshot, &query(vec![group("", &[("VGPU", 1)])]));
    assert_eq!(found, 8);
    assert!(steps < 200, "{steps} steps");
}

#[test]
fn numa_nodes_with_gpus_below_and_same_subtree() {
    let snapshot = forest((0..200_u128).map(|n| {
        let root = 1 + 100 * n;
        let mut tree = vec![crate::build::provider(root, None).has("VCPU", 64)];
        for numa in 0..2 {
            let node = root + 1 + 10 * numa;
            tree.push(crate::build::provider(node, Some(root)).is("HW_NUMA_ROOT"));
            for gpu in 1..=4 {
                tree.push(crate::build::provider(node + gpu, Some(node)).has("VGPU", 1));
            }
        }
        tree
    }));
    let mut numa = group("_NUMA", &[]);
    numa.required = vec![vec!["HW_NUMA_ROOT".into()]];
    let gpu = |suffix| group(suffix, &[("VGPU", 1)]);
    let four = ["_1", "_2", "_3", "_4"];
    let all = |names: &[&str]| {
        let mut set = vec!["_NUMA".to_owned()];
        set.extend(names.iter().map(|s| (*s).to_owned()));
        set
    };
    let mut groups = vec![group("", &[("VCPU", 1)]), numa.clone()];
    groups.extend(four.map(gpu));
    let fits = Query {
        isolate: true,
        same_subtree: vec![all(&four)],
        limit: Some(200),
        ..query(groups.clone())
    };
    let (found, steps) = effort(&snapshot, &fits);
    assert_eq!(found, 200);
    assert!(steps < 200 * 30, "{steps} steps");

    groups.push(gpu("_5"));
    let five = ["_1", "_2", "_3", "_4", "_5"];
    let too_many = Query { same_subtree: vec![all(&five)], ..fits };
    let too_many = Query { groups, ..too_many };
    let (found, steps) = effort(&snapshot, &too_many);
    assert_eq!(found, 0);
    assert!(steps < 200 * 40, "{steps} steps");
}

/// A host whose nodes hold five each; no two nodes are equal.
fn nodes_of_five(root: u128, count: u128) -> Vec<kilonova_engine::Provider> {
    let mut tree = vec![crate::build::provider(root, None)];
    tree.extend((1..=count).map(|node| {
        let disk = 40 + i64::try_from(node).unwrap();
        crate::build::provider(root + node, Some(root)).has("VGPU", 5).has("DISK_GB", disk)
    }));
    tree
}

/// Eleven groups of three on ten nodes of five: two groups never fit on one node. The small group
/// hides this from sums and matchings, and no two groups or nodes are equal.
#[test]
fn packing_without_a_solution_ends_and_does_not_block_other_trees() {
    let suffixes = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];
    let mut groups: Vec<_> = suffixes
        .iter()
        .zip(1..)
        .map(|(suffix, disk)| group(suffix, &[("VGPU", 3), ("DISK_GB", disk)]))
        .collect();
    groups.push(group("small", &[("VGPU", 1), ("DISK_GB", 1)]));
    let query = Query { limit: Some(10), ..query(groups) };
    let tight = || (0..3).map(|n| nodes_of_five(1 + 100 * n, 10));
    let snapshot = forest(tight());
    let mut search = snapshot.search(&query).unwrap();
    assert_eq!(search.by_ref().count(), 0);
    assert!(search.gave_up() && search.steps() < 300_000, "{} steps", search.steps());
    let explanation = snapshot.explain(&query);
    assert_eq!((explanation.hosts, explanation.left), (3, 3), "an undecided host counts as left");

    let snapshot = forest(tight().chain([nodes_of_five(1001, 11)]));
    let found: Vec<_> = snapshot.search(&query).unwrap().map(|candidate| candidate.root).collect();
    assert_eq!(found, [crate::build::id(1001); 10]);
}

/// Six one-GPU groups on hosts of eight: 20,160 candidates on each.
#[test]
fn every_host_has_its_turn_without_a_limit_too() {
    let snapshot = forest((0..50_u128).map(|n| gpu_host(1 + 100 * n, 8, 1)));
    let groups: Vec<_> =
        ["1", "2", "3", "4", "5", "6"].iter().map(|s| group(s, &[("VGPU", 1)])).collect();
    let query = query(groups);
    let roots: Vec<_> = snapshot.search(&query).unwrap().take(5000).map(|c| c.root).collect();
    for round in roots.chunks(50) {
        assert_eq!(round.iter().collect::<std::collections::HashSet<_>>().len(), 50);
    }
}

/// The effort of an explanation is bounded in a cloud of ten thousand hosts: if each of them requires
/// packing, it examines some and reports their number.
#[test]
fn an_explanation_looks_at_no_more_hosts_than_it_has_time_for() {
    let snapshot = forest((0..10_000_u128).map(|n| gpu_host(1 + 100 * n, 8, 4)));
    let one = || group("1", &[("VGPU", 5)]);
    let simple = snapshot.explain(&query(vec![one()]));
    assert_eq!((simple.hosts, simple.looked_at), (10_000, 10_000), "a simple test is cheap");
    assert!(simple.to_string().starts_with("None of 10000 hosts has 5 VGPU free"), "{simple}");

    let suffixes = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let nine = query(suffixes.iter().map(|suffix| group(suffix, &[("VGPU", 4)])).collect());
    let packed = snapshot.explain(&nine);
    assert_eq!(packed.hosts, 10_000);
    assert!((500..5_000).contains(&packed.looked_at), "{} hosts", packed.looked_at);
    let some = packed.looked_at;
    let words = format!(
        "Looked at {some} of 10000 hosts. None of {some} hosts has room for all requested resources"
    );
    assert!(packed.to_string().starts_with(&words), "{packed}");
}

#[test]
fn devices_of_one_switch() {
    let snapshot = forest((0..200_u128).map(|n| {
        let root = 1 + 100 * n;
        let mut tree = vec![crate::build::provider(root, None).has("VCPU", 64)];
        for gpu in 0..8_u128 {
            let device = crate::build::provider(root + 1 + gpu, Some(root)).has("VGPU", 1);
            let switch = if gpu < 4 { "CUSTOM_SWITCH_0" } else { "CUSTOM_SWITCH_1" };
            tree.push(device.is(switch).is("CUSTOM_ISLAND_0"));
        }
        tree
    }));
    let of = |count: usize, prefix: &str, whole| {
        let names: Vec<String> = (0..count).map(|n| format!("_{n}")).collect();
        let mut groups = vec![group("", &[("VCPU", 1)])];
        groups.extend(names.iter().map(|name| group(name, &[("VGPU", 1)])));
        let prefix = prefix.to_owned();
        let alike = Alike { groups: names, prefix, whole, ..Alike::default() };
        Query { alike: vec![alike], limit: Some(200), ..query(groups) }
    };
    for (count, prefix, whole, hosts) in [
        (4, "CUSTOM_SWITCH_", false, 200),
        (4, "CUSTOM_SWITCH_", true, 200),
        (3, "CUSTOM_SWITCH_", true, 0),
        (5, "CUSTOM_SWITCH_", false, 0),
        (8, "CUSTOM_ISLAND_", false, 200),
        (8, "CUSTOM_ISLAND_", true, 200),
        (7, "CUSTOM_ISLAND_", true, 0),
        (2, "CUSTOM_NODE_", false, 0),
    ] {
        let query = of(count, prefix, whole);
        let (found, steps) = effort(&snapshot, &query);
        assert_eq!(found, hosts, "{count} {prefix} {whole}");
        assert!(steps < 200 * 40, "{count} {prefix} {whole}: {steps} steps");
        for candidate in snapshot.search(&query).expect("the query is valid").take(20) {
            let of = |one: &kilonova_ids::ProviderId| {
                snapshot.tree(candidate.root).map(|tree| {
                    let node = tree.nodes().find(|node| node.id() == *one);
                    node.map(|node| node.traits().any(|name| &**name == "CUSTOM_SWITCH_0"))
                })
            };
            let devices = candidate.mappings.iter().filter(|(suffix, _)| !suffix.is_empty());
            let switches: std::collections::BTreeSet<_> =
                devices.flat_map(|(_, providers)| providers.iter().map(of)).collect();
            assert!(prefix != "CUSTOM_SWITCH_" || switches.len() == 1, "{candidate:?}");
        }
    }
}
