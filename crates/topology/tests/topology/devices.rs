//! Devices near the guest's cells, by policy.

use kilonova_topology::{
    CellMisfit, DevicePick, DevicePool, DeviceRequest, Devices, HostTopology, Misfit, PciPolicy,
    Strategy, fit,
};

use std::collections::BTreeSet;

use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as _;

use crate::build::{guest, host, places, shared};

fn pool(node: Option<u32>, free: u32) -> DevicePool {
    DevicePool { node, free }
}

fn request(policy: PciPolicy, count: u32, pools: &[usize]) -> DeviceRequest {
    DeviceRequest { policy, count, pools: pools.to_vec() }
}

/// Four cells in two sockets.
fn sockets(known: bool) -> HostTopology {
    let cells = [0, 1, 2, 3].map(|id| {
        let mut cell = shared(id, &format!("{}-{}", 4 * id, 4 * id + 3));
        cell.socket = known.then_some(id / 2);
        let far = |other: u32| {
            if other == id {
                10
            } else if other / 2 == id / 2 {
                12
            } else {
                32
            }
        };
        cell.distances = (0..4).map(|other| (other, far(other))).collect();
        cell
    });
    host(&cells)
}

/// The pools of a guest with one cell, each with the number of its devices. Only cell 0 has memory
/// for it.
fn near(
    known: bool,
    policy: PciPolicy,
    count: u32,
    pools: &[DevicePool],
) -> Option<Vec<(usize, u32)>> {
    let mut host = sockets(known);
    for cell in &mut host.cells[1..] {
        cell.memory_mb = 1;
    }
    let all: Vec<usize> = (0..pools.len()).collect();
    let requests = vec![request(policy, count, &all)];
    let devices = Devices { pools: pools.to_vec(), requests, ..Devices::default() };
    match fit(&host, &guest(&[("0", "", 1024)]), None, Strategy::Spread, &devices) {
        Ok(fitted) => {
            assert_eq!(places(&fitted), [0]);
            Some(fitted.devices.iter().map(|pick| (pick.pool, pick.count)).collect())
        }
        Err(Misfit::Devices) => None,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn each_policy_allows_its_nodes_and_prefers_near_ones() {
    use PciPolicy::{Legacy, Preferred, Required, Socket};
    let at = |node| pool(Some(node), 1);
    let unknown = pool(None, 1);
    for policy in [Required, Legacy, Preferred, Socket] {
        assert_eq!(near(true, policy, 1, &[at(3), unknown, at(1), at(0)]), Some(vec![(3, 1)]));
    }
    assert_eq!(near(true, Required, 1, &[at(1), unknown]), None);
    assert_eq!(near(true, Legacy, 1, &[at(1), unknown]), Some(vec![(1, 1)]));
    assert_eq!(near(true, Legacy, 1, &[at(1), at(3)]), None);
    assert_eq!(near(true, Preferred, 1, &[at(3), at(1)]), Some(vec![(1, 1)]), "the nearer one");
    assert_eq!(near(true, Preferred, 2, &[at(3), at(1)]), Some(vec![(0, 1), (1, 1)]));
    assert_eq!(near(true, Socket, 1, &[at(3), unknown, at(1)]), Some(vec![(2, 1)]));
    assert_eq!(near(true, Socket, 1, &[at(3), unknown]), None);
    assert_eq!(near(false, Socket, 1, &[at(1)]), None, "no socket is known");
    assert_eq!(
        near(false, Socket, 1, &[at(0)]),
        Some(vec![(0, 1)]),
        "the device is near without a socket"
    );
    assert_eq!(near(true, Required, 3, &[pool(Some(0), 2)]), None, "there are too few");
    assert_eq!(near(true, Legacy, 3, &[pool(Some(0), 2), unknown]), Some(vec![(0, 2), (1, 1)]));
}

#[test]
fn the_cells_follow_the_devices() {
    let two = guest(&[("0", "", 1024), ("1", "", 1024)]);
    let devices = |pools: &[DevicePool], requests: &[DeviceRequest]| Devices {
        pools: pools.to_vec(),
        requests: requests.to_vec(),
        ..Devices::default()
    };
    let required = |pools: &[usize]| request(PciPolicy::Required, 1, pools);
    let at = |devices: &Devices| {
        fit(&sockets(true), &two, None, Strategy::Spread, devices).map(|fitted| places(&fitted))
    };
    let one = devices(&[pool(Some(3), 1)], &[required(&[0])]);
    assert_eq!(at(&one), Ok(vec![3, 0]));
    // Cells with more devices are first in the order, but the required devices decide.
    let pools = [pool(Some(1), 9), pool(Some(0), 8), pool(Some(2), 1), pool(Some(3), 1)];
    let both = devices(&pools, &[required(&[2]), required(&[3])]);
    assert_eq!(at(&both), Ok(vec![2, 3]));
    let three = devices(&pools, &[required(&[0]), required(&[2]), required(&[3])]);
    assert_eq!(at(&three), Err(Misfit::Devices), "two cells are near two devices");
}

#[test]
fn a_running_guest_keeps_the_cells_of_its_devices() {
    let two = guest(&[("0", "", 1024), ("1", "", 1024)]);
    let at = |seen_at: &[Option<&[u32]>]| {
        let seen_at =
            seen_at.iter().map(|cells| cells.map(|cells| cells.iter().copied().collect()));
        let devices = Devices { seen_at: seen_at.collect(), ..Devices::default() };
        fit(&sockets(true), &two, None, Strategy::Spread, &devices).map(|fitted| places(&fitted))
    };
    assert_eq!(at(&[]), Ok(vec![0, 1]));
    assert_eq!(at(&[None, Some(&[0])]), Ok(vec![1, 0]));
    assert_eq!(at(&[None, Some(&[0, 3])]), Ok(vec![0, 3]));
    assert_eq!(at(&[Some(&[0, 2]), Some(&[0])]), Ok(vec![2, 0]));
    assert_eq!(at(&[Some(&[2]), Some(&[2])]), Err(Misfit::Together));
    let Err(Misfit::Cell { cell: 1, reasons }) = at(&[None, Some(&[])]) else {
        panic!("no host cell has the devices")
    };
    assert!(reasons.iter().all(|(_, why)| *why == CellMisfit::SeenDevices), "{reasons:?}");
}

#[test]
fn a_request_leaves_the_device_that_another_needs() {
    let pools = vec![pool(Some(0), 1), pool(Some(0), 1)];
    let requests =
        vec![request(PciPolicy::Required, 1, &[0, 1]), request(PciPolicy::Required, 1, &[0])];
    let devices = Devices { pools, requests, ..Devices::default() };
    let fitted = fit(&sockets(true), &guest(&[("0", "", 1)]), None, Strategy::Spread, &devices);
    let picks = fitted.expect("it fits").devices;
    let pick = |request, pool| DevicePick { request, pool, count: 1 };
    assert_eq!(picks, [pick(0, 1), pick(1, 0)]);
}

/// True if a policy allows a node for a guest on these cells of `sockets(true)`.
fn allows(policy: PciPolicy, cells: &[u32], node: Option<u32>) -> bool {
    let near = node.is_some_and(|node| cells.contains(&node));
    let beside = node.is_some_and(|node| cells.iter().any(|cell| cell / 2 == node / 2));
    match policy {
        PciPolicy::Required => near,
        PciPolicy::Legacy => near || node.is_none(),
        PciPolicy::Preferred => true,
        PciPolicy::Socket => beside,
    }
}

/// True if every requested device can be served by a device of its own; tries every choice.
fn servable(devices: &Devices, wanted: &[usize], cells: &[u32], free: &mut [u32]) -> bool {
    let Some((request, rest)) = wanted.split_first() else { return true };
    let request = &devices.requests[*request];
    request.pools.iter().collect::<BTreeSet<_>>().into_iter().any(|pool| {
        if free[*pool] == 0 || !allows(request.policy, cells, devices.pools[*pool].node) {
            return false;
        }
        free[*pool] -= 1;
        let found = servable(devices, rest, cells, free);
        free[*pool] += 1;
        found
    })
}

fn requests() -> impl proptest::strategy::Strategy<Value = Devices> {
    let policies = prop::sample::select(vec![
        PciPolicy::Required,
        PciPolicy::Legacy,
        PciPolicy::Preferred,
        PciPolicy::Socket,
    ]);
    let pools = prop::collection::vec((prop::option::of(0..4u32), 0..3u32), 1..5);
    pools.prop_flat_map(move |pools| {
        let many = pools.len();
        let pools: Vec<_> = pools.into_iter().map(|(node, free)| pool(node, free)).collect();
        let one = (policies.clone(), 1..3u32, prop::collection::vec(0..many, 1..=many));
        let one = one.prop_map(|(policy, count, pools)| DeviceRequest { policy, count, pools });
        prop::collection::vec(one, 1..4).prop_map(move |requests| Devices {
            pools: pools.clone(),
            requests,
            ..Devices::default()
        })
    })
}

proptest! {
    #[test]
    fn devices_are_found_whenever_a_full_search_finds_them(
        devices in requests(),
        memory in prop::collection::vec(0..2u64, 4),
        cells in 1..4usize,
    ) {
        let mut host = sockets(true);
        for (cell, memory) in host.cells.iter_mut().zip(&memory) {
            cell.memory_mb = *memory;
        }
        let usable: Vec<u32> = (0..4).filter(|id| memory[*id as usize] == 1).collect();
        let guest = guest(&[("0", "", 1), ("1", "", 1), ("2", "", 1)][..cells]);
        let wanted: Vec<usize> = devices.requests.iter().enumerate()
            .flat_map(|(place, request)| vec![place; request.count as usize])
            .collect();
        let free: Vec<u32> = devices.pools.iter().map(|pool| pool.free).collect();
        let sets = (0..16u32).map(|mask| {
            usable.iter().copied().filter(|id| mask & (1 << id) != 0).collect::<Vec<_>>()
        });
        let possible = sets.filter(|set| set.len() == cells)
            .any(|set| servable(&devices, &wanted, &set, &mut free.clone()));
        let fitted = fit(&host, &guest, None, Strategy::Spread, &devices);
        prop_assert_eq!(fitted.is_ok(), possible, "{:?}", fitted);
        if let Ok(fitted) = fitted {
            let cells = places(&fitted);
            let mut left = free;
            let mut served = vec![0; devices.requests.len()];
            for pick in &fitted.devices {
                let request = &devices.requests[pick.request];
                prop_assert!(request.pools.contains(&pick.pool));
                prop_assert!(allows(request.policy, &cells, devices.pools[pick.pool].node));
                prop_assert!(left[pick.pool] >= pick.count);
                left[pick.pool] -= pick.count;
                served[pick.request] += pick.count;
            }
            let counts: Vec<u32> = devices.requests.iter().map(|request| request.count).collect();
            prop_assert_eq!(served, counts);
        }
    }
}
