//! PCI expander buses, which place each device of a guest with NUMA cells at its cell.
//!
//! A guest derives the NUMA node of a device from its root bus. QEMU's main root bus has no node; an expander bus has
//! one. Each device with a cell is behind its own root port on the expander bus of that cell. Below an expander bus, a
//! device can be hot-plugged only into such a port. No port is left free there, because libvirt would assign it to any
//! other device.
//!
//! All other devices, and those that are plugged later, have root ports on the main bus. These ports are listed too: in
//! a guest with expander buses, libvirt adds only one per device, without the free port that other guests have. They
//! have the first indexes, so that these devices have the addresses that they would have without expander buses.
//!
//! Only machine type `q35` has such buses. With other types, such as `pc`, the guest sees no cell for a device.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_hypervisor::Definition;
use kilonova_node_api::{Attachment, GuestNuma};
use roxmltree::{Document, Node};

use super::element::Element;

const EXPANDER: &str = "pcie-expander-bus";
const PORT: &str = "pcie-root-port";
/// Slots of the main bus for expander buses. libvirt itself assigns slots from the lowest one up, and fixed devices
/// have higher slots than these.
const SLOTS: std::ops::Range<u32> = 0x10..0x1a;
/// Ports of an expander bus: its slots.
const PORTS: usize = 32;
/// The bus numbers for expander buses. The guest numbers the buses behind the main bus upwards from the lowest number,
/// and those behind an expander bus upwards from its own number. The numbers below this range are for the main bus.
const BUSES: std::ops::Range<u32> = 64..256;
/// Expander buses begin at multiples of this number.
const STEP: u32 = 8;

/// The expander buses of a guest.
#[derive(Debug, Default)]
pub(super) struct Expanders {
    /// The main bus with its ports, the expander buses and their ports.
    pub controllers: Vec<Element>,
    /// The bus of each device, by its key: the index of its port.
    buses: BTreeMap<String, u32>,
}

impl Expanders {
    /// The expander buses that the guest's devices need, in addition to `main_ports` ports on the main bus. Devices
    /// beyond the limits have no expander bus. `controllers` is empty for a guest without expander buses.
    pub(super) fn of(definition: &Definition, machine_type: &str, main_ports: u32) -> Self {
        let mut expanders = Self::default();
        let Some(numa) = definition.config.numa.as_deref() else { return expanders };
        if !machine_type.contains("q35") {
            return expanders;
        }
        let (mut index, mut end) = (main_ports + 1, BUSES.end);
        let mut slots = SLOTS;
        for (cell, devices) in by_cell(numa, &definition.config.devices) {
            let buses = u32::try_from(devices.len() + 1).unwrap_or(u32::MAX);
            let Some(number) = end.checked_sub(buses.next_multiple_of(STEP)) else { break };
            let Some(slot) = slots.next().filter(|_| number >= BUSES.start) else { break };
            end = number;
            expanders.add(cell, number, slot, &devices, &mut index);
        }
        if !expanders.buses.is_empty() {
            let ports = (1..=main_ports).map(|port| controller(port, PORT));
            let main = std::iter::once(controller(0, "pcie-root")).chain(ports);
            expanders.controllers.splice(0..0, main);
        }
        expanders
    }

    /// Adds the expander bus of a cell with a port for each device.
    fn add(&mut self, cell: u32, number: u32, slot: u32, devices: &[String], index: &mut u32) {
        let mut next = || {
            let this = *index;
            *index += 1;
            this
        };
        let expander = next();
        let target = Element::new("target").with("busNr", number);
        let target = target.child(Element::text("node", cell));
        self.controllers.push(controller(expander, EXPANDER).child(target).child(address(0, slot)));
        for (slot, device) in (0..).zip(devices) {
            let port = next();
            self.controllers.push(controller(port, PORT).child(address(expander, slot)));
            self.buses.insert(device.clone(), port);
        }
    }

    /// The guest's address of a device with a cell.
    pub(super) fn address(&self, device: &Attachment) -> Option<Element> {
        if self.buses.is_empty() {
            return None;
        }
        self.buses.get(&device.key()).map(|bus| address(*bus, 0))
    }
}

/// The keys of the devices that the guest sees at each cell, at most as many as an expander bus has ports.
fn by_cell(numa: &GuestNuma, devices: &[Attachment]) -> BTreeMap<u32, Vec<String>> {
    let mut cells: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for device in devices.iter().filter(|device| is_attached(device)) {
        let Some(cell) = numa.cell_of(device) else { continue };
        let keys = cells.entry(cell).or_default();
        if keys.len() < PORTS {
            keys.push(device.key());
        }
    }
    cells
}

/// False for a fake test function, which is never attached to a guest.
fn is_attached(device: &Attachment) -> bool {
    match device {
        Attachment::Mdev { .. } | Attachment::Pci { .. } | Attachment::Vfio { .. } => true,
        Attachment::TestPci { .. } => false,
    }
}

fn controller(index: u32, model: &'static str) -> Element {
    Element::new("controller").with("type", "pci").with("index", index).with("model", model)
}

fn address(bus: u32, slot: u32) -> Element {
    Element::new("address")
        .with("type", "pci")
        .with("domain", "0x0000")
        .with("bus", format_args!("0x{bus:02x}"))
        .with("slot", format_args!("0x{slot:02x}"))
        .with("function", "0x0")
}

/// The free ports of a running guest's expander buses, by cell. The ports of a guest that an earlier build defined, or
/// that migrated from another host, may differ from those of its definition.
#[derive(Debug, Default)]
pub(super) struct FreePorts(BTreeMap<u32, BTreeSet<u32>>);

impl FreePorts {
    /// The free ports in a running domain's XML.
    pub(super) fn of(running: &str) -> Self {
        let Ok(document) = Document::parse(running) else { return Self::default() };
        let is_devices = |node: &Node<'_, '_>| node.has_tag_name("devices");
        let Some(devices) = document.root_element().children().find(is_devices) else {
            return Self::default();
        };
        let controllers = |model: &'static str| {
            let all = devices.children().filter(|node| node.has_tag_name("controller"));
            all.filter(move |node| node.attribute("model") == Some(model))
        };
        let index = |node: Node<'_, '_>| node.attribute("index")?.parse::<u32>().ok();
        let cell = |node: Node<'_, '_>| {
            let target = child(node, "target")?;
            child(target, "node")?.text()?.trim().parse::<u32>().ok()
        };
        let cells: BTreeMap<u32, u32> =
            controllers(EXPANDER).filter_map(|node| Some((index(node)?, cell(node)?))).collect();
        let occupied: BTreeSet<u32> = devices.children().filter_map(bus).collect();
        let mut free: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for port in controllers(PORT) {
            let (Some(own), Some(parent)) = (index(port), bus(port)) else { continue };
            if let Some(cell) = cells.get(&parent).filter(|_| !occupied.contains(&own)) {
                free.entry(*cell).or_default().insert(own);
            }
        }
        Self(free)
    }

    /// Takes a free port of a cell and returns its address.
    pub(super) fn take(&mut self, cell: u32) -> Option<Element> {
        self.0.get_mut(&cell)?.pop_first().map(|bus| address(bus, 0))
    }
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// The bus of a device's own address.
fn bus(device: Node<'_, '_>) -> Option<u32> {
    let address = child(device, "address")?;
    if address.attribute("type") != Some("pci") {
        return None;
    }
    u32::from_str_radix(address.attribute("bus")?.trim_start_matches("0x"), 16).ok()
}

#[cfg(test)]
#[path = "expanders_tests.rs"]
mod tests;
