//! The elements of a guest with NUMA cells: host CPUs, memory nodes, pages, and the guest's own cells.

use std::collections::BTreeMap;

use kilonova_node_api::{GuestNuma, GuestNumaCell};
use kilonova_topology::{Cpus, format_cpus};

use super::element::Element;

/// `<memoryBacking>`: large pages and locked memory; `None` if the guest has neither.
pub(super) fn memory_backing(numa: &GuestNuma) -> Option<Element> {
    let mut sizes: BTreeMap<u64, Cpus> = BTreeMap::new();
    for (number, cell) in (0_u32..).zip(&numa.cells) {
        if let Some(size) = cell.page_kib {
            sizes.entry(size).or_default().insert(number);
        }
    }
    let is_realtime = !numa.realtime.is_empty();
    if sizes.is_empty() && !is_realtime && !numa.locked_memory {
        return None;
    }
    let mut backing = Element::new("memoryBacking");
    if !sizes.is_empty() {
        let pages = sizes.iter().map(|(size, cells)| {
            Element::new("page")
                .with("size", size)
                .with("unit", "KiB")
                .with("nodeset", format_cpus(cells))
        });
        backing.push(Element::new("hugepages").children(pages));
    }
    if is_realtime {
        backing.push(Element::new("nosharepages"));
    }
    if is_realtime || numa.locked_memory {
        backing.push(Element::new("locked"));
    }
    Some(backing)
}

/// `<cputune>`: the host CPUs of each vCPU and of the emulator's threads.
pub(super) fn cputune(numa: &GuestNuma, realtime_priority: u32) -> Element {
    let mut vcpus: Vec<_> = numa.cells.iter().flat_map(|cell| &cell.vcpus).collect();
    vcpus.sort_by_key(|vcpu| vcpu.id);
    let mut tune = Element::new("cputune");
    for vcpu in vcpus.iter().filter(|vcpu| !vcpu.cpus.is_empty()) {
        tune.push(Element::new("vcpupin").with("vcpu", vcpu.id).with("cpuset", &vcpu.cpus));
    }
    if !numa.emulator.is_empty() {
        tune.push(Element::new("emulatorpin").with("cpuset", &numa.emulator));
    }
    if !numa.realtime.is_empty() {
        let scheduler = Element::new("vcpusched")
            .with("vcpus", &numa.realtime)
            .with("scheduler", "fifo")
            .with("priority", realtime_priority);
        tune.push(scheduler);
    }
    tune
}

/// `<numatune>`: the host nodes of the memory, for the guest and for each of its cells.
pub(super) fn numatune(numa: &GuestNuma) -> Element {
    let hosts: Cpus = numa.cells.iter().map(|cell| cell.host).collect();
    let memory = Element::new("memory").with("mode", "strict").with("nodeset", format_cpus(&hosts));
    let cells = numa.cells.iter().enumerate().map(|(number, cell)| {
        Element::new("memnode")
            .with("cellid", number)
            .with("mode", "strict")
            .with("nodeset", cell.host)
    });
    Element::new("numatune").child(memory).children(cells)
}

/// `<numa>` of the CPU: the cells that the guest sees, and the distances between them.
pub(super) fn cells(numa: &GuestNuma, distances: &[Vec<u32>]) -> Element {
    let cells = numa.cells.iter().enumerate().map(|(number, cell)| {
        let element = Element::new("cell")
            .with("id", number)
            .with("cpus", vcpus(cell))
            .with("memory", cell.memory_mb.saturating_mul(1024))
            .with("unit", "KiB");
        // As upstream: vhost-user processes map a guest's large pages.
        let element = element.with_some("memAccess", cell.page_kib.map(|_| "shared"));
        element.children(distances.get(number).map(|row| siblings(row)))
    });
    Element::new("numa").children(cells)
}

fn siblings(distances: &[u32]) -> Element {
    let siblings = distances.iter().enumerate().map(|(number, distance)| {
        Element::new("sibling").with("id", number).with("value", distance)
    });
    Element::new("distances").children(siblings)
}

fn vcpus(cell: &GuestNumaCell) -> String {
    let ids = cell.vcpus.iter().map(|vcpu| vcpu.id).collect();
    format_cpus(&ids)
}
