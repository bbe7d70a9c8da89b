//! Rules of Placement that are easy to get wrong, one by one.

use kilonova_engine::{Group, Query, QueryError, Snapshot};

use crate::build::{With, agg, class, forest, gpu_host, group, id, provider, query};

fn count(snapshot: &Snapshot, query: &Query) -> usize {
    snapshot.search(query).unwrap().count()
}

fn lists(of: &[&str]) -> Vec<Vec<String>> {
    of.iter().map(|one| vec![(*one).to_owned()]).collect()
}

#[test]
fn nothing_is_broken_downward_but_sums_are_checked_again() {
    let mut tree = gpu_host(1, 1, 4);
    tree[1].inventories[0].1.max_unit = 3;
    let snapshot = forest([tree]);
    let pair = |a, b| query(vec![group("1", &[("VGPU", a)]), group("2", &[("VGPU", b)])]);
    assert_eq!(count(&snapshot, &pair(1, 2)), 1);
    assert_eq!(count(&snapshot, &pair(2, 2)), 0, "the sum exceeds max_unit");
    let candidate = snapshot.search(&pair(1, 2)).unwrap().next().unwrap();
    assert_eq!(candidate.allocations, [(id(2), class("VGPU"), 3)]);
}

#[test]
fn required_traits_are_met_collectively_by_those_that_supply() {
    let snapshot = forest([vec![
        provider(1, None).is("T_ROOT"),
        provider(2, Some(1)).has("VCPU", 1).is("T_A"),
        provider(3, Some(1)).has("DISK_GB", 1).is("T_B"),
    ]]);
    let wanting = |required: &[&str]| {
        let resources = group("", &[("VCPU", 1), ("DISK_GB", 1)]);
        query(vec![Group { required: lists(required), ..resources }])
    };
    assert_eq!(count(&snapshot, &wanting(&["T_A", "T_B"])), 1);
    assert_eq!(count(&snapshot, &wanting(&["T_ROOT"])), 0);
    let rooted = Query { root_required: vec!["T_ROOT".into()], ..wanting(&["T_A"]) };
    assert_eq!(count(&snapshot, &rooted), 1);
    let barred = Query { root_forbidden: vec!["T_ROOT".into()], ..wanting(&[]) };
    assert_eq!(count(&snapshot, &barred), 0);
}

#[test]
fn an_aggregate_of_the_root_spans_the_tree_for_the_unsuffixed_group_only() {
    let mut tree = gpu_host(1, 2, 1);
    tree[0] = tree[0].clone().within(1);
    tree[1] = tree[1].clone().within(2);
    let snapshot = forest([tree]);
    let within = |suffix, aggregate| {
        let member_of = vec![vec![agg(aggregate)]];
        query(vec![Group { member_of, ..group(suffix, &[("VGPU", 1)]) }])
    };
    assert_eq!(count(&snapshot, &within("", 1)), 2);
    assert_eq!(count(&snapshot, &within("1", 1)), 0);
    assert_eq!(count(&snapshot, &within("", 2)), 1);
    assert_eq!(count(&snapshot, &within("1", 2)), 1);
    let outside = |suffix, aggregate| {
        let forbidden_aggregates = vec![agg(aggregate)];
        query(vec![Group { forbidden_aggregates, ..group(suffix, &[("VGPU", 1)]) }])
    };
    assert_eq!(count(&snapshot, &outside("", 1)), 0);
    assert_eq!(count(&snapshot, &outside("1", 1)), 2);
}

#[test]
fn siblings_are_no_subtree_without_their_parent() {
    let snapshot = forest([gpu_host(1, 2, 1)]);
    let pair = vec![group("1", &[("VGPU", 1)]), group("2", &[("VGPU", 1)])];
    let set = |names: &[&str]| vec![names.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()];
    let alone = Query { same_subtree: set(&["1", "2"]), ..query(pair.clone()) };
    assert_eq!(count(&snapshot, &alone), 0);
    let groups = [pair, vec![group("_HOST", &[])]].concat();
    let topped = Query { same_subtree: set(&["1", "2", "_HOST"]), ..query(groups) };
    let found: Vec<_> = snapshot.search(&topped).unwrap().collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|c| c.mappings.contains(&("_HOST".into(), vec![id(1)]))));
    assert!(found.iter().all(|c| c.allocations.len() == 2));
}

#[test]
fn parents_that_look_alike_are_not_interchangeable() {
    let node = |number| provider(number, Some(1)).is("HW_NUMA_ROOT");
    let leaf = |number, parent| provider(number, Some(parent)).has("VGPU", 1);
    let plain = provider(12, Some(11)).has("VCPU", 1);
    let snapshot = forest([vec![provider(1, None), node(11), plain, node(21), leaf(22, 21)]]);
    let numa = Group { required: lists(&["HW_NUMA_ROOT"]), ..group("_NUMA", &[]) };
    let query = Query {
        same_subtree: vec![vec!["_NUMA".into(), "_GPU".into()]],
        ..query(vec![numa, group("_GPU", &[("VGPU", 1)])])
    };
    let found: Vec<_> = snapshot.search(&query).unwrap().map(|c| c.mappings).collect();
    assert_eq!(found, [[("_NUMA".into(), vec![id(21)]), ("_GPU".into(), vec![id(22)])]]);
}

