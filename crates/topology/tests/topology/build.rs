//! Short builders of hosts and guests.

use std::collections::BTreeMap;

use kilonova_topology::{
    Asked, CpuPolicy, Cpus, Devices, EmulatorPolicy, Fitted, GuestCell, GuestTopology, HostCell,
    HostTopology, Limits, Misfit, PageSize, Pages, Refusal, Request, Strategy, ThreadPolicy, fit,
    parse_cpus,
};

pub const NO_LIMITS: Option<Limits> = None;
pub const TWICE: Option<Limits> = Some(Limits { cpu_ratio: 2.0, memory_ratio: 2.0 });

pub fn cpus(list: &str) -> Cpus {
    parse_cpus(list, 4096).expect("the list is valid")
}

/// A host cell with only dedicated CPUs, each a core of its own.
pub fn dedicated(id: u32, list: &str) -> HostCell {
    let dedicated = cpus(list);
    let siblings = dedicated.iter().map(|cpu| Cpus::from([*cpu])).collect();
    HostCell { id, dedicated, siblings, memory_mb: 2048, socket: Some(0), ..HostCell::default() }
}

/// A host cell with only dedicated CPUs, and these cores.
pub fn cores(id: u32, cores: &[&str]) -> HostCell {
    let siblings: Vec<Cpus> = cores.iter().map(|core| cpus(core)).collect();
    let dedicated = siblings.iter().flatten().copied().collect();
    HostCell { id, dedicated, siblings, memory_mb: 4096, socket: Some(0), ..HostCell::default() }
}

/// A host cell with only shared CPUs.
pub fn shared(id: u32, list: &str) -> HostCell {
    let cell = dedicated(id, list);
    HostCell { shared: cell.dedicated, dedicated: Cpus::new(), ..cell }
}

pub fn pinned(mut cell: HostCell, list: &str) -> HostCell {
    cell.pinned = cpus(list);
    cell
}

/// Pages by size in KiB: total and used.
pub fn pages(mut cell: HostCell, sizes: &[(u64, u64, u64)]) -> HostCell {
    let pages = sizes.iter().map(|(size_kib, total, used)| Pages {
        size_kib: *size_kib,
        total: *total,
        reserved: 0,
        used: *used,
    });
    cell.pages = pages.collect();
    cell
}

pub fn host(cells: &[HostCell]) -> HostTopology {
    let host = HostTopology { cells: cells.to_vec() };
    host.check().expect("the host is consistent");
    host
}

/// Guest cells as (shared, dedicated, memory).
pub fn guest(cells: &[(&str, &str, u64)]) -> GuestTopology {
    let cells: Vec<GuestCell> = cells
        .iter()
        .map(|(shared, dedicated, memory_mb)| GuestCell {
            shared: cpus(shared),
            dedicated: cpus(dedicated),
            memory_mb: *memory_mb,
        })
        .collect();
    let any = |part: fn(&GuestCell) -> &Cpus| cells.iter().any(|cell| !part(cell).is_empty());
    let cpu_policy = match (any(|cell| &cell.shared), any(|cell| &cell.dedicated)) {
        (true, true) => Some(CpuPolicy::Mixed),
        (false, true) => Some(CpuPolicy::Dedicated),
        _ => None,
    };
    GuestTopology {
        cells,
        cpu_policy,
        thread_policy: None,
        emulator_policy: None,
        page_size: None,
        realtime: Cpus::new(),
        locked_memory: false,
    }
}

pub fn threads(mut guest: GuestTopology, policy: ThreadPolicy) -> GuestTopology {
    guest.thread_policy = Some(policy);
    guest
}

pub fn isolated(mut guest: GuestTopology) -> GuestTopology {
    guest.emulator_policy = Some(EmulatorPolicy::Isolate);
    guest
}

pub fn page_size(mut guest: GuestTopology, size: PageSize) -> GuestTopology {
    guest.page_size = Some(size);
    guest
}

pub fn fits(
    host: &HostTopology,
    guest: &GuestTopology,
    limits: Option<Limits>,
) -> Result<Fitted, Misfit> {
    fit(host, guest, limits, Strategy::Spread, &Devices::default())
}

/// The host cell of each guest cell.
pub fn places(fitted: &Fitted) -> Vec<u32> {
    fitted.cells.iter().map(|cell| cell.host).collect()
}

/// The pins of the only cell.
pub fn pins(fitted: &Fitted) -> Vec<(u32, u32)> {
    fitted.cells[0].pins.iter().map(|(vcpu, cpu)| (*vcpu, *cpu)).collect()
}

pub type Pairs = &'static [(&'static str, &'static str)];

/// Parses the request of a flavor and an image.
pub fn parsed(
    vcpus: i64,
    memory_mb: i64,
    specs: &[(&str, &str)],
    image: &[(&str, &str)],
) -> Result<Request, Refusal> {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let (extra_specs, properties) = (&map(specs), &map(image));
    Request::parse(&Asked { vcpus, memory_mb, extra_specs, properties })
}
