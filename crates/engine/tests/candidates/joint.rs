//! Several servers at once: as many are placed as an exhaustive search places.

use std::collections::BTreeMap;

use kilonova_engine::{Alike, Query, Snapshot, Tree};
use kilonova_ids::ProviderId;
use proptest::prelude::*;

use crate::build::{With, forest, gpu_host, group, provider, query};
use crate::random::{plant, queries, trees};
use crate::reference::{Canonical, Witnesses, canonical, witnessed};

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

/// A candidate, the root under which it was found, and the traits of the areas that it can have to itself.
type Found = (Canonical, (ProviderId, Witnesses));

/// True if each of the candidates can have its areas to itself: no other one has the same area or uses its providers.
fn are_apart<'a>(trees: &[Tree], picks: &[&'a Found]) -> bool {
    let mut choices: Vec<Vec<Vec<&str>>> = Vec::new();
    for (_, (_, witnesses)) in picks.iter().copied() {
        let mut ways: Vec<Vec<&str>> = vec![Vec::new()];
        for names in witnesses {
            let with = |way: Vec<&'a str>| {
                names.iter().map(move |name| [&way[..], &[name.as_str()]].concat())
            };
            ways = ways.into_iter().flat_map(with).collect();
        }
        choices.push(ways);
    }
    let uses = |pick: &Found, root: ProviderId, name: &str| {
        trees
            .iter()
            .filter(|tree| tree.providers[0].id == root)
            .flat_map(|tree| &tree.providers)
            .any(|provider| {
                provider.traits.iter().any(|one| &**one == name)
                    && pick.0.allocations.keys().any(|(taken, _)| *taken == provider.id)
            })
    };
    let holds = |ways: &[&Vec<&str>]| {
        let indexes = || 0..picks.len();
        indexes().all(|at| {
            let root = picks[at].1.0;
            ways[at].iter().all(|name| {
                indexes().filter(|other| *other != at).all(|other| {
                    let has_too = picks[other].1.0 == root && ways[other].contains(name);
                    !has_too && !uses(picks[other], root, name)
                })
            })
        })
    };
    let mut all: Vec<Vec<&Vec<&str>>> = vec![Vec::new()];
    for ways in &choices {
        all = all
            .into_iter()
            .flat_map(|before| ways.iter().map(move |way| [&before[..], &[way]].concat()))
            .collect();
    }
    all.iter().any(|ways| holds(ways))
}

