//! The host CPUs of a guest: the shared ones and, among them, those close to its devices. For a guest with cells, the
//! distances between the cells' nodes.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_devices::Sysfs;
use kilonova_hypervisor::Definition;
use kilonova_node_api::{Attachment, GuestNuma, GuestNumaCell};

use kilonova_topology::{Cpus, format_cpus, parse_cpus};

use crate::xml::NumaPlacement;

const NODES: &str = "devices/system/node";
/// Every host CPU has a number below this one.
const MOST_CPUS: u32 = 1 << 16;

/// The CPUs and the memory node of a guest. With `shared`, the guest gets only CPUs of that set, those
/// close to its devices if there are any.
pub(crate) fn numa_placement(
    sysfs: &dyn Sysfs,
    definition: &Definition,
    shared: Option<&Cpus>,
) -> NumaPlacement {
    if let Some(numa) = definition.config.numa.as_deref() {
        return NumaPlacement { distances: distances(sysfs, numa), ..NumaPlacement::default() };
    }
    let near = near(sysfs, definition);
    let Some(shared) = shared else { return near };
    let list = near.cpus.as_deref().and_then(|list| parse_cpus(list, MOST_CPUS).ok());
    let both: Option<Cpus> = list.map(|list| list.intersection(shared).copied().collect());
    let cpus = both.as_ref().filter(|both| !both.is_empty()).unwrap_or(shared);
    NumaPlacement { cpus: Some(format_cpus(cpus)), node: near.node, ..NumaPlacement::default() }
}

/// The distances between the nodes of a guest's cells. Empty if the guest has fewer than two cells, or if libvirt would
/// refuse the kernel's distances: it requires 10 from a cell to itself and 11 to 255 to another cell.
fn distances(sysfs: &dyn Sysfs, numa: &GuestNuma) -> Vec<Vec<u32>> {
    if numa.cells.len() < 2 {
        return Vec::new();
    }
    let nodes: BTreeSet<u32> = sysfs
        .list(NODES)
        .unwrap_or_default()
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse().ok())
        .collect();
    let row = |from: u32| -> Option<BTreeMap<u32, u32>> {
        let text = sysfs.read(&format!("{NODES}/node{from}/distance")).ok()?;
        let row: Option<Vec<u32>> = text.split_whitespace().map(|one| one.parse().ok()).collect();
        let row = row.filter(|row| row.len() == nodes.len())?;
        Some(nodes.iter().copied().zip(row).collect())
    };
    let of_cell = |(place, cell): (usize, &GuestNumaCell)| -> Option<Vec<u32>> {
        let row = row(cell.host)?;
        let to = numa.cells.iter().enumerate().map(|(other, cell)| {
            let distance = *row.get(&cell.host)?;
            let allowed = if other == place { 10..=10 } else { 11..=255 };
            allowed.contains(&distance).then_some(distance)
        });
        to.collect()
    };
    let rows: Option<Vec<_>> = numa.cells.iter().enumerate().map(of_cell).collect();
    rows.unwrap_or_default()
}

