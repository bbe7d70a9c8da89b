//! The host CPUs of dedicated vCPUs: Nova's cases of `CPUPinningCellTestCase` and
//! `EmulatorThreadsTestCase`.

use kilonova_topology::{CellMisfit, HostCell, Misfit, ThreadPolicy};

use crate::build::{
    NO_LIMITS, TWICE, cores, cpus, dedicated, fits, guest, host, isolated, pages, pinned, pins,
    places, threads,
};

const DUAL: &[&str] = &["0,1", "2,3", "4,5", "6,7"];
const QUAD: &[&str] = &["0-3", "4-7"];

type Pins = &'static [(u32, u32)];

/// Fits a guest with this list of dedicated vCPUs.
fn packed(cell: &HostCell, vcpus: &str, policy: Option<ThreadPolicy>) -> Option<Vec<(u32, u32)>> {
    let mut guest = guest(&[("", vcpus, 1024)]);
    guest.thread_policy = policy;
    fits(&host(std::slice::from_ref(cell)), &guest, TWICE).ok().map(|fitted| pins(&fitted))
}

#[test]
fn threads_of_a_core_are_preferred() {
    let cases: &[(HostCell, &str, Option<Pins>)] = &[
        (dedicated(0, "0-2"), "0-3", None),
        (pinned(dedicated(0, "0-3"), "0"), "0-3", None),
        (dedicated(0, "0-2"), "0-2", Some(&[(0, 0), (1, 1), (2, 2)])),
        (pinned(dedicated(0, "0-3"), "1"), "0-2", Some(&[(0, 0), (1, 2), (2, 3)])),
        (cores(0, &DUAL[..2]), "0-3", Some(&[(0, 0), (1, 1), (2, 2), (3, 3)])),
        (
            cores(0, DUAL),
            "0-7",
            Some(&[(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7)]),
        ),
        (pinned(cores(0, QUAD), "1,2,5,6"), "0-3", Some(&[(0, 0), (1, 3), (2, 4), (3, 7)])),
        (cores(0, QUAD), "0-3", Some(&[(0, 0), (1, 1), (2, 2), (3, 3)])),
        (cores(0, DUAL), "0-4", Some(&[(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)])),
        (cores(0, QUAD), "0-5", Some(&[(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)])),
        // One thread each of three cores.
        (pinned(cores(0, DUAL), "0,2,5"), "0-2", Some(&[(0, 1), (1, 3), (2, 4)])),
        (pinned(cores(0, DUAL), "0,1,2,5"), "0-3", Some(&[(0, 3), (1, 4), (2, 6), (3, 7)])),
        (pinned(cores(0, DUAL), "0,2,5,6"), "0-3", Some(&[(0, 1), (1, 3), (2, 4), (3, 7)])),
        (
            cores(0, &["0,8", "1,9", "2,10", "3,11"]),
            "0-4",
            Some(&[(0, 0), (1, 8), (2, 1), (3, 9), (4, 2)]),
        ),
    ];
    for (cell, vcpus, expected) in cases {
        for policy in [None, Some(ThreadPolicy::Prefer)] {
            assert_eq!(packed(cell, vcpus, policy).as_deref(), *expected, "{cell:?} {vcpus}");
        }
    }
}

#[test]
fn required_threads_are_never_single_ones() {
    let require = Some(ThreadPolicy::Require);
    let spread = &["0,4", "1,5", "2,6", "3,7"];
    assert_eq!(packed(&dedicated(0, "0-7"), "0-3", require), None, "there are no threads");
    assert_eq!(packed(&pinned(cores(0, spread), "0-2"), "0-3", require), None);
    assert!(packed(&cores(0, &DUAL[..2]), "0-3", require).is_some());
    let found = packed(&pinned(cores(0, spread), "0,1"), "0-3", require);
    assert_eq!(found, Some(vec![(0, 2), (1, 6), (2, 3), (3, 7)]));
    // Nova finds no such fit: the cores have 4 and 2 free threads.
    let found = packed(&pinned(cores(0, QUAD), "4,5"), "0-5", require);
    assert_eq!(found, Some(vec![(0, 0), (1, 1), (2, 2), (3, 3), (4, 6), (5, 7)]));
}

#[test]
fn isolated_vcpus_need_cores_with_one_thread() {
    let isolate = Some(ThreadPolicy::Isolate);
    assert_eq!(packed(&dedicated(0, "0-3"), "0-1", isolate), Some(vec![(0, 0), (1, 1)]));
    assert_eq!(packed(&cores(0, &DUAL[..2]), "0-1", isolate), None);
    // Half of each core is shared: the threads count, although guests cannot be pinned to them.
    let mut halves = cores(0, &["0,4", "1,5", "2,6", "3,7"]);
    (halves.dedicated, halves.shared) = (cpus("2,3,6,7"), cpus("0,1,4,5"));
    assert_eq!(packed(&halves, "0-1", isolate), None);
}