/// The maximum number of servers that fit, found by trying every candidate for every server.
fn most<'a>(
    trees: &[Tree],
    left: &mut BTreeMap<(ProviderId, kilonova_ids::ResourceClass), i64>,
    all: &'a [Found],
    picks: &mut Vec<&'a Found>,
    count: usize,
) -> usize {
    if picks.len() == count {
        return count;
    }
    let mut best = picks.len();
    for (at, found) in all.iter().enumerate() {
        let (candidate, _) = found;
        let fits = candidate.allocations.iter().all(|(cell, n)| left[cell] >= *n);
        picks.push(found);
        if fits && are_apart(trees, picks) {
            for (cell, n) in &candidate.allocations {
                *left.entry(cell.clone()).or_default() -= n;
            }
            best = best.max(most(trees, left, &all[at..], picks, count));
            for (cell, n) in &candidate.allocations {
                *left.entry(cell.clone()).or_default() += n;
            }
        }
        picks.pop();
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

/// Compares a joint placement with the exhaustive search.
fn compare(trees: &[Tree], query: &Query, count: usize) -> Result<(), TestCaseError> {
    let all: Vec<Found> = witnessed(trees, query).into_iter().collect();
    if all.len() > FEW {
        return Ok(());
    }
    let mut snapshot = plant(trees);
    let locations = snapshot.pack(query, count, |_| count, |_| true).unwrap();
    let most = most(trees, &mut room(trees), &all, &mut Vec::new(), count);
    prop_assert_eq!(locations.len(), most);
    for place in &locations {
        let fits = snapshot.search(query).unwrap().any(|c| canonical(&c) == canonical(place));
        prop_assert!(fits, "the search finds the candidate in the remaining capacity: {:?}", place);
        snapshot.add_usage(place);
    }
    Ok(())
}

/// Hosts with GPUs in islands, some in use, and a request for GPUs in an island that the server has to itself.
fn islands() -> impl Strategy<Value = (Vec<Tree>, Query)> {
    // For each GPU: its island, a second one that an operator may have set, and whether it is in use.
    let gpu = (0..3_usize, prop::option::weighted(0.1, 0..3_usize), prop::bool::weighted(0.15));
    let host = proptest::collection::vec(gpu, 1..6);
    let hosts = proptest::collection::vec(host, 1..3);
    let shape = (1..4_usize, any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    (hosts, shape).prop_map(|(hosts, (gpus, is_apart, whole, two))| {
        let host = |(number, gpus): (usize, Vec<(usize, Option<usize>, bool)>)| {
            let first = 1 + 100 * number as u128;
            let mut providers = vec![provider(first, None).has("VCPU", 8)];
            for ((island, other, is_used), at) in gpus.into_iter().zip(1..) {
                let mut gpu = provider(first + at, Some(first)).has("VGPU", 2);
                for island in [Some(island), other].into_iter().flatten() {
                    let name = format!("T_ISLAND_{island}");
                    gpu = if gpu.traits.iter().any(|one| **one == *name) {
                        gpu
                    } else {
                        gpu.is(&name)
                    };
                }
                gpu.inventories[0].1.used = i64::from(is_used);
                providers.push(gpu);
            }
            Tree { providers }
        };
        let names: Vec<String> = (1..=gpus).map(|number| number.to_string()).collect();
        let mut groups = vec![group("", &[("VCPU", 1)])];
        groups.extend(names.iter().map(|name| group(name, &[("VGPU", 1)])));
        let condition = |groups: &[String]| Alike {
            groups: groups.to_vec(),
            prefix: "T_ISLAND_".into(),
            whole,
            vacant: true,
            ..Alike::default()
        };
        // One condition on all GPUs, or one on the first and one on the others.
        let alike = match names.split_first() {
            Some((first, others)) if two && !others.is_empty() => {
                vec![condition(std::slice::from_ref(first)), condition(others)]
            }
            _ => vec![condition(&names)],
        };
        let query = Query { groups, isolate: is_apart, alike, ..Query::default() };
        (hosts.into_iter().enumerate().map(host).collect(), query)
    })
}

/// Two islands of two GPUs hold two servers that have an island each, although a GPU for a third server is unused.
#[test]
fn each_server_has_an_island_to_itself() {
    let gpu = |number, island: &str| provider(number, Some(1)).has("VGPU", 1).is(island);
    let tree = vec![
        provider(1, None).has("VCPU", 8),
        gpu(2, "T_ISLAND_0"),
        gpu(3, "T_ISLAND_0"),
        gpu(4, "T_ISLAND_1"),
        gpu(5, "T_ISLAND_1"),
    ];
    let snapshot = forest([tree]);
    let mut query = query(vec![group("", &[("VCPU", 1)]), group("1", &[("VGPU", 1)])]);
    assert_eq!(packed(&snapshot, &query, 4), 4);
    let condition =
        Alike { groups: vec!["1".into()], prefix: "T_ISLAND_".into(), ..Alike::default() };
    query.alike = vec![Alike { vacant: true, ..condition }];
    assert_eq!(packed(&snapshot, &query, 4), 2);
}

/// The first candidate is the GPU in both islands. A server on it would use both and leave no island for others.
#[test]
fn a_server_stays_off_the_islands_that_two_others_need() {
    let tree = vec![
        provider(1, None).has("VCPU", 8),
        provider(2, Some(1)).has("VGPU", 1).is("T_ISLAND_0").is("T_ISLAND_1"),
        provider(3, Some(1)).has("VGPU", 1).is("T_ISLAND_0"),
        provider(4, Some(1)).has("VGPU", 1).is("T_ISLAND_1"),
    ];
    let snapshot = forest([tree]);
    let mut query = query(vec![group("1", &[("VGPU", 1)])]);
    let condition =
        Alike { groups: vec!["1".into()], prefix: "T_ISLAND_".into(), ..Alike::default() };
    query.alike = vec![Alike { vacant: true, ..condition }];
    assert_eq!(packed(&snapshot, &query, 3), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn as_many_fit_as_trying_everything_finds(
        trees in trees(), query in queries(), count in 2..5_usize
    ) {
        // The root of a candidate of only sharing providers is not defined, nor are the areas that it has to itself.
        let shares = |tree: &Tree| {
            tree.providers.iter().any(|one| one.traits.iter().any(|name| name.starts_with("MISC_SHARES")))
        };
        if query.alike.iter().any(|alike| alike.vacant) && trees.iter().any(shares) {
            return Ok(());
        }
        compare(&trees, &query, count)?;
    }

    #[test]
    fn as_many_have_an_island_to_themselves_as_trying_everything_finds(
        (trees, query) in islands(), count in 2..5_usize
    ) {
        compare(&trees, &query, count)?;
    }
}
