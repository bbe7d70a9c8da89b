//! Islands: small requests keep off whole islands, large requests take them, and the choice equals that of a scan over
//! every host and every set of its devices.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_packing::{
    Cost, Demand, Device, Fleet, Host, Model, Models, Scorer, Shape, WHOLE, Weights,
};
use proptest::prelude::*;

const GIB: u32 = 1024;
/// Each device of a split request costs as much as two devices outside whole islands.
const SPLIT_COST: f64 = 2.0;

fn shape(count: u8, share: u16) -> Shape {
    Shape { cpu: 1000, memory: GIB, count, share, models: Models::ANY }
}

fn in_island(island: u16, free: u16) -> Device {
    Device { island: Some(island), ..Device::of(free) }
}

/// A host with islands, given by the free thousandths of their devices.
fn islands(all: &[&[u16]]) -> Host {
    let devices = all
        .iter()
        .zip(0..)
        .flat_map(|(island, number)| island.iter().map(move |free| in_island(number, *free)));
    of(devices.collect())
}

fn of(devices: Vec<Device>) -> Host {
    Host::of_devices(256_000, 2048 * GIB, Model(0), devices)
}

fn cost(weights: Weights) -> Cost {
    let mut demand = Demand::default();
    for (count, weight) in [(1, 4.0), (2, 2.0), (4, 1.0)] {
        demand.record(shape(count, WHOLE), weight);
    }
    demand.record(shape(1, 500), 2.0);
    Cost { profile: demand.profile(&[(Model(0), 64)]), weights }
}

/// The host of a fleet that a request gets.
fn chosen(hosts: &[Host], shape: Shape) -> Option<u32> {
    let only_islands = Weights { islands: 1.0, ..none() };
    let mut fleet = Fleet::new(cost(only_islands));
    for (host, number) in hosts.iter().zip(0..) {
        fleet.set(number, host.clone());
    }
    fleet.choose(&shape).map(|place| place.host)
}

const fn none() -> Weights {
    Weights { emptiness: 0.0, ..Weights::SPREAD }
}

const ALL: u16 = WHOLE;

#[test]
fn small_requests_keep_off_whole_islands() {
    let whole = islands(&[&[0; 4], &[ALL; 4]]);
    let broken = islands(&[&[0, ALL, ALL, ALL], &[ALL; 4]]);
    for small in [shape(1, WHOLE), shape(1, 500), shape(2, WHOLE), shape(3, WHOLE)] {
        assert_eq!(chosen(&[whole.clone(), broken.clone()], small), Some(1), "{small:?}");
        assert_eq!(chosen(&[broken.clone(), whole.clone()], small), Some(0), "{small:?}");
    }
    // A host without islands is better than a whole island, and worse than a broken one.
    let bare = Host::new(256_000, 2048 * GIB, Model(0), vec![WHOLE; 8]);
    assert_eq!(chosen(&[whole.clone(), bare.clone()], shape(1, WHOLE)), Some(1));
    assert_eq!(chosen(&[bare, broken], shape(1, WHOLE)), Some(1));
    // Among whole islands, the smallest one is chosen.
    assert_eq!(chosen(&[whole, islands(&[&[ALL; 2]])], shape(1, WHOLE)), Some(1));
}

#[test]
fn large_requests_take_whole_islands() {
    let (halves, whole) = (islands(&[&[0, 0, ALL, ALL], &[0, 0, ALL, ALL]]), islands(&[&[ALL; 4]]));
    assert_eq!(chosen(&[halves.clone(), whole.clone()], shape(4, WHOLE)), Some(1));
    assert_eq!(chosen(&[halves.clone(), whole], shape(2, WHOLE)), Some(0), "no island breaks");
    let eight = islands(&[&[ALL; 8]]);
    let fours = islands(&[&[ALL; 4], &[ALL; 4]]);
    let used = islands(&[&[0, ALL, ALL, ALL, ALL, ALL, ALL, ALL], &[ALL; 8]]);
    for others in [&fours, &halves] {
        assert_eq!(chosen(&[others.clone(), eight.clone()], shape(8, WHOLE)), Some(1));
    }
    assert_eq!(chosen(&[used, eight], shape(8, WHOLE)), Some(0), "both hosts have a whole island");
}