/// The CPUs and the memory node close to a guest's devices. Empty on a host with one node, or if no
/// device reports a node.
fn near(sysfs: &dyn Sysfs, definition: &Definition) -> NumaPlacement {
    let is_node = |name: &&String| name.strip_prefix("node").is_some_and(is_number);
    if sysfs.list(NODES).unwrap_or_default().iter().filter(is_node).count() < 2 {
        return NumaPlacement::default();
    }
    let near: BTreeSet<i64> =
        definition.config.devices.iter().filter_map(|device| node(sysfs, device)).collect();
    let cpus: Option<Vec<String>> =
        near.iter().map(|node| sysfs.read(&format!("{NODES}/node{node}/cpulist")).ok()).collect();
    let cpus = cpus.map(|lists| lists.join(",")).filter(|list| !list.is_empty());
    let only = if near.len() == 1 { near.first().copied() } else { None };
    NumaPlacement { node: only.filter(|_| cpus.is_some()), cpus, ..NumaPlacement::default() }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn node(sysfs: &dyn Sysfs, device: &Attachment) -> Option<i64> {
    let address = match device {
        Attachment::Mdev { parent, .. } => parent,
        Attachment::Pci { address } | Attachment::Vfio { address, .. } => address,
        Attachment::TestPci { .. } => return None,
    };
    let node = sysfs.read(&format!("bus/pci/devices/{address}/numa_node")).ok()?;
    node.trim().parse().ok().filter(|node| *node >= 0)
}

#[cfg(test)]
mod tests {
    use kilonova_devices::Directory;

    use super::*;
    use crate::xml::tests::definition;

    #[test]
    fn guests_are_placed_near_their_devices() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("the path has a parent"))
                .expect("the directory is created");
            std::fs::write(path, text).expect("the file is written");
        };
        let sysfs = Directory(folder.path().to_owned());
        let mut guest = definition();
        guest.config.devices = vec![Attachment::Pci { address: "0000:0c:00.0".into() }];
        write("bus/pci/devices/0000:0c:00.0/numa_node", "1\n");
        write("bus/pci/devices/0000:84:00.0/numa_node", "0\n");
        write("bus/pci/devices/0000:85:00.0/numa_node", "-1\n");
        write("devices/system/node/node0/cpulist", "0-7\n");
        assert_eq!(
            numa_placement(&sysfs, &guest, None),
            NumaPlacement::default(),
            "the host has one node"
        );
        write("devices/system/node/node1/cpulist", "8-15\n");
        write("devices/system/node/possible", "0-1\n");
        let near = NumaPlacement { cpus: Some("8-15".into()), node: Some(1), distances: vec![] };
        assert_eq!(numa_placement(&sysfs, &guest, None), near);
        guest.config.devices.push(Attachment::Pci { address: "0000:85:00.0".into() });
        assert_eq!(numa_placement(&sysfs, &guest, None), near, "the device has no node");
        guest.config.devices.push(Attachment::Pci { address: "0000:84:00.0".into() });
        let both = NumaPlacement { cpus: Some("0-7,8-15".into()), ..NumaPlacement::default() };
        assert_eq!(numa_placement(&sysfs, &guest, None), both);
        let within = |guest: &Definition, list: &str| {
            let shared = parse_cpus(list, 64).expect("the list is valid");
            let placement = numa_placement(&sysfs, guest, Some(&shared));
            (placement.cpus.expect("the guest has CPUs"), placement.node)
        };
        assert_eq!(within(&guest, "6-9,20"), ("6-9".to_owned(), None));
        guest.config.devices.pop();
        assert_eq!(within(&guest, "6-9,20"), ("8-9".to_owned(), Some(1)), "the near ones");
        assert_eq!(within(&guest, "2-3"), ("2-3".to_owned(), Some(1)), "none is near");
        guest.config.devices.clear();
        assert_eq!(numa_placement(&sysfs, &guest, None), NumaPlacement::default());
        assert_eq!(within(&guest, "0-1,4"), ("0-1,4".to_owned(), None));
    }

    #[test]
    fn the_distances_of_a_guest_are_those_of_its_nodes() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let write = |node: u32, text: &str| {
            let path = folder.path().join(NODES).join(format!("node{node}"));
            std::fs::create_dir_all(&path).expect("the directory is created");
            std::fs::write(path.join("distance"), text).expect("the file is written");
        };
        write(0, "10 12 32\n");
        write(1, "12 10 32\n");
        write(4, "31 33 10\n");
        let sysfs = Directory(folder.path().to_owned());
        let of = |hosts: &[u32]| {
            let cell = |host: &u32| GuestNumaCell {
                host: *host,
                vcpus: vec![],
                memory_mb: 256,
                page_kib: None,
            };
            let mut guest = definition();
            let cells = hosts.iter().map(cell).collect();
            guest.config.numa = Some(Box::new(GuestNuma { cells, ..GuestNuma::default() }));
            let shared = Cpus::from([0, 1]);
            let placement = numa_placement(&sysfs, &guest, Some(&shared));
            assert_eq!((placement.cpus, placement.node), (None, None), "the cells have CPUs");
            placement.distances
        };
        assert_eq!(of(&[4, 0]), [[10, 31], [32, 10]], "in the guest's order");
        assert_eq!(of(&[1, 0, 4]).len(), 3);
        assert!(of(&[4]).is_empty() && of(&[0, 7]).is_empty(), "no second cell, no such node");
        write(1, "10 10 32\n");
        assert!(of(&[0, 1]).is_empty(), "libvirt refuses 10 for another cell");
        write(1, "12 10\n");
        assert!(of(&[0, 1]).is_empty(), "it is unknown which node is missing");
    }
}
