//! The NUMA cells of a host: CPUs, cores, sockets, memory by page size, distances.
//!
//! `[compute] cpu_shared_set` and `cpu_dedicated_set` divide the CPUs as in Nova: without either, all
//! are shared; with only a dedicated set, none is.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_node_api::{NumaCell, NumaPages};
use kilonova_topology::{Cpus, PageSize, format_cpus, parse_cpus};

use crate::{Error, Sysfs};

const NODES: &str = "devices/system/node";
const CPUS: &str = "devices/system/cpu";
/// No host has a CPU with this number or a higher one.
const MOST_CPUS: u32 = 1 << 16;
const RESERVED_SYNTAX: &str = "expected node:N,size:KIB,count:N, such as node:0,size:2048,count:64";

/// The options for a host's CPUs and memory pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellOptions {
    /// `[compute] cpu_shared_set`.
    shared: Option<Cpus>,
    /// `[compute] cpu_dedicated_set`.
    dedicated: Option<Cpus>,
    /// `[DEFAULT] reserved_huge_pages`: pages by node and size in KiB.
    reserved: BTreeMap<(u32, u64), u64>,
    /// The size of the kernel's own pages, KiB; 0 is 4.
    page_kib: u64,
}

impl CellOptions {
    /// Reads the options. `page_kib` is the size of the kernel's own pages.
    ///
    /// # Errors
    /// Option and reason.
    pub fn new(
        shared: Option<&str>,
        dedicated: Option<&str>,
        reserved: &[String],
        page_kib: u64,
    ) -> Result<Self, (&'static str, String)> {
        let set = |option: &'static str, text: Option<&str>| match text {
            None => Ok(None),
            Some(text) => match parse_cpus(text, MOST_CPUS) {
                Ok(cpus) if cpus.is_empty() => Err((option, "it names no CPU".to_owned())),
                Ok(cpus) => Ok(Some(cpus)),
                Err(error) => Err((option, error.to_string())),
            },
        };
        let shared = set("cpu_shared_set", shared)?;
        let dedicated = set("cpu_dedicated_set", dedicated)?;
        if let (Some(shared), Some(dedicated)) = (&shared, &dedicated)
            && !shared.is_disjoint(dedicated)
        {
            let why = "it has CPUs of cpu_shared_set: the two must be disjoint".to_owned();
            return Err(("cpu_dedicated_set", why));
        }
        let mut pages = BTreeMap::new();
        for text in reserved {
            let (node, size, count) = reserved_pages(text)
                .ok_or_else(|| ("reserved_huge_pages", RESERVED_SYNTAX.to_owned()))?;
            pages.insert((node, size), count);
        }
        Ok(Self { shared, dedicated, reserved: pages, page_kib })
    }

    /// The shared CPUs, if they are configured.
    pub fn shared(&self) -> Option<&Cpus> {
        self.shared.as_ref()
    }

    /// The dedicated CPUs, if they are configured.
    pub fn dedicated(&self) -> Option<&Cpus> {
        self.dedicated.as_ref()
    }

    /// The cells of a host. An option that names CPUs or pages which the host does not have is a problem, not an error:
    /// a CPU may go offline, and its host must stay managed.
    ///
    /// # Errors
    /// If sysfs cannot be read.
    pub fn read(&self, sysfs: &dyn Sysfs) -> Result<FoundCells, Error> {
        let names = sysfs.list(NODES).unwrap_or_default();
        let number = |name: &String| name.strip_prefix("node")?.parse::<u32>().ok();
        let ids: BTreeSet<u32> = names.iter().filter_map(number).collect();
        let mut problems = Vec::new();
        if ids.is_empty() {
            if self.shared.is_some() || self.dedicated.is_some() {
                problems.push(
                    "The kernel reports no NUMA nodes, so [compute] cpu_shared_set and cpu_dedicated_set do not \
                     divide the CPUs in Placement."
                        .to_owned(),
                );
            }
            return Ok(FoundCells { cells: None, problems });
        }
        let mut nodes = BTreeMap::new();
        for id in ids {
            nodes.insert(id, cpus(sysfs, &format!("{NODES}/node{id}/cpulist"))?);
        }
        let online: Cpus = nodes.values().flatten().copied().collect();
        for (option, set) in
            [("cpu_dedicated_set", &self.dedicated), ("cpu_shared_set", &self.shared)]
        {
            if let Some(set) = set.as_ref().filter(|set| !set.is_subset(&online)) {
                problems.push(format!(
                    "Invalid '{option}' config: one or more of the configured CPUs is not online. \
                     Online cpuset(s): {}, configured cpuset(s): {}",
                    format_cpus(&online),
                    format_cpus(set)
                ));
            }
        }
        if self.shared.is_none() && self.dedicated.is_some() {
            problems.push(
                "[compute] cpu_dedicated_set without cpu_shared_set leaves no VCPU: this host takes only guests whose \
                 CPUs are all dedicated. Set cpu_shared_set too for other guests."
                    .to_owned(),
            );
        }
        let cells = nodes.iter().map(|(id, cpus)| self.cell(sysfs, *id, cpus));
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        problems.extend(self.missing_pages(&cells));
        Ok(FoundCells { cells: Some(cells), problems })
    }

    fn cell(&self, sysfs: &dyn Sysfs, id: u32, online: &Cpus) -> Result<NumaCell, Error> {
        let of = |set: &Option<Cpus>| -> Cpus {
            set.iter().flatten().filter(|cpu| online.contains(cpu)).copied().collect()
        };
        let shared = match (&self.shared, &self.dedicated) {
            (None, None) => online.clone(),
            (shared, _) => of(shared),
        };
        let mut cores: BTreeSet<Cpus> = BTreeSet::new();
        let mut sockets = BTreeSet::new();
        for cpu in online {
            let topology = format!("{CPUS}/cpu{cpu}/topology");
            let mut threads = match sysfs.exists(&topology) {
                true => cpus(sysfs, &format!("{topology}/thread_siblings_list"))?,
                false => Cpus::new(),
            };
            threads.retain(|thread| online.contains(thread));
            threads.insert(*cpu);
            cores.insert(threads);
            let socket = sysfs.read(&format!("{topology}/physical_package_id")).ok();
            sockets.insert(socket.and_then(|text| text.trim().parse::<u32>().ok()));
        }
        let mut sockets = sockets.into_iter();
        let socket = sockets.next().flatten().filter(|_| sockets.next().is_none());
        let memory_kib = memory_kib(sysfs, id)?;
        let distances = sysfs.read(&format!("{NODES}/node{id}/distance")).unwrap_or_default();
        Ok(NumaCell {
            id,
            shared: format_cpus(&shared),
            dedicated: format_cpus(&of(&self.dedicated)),
            cores: cores.iter().map(format_cpus).collect(),
            socket,
            memory_mb: memory_kib / 1024,
            pages: self.pages(sysfs, id, memory_kib),
            distances: distances.split_whitespace().map_while(|far| far.parse().ok()).collect(),
        })
    }

    /// The pages of a node: large ones as the kernel has allocated them, and its own for the rest of
    /// the memory.
    fn pages(&self, sysfs: &dyn Sysfs, node: u32, memory_kib: u64) -> Vec<NumaPages> {
        let folder = format!("{NODES}/node{node}/hugepages");
        let own = if self.page_kib == 0 { 4 } else { self.page_kib };
        let mut large = BTreeMap::new();
        for name in sysfs.list(&folder).unwrap_or_default() {
            let size = name.strip_prefix("hugepages-").and_then(|name| name.strip_suffix("kB"));
            let Some(size) = size.and_then(|size| size.parse::<u64>().ok()) else { continue };
            let total = sysfs.read(&format!("{folder}/{name}/nr_hugepages")).ok();
            if let Some(total) = total.and_then(|total| total.trim().parse::<u64>().ok())
                && size > own
            {
                large.insert(size, total);
            }
        }
        let in_large = large.iter().map(|(size, total)| size.saturating_mul(*total));
        let rest = memory_kib.saturating_sub(in_large.fold(0, u64::saturating_add));
        let all = std::iter::once((own, rest / own)).chain(large);
        let reserved = |size| self.reserved.get(&(node, size)).copied().unwrap_or(0);
        all.map(|(size_kib, total)| NumaPages {
            size_kib,
            total,
            reserved: reserved(size_kib).min(total),
        })
        .collect()
    }

    /// A problem for each node and page size with fewer pages than configured as reserved. Existing ones are reserved.
    fn missing_pages(&self, cells: &[NumaCell]) -> Vec<String> {
        let missing = |((node, size), count): (&(u32, u64), &u64)| {
            let pages = cells.iter().filter(|cell| cell.id == *node).flat_map(|cell| &cell.pages);
            let total = pages.filter(|pages| pages.size_kib == *size).map(|pages| pages.total);
            let total = total.sum::<u64>();
            (total < *count).then(|| {
                format!(
                    "Invalid 'reserved_huge_pages' config: NUMA node {node} has {total} pages of {size} KiB, fewer than \
                     the {count} reserved ones. Allocate them (/sys/{NODES}/node{node}/hugepages), or reserve fewer."
                )
            })
        };
        self.reserved.iter().filter_map(missing).collect()
    }
}