#[test]
fn whole_devices_come_from_the_island_that_suits_them() {
    let after = |host: Host, count| {
        host.after(&shape(count, WHOLE), None).expect("there is room").outside_whole_islands()
    };
    let both = || islands(&[&[0, ALL, ALL, ALL], &[ALL; 4]]);
    assert_eq!(both().outside_whole_islands(), 3_000);
    assert_eq!(after(both(), 1), 2_000, "one device of the broken island");
    assert_eq!(after(both(), 3), 0, "all devices of the broken island");
    assert_eq!(after(both(), 4), 3_000, "the whole island");
    assert_eq!(after(both(), 5), 2_000, "the whole island, and one device of the broken one");
    assert!(both().splits(&shape(5, WHOLE)) && !both().splits(&shape(4, WHOLE)));
    // A device in no island is also outside whole islands, and is taken first.
    let mut devices = vec![in_island(0, ALL), in_island(0, ALL), in_island(0, 0)];
    devices.push(Device::of(ALL));
    let left = of(devices).after(&shape(1, WHOLE), None).expect("there is room");
    let expected = [in_island(1, ALL), in_island(1, ALL), Device::of(0), in_island(1, 0)];
    assert_eq!(left.each_device(), expected);
}

#[test]
fn a_split_costs_and_an_island_of_one_device_is_none() {
    let cost = cost(Weights { islands: 1.0, ..none() });
    let score = |host: &Host, count| {
        let shape = shape(count, WHOLE);
        let after = host.after(&shape, None).expect("there is room");
        cost.score(host, &after, &shape)
    };
    let pairs = islands(&[&[ALL; 2], &[ALL; 2]]);
    assert!((score(&pairs, 4) + SPLIT_COST * 4.0).abs() < 1e-9, "two islands");
    assert!(score(&pairs, 2).abs() < 1e-9);
    let single = islands(&[&[ALL], &[ALL]]);
    assert!(!single.has_islands());
    assert_eq!(single, Host::new(256_000, 2048 * GIB, Model(0), vec![ALL; 2]));
}

#[test]
fn hosts_without_islands_are_scored_as_before() {
    let with = cost(Weights::BALANCED);
    let without = cost(Weights { islands: 0.0, ..Weights::BALANCED });
    let host = Host::new(64_000, 512 * GIB, Model(0), vec![WHOLE, WHOLE, 500, 0]);
    for request in [shape(1, WHOLE), shape(2, WHOLE), shape(0, 0)] {
        let after = host.after(&request, None).expect("there is room");
        let scores = [&with, &without].map(|cost| cost.score(&host, &after, &request).to_bits());
        assert_eq!(scores[0], scores[1], "{request:?}");
    }
}

/// The devices of several hosts. All islands of a host have the same size, and each host may have devices in no island.
fn hosts() -> impl Strategy<Value = Vec<Vec<Device>>> {
    let free = || prop_oneof![2 => Just(0), 5 => Just(WHOLE), 1 => Just(500_u16)];
    let island = move |size| proptest::collection::vec(free(), size);
    let host = (2_usize..=4, 0_usize..=3, proptest::collection::vec(free(), 0..3)).prop_flat_map(
        move |(size, count, loose)| {
            let islands = proptest::collection::vec(
                prop_oneof![island(size), Just(vec![WHOLE; size])],
                count,
            );
            (islands, Just(loose))
        },
    );
    let host = host.prop_map(|(islands, loose)| {
        let numbered = islands.into_iter().zip(0_u16..);
        let devices = numbered.flat_map(|(island, number)| {
            island.into_iter().map(move |free| in_island(number, free))
        });
        devices.chain(loose.into_iter().map(Device::of)).collect()
    });
    proptest::collection::vec(host, 1..5)
}

/// The sets of `count` devices of a list.
fn sets(devices: &[usize], count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let each = (0..devices.len()).flat_map(|at| {
        let rest = sets(&devices[at + 1..], count - 1);
        rest.into_iter().map(move |mut set| {
            set.push(devices[at]);
            set
        })
    });
    each.collect()
}

