//! Random forests and queries: the engine's candidates equal the reference's.

use std::collections::{BTreeSet, HashMap};

use kilonova_engine::{Alike, Group, Inventory, Provider, Query, Snapshot, Tree};
use kilonova_ids::{ProviderId, ResourceClass};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use uuid::Uuid;

use crate::build::{agg, id};
use crate::reference::{Canonical, candidates, canonical};

const CLASSES: [&str; 3] = ["VCPU", "DISK_GB", "VGPU"];
const TRAITS: [&str; 4] = ["T_A", "T_B", "T_C", "MISC_SHARES_VIA_AGGREGATE"];
const SUFFIXES: [&str; 4] = ["", "1", "2", "_X"];

fn aggregates() -> Vec<Uuid> {
    (0..3).map(agg).collect()
}

/// Mostly roomy and mostly equal, so that sharing, merging and symmetry all occur.
fn inventory() -> impl Strategy<Value = Inventory> {
    (
        prop_oneof![4 => Just(6), 1 => 1..6_i64],
        prop_oneof![4 => Just(0), 1 => 0..4_i64],
        prop_oneof![6 => Just((1, 1)), 1 => Just((2, 1)), 1 => Just((1, 2))],
        prop_oneof![5 => Just(8), 1 => 1..4_i64],
        prop_oneof![4 => Just(1.0), 1 => Just(1.5)],
        prop_oneof![6 => Just(0), 1 => Just(2)],
    )
        .prop_map(
            |(total, used, (min_unit, step_size), max_unit, allocation_ratio, reserved)| {
                Inventory { total, reserved, min_unit, max_unit, step_size, allocation_ratio, used }
            },
        )
}

fn provider() -> impl Strategy<Value = (usize, Provider)> {
    let classes = prop_oneof![
        1 => Just(Vec::new()),
        4 => subsequence(&CLASSES[..], 1..=3),
    ]
    .prop_flat_map(|classes: Vec<&'static str>| {
        let inventories: Vec<_> = classes.iter().map(|_| inventory()).collect();
        (Just(classes), inventories)
    });
    let traits = subsequence(&TRAITS[..3], 0..=2);
    let shares = prop::bool::weighted(0.15);
    let groups = prop_oneof![2 => Just(Vec::new()), 1 => subsequence(aggregates(), 1..=2)];
    (0..8_usize, classes, traits, shares, groups).prop_map(
        |(parent, (classes, inventories), traits, shares, aggregates)| {
            let mut traits: Vec<_> = traits.into_iter().map(Into::into).collect();
            if shares {
                traits.push(TRAITS[3].into());
            }
            let inventories =
                classes.into_iter().map(ResourceClass::verbatim).zip(inventories).collect();
            let (name, version) = ("".into(), 0);
            let id = ProviderId::nil();
            (parent, Provider { id, name, parent: None, version, inventories, traits, aggregates })
        },
    )
}

/// Up to three trees of up to five providers. Some trees contain a run of equal leaves.
pub fn trees() -> impl Strategy<Value = Vec<Tree>> {
    let tree = (vec(provider(), 1..5), prop_oneof![2 => Just(0_usize), 1 => 1..3_usize]);
    vec(tree, 1..4).prop_map(|trees| {
        let plant = |(number, (mut providers, twins)): (usize, (Vec<(usize, Provider)>, usize))| {
            if let (Some(last), true) = (providers.last().cloned(), providers.len() > 1) {
                providers.extend(vec![last; twins]);
            }
            let first = 1 + 100 * number as u128;
            let mut compact: Vec<Provider> = Vec::new();
            let original = providers.len() - twins.min(providers.len() - 1);
            for (position, (parent, mut provider)) in providers.into_iter().enumerate() {
                let above = position.min(original - 1);
                provider.id = id(first + position as u128);
                provider.parent =
                    (position > 0).then(|| id(first + (parent % above.max(1)) as u128));
                provider.name = format!("{number}/{position}").into();
                compact.push(provider);
            }
            Tree { providers: compact }
        };
        trees.into_iter().enumerate().map(plant).collect()
    })
}