/// The NUMA cells of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCells {
    /// By number; `None` if the kernel reports none.
    pub cells: Option<Vec<NumaCell>>,
    /// The options that the host does not match, in sentences.
    pub problems: Vec<String>,
}

/// True if a core of some cell has several threads.
pub fn has_threads(cells: &[NumaCell]) -> bool {
    cells.iter().flat_map(|cell| &cell.cores).any(|core| core.contains([',', '-']))
}

fn cpus(sysfs: &dyn Sysfs, path: &str) -> Result<Cpus, Error> {
    let read = sysfs.read(path);
    let text = read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    parse_cpus(&text, MOST_CPUS)
        .map_err(|_| Error::Content { path: path.to_owned(), content: text.clone() })
}

/// `Node 0 MemTotal:       16318412 kB`
fn memory_kib(sysfs: &dyn Sysfs, node: u32) -> Result<u64, Error> {
    let path = format!("{NODES}/node{node}/meminfo");
    let text = match sysfs.read(&path) {
        Ok(text) => text,
        Err(source) => return Err(Error::Read { path, source }),
    };
    let total = text.lines().find_map(|line| {
        let (_, total) = line.split_once("MemTotal:")?;
        total.trim().strip_suffix("kB")?.trim().parse().ok()
    });
    total.ok_or(Error::Content { path, content: text })
}

/// `node:0,size:2048,count:64`: the node, the size in KiB and the number.
fn reserved_pages(text: &str) -> Option<(u32, u64, u64)> {
    let mut fields = BTreeMap::new();
    for field in text.split(',') {
        let (name, value) = field.split_once(':')?;
        fields.insert(name.trim(), value.trim());
    }
    let PageSize::Bytes(size) = PageSize::parse(fields.remove("size")?)? else { return None };
    let node = fields.remove("node")?.parse().ok()?;
    let count = fields.remove("count")?.parse().ok()?;
    (fields.is_empty() && size > 0 && size % 1024 == 0).then_some((node, size / 1024, count))
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
