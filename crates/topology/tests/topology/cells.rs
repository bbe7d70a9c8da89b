//! Memory, pages and limits of a cell: Nova's cases of `VirtMemoryPagesTestCase`,
//! `VirtNUMATopologyCellUsageTestCase` and `VirtNUMAHostTopologyTestCase`.

use kilonova_topology::{
    CellLimit, CellMisfit, Fitted, GuestTopology, HostCell, Limits, Misfit, PageSize,
};

use crate::build::{
    NO_LIMITS, TWICE, dedicated, fits, guest, host, isolated, page_size, pages, places, shared,
};

fn page(cell: HostCell, memory_mb: u64, size: PageSize) -> Result<Option<u64>, CellMisfit> {
    let guest = page_size(guest(&[("0", "", memory_mb)]), size);
    match fits(&host(&[cell]), &guest, NO_LIMITS) {
        Ok(fitted) => Ok(fitted.cells[0].page_kib),
        Err(Misfit::Cell { reasons, .. }) => Err(reasons[0].1),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn page_sizes_are_chosen_as_requested() {
    let small = || pages(shared(0, "0"), &[(4, 262_144, 0)]);
    let both = || pages(shared(0, "0"), &[(4, 256, 0), (2048, 512, 0)]);
    let all = || pages(shared(0, "0"), &[(2048, 512, 0), (1_048_576, 1, 0), (4, 262_144, 0)]);
    let bytes = |kib: u64| PageSize::Bytes(kib * 1024);
    assert_eq!(page(small(), 1024, PageSize::Small), Ok(Some(4)));
    assert_eq!(page(small(), 1024, PageSize::Any), Ok(Some(4)));
    assert_eq!(page(small(), 1024, PageSize::Large), Err(CellMisfit::PageSize));
    assert_eq!(page(both(), 1024, PageSize::Large), Ok(Some(2048)));
    assert_eq!(page(both(), 1024, bytes(2048)), Ok(Some(2048)));
    assert_eq!(page(both(), 1025, bytes(2048)), Err(CellMisfit::PageSize), "not divisible");
    assert_eq!(page(both(), 1024, bytes(4096)), Err(CellMisfit::PageSize), "no such pages");
    assert_eq!(page(both(), 1024, PageSize::Bytes(1)), Err(CellMisfit::PageSize));
    assert_eq!(page(all(), 1024, PageSize::Large), Ok(Some(1_048_576)), "the largest first");
    assert_eq!(page(all(), 512, PageSize::Large), Ok(Some(2048)));
    assert_eq!(page(all(), 1023, PageSize::Any), Ok(Some(4)));
    let used = pages(shared(0, "0"), &[(4, 262_144, 0), (2048, 512, 1)]);
    assert_eq!(page(used, 1024, PageSize::Large), Err(CellMisfit::PageSize), "one is in use");
    let mut kept = both();
    kept.pages[1].reserved = 1;
    assert_eq!(page(kept, 1024, PageSize::Large), Err(CellMisfit::PageSize), "one is reserved");
    assert_eq!(page(shared(0, "0"), 1024, PageSize::Any), Err(CellMisfit::PageSize), "no pages");
}

#[test]
fn without_a_page_size_only_guests_with_dedicated_cpus_need_free_memory() {
    let fit = |cell: &HostCell, dedicated: bool| {
        let cpus = if dedicated { ("", "0") } else { ("0", "") };
        let guest = guest(&[(cpus.0, cpus.1, 1024)]);
        fits(&host(std::slice::from_ref(cell)), &guest, NO_LIMITS).map(|f| f.cells[0].page_kib).ok()
    };
    let of = |used_mb: u64, total_mb: u64| {
        let mut plain = [shared(0, "0"), dedicated(0, "0")];
        for cell in &mut plain {
            (cell.memory_mb, cell.memory_used_mb) = (total_mb, used_mb);
        }
        plain
    };
    let [overcommitted, full] = of(1536, 2048);
    assert_eq!(fit(&overcommitted, false), Some(None));
    assert_eq!(fit(&full, true), None);
    let [small, _] = of(0, 1023);
    assert_eq!(fit(&small, false), None, "a guest never has more than the cell");

    let [overcommitted, full] = [shared(0, "0"), dedicated(0, "0")]
        .map(|cell| pages(cell, &[(4, 524_288, 393_216), (2048, 0, 0)]));
    assert_eq!(fit(&overcommitted, false), Some(Some(4)));
    assert_eq!(fit(&full, true), None);
    assert_eq!(fit(&pages(shared(0, "0"), &[(4, 262_143, 0)]), false), None);
}

#[test]
fn limits_bound_shared_cpus_and_memory() {
    let limits = |cpu_ratio, memory_ratio| Some(Limits { cpu_ratio, memory_ratio });
    let with = |used_cpus: u64, used_mb: u64, limits, cpus: &str, memory: u64| {
        let mut cell = shared(0, "0-3");
        (cell.memory_mb, cell.shared_used, cell.memory_used_mb) = (1024, used_cpus, used_mb);
        match fits(&host(&[cell]), &guest(&[(cpus, "", memory)]), limits) {
            Ok(_) => None,
            Err(Misfit::Cell { reasons, .. }) => Some(reasons[0].1),
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(with(0, 0, TWICE, "0-3", 1024), None);
    assert_eq!(with(4, 1024, TWICE, "0-3", 1024), None);
    assert_eq!(with(5, 1024, TWICE, "0-3", 1024), Some(CellMisfit::CpuRatio));
    assert_eq!(with(4, 1025, TWICE, "0-3", 1024), Some(CellMisfit::MemoryRatio));
    assert_eq!(with(0, 0, limits(0.5, 1.0), "0-2", 1), Some(CellMisfit::CpuRatio));
    assert_eq!(with(0, 0, limits(4.0, 4.0), "0-4", 1), Some(CellMisfit::SharedCpus));
    assert_eq!(with(0, 0, limits(4.0, 4.0), "0", 1025), Some(CellMisfit::Memory));
    assert_eq!(with(100, 1_000_000, NO_LIMITS, "0-3", 1024), None);
}

/// Nova compares the use with the whole memory, and therefore allocates the memory in large pages
/// twice.
#[test]
fn large_pages_are_no_memory_for_guests_without_them() {
    let once = Some(Limits { cpu_ratio: 4.0, memory_ratio: 1.0 });
    let mut cell = pages(shared(0, "0-3"), &[(4, 262_144, 0), (2048, 512, 0)]);
    let one = guest(&[("0", "", 1024)]);
    let fitted = fits(&host(std::slice::from_ref(&cell)), &one, once).expect("it fits");
    let mut used = host(std::slice::from_ref(&cell));
    used.claim(&fitted).expect("nothing overlaps");
    let misfit = fits(&used, &one, once).expect_err("the small pages are in use");
    assert_eq!(misfit, Misfit::Cell { cell: 0, reasons: vec![(0, CellMisfit::MemoryRatio)] });
    let large = page_size(one.clone(), PageSize::Large);
    assert!(fits(&used, &large, once).is_ok(), "the large ones are free");
    cell.pages[0].reserved = 1;
    assert!(fits(&host(&[cell]), &one, once).is_err(), "reserved pages are not available either");
}

#[test]
fn guests_fill_the_cells_one_after_the_other() {
    let two = || {
        let mut cells = [shared(0, "1-2"), shared(1, "3-4")];
        for cell in &mut cells {
            cell.memory_mb = 1024;
        }
        host(&cells)
    };
    let one = guest(&[("0", "", 1024)]);
    let both = guest(&[("0", "", 1024), ("1", "", 1024)]);
    assert_eq!(fits(&two(), &both, NO_LIMITS).map(|f| places(&f)), Ok(vec![0, 1]));
    let mut used = two();
    for expected in [0, 1, 0, 1] {
        let fitted = fits(&used, &one, TWICE).expect("it fits");
        assert_eq!(places(&fitted), [expected]);
        used.claim(&fitted).expect("nothing overlaps");
    }
    assert!(fits(&used, &one, TWICE).is_err(), "twice the memory is in use");
    let three = guest(&[("0", "", 1), ("1", "", 1), ("2", "", 1)]);
    let misfit = fits(&two(), &three, NO_LIMITS).expect_err("there are two cells");
    assert_eq!(misfit, Misfit::TooFewCells { guest: 3, host: 2 });
}

#[test]
fn cells_that_fit_singly_may_not_fit_together() {
    let mut small = shared(1, "4-7");
    small.memory_mb = 512;
    let two = host(&[shared(0, "0-3"), small]);
    let guest = guest(&[("0", "", 1024), ("1", "", 1024)]);
    assert_eq!(fits(&two, &guest, NO_LIMITS), Err(Misfit::Together));
}

#[test]
fn a_cell_gives_no_more_than_the_ledger_has_left() {
    let limit = |shared, dedicated, memory_mb| CellLimit { shared, dedicated, memory_mb };
    let tried = |limit: CellLimit, mut cell: HostCell, guest: &GuestTopology| {
        cell.limit = Some(limit);
        fits(&host(&[cell]), guest, NO_LIMITS)
    };
    let misfit = |found: Result<Fitted, Misfit>| match found {
        Err(Misfit::Cell { reasons, .. }) => reasons[0].1,
        other => panic!("{other:?}"),
    };
    let pinned = guest(&[("", "0-1", 64)]);
    let cell = || dedicated(0, "0-3");
    assert!(tried(limit(0, 2, 64), cell(), &pinned).is_ok());
    assert_eq!(misfit(tried(limit(9, 1, 64), cell(), &pinned)), CellMisfit::AllocatedCpus);
    assert_eq!(misfit(tried(limit(9, 2, 63), cell(), &pinned)), CellMisfit::AllocatedMemory);
    let isolated = isolated(pinned);
    assert!(tried(limit(0, 3, 64), cell(), &isolated).is_ok());
    assert_eq!(misfit(tried(limit(9, 2, 64), cell(), &isolated)), CellMisfit::AllocatedCpus);
    let floating = guest(&[("0-1", "", 64)]);
    assert!(tried(limit(2, 0, 64), shared(0, "0-3"), &floating).is_ok());
    assert_eq!(
        misfit(tried(limit(1, 9, 64), shared(0, "0-3"), &floating)),
        CellMisfit::AllocatedCpus
    );
}