fn names(from: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<String>> {
    subsequence(from, 0..=most).prop_map(|list| list.into_iter().map(String::from).collect())
}

fn rarely<T: Clone + std::fmt::Debug + 'static>(
    some: impl Strategy<Value = Vec<T>> + 'static,
) -> impl Strategy<Value = Vec<T>> {
    prop_oneof![5 => Just(Vec::new()), 1 => some]
}

fn group(suffix: &'static str) -> impl Strategy<Value = Group> {
    let least = usize::from(suffix.is_empty());
    let resources = subsequence(&CLASSES[..], least..=2)
        .prop_flat_map(|classes| (Just(classes), vec(prop_oneof![3 => Just(1), 1 => 2..4_i64], 2)));
    let required = rarely(vec(subsequence(&TRAITS[..3], 1..=2), 1..3));
    let in_tree = prop_oneof![
        16 => Just(None),
        1 => (0..3_u128, 1..4_u128).prop_map(|(tree, n)| Some(id(100 * tree + n))),
    ];
    let member_of = rarely(vec(subsequence(aggregates(), 1..=2), 1..3));
    let barred = rarely(vec(select(aggregates()), 1));
    let forbidden = rarely(names(&TRAITS[..3], 1));
    (resources, required, forbidden, member_of, barred, in_tree).prop_map(
        move |(
            (classes, amounts),
            required,
            forbidden,
            member_of,
            forbidden_aggregates,
            in_tree,
        )| {
            let owned = |list: Vec<&str>| list.into_iter().map(String::from).collect();
            Group {
                suffix: suffix.into(),
                resources: classes.into_iter().map(ResourceClass::verbatim).zip(amounts).collect(),
                required: required.into_iter().map(owned).collect(),
                forbidden,
                member_of,
                forbidden_aggregates,
                in_tree,
            }
        },
    )
}

/// A condition of a common trait: whether it applies to the unsuffixed group, to how many other groups it applies, the
/// prefix of the trait, and whether all providers with the trait must be requested, or unused.
fn alike() -> impl Strategy<Value = Option<(bool, usize, &'static str, [bool; 2])>> {
    let prefix = select(vec!["T_", "T_", "T_B", "U_"]);
    prop_oneof![
        1 => Just(None),
        1 => (any::<bool>(), 1..4_usize, prefix, any::<[bool; 2]>()).prop_map(Some),
    ]
}

fn of_groups(alike: Option<(bool, usize, &str, [bool; 2])>, groups: &[Group]) -> Vec<Alike> {
    let Some((unsuffixed, many, prefix, [whole, vacant])) = alike else { return Vec::new() };
    let suffixed = groups.iter().filter(|group| !group.suffix.is_empty()).take(many);
    let unsuffixed = groups.iter().filter(|group| group.suffix.is_empty() && unsuffixed);
    let of = || unsuffixed.clone().chain(suffixed.clone()).map(|group| group.suffix.clone());
    vec![Alike {
        groups: of().collect(),
        classes: CLASSES[..1].iter().copied().map(ResourceClass::verbatim).collect(),
        prefix: prefix.to_owned(),
        whole,
        vacant,
        ..Alike::default()
    }]
}

