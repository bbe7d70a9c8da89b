//! Choices compared with a full scan, and the terms of the cost on small examples.

use kilonova_packing::{
    Cost, Demand, Fleet, Host, Model, Models, Place, Scorer, Shape, WHOLE, Weights, fragment,
};
use proptest::prelude::*;

const GIB: u32 = 1024;

fn shape(cpu: u32, count: u8, share: u16) -> Shape {
    Shape { cpu: cpu * 1000, memory: GIB, count, share, models: Models::ANY }
}

fn host(cpu: u32, free: &[u16]) -> Host {
    Host::new(cpu * 1000, 512 * GIB, Model(0), free.to_vec())
}

fn cost(shapes: &[(Shape, f64)], supply: &[(Model, u32)], weights: Weights) -> Cost {
    let mut demand = Demand::default();
    for (shape, weight) in shapes {
        demand.record(*shape, *weight);
    }
    Cost { profile: demand.profile(supply), weights }
}

/// The best score, by trying every host and every device.
fn by_full_scan(cost: &Cost, hosts: &[Host], shape: &Shape) -> Option<f64> {
    let places = hosts.iter().flat_map(|host| {
        let given = shape.is_accelerated() && shape.count == 1 && shape.share < WHOLE;
        let remainders: Vec<Option<u16>> =
            if given { host.free().iter().copied().map(Some).collect() } else { vec![None] };
        remainders.into_iter().filter_map(move |remainder| {
            let after = host.after(shape, remainder)?;
            Some(cost.score(host, &after, shape))
        })
    });
    places.max_by(f64::total_cmp)
}

fn shapes() -> impl Strategy<Value = Shape> {
    let device = prop_oneof![
        Just((0_u8, 0_u16)),
        (1_u16..10).prop_map(|tenths| (1, tenths * 100)),
        (1_u8..5).prop_map(|count| (count, WHOLE)),
    ];
    (1_u32..16, device, 0_u8..4).prop_map(|(cpu, (count, share), models)| Shape {
        models: if models == 0 { Models::ANY } else { Models::of([Model(models - 1)]) },
        ..shape(cpu, count, share)
    })
}

fn hosts() -> impl Strategy<Value = Vec<Host>> {
    let host = (8_u32..64, 0_usize..5, 0_u8..3).prop_map(|(cpu, devices, model)| {
        Host::new(cpu * 1000, 64 * GIB, Model(model), vec![WHOLE; devices])
    });
    proptest::collection::vec(host, 1..12)
}

proptest! {
    #[test]
    fn cached_scores_choose_as_a_full_scan(
        mut hosts in hosts(),
        demand in proptest::collection::vec((shapes(), 1.0_f64..5.0), 1..6),
        requests in proptest::collection::vec(shapes(), 1..60),
    ) {
        let supply: Vec<(Model, u32)> = (0..3).map(|model| (Model(model), 4)).collect();
        let cost = cost(&demand, &supply, Weights::BALANCED);
        let mut fleet = Fleet::new(cost.clone());
        for (number, host) in hosts.iter().enumerate() {
            fleet.set(number as u32, host.clone());
        }
        let mut held: Vec<(Shape, Place, u16)> = Vec::new();
        for (turn, request) in requests.iter().enumerate() {
            let chosen = fleet.choose(request);
            let best = by_full_scan(&cost, &hosts, request);
            prop_assert_eq!(chosen.is_some(), best.is_some(), "{:?}", request);
            if let Some((place, best)) = chosen.zip(best) {
                let before = &hosts[place.host as usize];
                let after = before.after(request, place.remainder).expect("a chosen place has room");
                let score = cost.score(before, &after, request);
                // Within one step.
                prop_assert!(score >= best - 0.01 - 1e-9, "{score} is not the best, {best}");
                prop_assert!(fleet.claim(request, place));
                hosts[place.host as usize] = after;
                let left = place.remainder.unwrap_or(WHOLE).saturating_sub(request.share);
                held.push((*request, place, left));
            }
            // After every third request, an earlier request ends if its device still has the same
            // remainder.
            if turn % 3 == 2 && !held.is_empty() {
                let (request, place, left) = held.swap_remove(turn % held.len());
                let remainders = vec![left; usize::from(request.count)];
                if let Some(after) = hosts[place.host as usize].without(&request, &remainders) {
                    hosts[place.host as usize] = after.clone();
                    fleet.set(place.host, after);
                }
            }
            for (number, host) in hosts.iter().enumerate() {
                prop_assert_eq!(fleet.host(number as u32), Some(host));
            }
        }
    }
}

