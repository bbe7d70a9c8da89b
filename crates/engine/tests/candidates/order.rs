//! The order of candidates.

use std::collections::HashSet;

use kilonova_engine::Query;

use crate::build::{forest, gpu_host, group, id, query};

fn hosts(count: u128) -> kilonova_engine::Snapshot {
    forest((0..count).map(|n| gpu_host(1 + 100 * n, 4, 2)))
}

#[test]
fn one_for_each_host_comes_first() {
    let snapshot = hosts(200);
    let query = query(vec![group("", &[("VCPU", 1)]), group("1", &[("VGPU", 1)])]);
    let roots: Vec<_> = snapshot.search(&query).unwrap().take(400).map(|c| c.root).collect();
    for round in roots.chunks(200) {
        assert_eq!(round.iter().collect::<HashSet<_>>().len(), 200);
    }
}

#[test]
fn seeds_spread_the_first_host() {
    let snapshot = hosts(200);
    let first = |seed| {
        let query = Query { seed, limit: Some(1), ..query(vec![group("", &[("VGPU", 1)])]) };
        snapshot.search(&query).unwrap().next().unwrap().root
    };
    let firsts: HashSet<_> = (0..40).map(first).collect();
    assert!(firsts.len() > 25, "{} different first hosts for 40 seeds, more than 25", firsts.len());
    assert_eq!(first(7), first(7));
}

#[test]
fn interchangeable_candidates_come_after_one_of_each_kind() {
    let mut tree = gpu_host(1, 3, 4);
    tree[3].inventories[0].1.used = 3;
    let snapshot = forest([tree]);
    let query = query(vec![group("", &[("VGPU", 1)])]);
    let picks: Vec<_> = snapshot.search(&query).unwrap().map(|c| c.mappings[0].1[0]).collect();
    assert_eq!(picks.len(), 3);

    let two = Query {
        groups: vec![group("1", &[("VGPU", 2)]), group("2", &[("VGPU", 2)])],
        limit: Some(2),
        ..query
    };
    let snapshot = forest([gpu_host(1, 8, 4)]);
    let kinds: Vec<_> = snapshot.search(&two).unwrap().map(|c| c.mappings).collect();
    let first = vec![("1".to_owned(), vec![id(2)]), ("2".to_owned(), vec![id(2)])];
    let second = vec![("1".to_owned(), vec![id(2)]), ("2".to_owned(), vec![id(3)])];
    assert_eq!(kinds, [first, second]);
}

#[test]
fn without_a_limit_all_of_them_come() {
    let snapshot = forest([gpu_host(1, 8, 1)]);
    let groups: Vec<_> = ["1", "2", "3", "4"].iter().map(|s| group(s, &[("VGPU", 1)])).collect();
    let query = Query { isolate: true, ..query(groups) };
    assert_eq!(snapshot.search(&query).unwrap().count(), 8 * 7 * 6 * 5);
}
