//! The host CPUs of a guest: those that guests share, and of them those close to its devices.

use std::collections::BTreeSet;

use kilonova_devices::Sysfs;
use kilonova_hypervisor::Definition;
use kilonova_node_api::Attachment;

use kilonova_topology::{Cpus, format_cpus, parse_cpus};

use crate::xml::NumaPlacement;

const NODES: &str = "devices/system/node";
/// CPU numbers from here on are no CPU of any host.
const MOST_CPUS: u32 = 1 << 16;

/// The CPUs and the memory node of a guest. With `shared` it never has other CPUs; nearness chooses
/// among them.
pub(crate) fn numa_placement(
    sysfs: &dyn Sysfs,
    definition: &Definition,
    shared: Option<&Cpus>,
) -> NumaPlacement {
    let near = near(sysfs, definition);
    let Some(shared) = shared else { return near };
    let list = near.cpus.as_deref().and_then(|list| parse_cpus(list, MOST_CPUS).ok());
    let both: Option<Cpus> = list.map(|list| list.intersection(shared).copied().collect());
    let cpus = both.as_ref().filter(|both| !both.is_empty()).unwrap_or(shared);
    NumaPlacement { cpus: Some(format_cpus(cpus)), node: near.node }
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
    NumaPlacement { node: only.filter(|_| cpus.is_some()), cpus }
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
            "there is one node"
        );
        write("devices/system/node/node1/cpulist", "8-15\n");
        write("devices/system/node/possible", "0-1\n");
        let near = NumaPlacement { cpus: Some("8-15".into()), node: Some(1) };
        assert_eq!(numa_placement(&sysfs, &guest, None), near);
        guest.config.devices.push(Attachment::Pci { address: "0000:85:00.0".into() });
        assert_eq!(numa_placement(&sysfs, &guest, None), near, "a device that is near no node");
        guest.config.devices.push(Attachment::Pci { address: "0000:84:00.0".into() });
        let both = NumaPlacement { cpus: Some("0-7,8-15".into()), node: None };
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
}