pub fn queries() -> impl Strategy<Value = Query> {
    let suffixes = subsequence(&SUFFIXES[..], 1..=4);
    suffixes
        .prop_flat_map(|suffixes| {
            let named: Vec<String> =
                suffixes.iter().filter(|s| !s.is_empty()).map(|s| (*s).to_owned()).collect();
            let subtree = match named.len() {
                0 => Just(Vec::new()).boxed(),
                n => prop_oneof![
                    2 => Just(Vec::new()),
                    1 => vec(subsequence(named, 1..=n), 1..3),
                ]
                .boxed(),
            };
            let groups: Vec<_> = suffixes.into_iter().map(|s| group(s).boxed()).collect();
            let roots = (rarely(names(&TRAITS[..2], 1)), rarely(names(&TRAITS[2..3], 1)));
            (groups, subtree, any::<bool>(), roots, any::<u64>(), alike())
        })
        .prop_filter("the query requests a resource", |(groups, ..)| {
            groups.iter().any(|group| !group.resources.is_empty())
        })
        .prop_map(
            |(groups, same_subtree, isolate, (root_required, root_forbidden), seed, alike)| Query {
                alike: of_groups(alike, &groups),
                groups,
                isolate,
                same_subtree,
                root_required,
                root_forbidden,
                limit: None,
                seed,
            },
        )
}

pub fn plant(trees: &[Tree]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for tree in trees {
        snapshot.upsert(tree.clone());
    }
    snapshot
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn every_candidate_comes_exactly_once(trees in trees(), query in queries()) {
        let snapshot = plant(&trees);
        let found: Vec<Canonical> =
            snapshot.search(&query).unwrap().map(|c| canonical(&c)).collect();
        let set: BTreeSet<Canonical> = found.iter().cloned().collect();
        prop_assert_eq!(set.len(), found.len(), "each candidate appears once");
        prop_assert_eq!(set, candidates(&trees, &query));
    }

    #[test]
    fn a_limit_gives_a_part_of_it_hosts_first(
        trees in trees(), query in queries(), limit in 1..6_usize
    ) {
        let snapshot = plant(&trees);
        let all: Vec<_> = snapshot.search(&query).unwrap().collect();
        let limited = Query { limit: Some(limit), ..query };
        let some: Vec<_> = snapshot.search(&limited).unwrap().collect();
        prop_assert_eq!(some.len(), limit.min(all.len()));
        prop_assert!(some.iter().all(|candidate| all.contains(candidate)));
        let mut by_root: HashMap<ProviderId, usize> = HashMap::new();
        for candidate in &all {
            *by_root.entry(candidate.root).or_default() += 1;
        }
        let mut given: HashMap<ProviderId, usize> = HashMap::new();
        for candidate in &some {
            let round = *given.entry(candidate.root).and_modify(|n| *n += 1).or_insert(1);
            for (root, there) in &by_root {
                let got = given.get(root).copied().unwrap_or(0);
                prop_assert!(got + 1 >= round.min(*there + 1), "each round includes every tree with candidates");
            }
        }
    }

    #[test]
    fn an_explanation_counts_what_a_search_finds(trees in trees(), query in queries()) {
        let snapshot = plant(&trees);
        let explanation = snapshot.explain(&query);
        let fits = trees
            .iter()
            .filter(|tree| {
                let root = tree.providers[0].id;
                snapshot.search(&query).unwrap().any(|candidate| candidate.root == root)
            })
            .count();
        let removed: usize = explanation.steps.iter().map(|step| step.removed).sum();
        prop_assert_eq!(explanation.hosts, trees.len());
        prop_assert_eq!(explanation.left + removed, trees.len());
        prop_assert!(explanation.left >= fits);
        prop_assert_eq!(explanation.left == 0, fits == 0);
    }

    #[test]
    fn what_a_candidate_takes_is_gone(trees in trees(), query in queries()) {
        let mut scratch = plant(&trees);
        for _ in 0..1000 {
            let Some(candidate) = scratch.search(&query).unwrap().next() else { return Ok(()) };
            scratch.add_usage(&candidate);
            let tree = scratch.tree(candidate.root).unwrap();
            for provider in tree.providers() {
                for (class, inventory) in &provider.inventories {
                    let taken = candidate
                        .allocations
                        .iter()
                        .any(|(p, c, _)| *p == provider.id && c == class);
                    prop_assert!(!taken || inventory.used <= inventory.capacity());
                }
            }
        }
        prop_assert!(false, "the capacity is used up after finitely many candidates");
    }
}
