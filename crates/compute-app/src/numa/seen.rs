//! Maps each device to its guest cell: the guest cell that is placed on the device's NUMA node.
//!
//! A running guest keeps the cell of each device, since its PCI buses cannot change. A live
//! migration therefore needs, for each such device, a device of the same kind on the NUMA node
//! where that guest cell is placed.

use std::collections::BTreeMap;

use kilonova_node_api::{Attachment, GuestNuma};
use kilonova_topology::Cpus;

/// A device that a claim takes, and its NUMA node.
pub(super) type PlacedDevice<'a> = (&'a Attachment, Option<u32>);

/// The guest cell of each device that is on the NUMA node of a guest cell.
pub(super) fn at(guest: &GuestNuma, devices: &[PlacedDevice<'_>]) -> BTreeMap<String, u32> {
    let cell = |(device, node): &PlacedDevice<'_>| {
        let place = guest.cells.iter().position(|cell| Some(cell.host) == *node)?;
        Some((device.key(), u32::try_from(place).ok()?))
    };
    devices.iter().filter_map(cell).collect()
}

/// The current cells and devices of a guest that a live migration moves.
#[derive(Debug, Clone, Copy)]
pub struct RunningGuest<'a> {
    /// Its cells.
    pub numa: &'a GuestNuma,
    /// Its devices.
    pub devices: &'a [Attachment],
}

/// The number of devices of each kind.
type Kinds<'a> = BTreeMap<(&'static str, &'a str), usize>;

impl RunningGuest<'_> {
    /// For each guest cell, the host cells where `devices` has at least as many devices of each
    /// kind as the guest has at that cell; `None` for a guest cell without devices.
    pub(super) fn seen_at(&self, devices: &[PlacedDevice<'_>]) -> Vec<Option<Cpus>> {
        let mut there: BTreeMap<u32, Kinds<'_>> = BTreeMap::new();
        for (device, node) in devices {
            if let Some(node) = node {
                *there.entry(*node).or_default().entry(device.kind()).or_default() += 1;
            }
        }
        let cells = 0..u32::try_from(self.numa.cells.len()).unwrap_or(0);
        let hosts = cells.map(|cell| {
            let mut needs = Kinds::new();
            for device in self.devices.iter().filter(|one| self.numa.cell_of(one) == Some(cell)) {
                *needs.entry(device.kind()).or_default() += 1;
            }
            let has_all = |has: &Kinds<'_>| {
                needs.iter().all(|(kind, count)| has.get(kind).is_some_and(|has| has >= count))
            };
            let nodes = there.iter().filter(|(_, has)| has_all(has)).map(|(node, _)| *node);
            (!needs.is_empty()).then(|| nodes.collect())
        });
        hosts.collect()
    }

    /// The guest cell of each new device. A device that replaces one without a guest cell gets
    /// none.
    pub(super) fn keep(
        &self,
        guest: &GuestNuma,
        devices: &[PlacedDevice<'_>],
    ) -> BTreeMap<String, u32> {
        let near = at(guest, devices);
        let mut kept = BTreeMap::new();
        for device in self.devices {
            let Some(cell) = self.numa.cell_of(device) else { continue };
            let replaces = |(other, _): &&PlacedDevice<'_>| {
                let key = other.key();
                other.kind() == device.kind()
                    && near.get(&key) == Some(&cell)
                    && !kept.contains_key(&key)
            };
            if let Some((other, _)) = devices.iter().find(replaces) {
                kept.insert(other.key(), cell);
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use kilonova_node_api::GuestNumaCell;

    use super::*;

    fn vfio(address: &str, vgpu_type: &str) -> Attachment {
        Attachment::Vfio { address: address.into(), vgpu_type: vgpu_type.into(), instance: None }
    }

    fn guest(hosts: &[u32], devices: &[(&str, u32)]) -> GuestNuma {
        let cell =
            |host: &u32| GuestNumaCell { host: *host, vcpus: vec![], memory_mb: 1, page_kib: None };
        GuestNuma {
            cells: hosts.iter().map(cell).collect(),
            devices: devices.iter().map(|(key, cell)| ((*key).to_owned(), *cell)).collect(),
            ..GuestNuma::default()
        }
    }

    #[test]
    fn a_device_is_at_the_guest_cell_on_its_node() {
        let [a, b, c] = ["a", "b", "c"].map(|address| vfio(address, "t"));
        let placed = [(&a, Some(1)), (&b, Some(5)), (&c, None)];
        let seen = at(&guest(&[0, 1], &[]), &placed);
        assert_eq!(seen, [("a".to_owned(), 1)].into(), "no cell is on node 5");
    }

    #[test]
    fn a_running_guest_keeps_the_cells_of_its_devices() {
        let has = [vfio("a", "t"), vfio("b", "t"), vfio("c", "u"), vfio("d", "t")];
        let numa = guest(&[0, 1, 2], &[("a", 1), ("b", 0), ("c", 1)]);
        let running = RunningGuest { numa: &numa, devices: &has };
        let new = [vfio("e", "t"), vfio("f", "u"), vfio("g", "t"), vfio("h", "t")];
        let placed: Vec<_> = new.iter().zip([Some(4), Some(4), Some(7), Some(4)]).collect();
        let sets = running.seen_at(&placed);
        assert_eq!(sets, [Some(Cpus::from([4, 7])), Some(Cpus::from([4])), None]);
        // Guest cell 0 is on node 7, and guest cell 1 on node 4.
        let kept = running.keep(&guest(&[7, 4, 1], &[]), &placed);
        let cells = [("e", 1), ("f", 1), ("g", 0)].map(|(key, cell)| (key.to_owned(), cell));
        assert_eq!(kept, cells.into(), "the fourth replaces one without a cell");

        let none = guest(&[0, 1], &[]);
        let earlier = RunningGuest { numa: &none, devices: &has };
        assert_eq!(earlier.seen_at(&placed), [None, None], "any cells will do");
        assert_eq!(earlier.keep(&guest(&[7, 4], &[]), &placed), BTreeMap::new());
    }
}
