//! The order of hosts; an incrementally updated packer gives the same order as a new one.

use kilonova_engine::{Candidate, Group, Inventory, Provider, Query, Snapshot, Tree};
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_packing::Weights;

use super::{Packer, Preference, Remainders, Request};

fn id(number: u128) -> ProviderId {
    ProviderId::from_bytes(number.to_be_bytes())
}

fn class(name: &str) -> ResourceClass {
    ResourceClass::verbatim(name)
}

fn stock(class_name: &str, total: i64) -> (ResourceClass, Inventory) {
    (class(class_name), Inventory::of(total))
}

fn provider(number: u128, parent: Option<u128>, inventories: &[(&str, i64)]) -> Provider {
    Provider {
        id: id(number),
        name: format!("p{number}").into(),
        parent: parent.map(id),
        version: 0,
        inventories: inventories.iter().map(|(name, total)| stock(name, *total)).collect(),
        traits: Vec::new(),
        aggregates: Vec::new(),
    }
}

/// A host with 32 vCPUs and `gpus` GPUs of this class with `units` units each, numbered from
/// `first`.
fn host(first: u128, gpus: u128, class: &str, units: i64) -> Tree {
    let mut providers = vec![provider(first, None, &[("VCPU", 32), ("MEMORY_MB", 65536)])];
    for gpu in 1..=gpus {
        providers.push(provider(first + gpu, Some(first), &[(class, units)]));
    }
    Tree { providers }
}

fn world(trees: impl IntoIterator<Item = Tree>) -> Snapshot {
    let mut world = Snapshot::default();
    trees.into_iter().for_each(|tree| world.upsert(tree));
    world
}

fn query(vcpus: i64, devices: &[(&str, i64)]) -> Query {
    let host = vec![(class("VCPU"), vcpus), (class("MEMORY_MB"), 1024)];
    let mut groups = vec![Group { resources: host, ..Group::default() }];
    for (at, (name, amount)) in devices.iter().enumerate() {
        let resources = vec![(class(name), *amount)];
        groups.push(Group { suffix: format!("_{at}"), resources, ..Group::default() });
    }
    Query { groups, ..Query::default() }
}

fn taken(provider: u128, class_name: &str, amount: i64) -> Candidate {
    let root = id(provider / 100 * 100);
    let allocations = vec![(id(provider), class(class_name), amount)];
    Candidate { root, allocations, mappings: Vec::new() }
}

fn order(packer: &Packer, world: &Snapshot, query: &Query) -> Vec<Preference> {
    packer.order(world, query, Weights::BALANCED, 0, 1000).expect("a device of this kind")
}

fn roots(order: &[Preference]) -> Vec<ProviderId> {
    order.iter().map(|one| one.root).collect()
}

#[test]
fn a_share_goes_to_the_device_that_is_used_already() {
    let mut world = world([host(100, 2, "VGPU", 16), host(200, 2, "VGPU", 16)]);
    world.add_usage(&taken(202, "VGPU", 4));
    let order = order(&Packer::default(), &world, &query(2, &[("VGPU", 1)]));
    assert_eq!(roots(&order), [id(200), id(100)]);
    assert_eq!(order[0].remainder, Some(750));
    assert_eq!(order[1].remainder, Some(1000));
    let remainders = Remainders::of_host(&world, id(200));
    assert_eq!(remainders.of(&taken(202, "VGPU", 1)), Some((750, 0)));
}

/// A host with cards in MIG mode. Each card has types of seven units, two units and one unit; `cards` has the free
/// units of each type.
fn in_mig_mode(first: u128, cards: &[[i64; 3]]) -> Tree {
    let mut providers = vec![provider(first, None, &[("VCPU", 32), ("MEMORY_MB", 65536)])];
    for (card, free) in cards.iter().enumerate() {
        for (at, (class, total)) in [("SMALL", 7), ("LARGE", 2), ("HALF", 1)].iter().enumerate() {
            let number = first + 1 + (card * 10 + at) as u128;
            let mut one = provider(number, Some(first), &[(class, *total)]);
            one.name = format!("h{first}_0000:4{card}:00.0_nvidia-{at}").into();
            one.inventories[0].1.reserved = total - free[at];
            providers.push(one);
        }
    }
    Tree { providers }
}

