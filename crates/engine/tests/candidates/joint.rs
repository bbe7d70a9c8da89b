//! Several servers at once: as many are placed as an exhaustive search places.

use std::collections::BTreeMap;

use kilonova_engine::{Query, Snapshot, Tree};
use kilonova_ids::ProviderId;
use proptest::prelude::*;

use crate::build::{With, forest, gpu_host, group, provider, query};
use crate::random::{plant, queries, trees};
use crate::reference::{Canonical, candidates, canonical};

/// Number of candidates beyond which an exhaustive search takes too long.
const FEW: usize = 24;

fn packed(snapshot: &Snapshot, query: &Query, count: usize) -> usize {
    snapshot.pack(query, count, |_| count, |_| true).unwrap().len()
}

/// The example of the upstream guide: two cards of four, and flavors of four.
#[test]
fn two_cards_of_four_hold_two_servers_of_four() {
    let snapshot = forest([gpu_host(1, 2, 4)]);
    let query = query(vec![group("", &[("VCPU", 1)]), group("1", &[("VGPU", 4)])]);
    assert_eq!(packed(&snapshot, &query, 2), 2);
    assert_eq!(packed(&snapshot, &query, 3), 2);
}

/// The first candidate of the first server uses the only inventory that suits the second.
#[test]
fn the_choosy_group_is_left_its_card() {
    let snapshot = forest([vec![
        provider(1, None).has("VCPU", 8),
        provider(2, Some(1)).has("VGPU", 2).is("T_FAST"),
        provider(3, Some(1)).has("VGPU", 2),
    ]]);
    let mut fast = group("1", &[("VGPU", 1)]);
    fast.required = vec![vec!["T_FAST".into()]];
    let query = query(vec![group("", &[("VCPU", 1)]), fast, group("2", &[("VGPU", 1)])]);
    assert_eq!(packed(&snapshot, &query, 2), 2);
}

#[test]
fn a_tree_is_not_given_more_than_it_may_have() {
    let snapshot = forest([gpu_host(1, 2, 4), gpu_host(11, 2, 4), gpu_host(21, 2, 4)]);
    let query = query(vec![group("", &[("VCPU", 1)]), group("1", &[("VGPU", 1)])]);
    let locations = snapshot.pack(&query, 9, |_| 1, |_| true).unwrap();
    let mut roots: Vec<ProviderId> = locations.iter().map(|place| place.root).collect();
    roots.sort();
    roots.dedup();
    assert_eq!((locations.len(), roots.len()), (3, 3));
}

/// The maximum number of servers that fit, found by trying every candidate for every server.
fn most(
    left: &mut BTreeMap<(ProviderId, kilonova_ids::ResourceClass), i64>,
    all: &[Canonical],
    count: usize,
) -> usize {
    if count == 0 {
        return 0;
    }
    let mut best = 0;
    for (at, candidate) in all.iter().enumerate() {
        let fits = candidate.allocations.iter().all(|(cell, n)| left[cell] >= *n);
        if !fits {
            continue;
        }
        for (cell, n) in &candidate.allocations {
            *left.entry(cell.clone()).or_default() -= n;
        }
        best = best.max(1 + most(left, &all[at..], count - 1));
        for (cell, n) in &candidate.allocations {
            *left.entry(cell.clone()).or_default() += n;
        }
        if best == count {
            break;
        }
    }
    best
}

fn room(trees: &[Tree]) -> BTreeMap<(ProviderId, kilonova_ids::ResourceClass), i64> {
    let providers = trees.iter().flat_map(|tree| &tree.providers);
    let cells = providers.flat_map(|provider| {
        provider.inventories.iter().map(|(class, inventory)| {
            ((provider.id, class.clone()), inventory.capacity() - inventory.used)
        })
    });
    cells.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn as_many_fit_as_trying_everything_finds(
        trees in trees(), query in queries(), count in 2..5_usize
    ) {
        let all: Vec<Canonical> = candidates(&trees, &query).into_iter().collect();
        if all.len() > FEW {
            return Ok(());
        }
        let mut snapshot = plant(&trees);
        let locations = snapshot.pack(&query, count, |_| count, |_| true).unwrap();
        prop_assert_eq!(locations.len(), most(&mut room(&trees), &all, count));
        for place in &locations {
            let fits = snapshot.search(&query).unwrap().any(|c| canonical(&c) == canonical(place));
            prop_assert!(fits, "the reference finds the candidate in the remaining capacity: {:?}", place);
            snapshot.take(place);
        }
    }
}
