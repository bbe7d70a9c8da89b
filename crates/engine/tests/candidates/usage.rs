//! What a snapshot shows after commits, moves and removals.

use kilonova_engine::{Inventory, Snapshot, Tree};

use crate::build::{With, forest, gpu_host, group, id, provider, query};

fn vgpu(world: &Snapshot, host: u128, gpu: u128) -> (i64, i64) {
    let tree = world.tree(id(host)).unwrap();
    let provider = tree.providers().find(|p| p.id == id(gpu)).unwrap();
    let used = |(_, inventory): &(_, Inventory)| inventory.used;
    (provider.generation, provider.inventories.first().map_or(0, used))
}

#[test]
fn older_generations_are_ignored() {
    let mut world = forest([gpu_host(1, 1, 4)]);
    world.set_usage(id(2), 5, &[("VGPU", 3)]);
    assert_eq!(vgpu(&world, 1, 2), (5, 3));
    world.set_usage(id(2), 4, &[("VGPU", 1)]);
    assert_eq!(vgpu(&world, 1, 2), (5, 3));
    world.set_usage(id(2), 6, &[("VGPU", 4)]);
    assert_eq!(vgpu(&world, 1, 2), (6, 4));
    let query = query(vec![group("", &[("VGPU", 1)])]);
    assert_eq!(world.search(&query).unwrap().count(), 0);
    world.set_usage(id(2), 7, &[("VGPU", 0), ("NO_SUCH", 1)]);
    assert_eq!(world.search(&query).unwrap().count(), 1);
    world.set_usage(id(99), 1, &[("VGPU", 1)]);
}

#[test]
fn a_copy_does_not_see_later_changes() {
    let mut world = forest([gpu_host(1, 2, 1), gpu_host(101, 2, 1)]);
    let before = world.clone();
    let query = query(vec![group("1", &[("VGPU", 1)])]);
    for left in (0..4).rev() {
        let candidate = world.search(&query).unwrap().next().unwrap();
        world.take(&candidate);
        assert_eq!(world.search(&query).unwrap().count(), left);
    }
    assert_eq!(before.search(&query).unwrap().count(), 4);
    assert_eq!(vgpu(&before, 1, 2), (0, 0));
}

#[test]
fn two_servers_that_fill_a_gpu_each_both_find_one() {
    let mut world = forest([gpu_host(1, 2, 16)]);
    let query = query(vec![group("", &[("VCPU", 1), ("VGPU", 16)])]);
    let first = world.search(&query).unwrap().next().unwrap();
    world.take(&first);
    let second = world.search(&query).unwrap().next().unwrap();
    let gpu = |c: &kilonova_engine::Candidate| c.allocations[1].0;
    assert_ne!(gpu(&first), gpu(&second));
    world.take(&second);
    assert_eq!(world.search(&query).unwrap().next(), None);
}

#[test]
fn trees_come_change_and_go() {
    let mut world = forest([gpu_host(1, 2, 1), gpu_host(101, 2, 1)]);
    assert_eq!(world.root_of(id(3)), Some(id(1)));
    assert_eq!(world.len(), 2);

    world.upsert(Tree { providers: gpu_host(1, 1, 1) });
    assert_eq!(world.root_of(id(3)), None);
    assert_eq!(world.root_of(id(2)), Some(id(1)));

    world.remove(id(1));
    assert_eq!(world.roots().collect::<Vec<_>>(), [id(101)]);
    assert_eq!(world.root_of(id(2)), None);
    assert!(world.tree(id(1)).is_none());
    world.upsert(Tree { providers: gpu_host(201, 3, 1) });
    assert_eq!(world.len(), 2);
    assert_eq!(world.search(&query(vec![group("", &[("VGPU", 1)])])).unwrap().count(), 5);
    world.upsert(Tree::default());
    world.remove(id(7));
    assert_eq!(world.len(), 2);
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
    for mut world in [taken_first, left_first] {
        assert_eq!(world.len(), 1);
        assert_eq!(world.root_of(id(101)), Some(id(1)));
        world.set_usage(id(101), 1, &[("VGPU", 1)]);
        assert_eq!(vgpu(&world, 1, 101), (1, 1));
    }
}

#[test]
fn what_is_read_is_what_was_put() {
    let providers = vec![
        provider(1, None).has("VCPU", 8).is("T_A").within(1),
        provider(2, Some(1)).has("VGPU", 2).has("CUSTOM_X", 3).is("T_B").is("T_C"),
    ];
    let world = forest([providers.clone()]);
    let tree = world.tree(id(1)).unwrap();
    assert_eq!(tree.root(), id(1));
    assert_eq!(tree.providers().collect::<Vec<_>>(), providers);
    let outline: Vec<_> =
        tree.outline().map(|(p, name, parent, g)| (p, &**name, parent, g)).collect();
    assert_eq!(outline, [(id(1), "p1", None, 0), (id(2), "p2", Some(id(1)), 0)]);
}
