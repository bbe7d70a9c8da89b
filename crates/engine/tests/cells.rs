//! Trees whose NUMA cells are providers, as the search for hosts sees them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use kilonova_engine::{CELL_TRAIT, Candidate, Group, Inventory, Provider, Query, Snapshot, Tree};
use kilonova_ids::{ProviderId, ResourceClass};
use proptest::prelude::*;

fn class(name: &str) -> ResourceClass {
    ResourceClass::verbatim(name)
}

fn id(n: u8) -> ProviderId {
    ProviderId::from_bytes([n; 16])
}

fn inventory(total: i64, used: i64, ratio: f64) -> Inventory {
    Inventory { used, allocation_ratio: ratio, max_unit: 1 << 20, ..Inventory::of(total) }
}

/// A host with two NUMA cells, each a provider below the root; `free` is the free VCPU of each.
fn divided(host: u8, free: [i64; 2]) -> Tree {
    let root = Provider {
        id: id(host),
        name: "host".into(),
        parent: None,
        version: 1,
        inventories: vec![(class("DISK_GB"), Inventory::of(100))],
        traits: vec!["COMPUTE_NODE".into()],
        aggregates: Vec::new(),
    };
    let cell = |n: u8, free: i64| Provider {
        id: id(host + n),
        name: format!("host_NUMA{n}").into(),
        parent: Some(id(host)),
        version: 1,
        inventories: vec![
            (class("CUSTOM_OWN"), Inventory::of(1)),
            (class("MEMORY_MB"), inventory(1000, 0, 1.0)),
            (class("VCPU"), inventory(8, 32 - free, 4.0)),
        ],
        traits: vec![CELL_TRAIT.into()],
        aggregates: Vec::new(),
    };
    Tree { providers: vec![root, cell(1, free[0]), cell(2, free[1])] }
}

fn query(vcpus: i64, memory: i64) -> Query {
    let resources = vec![(class("MEMORY_MB"), memory), (class("VCPU"), vcpus)];
    Query { groups: vec![Group { resources, ..Group::default() }], ..Query::default() }
}

fn found(world: &Snapshot, vcpus: i64, memory: i64) -> Vec<Candidate> {
    world.search(&query(vcpus, memory)).expect("the query is valid").collect()
}

#[test]
fn a_request_that_no_cell_has_room_for_finds_the_sum_on_the_root() {
    let mut world = Snapshot::default();
    world.upsert(divided(10, [3, 4]));
    assert_eq!(world.cells(id(10)), [id(11), id(12)]);
    assert_eq!(world.cells(id(11)), [], "a cell is not a root");
    let folded = world.folded(None, &[]).expect("a tree is divided");
    assert_eq!(found(&world, 7, 2000), [], "as Placement answers");
    let candidates = found(&folded, 7, 2000);
    let all = vec![(id(10), class("MEMORY_MB"), 2000), (id(10), class("VCPU"), 7)];
    assert_eq!(candidates.len(), 1);
    assert_eq!(candidates[0].allocations, all);
    assert_eq!(found(&folded, 8, 1), []);
    assert_eq!(found(&folded, 1, 2001), []);

    // Scratch copies count the usage of cells on the root.
    let mut scratch = folded.clone();
    scratch.add_usage(&candidates[0]);
    assert_eq!(found(&scratch, 1, 1), []);
    scratch.subtract_usage(&[(id(12), class("VCPU"), 4), (id(11), class("MEMORY_MB"), 500)]);
    assert_eq!(found(&scratch, 4, 500).len(), 1);
    assert_eq!(found(&scratch, 5, 500), []);
}

#[test]
fn the_folded_trees_follow_the_stored_ones() {
    let mut world = Snapshot::default();
    let mut plain = divided(20, [0, 0]);
    plain.providers.truncate(1);
    plain.providers[0].inventories.push((class("VCPU"), Inventory::of(5)));
    plain.providers[0].inventories.push((class("MEMORY_MB"), Inventory::of(5)));
    world.upsert(plain.clone());
    assert!(world.folded(None, &[]).is_none());
    world.upsert(divided(10, [3, 4]));
    let second = world.folded(None, &[]).expect("a tree is divided");
    assert_eq!(found(&second, 5, 5).len(), 2);
    let used = [(class("VCPU"), 32), (class("MEMORY_MB"), 10)];
    world.set_usage(id(11), 2, &used);
    let third = world.folded(Some(&second), &[id(10)]).expect("a tree is divided");
    assert_eq!(found(&third, 4, 990).len(), 1);
    assert_eq!(found(&third, 5, 5).len(), 1, "only the other host has room");
    assert_eq!(found(&second, 7, 7).len(), 1, "earlier snapshots do not change");

    // The slot of a removed tree may be reused.
    world.remove(id(20));
    world.upsert(divided(30, [6, 6]));
    let changed = [id(30), id(20)];
    let fourth = world.folded(Some(&third), &changed).expect("trees are divided");
    assert_eq!((found(&fourth, 5, 5).len(), found(&fourth, 12, 5).len()), (1, 1));
    assert_eq!(fourth.len(), 2);
    world.upsert(plain);
    world.remove(id(10));
    world.remove(id(30));
    let changed = [id(20), id(10), id(30)];
    assert!(world.folded(Some(&fourth), &changed).is_none());
}

#[test]
fn a_host_that_offers_cpus_itself_is_not_divided() {
    let mut tree = divided(10, [3, 4]);
    tree.providers[0].inventories.push((class("VCPU"), Inventory::of(1)));
    let mut world = Snapshot::default();
    world.upsert(tree);
    assert_eq!(world.cells(id(10)), []);
    assert!(world.folded(None, &[]).is_none());
}

proptest! {
    /// The sum has exactly as many free units as the parts, whatever is reserved, overcommitted or in use.
    #[test]
    fn a_sum_is_as_free_as_its_parts(
        parts in prop::collection::vec((0_i64..500, 0_i64..600, 0_i64..3000, 1_u32..40), 1..5),
    ) {
        let parts: Vec<Inventory> = parts
            .into_iter()
            .map(|(total, reserved, used, ratio)| Inventory {
                reserved: reserved.min(total),
                ..inventory(total, used, f64::from(ratio) / 8.0)
            })
            .collect();
        let free: i64 = parts.iter().map(|one| (one.capacity() - one.used).max(0)).sum();
        let mut tree = divided(10, [0, 0]);
        tree.providers.truncate(1);
        for (n, part) in (11..).zip(&parts) {
            tree.providers.push(Provider {
                id: id(n),
                name: format!("cell {n}").into(),
                parent: Some(id(10)),
                version: 1,
                inventories: vec![(class("VCPU"), *part)],
                traits: vec![CELL_TRAIT.into()],
                aggregates: Vec::new(),
            });
        }
        let mut world = Snapshot::default();
        world.upsert(tree);
        let folded = world.folded(None, &[]).expect("the tree is divided");
        let root = folded.tree(id(10)).and_then(|tree| tree.providers().next()).expect("a root");
        let sum = root.inventories.iter().find(|(known, _)| *known == class("VCPU")).expect("a sum").1;
        prop_assert_eq!((sum.capacity() - sum.used).max(0), free);
        prop_assert_eq!(sum.used, parts.iter().map(|one| one.used).sum::<i64>());
    }
}