#[test]
fn equal_hosts_are_one_class() {
    let cost = cost(&[(shape(8, 1, WHOLE), 1.0)], &[(Model(0), 80)], Weights::BALANCED);
    let mut fleet = Fleet::new(cost);
    for number in 0..10_000 {
        fleet.set(number, host(64, &[WHOLE; 8]));
    }
    assert_eq!(fleet.classes(), 1);
    let request = shape(8, 1, WHOLE);
    let place = fleet.choose(&request).expect("an idle host has room");
    assert!(fleet.claim(&request, place));
    assert_eq!(fleet.classes(), 2);
    let places: Vec<usize> = fleet.rank(&request).map(|class| class.hosts.len()).collect();
    assert_eq!(places, [1, 9_999], "the host in use comes first");
    fleet.remove(place.host);
    assert_eq!(fleet.classes(), 1);
    assert!(fleet.host(place.host).is_none());
}

#[test]
fn a_share_goes_to_the_device_that_is_used_already() {
    let demand = [(shape(4, 1, 500), 1.0), (shape(8, 1, WHOLE), 1.0)];
    let mut fleet = Fleet::new(cost(&demand, &[(Model(0), 2)], Weights::BALANCED));
    fleet.set(0, host(64, &[WHOLE, 500]));
    let place = fleet.choose(&shape(4, 1, 500)).expect("there is room");
    assert_eq!(place.remainder, Some(500));
}

#[test]
fn a_request_for_any_model_keeps_off_a_scarce_one() {
    let scarce = Shape { models: Models::of([Model(1)]), ..shape(8, 1, WHOLE) };
    let demand = [(scarce, 5.0), (shape(8, 1, WHOLE), 5.0)];
    let supply = [(Model(0), 90), (Model(1), 10)];
    let mut fleet = Fleet::new(cost(&demand, &supply, Weights::BALANCED));
    fleet.set(0, Host::new(64_000, 512 * GIB, Model(1), vec![WHOLE; 4]));
    fleet.set(1, Host::new(64_000, 512 * GIB, Model(0), vec![WHOLE; 4]));
    assert_eq!(fleet.choose(&shape(8, 1, WHOLE)).map(|place| place.host), Some(1));
    assert_eq!(fleet.choose(&scarce).map(|place| place.host), Some(0));
}

#[test]
fn devices_that_the_cpu_cannot_feed_cost() {
    let demand = [(shape(8, 1, WHOLE), 1.0)];
    let cost = cost(&demand, &[(Model(0), 8)], Weights::FRAGMENTATION);
    let fed = host(64, &[WHOLE; 8]);
    let starved = host(16, &[WHOLE; 8]);
    // The CPUs suffice for two of eight devices, so six starve.
    assert!((cost.of(&starved) - cost.of(&fed) - 6.0 * cost.weights.starved).abs() < 1e-9);
}

#[test]
fn the_fragment_is_what_typical_requests_cannot_use() {
    let profile = cost(&[(shape(8, 1, WHOLE), 3.0), (shape(8, 0, 0), 1.0)], &[], Weights::BALANCED);
    let (by_request, by_device) = fragment(&host(64, &[WHOLE, 400]), &profile.profile);
    // Three in four requests can use the whole device; the others use no device.
    assert!((by_request - (0.75 * 0.4 + 0.25 * 1.4)).abs() < 1e-9, "{by_request}");
    assert!((by_device - 0.4).abs() < 1e-9, "{by_device}");
}

#[test]
fn demand_is_bounded_and_fades() {
    let mut demand = Demand::default();
    demand.record(shape(1, 1, WHOLE), 10.0);
    for cpu in 2..2_000 {
        demand.record(shape(cpu, 1, WHOLE), 1.0);
    }
    assert_eq!(demand.shapes().len(), 512);
    assert_eq!(demand.shapes()[0].0.cpu, 1_000, "the frequent shape stays");
    for _ in 0..8 {
        demand.fade();
    }
    assert_eq!(demand.shapes().len(), 1, "rare shapes are forgotten");
}

#[test]
fn no_demand_and_no_devices_are_no_error() {
    let cost = cost(&[], &[], Weights::BALANCED);
    let mut fleet = Fleet::new(cost);
    assert_eq!(fleet.choose(&shape(1, 1, WHOLE)), None);
    fleet.set(7, host(4, &[]));
    assert_eq!(fleet.choose(&shape(1, 1, WHOLE)), None);
    assert_eq!(fleet.choose(&shape(1, 0, 0)), Some(Place { host: 7, remainder: None }));
    assert_eq!(fleet.choose(&shape(5, 0, 0)), None);
}
