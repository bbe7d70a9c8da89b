//! The order of host cells: Nova's `HostCellsSortingTestCase`. Cell 0 has the most shared CPUs in use, 1 the most
//! devices, 2 the most free dedicated CPUs, 3 the most free memory.

use std::time::Instant;

use kilonova_topology::{
    DevicePool, DeviceRequest, Devices, HostCell, HostTopology, PciPolicy, Strategy, fit,
};

use crate::build::{cpus, dedicated, fits, guest, host, pages, pinned, places};

fn four() -> HostTopology {
    let cell = |id: u32, shared_used, memory_used_mb, used: &[u32]| {
        let first = 8 * id;
        let mut cell = pages(dedicated(id, &format!("{first}-{}", first + 3)), &[(4, 1 << 20, 0)]);
        cell.shared = cpus(&format!("{}-{}", first + 4, first + 7));
        (cell.memory_mb, cell.memory_used_mb) = (4096, memory_used_mb);
        cell.shared_used = shared_used;
        cell.pinned = used.iter().map(|cpu| first + cpu).collect();
        cell
    };
    host(&[
        cell(0, 3, 2048, &[0, 1]),
        cell(1, 2, 2048, &[0, 1]),
        cell(2, 2, 2048, &[]),
        cell(3, 2, 1024, &[0, 1]),
    ])
}

#[test]
fn emptier_or_fuller_cells_come_first_and_devices_decide() {
    let none = Devices::default();
    let pools = vec![DevicePool { node: Some(1), free: 2 }];
    let free = Devices { pools, ..Devices::default() };
    let request = DeviceRequest { policy: PciPolicy::Legacy, count: 1, pools: vec![0] };
    let wanted = Devices { requests: vec![request], ..free.clone() };
    let three = [("", "0", 2048), ("", "1", 2048), ("", "2", 2048)];
    let pinned = guest(&three);
    let shared = guest(&three.map(|(_, cpus, memory)| (cpus, "", memory)));
    let cases = [
        (&pinned, &none, [0, 1, 3], [2, 3, 0]),
        (&shared, &none, [0, 1, 2], [3, 1, 2]),
        (&pinned, &wanted, [1, 0, 3], [1, 2, 3]),
        (&shared, &wanted, [1, 0, 2], [1, 3, 2]),
        (&pinned, &free, [0, 3, 2], [2, 3, 0]),
        (&shared, &free, [0, 2, 3], [3, 2, 0]),
    ];
    for (guest, devices, packed, spread) in cases {
        for (strategy, expected) in [(Strategy::Pack, packed), (Strategy::Spread, spread)] {
            let fitted = fit(&four(), guest, None, strategy, devices).expect("it fits");
            assert_eq!(places(&fitted), expected, "{strategy:?} {devices:?} {guest:?}");
        }
    }
}

#[test]
fn cells_that_are_all_needed_keep_their_order() {
    let guest = guest(&[("0", "", 1024), ("1", "", 1024), ("2", "", 1024), ("3", "", 1024)]);
    assert_eq!(places(&fits(&four(), &guest, None).expect("it fits")), [0, 1, 2, 3]);
}

/// The last guest cell fits only on the first host cell: Nova tries all 40,320 permutations.
#[test]
fn eight_cells_on_eight_take_no_permutations() {
    let cells: Vec<HostCell> = (0..8)
        .map(|id| {
            let cell = dedicated(id, &format!("{}-{}", 16 * id, 16 * id + 15));
            if id == 0 { cell } else { pinned(cell, &format!("{}", 16 * id)) }
        })
        .collect();
    let many = |count: u32| -> Vec<(String, u64)> {
        (0..8)
            .map(|cell| {
                let wanted = if cell == 7 { count } else { 15 };
                (format!("{}-{}", 16 * cell, 16 * cell + wanted - 1), 1024)
            })
            .collect()
    };
    let of = |cells: &[(String, u64)]| {
        let cells: Vec<_> =
            cells.iter().map(|(cpus, memory)| ("", cpus.as_str(), *memory)).collect();
        guest(&cells)
    };
    let full = host(&cells);
    let begin = Instant::now();
    for _ in 0..100 {
        let fitted = fits(&full, &of(&many(16)), None).expect("it fits");
        assert_eq!(places(&fitted), [1, 2, 3, 4, 5, 6, 7, 0]);
    }
    // A hundred fits take at most a second even in a slow build.
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
}
