//! The NUMA part of a guest's document: its cells, and the host CPUs of its threads.

use kilonova_node_api::{GuestNuma, GuestNumaCell, GuestVcpu};
use kilonova_topology::{
    Cpus, EmulatorPolicy, Fitted, FittedCell, GuestTopology, HostTopology, format_cpus,
};

/// The NUMA part for a guest that has this fit on the host, without the cells of its devices.
pub(super) fn of(host: &HostTopology, guest: &GuestTopology, fitted: &Fitted) -> GuestNuma {
    let cells = fitted.cells.iter().map(|cell| GuestNumaCell {
        host: cell.host,
        vcpus: vcpus(host, cell),
        memory_mb: cell.memory_mb,
        page_kib: cell.page_kib.filter(|size| !is_smallest(host, cell.host, *size)),
    });
    GuestNuma {
        cells: cells.collect(),
        emulator: format_cpus(&emulator(host, guest, fitted)),
        realtime: format_cpus(&guest.realtime),
        locked_memory: guest.locked_memory,
        devices: Default::default(),
    }
}

/// The vCPUs of a cell, in order. A vCPU that is not dedicated runs on all shared CPUs of the host's cell.
fn vcpus(host: &HostTopology, cell: &FittedCell) -> Vec<GuestVcpu> {
    let shared = format_cpus(&shared(host, cell));
    let on_shared = cell.shared.iter().map(|id| GuestVcpu { id: *id, cpus: shared.clone() });
    let pinned = cell.pins.iter().map(|(id, cpu)| GuestVcpu { id: *id, cpus: cpu.to_string() });
    let mut all: Vec<GuestVcpu> = on_shared.chain(pinned).collect();
    all.sort_by_key(|vcpu| vcpu.id);
    all
}

fn shared(host: &HostTopology, cell: &FittedCell) -> Cpus {
    host.cell(cell.host).map(|host| host.shared.clone()).unwrap_or_default()
}

fn is_smallest(host: &HostTopology, cell: u32, size_kib: u64) -> bool {
    let pages = host.cell(cell).map(|host| &host.pages[..]).unwrap_or_default();
    pages.iter().map(|pages| pages.size_kib).min() == Some(size_kib)
}

/// The host CPUs of the emulator's threads. With the policy `isolate`, the threads have CPUs of their own; with
/// `share`, they use the host's shared CPUs, if it has any. Otherwise they use the CPUs of the vCPUs that have no
/// realtime scheduler.
fn emulator(host: &HostTopology, guest: &GuestTopology, fitted: &Fitted) -> Cpus {
    match guest.emulator_policy {
        Some(EmulatorPolicy::Isolate) => {
            fitted.cells.iter().flat_map(|cell| cell.emulator.iter().copied()).collect()
        }
        Some(EmulatorPolicy::Share) => {
            let all: Cpus =
                host.cells.iter().flat_map(|cell| cell.shared.iter().copied()).collect();
            if all.is_empty() { of_vcpus(host, guest, fitted) } else { all }
        }
        None => of_vcpus(host, guest, fitted),
    }
}

fn of_vcpus(host: &HostTopology, guest: &GuestTopology, fitted: &Fitted) -> Cpus {
    let mut cpus = Cpus::new();
    for cell in &fitted.cells {
        let pins = cell.pins.iter().filter(|(id, _)| !guest.realtime.contains(id));
        cpus.extend(pins.map(|(_, cpu)| *cpu));
        if !cell.shared.is_empty() {
            cpus.extend(shared(host, cell));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use kilonova_topology::{Devices, HostCell, Pages, Strategy, fit};

    use super::*;
    use crate::numa::requested;
    use crate::resolve::empty_flavor;

    fn host() -> HostTopology {
        let cell = |id: u32, shared: [u32; 2], dedicated: std::ops::Range<u32>| HostCell {
            id,
            shared: shared.into(),
            dedicated: dedicated.collect(),
            memory_mb: 8192,
            pages: vec![
                Pages { size_kib: 4, total: 1_048_576, reserved: 0, used: 0 },
                Pages { size_kib: 2048, total: 2048, reserved: 0, used: 0 },
            ],
            ..HostCell::default()
        };
        HostTopology { cells: vec![cell(0, [0, 1], 2..8), cell(1, [10, 11], 12..18)] }
    }

    fn document(specs: &[(&str, &str)]) -> GuestNuma {
        let mut flavor = empty_flavor();
        (flavor.vcpus, flavor.ram) = (4, 2048);
        let specs = specs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        flavor.extra_specs = specs.collect();
        let guest = requested(&flavor, &Default::default()).topology.expect("a topology");
        let fitted = fit(&host(), &guest, None, Strategy::Spread, &Devices::default());
        of(&host(), &guest, &fitted.expect("the guest fits"))
    }

    fn cpus(numa: &GuestNuma) -> Vec<(u32, String)> {
        let all = numa.cells.iter().flat_map(|cell| &cell.vcpus);
        all.map(|vcpu| (vcpu.id, vcpu.cpus.clone())).collect()
    }

    #[test]
    fn dedicated_vcpus_have_a_cpu_each_and_shared_ones_those_of_their_cell() {
        let pinned = document(&[("hw:cpu_policy", "dedicated"), ("hw:mem_page_size", "large")]);
        assert_eq!(cpus(&pinned), [(0, "2"), (1, "3"), (2, "4"), (3, "5")].map(own));
        assert_eq!((&*pinned.emulator, pinned.cells[0].page_kib), ("2-5", Some(2048)));
        let spread = document(&[("hw:numa_nodes", "2")]);
        assert_eq!(cpus(&spread), [(0, "0-1"), (1, "0-1"), (2, "10-11"), (3, "10-11")].map(own));
        assert_eq!((&*spread.emulator, spread.cells[1].page_kib), ("0-1,10-11", None));
        let mixed = document(&[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "1,3")]);
        assert_eq!(cpus(&mixed), [(0, "0-1"), (1, "2"), (2, "0-1"), (3, "3")].map(own));
        assert_eq!(mixed.emulator, "0-3");
    }

    #[test]
    fn the_emulator_runs_where_its_policy_says() {
        let policy = |value| ("hw:emulator_threads_policy", value);
        let dedicated = ("hw:cpu_policy", "dedicated");
        assert_eq!(document(&[dedicated, policy("isolate")]).emulator, "6");
        assert_eq!(document(&[dedicated, policy("share")]).emulator, "0-1,10-11");
        let realtime =
            document(&[dedicated, ("hw:cpu_realtime", "yes"), ("hw:cpu_realtime_mask", "^0")]);
        assert_eq!((&*realtime.emulator, &*realtime.realtime), ("2", "1-3"));
    }

    fn own((id, cpus): (u32, &str)) -> (u32, String) {
        (id, cpus.to_owned())
    }
}
