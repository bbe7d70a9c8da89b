//! Snapshots after commits, moves and removals.

use kilonova_engine::{Inventory, Snapshot, Tree};

use crate::build::{With, class, forest, gpu_host, group, id, provider, query};

fn vgpu(snapshot: &Snapshot, host: u128, gpu: u128) -> (i64, i64) {
    let tree = snapshot.tree(id(host)).unwrap();
    let provider = tree.providers().find(|p| p.id == id(gpu)).unwrap();
    let used = |(_, inventory): &(_, Inventory)| inventory.used;
    (provider.version, provider.inventories.first().map_or(0, used))
}

#[test]
fn older_versions_are_ignored() {
    let mut snapshot = forest([gpu_host(1, 1, 4)]);
    snapshot.set_usage(id(2), 5, &[(class("VGPU"), 3)]);
    assert_eq!(vgpu(&snapshot, 1, 2), (5, 3));
    snapshot.set_usage(id(2), 4, &[(class("VGPU"), 1)]);
    assert_eq!(vgpu(&snapshot, 1, 2), (5, 3));
    snapshot.set_usage(id(2), 6, &[(class("VGPU"), 4)]);
    assert_eq!(vgpu(&snapshot, 1, 2), (6, 4));
    let query = query(vec![group("", &[("VGPU", 1)])]);
    assert_eq!(snapshot.search(&query).unwrap().count(), 0);
    snapshot.set_usage(id(2), 7, &[(class("VGPU"), 0), (class("NO_SUCH"), 1)]);
    assert_eq!(snapshot.search(&query).unwrap().count(), 1);
    snapshot.set_usage(id(99), 1, &[(class("VGPU"), 1)]);
}

#[test]
fn a_copy_does_not_see_later_changes() {
    let mut snapshot = forest([gpu_host(1, 2, 1), gpu_host(101, 2, 1)]);
    let before = snapshot.clone();
    let query = query(vec![group("1", &[("VGPU", 1)])]);
    for left in (0..4).rev() {
        let candidate = snapshot.search(&query).unwrap().next().unwrap();
        snapshot.add_usage(&candidate);
        assert_eq!(snapshot.search(&query).unwrap().count(), left);
    }
    assert_eq!(before.search(&query).unwrap().count(), 4);
    assert_eq!(vgpu(&before, 1, 2), (0, 0));
}

#[test]
fn two_servers_that_fill_a_gpu_each_both_find_one() {
    let mut snapshot = forest([gpu_host(1, 2, 16)]);
    let query = query(vec![group("", &[("VCPU", 1), ("VGPU", 16)])]);
    let first = snapshot.search(&query).unwrap().next().unwrap();
    snapshot.add_usage(&first);
    let second = snapshot.search(&query).unwrap().next().unwrap();
    let gpu = |c: &kilonova_engine::Candidate| c.allocations[1].0;
    assert_ne!(gpu(&first), gpu(&second));
    snapshot.add_usage(&second);
    assert_eq!(snapshot.search(&query).unwrap().next(), None);
}

#[test]
fn trees_come_change_and_go() {
    let mut snapshot = forest([gpu_host(1, 2, 1), gpu_host(101, 2, 1)]);
    assert_eq!(snapshot.root_of(id(3)), Some(id(1)));
    assert_eq!(snapshot.len(), 2);

    snapshot.upsert(Tree { providers: gpu_host(1, 1, 1) });
    assert_eq!(snapshot.root_of(id(3)), None);
    assert_eq!(snapshot.root_of(id(2)), Some(id(1)));

    snapshot.remove(id(1));
    assert_eq!(snapshot.roots().collect::<Vec<_>>(), [id(101)]);
    assert_eq!(snapshot.root_of(id(2)), None);
    assert!(snapshot.tree(id(1)).is_none());
    snapshot.upsert(Tree { providers: gpu_host(201, 3, 1) });
    assert_eq!(snapshot.len(), 2);
    assert_eq!(snapshot.search(&query(vec![group("", &[("VGPU", 1)])])).unwrap().count(), 5);
    snapshot.upsert(Tree::default());
    snapshot.remove(id(7));
    assert_eq!(snapshot.len(), 2);
}

#[test]
fn a_provider_may_move_whichever_tree_is_told_first() {
    let wanted = vec![provider(1, None).has("VCPU", 1), provider(101, Some(1)).has("VGPU", 1)];
    let mut taken_first = forest([gpu_host(1, 0, 1), vec![provider(101, None).has("VGPU", 1)]]);
    taken_first.upsert(Tree { providers: wanted.clone() });
    taken_first.remove(id(101));
    let mut left_first = forest([gpu_host(1, 0, 1), vec![provider(101, None).has("VGPU", 1)]]);
    left_first.remove(id(101));
    left_first.upsert(Tree { providers: wanted.clone() });
    for mut snapshot in [taken_first, left_first] {
        assert_eq!(snapshot.len(), 1);
        assert_eq!(snapshot.root_of(id(101)), Some(id(1)));
        snapshot.set_usage(id(101), 1, &[(class("VGPU"), 1)]);
        assert_eq!(vgpu(&snapshot, 1, 101), (1, 1));
    }
}

#[test]
fn what_is_read_is_what_was_put() {
    let providers = vec![
        provider(1, None).has("VCPU", 8).is("T_A").within(1),
        provider(2, Some(1)).has("VGPU", 2).has("CUSTOM_X", 3).is("T_B").is("T_C"),
    ];
    let snapshot = forest([providers.clone()]);
    let tree = snapshot.tree(id(1)).unwrap();
    assert_eq!(tree.root(), id(1));
    assert_eq!(tree.providers().collect::<Vec<_>>(), providers);
    let outline: Vec<_> =
        tree.outline().map(|(p, name, parent, g)| (p, &**name, parent, g)).collect();
    assert_eq!(outline, [(id(1), "p1", None, 0), (id(2), "p2", Some(id(1)), 0)]);
}

#[test]
fn changes_between_snapshots_are_named_by_root() {
    let mut snapshot = forest((0..200).map(|at| gpu_host(1 + at * 100, 2, 1)));
    let before = snapshot.clone();
    let changes = |now: &Snapshot, then: &Snapshot| -> Vec<_> {
        let mut roots: Vec<_> = now.changed_since(then).collect();
        roots.sort_unstable();
        roots
    };
    assert_eq!(changes(&snapshot, &before), []);
    snapshot.set_usage(id(102), 1, &[(class("VGPU"), 1)]);
    snapshot.remove(id(301));
    snapshot.upsert(Tree { providers: gpu_host(50_001, 1, 1) });
    // The new tree is in the slot of the removed one.
    assert_eq!(changes(&snapshot, &before), [id(101), id(301), id(50_001)]);
    assert_eq!(changes(&before, &snapshot), [id(101), id(301), id(50_001)]);
    assert_eq!(changes(&snapshot, &Snapshot::default()).len(), 200);
}