#[test]
fn a_card_that_others_could_use_least_is_preferred() {
    // An empty card; a card with an instance in its upper half; a card with a full upper half.
    let (empty, used, half) = ([7, 2, 1], [6, 1, 1], [4, 1, 1]);
    let alone =
        world([in_mig_mode(100, &[empty]), in_mig_mode(200, &[used]), in_mig_mode(300, &[half])]);
    for class in ["LARGE", "HALF", "SMALL"] {
        let order = order(&Packer::default(), &alone, &query(1, &[(class, 1)]));
        assert_eq!(roots(&order), [id(300), id(200), id(100)], "{class}");
    }
    let together = world([in_mig_mode(100, &[empty, used, half])]);
    let remainders = Remainders::of_host(&together, id(100));
    let rest = |provider: u128, class| {
        let candidate = taken(provider, class, 1);
        remainders.of(&Candidate { root: id(100), ..candidate }).expect("a device")
    };
    assert_eq!(rest(103, "HALF"), (1000, 1000));
    assert_eq!(rest(113, "HALF"), (1000, (857 + 500) / 2));
    assert_eq!(rest(123, "HALF"), (1000, (571 + 500) / 2));
    assert_eq!(rest(122, "LARGE"), (500, (571 + 1000) / 2));
    // The weights that spread prefer the empty card.
    let wanted = query(1, &[("HALF", 1)]);
    let spread = Packer::default().order(&alone, &wanted, Weights::SPREAD, 0, 9).expect("an order");
    assert_eq!(roots(&spread)[0], id(100));
}

/// A retyped card's first type has the name of the card.
#[test]
fn the_first_of_two_types_counts_for_its_card() {
    let tree = |first: u128, reserved| {
        let card = format!("h{first}_pci_0000_41_00_0");
        let mut one = provider(first + 1, Some(first), &[("SMALL", 4)]);
        let mut other = provider(first + 2, Some(first), &[("LARGE", 2)]);
        other.name = format!("{card}_nvidia-36").into();
        one.name = card.into();
        other.inventories[0].1.reserved = reserved;
        let plain = provider(first + 3, Some(first), &[("PGPU", 1)]);
        let host = provider(first, None, &[("VCPU", 32), ("MEMORY_MB", 65536)]);
        Tree { providers: vec![host, one, other, plain] }
    };
    let world = world([tree(100, 0), tree(200, 1)]);
    let rest = |provider: u128, class| {
        let root = id(provider / 100 * 100);
        Remainders::of_host(&world, root).of(&taken(provider, class, 1)).expect("a device")
    };
    assert_eq!(rest(101, "SMALL"), (1000, 1000));
    assert_eq!(rest(102, "LARGE"), (1000, 1000));
    assert_eq!(rest(201, "SMALL"), (1000, 500));
    assert_eq!(rest(202, "LARGE"), (500, 1000));
    assert_eq!(rest(103, "PGPU"), (1000, 0), "a device without types");
    let order = order(&Packer::default(), &world, &query(1, &[("SMALL", 1)]));
    assert_eq!(roots(&order), [id(200), id(100)]);
}

#[test]
fn the_last_unit_of_a_device_is_offered() {
    let mut world = world([host(100, 1, "VGPU", 16)]);
    world.add_usage(&taken(101, "VGPU", 15));
    assert_eq!(roots(&order(&Packer::default(), &world, &query(1, &[("VGPU", 1)]))), [id(100)]);
    world.add_usage(&taken(101, "VGPU", 1));
    assert!(order(&Packer::default(), &world, &query(1, &[("VGPU", 1)])).is_empty());
}

#[test]
fn several_shares_may_come_from_one_device() {
    let world = world([host(100, 1, "VGPU", 16)]);
    let wanted = query(1, &[("VGPU", 4), ("VGPU", 4), ("VGPU", 4)]);
    assert_eq!(roots(&order(&Packer::default(), &world, &wanted)), [id(100)]);
}

#[test]
fn a_server_without_devices_keeps_off_hosts_with_free_ones() {
    let world = world([host(100, 8, "PGPU", 1), host(200, 0, "PGPU", 1)]);
    for weights in [Weights::BALANCED, Weights::FRAGMENTATION, Weights::SPREAD] {
        let order =
            Packer::default().order(&world, &query(2, &[]), weights, 0, 9).expect("an order");
        assert_eq!(roots(&order), [id(200), id(100)], "{weights:?}");
    }
}

#[test]
fn hosts_without_devices_are_filled_evenly() {
    let mut world = world([host(100, 0, "PGPU", 1), host(200, 0, "PGPU", 1)]);
    world.add_usage(&taken(100, "VCPU", 16));
    let order = order(&Packer::default(), &world, &query(2, &[]));
    assert_eq!(roots(&order), [id(200), id(100)]);
}

#[test]
fn the_sets_pack_or_spread() {
    let mut world = world([host(100, 4, "PGPU", 1), host(200, 4, "PGPU", 1)]);
    world.add_usage(&taken(201, "PGPU", 1));
    let wanted = query(1, &[("PGPU", 1)]);
    let first = |weights| {
        Packer::default().order(&world, &wanted, weights, 0, 1).expect("an order")[0].root
    };
    assert_eq!(first(Weights::BALANCED), id(200));
    assert_eq!(first(Weights::FRAGMENTATION), id(200));
    assert_eq!(first(Weights::SPREAD), id(100));
}