/// The free devices outside whole islands, computed from the devices.
fn outside(devices: &[Device]) -> f64 {
    let mut islands: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
    for device in devices {
        islands.entry(device.island.unwrap_or(u16::MAX)).or_default().push(device.free);
    }
    if islands.keys().all(|island| *island == u16::MAX) {
        return 0.0;
    }
    let is_outside = |(island, free): &(u16, Vec<u16>)| {
        *island == u16::MAX || free.iter().any(|free| *free < WHOLE)
    };
    let free: u32 =
        islands.into_iter().filter(is_outside).flat_map(|(_, free)| free).map(u32::from).sum();
    f64::from(free) / f64::from(WHOLE)
}

/// The best score of a request on a host, over every set of its devices.
fn by_full_scan(cost: &Cost, devices: &[Device], shape: &Shape) -> Option<f64> {
    let other_terms = Cost { weights: Weights { islands: 0.0, ..cost.weights }, ..cost.clone() };
    let before = of(devices.to_vec());
    let fitting: Vec<usize> =
        (0..devices.len()).filter(|at| devices[*at].free >= shape.share).collect();
    let scores = sets(&fitting, usize::from(shape.count)).into_iter().map(|set| {
        let mut after = devices.to_vec();
        set.iter().for_each(|at| after[*at].free -= shape.share);
        let taken: BTreeSet<Option<u16>> = set.iter().map(|at| devices[*at].island).collect();
        let is_split =
            set.len() > 1 && before.has_islands() && (taken.len() > 1 || taken.contains(&None));
        let split = if is_split { SPLIT_COST * set.len() as f64 } else { 0.0 };
        let islands = outside(devices) - outside(&after) - split;
        let mut host = of(after);
        host.cpu -= shape.cpu;
        host.memory -= shape.memory;
        other_terms.score(&before, &host, shape) + cost.weights.islands * islands
    });
    scores.max_by(f64::total_cmp)
}

proptest! {
    #[test]
    fn the_choice_is_that_of_a_full_scan(
        mut hosts in hosts(),
        requests in proptest::collection::vec((1_u8..5, Just(WHOLE)), 1..12),
        halves in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let cost = cost(Weights::BALANCED);
        let mut fleet = Fleet::new(cost.clone());
        for (devices, number) in hosts.iter().zip(0..) {
            fleet.set(number, of(devices.clone()));
        }
        for ((count, share), is_half) in requests.into_iter().zip(halves) {
            let request = if is_half { shape(1, 500) } else { shape(count, share) };
            // CPU and memory are ample here, so that only devices decide.
            let best = hosts.iter().filter_map(|devices| by_full_scan(&cost, devices, &request));
            let best = best.max_by(f64::total_cmp);
            let place = fleet.rank(&request).next().map(|first| (first.score, first.remainder, first.hosts.first().copied()));
            prop_assert_eq!(place.is_some(), best.is_some());
            let Some(((score, remainder, host), best)) = place.zip(best) else { continue };
            prop_assert!((score - best).abs() < 0.01 + 1e-9, "{score} is not the best, {best}");
            let number = host.expect("a class has hosts");
            let before = of(hosts[number as usize].clone());
            let after = before.after(&request, remainder).expect("the host has room");
            // Keeps only the new state of the devices; CPU and memory stay as before.
            hosts[number as usize] = after.each_device();
            fleet.set(number, of(hosts[number as usize].clone()));
        }
    }

    #[test]
    fn numbers_and_order_of_devices_and_islands_do_not_matter(
        hosts in hosts(),
        seed in any::<u16>(),
    ) {
        for devices in hosts {
            let turned = devices.iter().rev().map(|device| Device {
                island: device.island.map(|number| (u16::MAX - number) ^ seed),
                ..*device
            });
            let other = of(turned.collect());
            prop_assert_eq!(&of(devices.clone()), &other);
            let again = of(other.each_device());
            prop_assert_eq!(again, other);
        }
    }
}