#[test]
fn mixed_guests_need_shared_cpus_of_the_cell_too() {
    let cell = host(&[cores(0, &["0,2", "1,3"])]);
    let misfit =
        fits(&cell, &guest(&[("0", "1-3", 2048)]), NO_LIMITS).expect_err("it does not fit");
    let reasons = vec![(0, CellMisfit::SharedCpus)];
    assert_eq!(misfit, Misfit::Cell { cell: 0, reasons });
}

#[test]
fn the_emulator_gets_a_cpu_at_the_first_cell() {
    let small = |id, list| pages(dedicated(id, list), &[(4, 524_288, 0)]);
    let two = host(&[small(0, "0,1"), small(1, "2,3")]);
    let fitted = fits(&two, &guest(&[("", "0", 2048)]), NO_LIMITS).expect("it fits");
    assert_eq!((pins(&fitted), &fitted.cells[0].emulator), (vec![(0, 0)], &cpus("")));

    let fitted = fits(&two, &isolated(guest(&[("", "0", 2048)])), NO_LIMITS).expect("it fits");
    assert_eq!((pins(&fitted), &fitted.cells[0].emulator), (vec![(0, 0)], &cpus("1")));

    let large = isolated(guest(&[("", "0,1,2,4", 2048)]));
    assert!(fits(&two, &large, NO_LIMITS).is_err());

    let cells = isolated(guest(&[("", "0", 2048), ("", "1,2", 2048)]));
    let fitted = fits(&two, &cells, NO_LIMITS).expect("it fits");
    let found: Vec<_> = fitted.cells.iter().map(|c| (c.pins.clone(), c.emulator.clone())).collect();
    assert_eq!(
        found,
        [([(0, 0)].into(), cpus("1")), ([(1, 2), (2, 3)].into(), cpus(""))],
        "only the first cell has a CPU for the emulator"
    );
    let cells = isolated(guest(&[("", "0,1", 2048), ("", "2", 2048)]));
    assert!(fits(&two, &cells, NO_LIMITS).is_err());
}

#[test]
fn the_emulators_cpu_may_be_any_free_one() {
    let cell = cores(0, &["1", "2,3"]);
    let fitted = fits(&host(&[cell]), &isolated(guest(&[("", "0-1", 2048)])), NO_LIMITS);
    let fitted = fitted.expect("it fits");
    assert_eq!(pins(&fitted), [(0, 2), (1, 3)]);
    assert_eq!(fitted.cells[0].emulator, cpus("1"));

    let guest = threads(isolated(guest(&[("", "0-1", 2048)])), ThreadPolicy::Isolate);
    let fitted = fits(&host(&[dedicated(0, "1-3")]), &guest, NO_LIMITS).expect("it fits");
    assert_eq!((pins(&fitted), &fitted.cells[0].emulator), (vec![(0, 1), (1, 2)], &cpus("3")));
}

#[test]
fn mixed_guests_pin_their_dedicated_vcpus_alone() {
    let mut cell = pages(dedicated(0, "0-7"), &[(4, 524_288, 0)]);
    (cell.dedicated, cell.shared, cell.pinned) = (cpus("0-3"), cpus("4-7"), cpus("0"));
    cell.memory_mb = 4096;
    cell.shared_used = 2;
    let one = host(&[cell]);
    let mixed = guest(&[("0,1", "2,3", 2048)]);
    let fitted = fits(&one, &mixed, NO_LIMITS).expect("it fits");
    assert_eq!((pins(&fitted), &fitted.cells[0].shared), (vec![(2, 1), (3, 2)], &cpus("0-1")));
    let fitted = fits(&one, &isolated(mixed), NO_LIMITS).expect("it fits");
    assert_eq!((pins(&fitted), &fitted.cells[0].emulator), (vec![(2, 1), (3, 2)], &cpus("3")));
}

#[test]
fn guests_with_dedicated_cpus_take_cells_with_enough_free_ones() {
    let four = |id, list: &str, used: &str| pinned(dedicated(id, list), used);
    let two = |a: &str, b: &str| host(&[four(0, "0-3", a), four(1, "4-7", b)]);
    let guest_of = |cells: usize| {
        let cells = [("", "0,1", 1024), ("", "2,3", 1024), ("", "4,5", 1024)][..cells].to_vec();
        guest(&cells)
    };
    let found = |host: &_, cells| fits(host, &guest_of(cells), NO_LIMITS).ok().map(|f| places(&f));
    assert_eq!(found(&two("", ""), 1), Some(vec![0]));
    assert_eq!(found(&two("0-2", ""), 1), Some(vec![1]));
    assert_eq!(found(&two("0-2", "4-6"), 1), None);
    assert_eq!(found(&two("", ""), 2), Some(vec![0, 1]));
    assert_eq!(found(&two("0", "4-6"), 2), None);
    assert_eq!(found(&two("", ""), 3), None);
    let three = host(&[four(0, "0-3", "0"), four(1, "4-7", "4-6"), four(2, "8-11", "10,11")]);
    assert_eq!(found(&three, 2), Some(vec![0, 2]));
}