#[test]
fn the_demand_keeps_hosts_for_those_who_need_them() {
    // A server with four GPUs and 32 vCPUs still fits on host 100, but no longer on host 200.
    let mut world = world([host(100, 4, "PGPU", 1), host(200, 4, "PGPU", 1)]);
    world.add_usage(&taken(200, "VCPU", 8));
    let small = query(8, &[]);
    assert_eq!(roots(&order(&Packer::default(), &world, &small)), [id(100), id(200)]);
    let large = query(32, &[("PGPU", 1), ("PGPU", 1), ("PGPU", 1), ("PGPU", 1)]);
    let packer = Packer::default();
    packer.record(&large, 10);
    assert_eq!(roots(&order(&packer, &world, &small)), [id(200), id(100)]);
    // The demand from the database replaces the demand that the packer has counted.
    packer.set_demand(packer.take_pending());
    assert_eq!(roots(&order(&packer, &world, &small)), [id(200), id(100)]);
    packer.set_demand([]);
    assert_eq!(roots(&order(&packer, &world, &small)), [id(100), id(200)]);
}

#[test]
fn an_order_kept_up_to_date_is_that_of_a_new_packer() {
    let kinds = [("VGPU", 16), ("PGPU", 1), ("FPGA", 4)];
    let wanted = [
        query(1, &[]),
        query(2, &[("VGPU", 3)]),
        query(4, &[("PGPU", 1), ("PGPU", 1)]),
        query(1, &[("FPGA", 1)]),
    ];
    let (mut world, packer) = (Snapshot::default(), Packer::default());
    // A fixed sequence of pseudo-random changes.
    let mut state = 7_u64;
    let mut next = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..400 {
        let first = u128::from(1 + next(150)) * 100;
        let (name, units) = kinds[next(3) as usize];
        match next(4) {
            0 => world.upsert(host(first, u128::from(next(5)), name, units)),
            1 => world.remove(id(first)),
            _ => world.add_usage(&taken(first + u128::from(next(5)), name, 1)),
        }
        let query = &wanted[round % wanted.len()];
        let kept = packer.order(&world, query, Weights::BALANCED, 0, 1000);
        let new = Packer::default();
        // Kinds are numbered in order of first appearance, so both packers must see the trees in
        // the same order.
        let fresh = new.order(&world, query, Weights::BALANCED, 0, 1000);
        let scores = |order: Option<Vec<Preference>>| {
            let mut scores: Vec<(ProviderId, i64, Option<u16>)> = order
                .unwrap_or_default()
                .into_iter()
                .map(|one| (one.root, (one.score * 1e6).round() as i64, one.remainder))
                .collect();
            scores.sort_unstable();
            scores
        };
        assert_eq!(scores(kept), scores(fresh), "after change {round}");
    }
}

#[test]
fn a_batch_continues_where_the_last_one_ended() {
    let world = world((1..=20).map(|at| host(at * 100, 1, "VGPU", 16)));
    let (packer, wanted) = (Packer::default(), query(1, &[("VGPU", 1)]));
    let part =
        |skipped| packer.order(&world, &wanted, Weights::BALANCED, skipped, 8).expect("an order");
    let mut all = roots(&[part(0), part(8), part(16)].concat());
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 20);
}

#[test]
fn the_seed_chooses_among_hosts_in_the_same_state() {
    let world = world((1..=20).map(|at| host(at * 100, 1, "VGPU", 16)));
    let packer = Packer::default();
    let firsts: std::collections::BTreeSet<ProviderId> = (0..100)
        .map(|seed| {
            let wanted = Query { seed, ..query(1, &[("VGPU", 1)]) };
            order(&packer, &world, &wanted)[0].root
        })
        .collect();
    assert_eq!(firsts.len(), 20);
}

#[test]
fn traits_tell_kinds_apart() {
    let mut tree = host(100, 1, "PGPU", 1);
    tree.providers[1].traits = vec!["CUSTOM_A100".into()];
    let world = world([tree, host(200, 1, "PGPU", 1)]);
    let mut wanted = query(1, &[("PGPU", 1)]);
    wanted.groups[1].required = vec![vec!["CUSTOM_A100".into(), "CUSTOM_H100".into()]];
    assert_eq!(roots(&order(&Packer::default(), &world, &wanted)), [id(100)]);
    wanted.groups[1].required = Vec::new();
    wanted.groups[1].forbidden = vec!["CUSTOM_A100".into()];
    assert_eq!(roots(&order(&Packer::default(), &world, &wanted)), [id(200)]);
    wanted.groups[1].resources = vec![(class("FPGA"), 1)];
    assert_eq!(Packer::default().order(&world, &wanted, Weights::BALANCED, 0, 9), None);
}

