//! Tests of the choice of devices at one place.

use kilonova_engine::{Group, Inventory, Provider, Tree};

use super::*;

fn id(number: u128) -> ProviderId {
    ProviderId::from_bytes(number.to_be_bytes())
}

fn provider(number: u128, class: &str, total: i64, used: i64, traits: &[&str]) -> Provider {
    let inventory = Inventory { used, ..Inventory::of(total) };
    Provider {
        id: id(number),
        name: format!("p{number}").into(),
        parent: (number > 0).then(|| id(0)),
        version: 0,
        inventories: vec![(ResourceClass::verbatim(class), inventory)],
        traits: traits.iter().map(|one| (*one).into()).collect(),
        aggregates: Vec::new(),
    }
}

/// Eight GPUs with the numbers 1 to 8, below two switches of four GPUs, in islands of two. The GPUs in `used` are in
/// use.
fn world(used: &[u128]) -> Snapshot {
    let mut world = Snapshot::default();
    world.upsert(Tree { providers: gpus(used) });
    world
}

fn gpus(used: &[u128]) -> Vec<Provider> {
    let gpu = |number: u128| {
        let switch = format!("CUSTOM_PCIE_SWITCH_{}", (number - 1) / 4);
        let island = format!("CUSTOM_GPU_ISLAND_{}", (number - 1) / 2);
        let taken = i64::from(used.contains(&number));
        provider(number, "PGPU", 1, taken, &[&switch, &island, "CUSTOM_NUMA_NODE_0"])
    };
    let mut providers = vec![provider(0, "VCPU", 64, 0, &[])];
    providers.extend((1..=8).map(gpu));
    providers
}

/// The GPUs that are selected for a request for `count` GPUs.
fn chosen(used: &[u128], count: usize) -> Vec<u128> {
    chosen_in(&world(used), count)
}

fn chosen_in(world: &Snapshot, count: usize) -> Vec<u128> {
    let group = |suffix: String, class: &str| Group {
        suffix,
        resources: vec![(ResourceClass::verbatim(class), 1)],
        ..Group::default()
    };
    let mut groups = vec![group(String::new(), "VCPU")];
    groups.extend((0..count).map(|n| group(format!("_{n}"), "PGPU")));
    let query = Query { groups, ..Query::default() };
    let places = Places::of(world, id(0), &query);
    assert!(!places.are_none());
    let queries = places.queries(&query);
    let found = queries.iter().flat_map(|query| {
        world
            .search(query)
            .expect("the query is valid")
            .take(super::super::by_cost::EXAMINED_PER_HOST)
    });
    let best = found.min_by_key(|one| places.cost(one)).expect("there is room");
    let devices = (1..=8).filter(|gpu| best.allocations.iter().any(|(one, ..)| *one == id(*gpu)));
    devices.collect()
}

#[test]
fn small_requests_keep_off_whole_islands() {
    assert_eq!(chosen(&[4], 1), [3], "its island is broken already");
    assert_eq!(chosen(&[1, 2, 8], 1), [7]);
    assert_eq!(chosen(&[1, 2], 1), [3], "each free island is whole; the first switch is broken");
    assert_eq!(chosen(&[5, 6], 2), [7, 8], "a whole island below a switch in use");
    assert_eq!(chosen(&[1, 8], 2), [5, 6], "an island of that size");
    assert_eq!(chosen(&[3], 4), [5, 6, 7, 8], "a whole switch");
    assert_eq!(chosen(&[], 8), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn devices_of_other_classes_are_no_part_of_a_place() {
    let mut providers = gpus(&[]);
    let nic = ["CUSTOM_PCIE_SWITCH_1", "CUSTOM_NUMA_NODE_0"];
    providers.extend([(9, 1), (10, 0)].map(|(at, used)| provider(at, "CUSTOM_NIC", 1, used, &nic)));
    let mut world = Snapshot::default();
    world.upsert(Tree { providers });
    assert_eq!(chosen_in(&world, 1), [1], "a network card in use does not break its switch");
    world.add_usage(&Candidate {
        root: id(0),
        allocations: vec![(id(1), ResourceClass::verbatim("PGPU"), 1)],
        mappings: Vec::new(),
    });
    assert_eq!(chosen_in(&world, 4), [5, 6, 7, 8], "a whole switch except its network cards");
}

#[test]
fn a_card_that_other_types_have_cut_is_not_free() {
    let mut providers = gpus(&[]);
    for card in &mut providers[1..] {
        (card.inventories[0].1.total, card.inventories[0].1.max_unit) = (7, 7);
    }
    providers[8].inventories[0].1.reserved = 3;
    let mut world = Snapshot::default();
    world.upsert(Tree { providers });
    assert_eq!(chosen_in(&world, 1), [7], "its island is broken");
}

#[test]
fn hosts_without_places_and_requests_without_devices_have_no_cost() {
    let device = Group {
        suffix: "_1".into(),
        resources: vec![(ResourceClass::verbatim("PGPU"), 1)],
        ..Group::default()
    };
    let own = Group { resources: vec![(ResourceClass::verbatim("VCPU"), 1)], ..Group::default() };
    let plain = Query { groups: vec![own.clone()], ..Query::default() };
    assert!(Places::of(&world(&[]), id(0), &plain).are_none());
    let mut bare = Snapshot::default();
    let providers = vec![provider(0, "VCPU", 64, 0, &[]), provider(1, "PGPU", 1, 0, &[])];
    bare.upsert(Tree { providers });
    let query = Query { groups: vec![own, device], ..Query::default() };
    assert!(Places::of(&bare, id(0), &query).are_none());
    assert_eq!(device_groups(&query).0, ["_1"]);
}