fn shared_disk() -> Snapshot {
    forest([
        vec![provider(1, None).has("VCPU", 8).has("DISK_GB", 10).within(1)],
        vec![provider(101, None).has("VCPU", 8), provider(102, Some(101)).within(1)],
        vec![provider(201, None).has("VCPU", 8).within(2)],
        vec![provider(301, None).has("DISK_GB", 99).is("MISC_SHARES_VIA_AGGREGATE").within(1)],
    ])
}

#[test]
fn a_lender_serves_every_tree_that_it_shares_an_aggregate_with() {
    let snapshot = shared_disk();
    let both = query(vec![group("", &[("VCPU", 1), ("DISK_GB", 5)])]);
    assert_eq!(count(&snapshot, &both), 3);
    let apart = query(vec![group("", &[("VCPU", 1)]), group("1", &[("DISK_GB", 50)])]);
    assert_eq!(count(&snapshot, &apart), 2);
    let disk_only = query(vec![group("", &[("DISK_GB", 50)])]);
    assert_eq!(count(&snapshot, &disk_only), 1, "the equal candidates of all anchors are merged");
}

#[test]
fn in_tree_keeps_lenders_out() {
    let snapshot = shared_disk();
    let both = |in_tree: u128| {
        let resources = group("", &[("VCPU", 1), ("DISK_GB", 5)]);
        query(vec![Group { in_tree: Some(id(in_tree)), ..resources }])
    };
    assert_eq!(count(&snapshot, &both(1)), 1);
    assert_eq!(count(&snapshot, &both(102)), 0);
    assert_eq!(count(&snapshot, &both(999)), 0);
    let sharing = Group { in_tree: Some(id(301)), ..group("1", &[("DISK_GB", 5)]) };
    assert_eq!(count(&snapshot, &query(vec![group("", &[("VCPU", 1)]), sharing])), 2);
}

#[test]
fn names_that_no_provider_has() {
    let snapshot = forest([gpu_host(1, 1, 1)]);
    let vgpu = || group("", &[("VGPU", 1)]);
    assert_eq!(count(&snapshot, &query(vec![group("", &[("CUSTOM_NO", 1)])])), 0);
    assert_eq!(count(&snapshot, &query(vec![Group { required: lists(&["NO"]), ..vgpu() }])), 0);
    let forbidding = Group { forbidden: vec!["NO".into()], ..vgpu() };
    assert_eq!(count(&snapshot, &query(vec![forbidding])), 1);
    assert_eq!(count(&Snapshot::default(), &query(vec![vgpu()])), 0);
}

#[test]
fn questions_without_sense_are_refused() {
    let snapshot = forest([gpu_host(1, 1, 1)]);
    let refusal = |query: Query| snapshot.search(&query).map(|_| ()).unwrap_err();
    assert_eq!(refusal(query(Vec::new())), QueryError::NoResources);
    assert_eq!(refusal(query(vec![group("1", &[])])), QueryError::NoResources);
    let vgpu = |suffix| group(suffix, &[("VGPU", 1)]);
    assert_eq!(refusal(query(vec![vgpu("1"), vgpu("1")])), QueryError::DuplicateGroup("1".into()));
    assert_eq!(refusal(query(vec![group("", &[("VGPU", 0)])])), QueryError::Amount(class("VGPU")));
    let twice = group("", &[("VGPU", 1), ("VGPU", 2)]);
    assert_eq!(refusal(query(vec![twice])), QueryError::DuplicateClass(class("VGPU")));
    let idle = Group { required: lists(&["T_A"]), ..group("", &[]) };
    assert_eq!(refusal(query(vec![idle, vgpu("1")])), QueryError::NothingToServe);
    let lost = Query { same_subtree: vec![vec!["2".into()]], ..query(vec![vgpu("1")]) };
    assert_eq!(refusal(lost), QueryError::UnknownSuffix("2".into()));
    assert_eq!(count(&snapshot, &query(vec![group("", &[]), vgpu("1")])), 1);
}

#[test]
fn huge_numbers_do_not_overflow() {
    let mut tree = gpu_host(1, 1, i64::MAX);
    tree[1].inventories[0].1.max_unit = i64::MAX;
    tree[1].inventories[0].1.allocation_ratio = 1e300;
    let snapshot = forest([tree]);
    let groups = ["1", "2", "3"].map(|suffix| group(suffix, &[("VGPU", i64::MAX / 2 + 1)]));
    assert_eq!(count(&snapshot, &query(groups.to_vec())), 0);
}
