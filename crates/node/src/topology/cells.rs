//! The NUMA cells of a simulated host.

use std::collections::BTreeMap;

use kilonova_node_api::{NumaCell, NumaPages};
use kilonova_topology::{Cpus, format_cpus, parse_cpus};

use super::file::{CellEntry, HostEntry};
use super::read::Refusal;

/// The size of the kernel's base pages in KiB.
const OWN_PAGES: u64 = 4;
const MOST_CPUS: u32 = 4096;

/// The cells of a host, in the order of the file; `None` if it has none.
pub(super) fn cells(key: &str, host: &HostEntry) -> Result<Option<Vec<NumaCell>>, Refusal> {
    if host.numa.is_empty() {
        return Ok(None);
    }
    let mut seen = Cpus::new();
    let mut cells = Vec::new();
    for (place, entry) in host.numa.iter().enumerate() {
        let key = format!("{key}.numa[{place}]");
        let mut all = Cpus::new();
        let mut list = |field: &str, text: &str| {
            let field = format!("{key}.{field}");
            let cpus = parse_cpus(text, MOST_CPUS).map_err(|e| (field.clone(), e.to_string()))?;
            if let Some(cpu) = cpus.iter().find(|cpu| !seen.insert(**cpu)) {
                return Err((field, format!("CPU {cpu} is named twice")));
            }
            all.extend(&cpus);
            Ok(format_cpus(&cpus))
        };
        let (shared, dedicated) =
            (list("shared", &entry.shared)?, list("dedicated", &entry.dedicated)?);
        let threads = usize::try_from(entry.threads).unwrap_or(usize::MAX);
        if threads == 0 {
            return Err((format!("{key}.threads"), "it must be at least 1".to_owned()));
        }
        let ordered: Vec<u32> = all.into_iter().collect();
        let core = |cpus: &[u32]| format_cpus(&cpus.iter().copied().collect());
        let distances = distances(&key, entry, place, host.numa.len())?;
        cells.push(NumaCell {
            id: u32::try_from(place).unwrap_or(u32::MAX),
            shared,
            dedicated,
            cores: ordered.chunks(threads).map(core).collect(),
            socket: entry.socket,
            memory_mb: entry.memory_mb,
            pages: pages(&key, entry)?,
            distances,
        });
    }
    let cpus = i64::try_from(seen.len()).unwrap_or(i64::MAX);
    if cpus != host.vcpus {
        let why = format!("the cells have {cpus} CPUs, but vcpus is {}", host.vcpus);
        return Err((format!("{key}.numa"), why));
    }
    let memory = host.numa.iter().fold(0, |sum: u64, cell| sum.saturating_add(cell.memory_mb));
    if i64::try_from(memory) != Ok(host.memory_mb) {
        let why = format!("the cells have {memory} MB, but memory_mb is {}", host.memory_mb);
        return Err((format!("{key}.numa"), why));
    }
    Ok(Some(cells))
}

fn distances(key: &str, entry: &CellEntry, own: usize, many: usize) -> Result<Vec<u32>, Refusal> {
    if entry.distances.is_empty() {
        return Ok((0..many).map(|other| if other == own { 10 } else { 20 }).collect());
    }
    if entry.distances.len() != many {
        return Err((
            format!("{key}.distances"),
            format!("it must have one value for each of the {many} cells"),
        ));
    }
    Ok(entry.distances.clone())
}

/// The large pages, and base pages for the rest of the memory.
fn pages(key: &str, entry: &CellEntry) -> Result<Vec<NumaPages>, Refusal> {
    let read = |field: &str, counts: &BTreeMap<String, u64>| {
        let mut pages = BTreeMap::new();
        for (size, count) in counts {
            let size = size.parse::<u64>().ok().filter(|size| *size >= OWN_PAGES);
            let why =
                || (format!("{key}.{field}"), "sizes are numbers of KiB, 4 or more".to_owned());
            pages.insert(size.ok_or_else(why)?, *count);
        }
        Ok::<_, Refusal>(pages)
    };
    let (large, reserved) =
        (read("pages", &entry.pages)?, read("reserved_pages", &entry.reserved_pages)?);
    let in_large = large.iter().map(|(size, count)| size.saturating_mul(*count));
    let in_large = in_large.fold(0, u64::saturating_add);
    let memory = entry.memory_mb.saturating_mul(1024);
    let rest = memory.checked_sub(in_large).ok_or_else(|| {
        (format!("{key}.pages"), "the pages are larger than the memory".to_owned())
    })?;
    let all = std::iter::once((OWN_PAGES, rest / OWN_PAGES));
    let all = all.chain(large.into_iter().filter(|(size, _)| *size > OWN_PAGES));
    let pages = all.map(|(size_kib, total)| {
        let reserved = reserved.get(&size_kib).copied().unwrap_or(0).min(total);
        NumaPages { size_kib, total, reserved }
    });
    Ok(pages.collect())
}
