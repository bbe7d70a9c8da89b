//! Fits one guest cell onto one host cell.

use super::pack::pack;
use super::{FittedCell, Limits};
use crate::{CpuPolicy, GuestCell, GuestTopology, HostCell, PageSize, Pages};

/// Why a guest cell does not fit on a host cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CellMisfit {
    /// The cell has no such pages, too few free ones, or they do not divide the memory.
    #[error("no free memory pages of the requested size")]
    PageSize,
    /// There is too little memory.
    #[error("too little memory")]
    Memory,
    /// There are too few free dedicated CPUs.
    #[error("too few free dedicated CPUs")]
    DedicatedCpus,
    /// The thread policy leaves too few dedicated CPUs.
    #[error("no cores that satisfy the thread policy")]
    ThreadPolicy,
    /// The guest cell has more shared vCPUs than the host cell has shared CPUs.
    #[error("too few shared CPUs")]
    SharedCpus,
    /// The shared CPUs are overcommitted as far as `cpu_allocation_ratio` allows.
    #[error("cpu_allocation_ratio is reached")]
    CpuRatio,
    /// The memory is overcommitted as far as `ram_allocation_ratio` allows.
    #[error("ram_allocation_ratio is reached")]
    MemoryRatio,
    /// The resource ledger has allocated the cell's memory, also to guests without a topology.
    #[error("its memory is allocated")]
    AllocatedMemory,
    /// The resource ledger has allocated the cell's CPUs, also to guests without a topology.
    #[error("its CPUs are allocated")]
    AllocatedCpus,
    /// The running guest sees a device at the guest cell, and its replacement is at another host cell.
    #[error("not at the devices that the running guest has there")]
    SeenDevices,
}

/// Fits a guest cell onto a host cell, with `emulator` dedicated CPUs in addition to those of its vCPUs.
pub(super) fn fit_cell(
    host: &HostCell,
    guest: &GuestTopology,
    cell: &GuestCell,
    emulator: usize,
    limits: Option<Limits>,
) -> Result<FittedCell, CellMisfit> {
    let pinned = guest.is_pinned();
    let page_kib = match guest.page_size {
        Some(size) => Some(page(host, size, cell.memory_mb)?),
        None => memory(host, cell, pinned)?,
    };
    let uses_shared = guest.cpu_policy != Some(CpuPolicy::Dedicated);
    let dedicated = cell.dedicated.len() + emulator;
    if pinned && dedicated > host.dedicated.len() {
        return Err(CellMisfit::DedicatedCpus);
    }
    if uses_shared && cell.shared.len() > host.shared.len() {
        return Err(CellMisfit::SharedCpus);
    }
    let mut fitted = FittedCell {
        host: host.id,
        shared: cell.shared.clone(),
        pins: Default::default(),
        emulator: Default::default(),
        memory_mb: cell.memory_mb,
        page_kib,
    };
    if pinned {
        if dedicated > host.free_dedicated().len() {
            return Err(CellMisfit::DedicatedCpus);
        }
        let packed = pack(host, &cell.dedicated, guest.thread_policy, emulator)
            .ok_or(CellMisfit::ThreadPolicy)?;
        (fitted.pins, fitted.emulator) = (packed.pins, packed.emulator);
    }
    if let Some(limits) = limits.filter(|_| uses_shared) {
        within(host, guest, &fitted, limits)?;
    }
    if let Some(limit) = &host.limit {
        if fitted.memory_mb > limit.memory_mb {
            return Err(CellMisfit::AllocatedMemory);
        }
        let pinned = fitted.host_cpus().count() as u64;
        if pinned > limit.dedicated || fitted.shared.len() as u64 > limit.shared {
            return Err(CellMisfit::AllocatedCpus);
        }
    }
    Ok(fitted)
}

fn kib(memory_mb: u64) -> u64 {
    memory_mb.saturating_mul(1024)
}

/// True if the memory is a whole number of pages, and that many are available.
fn holds(pages: &Pages, memory_mb: u64, available: u64) -> bool {
    let memory = kib(memory_mb);
    pages.size_kib > 0
        && memory.is_multiple_of(pages.size_kib)
        && memory / pages.size_kib <= available
}

/// The largest of the requested page sizes that holds the memory.
fn page(host: &HostCell, size: PageSize, memory_mb: u64) -> Result<u64, CellMisfit> {
    let mut sizes: Vec<&Pages> = host.pages.iter().collect();
    sizes.sort_by_key(|pages| std::cmp::Reverse(pages.size_kib));
    let smallest = sizes.len().saturating_sub(1);
    match size {
        PageSize::Small => drop(sizes.drain(..smallest)),
        PageSize::Large => sizes.truncate(smallest),
        PageSize::Any => {}
        PageSize::Bytes(bytes) => {
            sizes.retain(|pages| pages.size_kib.checked_mul(1024) == Some(bytes));
        }
    }
    let found = sizes.into_iter().find(|pages| holds(pages, memory_mb, pages.free()));
    found.map(|pages| pages.size_kib).ok_or(CellMisfit::PageSize)
}

/// Checks the memory of a guest without a page size: at most the cell's memory, or the free part of it if the guest has
/// dedicated CPUs. Returns the size of the pages that it uses.
fn memory(host: &HostCell, cell: &GuestCell, pinned: bool) -> Result<Option<u64>, CellMisfit> {
    let Some(pages) = host.smallest_pages() else {
        let available = if pinned { host.free_memory_mb() } else { i128::from(host.memory_mb) };
        let fits = i128::from(cell.memory_mb) <= available;
        return if fits { Ok(None) } else { Err(CellMisfit::Memory) };
    };
    let available = if pinned { pages.free() } else { pages.total };
    if !holds(pages, cell.memory_mb, available) {
        return Err(CellMisfit::Memory);
    }
    Ok(Some(pages.size_kib))
}

/// Compares use with the limits. The memory of a guest without a page size is also compared with the pages of the
/// smallest size, because large ones cannot hold it. (Nova compares it with the cell's whole memory only.)
#[expect(clippy::cast_precision_loss, reason = "the limits are ratios")]
fn within(
    host: &HostCell,
    guest: &GuestTopology,
    fitted: &FittedCell,
    limits: Limits,
) -> Result<(), CellMisfit> {
    let above = |used: u64, most: u64, ratio: f64| used as f64 > most as f64 * ratio;
    let cpus = host.shared_used.saturating_add(fitted.shared.len() as u64);
    if above(cpus, host.shared.len() as u64, limits.cpu_ratio) {
        return Err(CellMisfit::CpuRatio);
    }
    let memory = host.memory_used_mb.saturating_add(fitted.memory_mb);
    if above(memory, host.memory_mb, limits.memory_ratio) {
        return Err(CellMisfit::MemoryRatio);
    }
    let small = host.smallest_pages().filter(|_| guest.page_size.is_none());
    let over = small.is_some_and(|pages| {
        let used = pages.used.saturating_add(fitted.pages());
        above(used, pages.total.saturating_sub(pages.reserved), limits.memory_ratio)
    });
    if over { Err(CellMisfit::MemoryRatio) } else { Ok(()) }
}
