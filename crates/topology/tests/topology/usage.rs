//! The use of a host by fits, and its refusals.

use kilonova_topology::{Conflict, HostTopology, InvalidHost, PageSize};

use crate::build::{
    NO_LIMITS, cpus, dedicated, fits, guest, host, isolated, page_size, pages, shared,
};

fn two() -> HostTopology {
    let mut first = pages(dedicated(0, "0-3"), &[(4, 131_072, 0), (2048, 768, 0)]);
    first.shared = cpus("8-9");
    host(&[first, dedicated(1, "4-7")])
}

#[test]
fn a_claim_counts_cpus_memory_and_pages_and_a_release_undoes_it() {
    let mut used = two();
    let guest = page_size(isolated(guest(&[("3", "0-1", 512)])), PageSize::Large);
    let fitted = fits(&used, &guest, NO_LIMITS).expect("it fits");
    used.claim(&fitted).expect("nothing overlaps");
    let cell = &used.cells[0];
    assert_eq!(cell.pinned, cpus("0-2"), "with the emulator's CPU");
    assert_eq!((cell.shared_used, cell.memory_used_mb), (1, 512));
    assert_eq!((cell.pages[0].used, cell.pages[1].used), (0, 256));
    assert_eq!(used.cells[1], two().cells[1]);
    assert_eq!(used.claim(&fitted), Err(Conflict::InUse { cell: 0, cpu: 0 }));
    used.release(&fitted).expect("the fit is in use");
    assert_eq!(used, two());
    assert_eq!(used.release(&fitted), Err(Conflict::NotInUse { cell: 0, cpu: 0 }));
    assert_eq!(used, two());
}

#[test]
fn a_claim_of_cpus_that_are_not_offered_changes_nothing() {
    let fitted = fits(&two(), &guest(&[("", "0", 1), ("", "1-2", 1)]), NO_LIMITS).expect("it fits");
    let mut smaller = two();
    smaller.cells[1].dedicated = cpus("6-7");
    let before = smaller.clone();
    assert_eq!(smaller.claim(&fitted), Err(Conflict::NotDedicated { cell: 1, cpu: 4 }));
    assert_eq!(smaller, before);
    // A guest that is already on the host is still counted.
    smaller.count(&fitted);
    assert_eq!(smaller.cells[1].pinned, cpus("4-5"));
    assert_eq!(smaller.cells[1].free_dedicated(), cpus("6-7"));
    let mut gone = host(&[dedicated(0, "0-3")]);
    assert_eq!(gone.claim(&fitted), Err(Conflict::Cell(1)));
    gone.count(&fitted);
    assert_eq!(gone.cells[0].pinned, cpus("0"));
    let mut twice = fitted.clone();
    twice.cells[1].pins.insert(2, 4);
    assert_eq!(two().claim(&twice), Err(Conflict::InUse { cell: 1, cpu: 4 }));
}

#[test]
fn a_cpu_that_is_in_another_cell_now_stays_in_use() {
    let pinned = guest(&[("", "0-1", 1)]);
    let mut before = two();
    before.cells[0].dedicated = cpus("0");
    let fitted = fits(&before, &pinned, NO_LIMITS).expect("it fits");
    assert_eq!(fitted.cells[0].host_cpus().collect::<Vec<_>>(), [4, 5]);
    for mut after in [
        host(&[dedicated(0, "0-7")]),
        host(&[dedicated(0, "4-7"), dedicated(1, "0-3")]),
        host(&[dedicated(2, "0-3"), dedicated(3, "4-7")]),
    ] {
        after.count(&fitted);
        let free: Vec<u32> = after.cells.iter().flat_map(|cell| cell.free_dedicated()).collect();
        assert!(free.len() == 6 && !free.contains(&4) && !free.contains(&5), "{after:?}");
        let all = guest(&[("", "0-3", 1)]);
        let next = fits(&after, &all, NO_LIMITS).expect("there is room");
        assert!(next.cells[0].host_cpus().all(|cpu| cpu != 4 && cpu != 5), "{next:?}");
    }
}

#[test]
fn contradictory_hosts_are_refused() {
    let check = |cells: &[_]| HostTopology { cells: cells.to_vec() }.check();
    assert_eq!(check(&[dedicated(0, "0"), dedicated(0, "1")]), Err(InvalidHost::Cell(0)));
    assert_eq!(check(&[dedicated(0, "0-1"), shared(1, "1")]), Err(InvalidHost::Cpu(1)));
    let mut both = dedicated(0, "0-1");
    both.shared = cpus("1");
    assert_eq!(check(&[both]), Err(InvalidHost::Cpu(1)));
    let mut cores = dedicated(0, "0-1");
    cores.siblings.push(cpus("1"));
    assert_eq!(check(&[cores]), Err(InvalidHost::Core(1)));
    let twice = pages(dedicated(0, "0"), &[(4, 1, 0), (4, 1, 0)]);
    assert_eq!(check(&[twice]), Err(InvalidHost::Pages { cell: 0, size_kib: 4 }));
    let none = pages(dedicated(0, "0"), &[(0, 1, 0)]);
    assert_eq!(check(&[none]), Err(InvalidHost::Pages { cell: 0, size_kib: 0 }));
    assert_eq!(two().check(), Ok(()));
}
