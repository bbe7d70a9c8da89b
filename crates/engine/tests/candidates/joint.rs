//! Several servers at once: as many as a try of everything finds.

use std::collections::BTreeMap;

use kilonova_engine::{Query, Snapshot, Tree};
use kilonova_ids::ProviderId;
use proptest::prelude::*;

use crate::build::{With, forest, gpu_host, group, provider, query};
use crate::random::{plant, queries, trees};
use crate::reference::{Canonical, candidates, canonical};

/// Candidates of one query beyond which trying everything takes too long.
const FEW: usize = 24;

fn packed(world: &Snapshot, query: &Query, count: usize) -> usize {
    world.pack(query, count, |_| count, |_| true).unwrap().len()
}

/// The upstream guide's example: two cards of four, and flavors of four.
#[test]
fn two_cards_of_four_hold_two_servers_of_four() {
    let world = forest([gpu_host(1, 2, 4)]);
    let query = query(vec![group("", &[("VCPU", 1)]), group("1", &[("VGPU", 4)])]);
    assert_eq!(packed(&world, &query, 2), 2);
    assert_eq!(packed(&world, &query, 3), 2);
}

/// The first candidate for the first server uses up what only the second could have used.
#[test]
fn the_choosy_group_is_left_its_card() {
    let world = forest([vec![
        provider(1, None).has("VCPU", 8),
        provider(2, Some(1)).has("VGPU", 2).is("T_FAST"),
        provider(3, Some(1)).has("VGPU", 2),
    ]]);
    let mut fast = group("1", &[("VGPU", 1)]);
    fast.required = vec![vec!["T_FAST".into()]];
    let query = query(vec![group("", &[("VCPU", 1)]), fast, group("2", &[("VGPU", 1)])]);
    assert_eq!(packed(&world, &query, 2), 2);
}

#[test]
fn a_tree_is_not_given_more_than_it_may_have() {
    let world = forest([gpu_host(1, 2, 4), gpu_host(11, 2, 4), gpu_host(21, 2, 4)]);
    let query = query(vec![group("", &[("VCPU", 1)]), group("1", &[("VGPU", 1)])]);
    let places = world.pack(&query, 9, |_| 1, |_| true).unwrap();
    let mut roots: Vec<ProviderId> = places.iter().map(|place| place.root).collect();
    roots.sort();
    roots.dedup();
    assert_eq!((places.len(), roots.len()), (3, 3));
}

/// The most servers that fit, by trying every candidate for every server.
fn most(left: &mut BTreeMap<(ProviderId, String), i64>, all: &[Canonical], count: usize) -> usize {
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

fn room(trees: &[Tree]) -> BTreeMap<(ProviderId, String), i64> {
    let providers = trees.iter().flat_map(|tree| &tree.providers);
    let cells = providers.flat_map(|provider| {
        provider.inventories.iter().map(|(class, inventory)| {
            ((provider.id, class.to_string()), inventory.capacity() - inventory.used)
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
        let mut world = plant(&trees);
        let places = world.pack(&query, count, |_| count, |_| true).unwrap();
        prop_assert_eq!(places.len(), most(&mut room(&trees), &all, count));
        for place in &places {
            let fits = world.search(&query).unwrap().any(|c| canonical(&c) == canonical(place));
            prop_assert!(fits, "it is no candidate of what is left: {:?}", place);
            world.take(place);
        }
    }
}