#[test]
fn places_do_not_tell_kinds_apart() {
    let mut tree = host(100, 2, "PGPU", 1);
    for (at, places) in
        [(1, ["CUSTOM_NUMA_NODE_0", "CUSTOM_A100"]), (2, ["CUSTOM_A100", "CUSTOM_NUMA_NODE_1"])]
    {
        tree.providers[at].traits = places.map(Into::into).to_vec();
    }
    let world = world([tree]);
    let kinds = crate::capacity::devices(&world);
    assert_eq!(kinds.len(), 1, "{kinds:?}");
    let (kind, used) = kinds.first_key_value().expect("there is a kind");
    assert_eq!(kind.traits, [std::sync::Arc::from("CUSTOM_A100")]);
    assert_eq!(used.devices, 2);
}

/// A host with GPUs in islands of `size` GPUs. The GPUs with the numbers in `used` are in use.
fn with_islands(first: u128, gpus: u128, size: u128, used: &[u128]) -> Tree {
    let mut tree = host(first, gpus, "PGPU", 1);
    for (gpu, provider) in (0..).zip(&mut tree.providers[1..]) {
        provider.traits = vec![format!("CUSTOM_GPU_ISLAND_{}", gpu / size).into()];
        provider.inventories[0].1.used = i64::from(used.contains(&gpu));
    }
    tree
}

#[test]
fn a_host_is_preferred_where_no_whole_island_breaks() {
    let gpus = |count: usize| query(1, &vec![("PGPU", 1); count]);
    // Host 100 has fewer free GPUs, in one whole island; host 200 has a broken one.
    let trees = || [with_islands(100, 8, 4, &[0, 1, 2, 3]), with_islands(200, 8, 4, &[0])];
    let packer = Packer::default();
    for (count, hosts) in [(1, [200, 100]), (2, [200, 100]), (3, [200, 100]), (4, [100, 200])] {
        let order = order(&packer, &world(trees()), &gpus(count));
        assert_eq!(roots(&order), hosts.map(id), "{count}");
    }
    // Without islands the fuller host comes first.
    let bare = trees().map(|mut tree| {
        tree.providers.iter_mut().for_each(|provider| provider.traits.clear());
        tree
    });
    assert_eq!(roots(&order(&packer, &world(bare), &gpus(1))), [100, 200].map(id));
    // Eight GPUs are one island on host 400 only, although host 300 is fuller.
    let trees = [with_islands(300, 8, 4, &[]), with_islands(400, 9, 8, &[])];
    assert_eq!(roots(&order(&packer, &world(trees), &gpus(8))), [400, 300].map(id));
}

#[test]
fn equal_hosts_with_islands_are_one_class() {
    let trees = (1..=50).map(|at| {
        let mut tree = with_islands(at * 100, 8, 4, &[u128::from(at % 2 == 0) * 5]);
        // The order of the islands does not matter.
        if at % 3 == 0 {
            tree.providers[1..].reverse();
        }
        tree
    });
    let packer = Packer::default();
    assert_eq!(order(&packer, &world(trees), &query(1, &[("PGPU", 1)])).len(), 50);
    assert_eq!(packer.lock().fleet.classes(), 1);
}

#[test]
fn requests_for_a_place_are_packed_and_learned_like_those_without() {
    let mut tree = host(100, 1, "PGPU", 1);
    tree.providers[1].traits = ["CUSTOM_A100", "CUSTOM_NUMA_NODE_1"].map(Into::into).to_vec();
    let world = world([tree]);
    let mut wanted = query(1, &[("PGPU", 1)]);
    wanted.groups[1].required = vec![vec!["CUSTOM_A100".into()]];
    let without = Request::of(&wanted);
    wanted.groups[1].required.push(vec!["CUSTOM_NUMA_NODE_1".into(), "CUSTOM_NUMA_NODE_2".into()]);
    wanted.groups[1].forbidden = vec!["CUSTOM_GPU_ISLAND_0".into()];
    assert_eq!(Request::of(&wanted), without);
    assert_eq!(roots(&order(&Packer::default(), &world, &wanted)), [id(100)]);
}

#[test]
fn a_request_is_one_key_however_much_memory_it_asks_for() {
    let packer = Packer::default();
    let mut large = query(2, &[("VGPU", 1)]);
    packer.record(&large, 1);
    large.groups[0].resources[1].1 = 999;
    packer.record(&large, 2);
    let pending = packer.take_pending();
    assert_eq!(pending.len(), 1);
    assert!((pending[0].1 - 3.0).abs() < f64::EPSILON);
    let key = serde_json::to_string(&pending[0].0).expect("JSON");
    assert_eq!(key, r#"{"vcpus":2,"devices":{"class":"VGPU","amount":1,"count":1}}"#);
    assert_eq!(serde_json::from_str::<Request>(&key).expect("a request"), pending[0].0);
    assert!(packer.take_pending().is_empty());
}
