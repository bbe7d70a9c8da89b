//! Host devices that are passed through to a guest.

use kilonova_hypervisor::Definition;
use kilonova_node_api::Attachment;

use super::element::Element;
use super::expanders::{Expanders, FreePorts};

/// The XML of each host device that a running guest lacks, except network interfaces, one element each. Suspend
/// detaches and reattaches them. A device with a NUMA cell gets a free port of that cell, if the guest has one.
pub(crate) fn missing_hostdevs(
    definition: &Definition,
    running: &str,
    is_attached: impl Fn(&str) -> bool,
) -> Vec<String> {
    let numa = definition.config.numa.as_deref();
    let mut ports = FreePorts::of(running);
    let xml = |device: &Attachment| {
        let hostdev = element(device, None)?;
        if is_attached(&hostdev.to_string()) {
            return None;
        }
        let cell = numa.and_then(|numa| numa.cell_of(device));
        Some(hostdev.children(cell.and_then(|cell| ports.take(cell))).to_string())
    };
    devices(definition).filter_map(xml).collect()
}

pub(super) fn elements<'a>(
    definition: &'a Definition,
    expanders: &'a Expanders,
) -> impl Iterator<Item = Element> + 'a {
    devices(definition).filter_map(|device| element(device, expanders.address(device)))
}

/// The devices that are not network interfaces.
fn devices(definition: &Definition) -> impl Iterator<Item = &Attachment> {
    let is_connection = |device: &Attachment| {
        let address = function(device);
        address.is_some()
            && definition.config.interfaces.iter().any(|one| one.device.as_deref() == address)
    };
    definition.config.devices.iter().filter(move |device| !is_connection(device))
}

/// The element of a device, at a given address of the guest or where libvirt puts it.
fn element(device: &Attachment, address: Option<Element>) -> Option<Element> {
    let (machine_type, managed) = match device {
        Attachment::Mdev { .. } => ("mdev", "no"),
        Attachment::Pci { .. } => ("pci", "yes"),
        Attachment::Vfio { .. } => ("pci", "no"),
        Attachment::TestPci { .. } => return None,
    };
    let hostdev = Element::new("hostdev")
        .with("mode", "subsystem")
        .with("type", machine_type)
        .with("managed", managed);
    let hostdev = match device {
        Attachment::Mdev { uuid, .. } => hostdev
            .with("model", "vfio-pci")
            .child(Element::new("source").child(Element::new("address").with("uuid", uuid))),
        Attachment::Pci { address }
        | Attachment::Vfio { address, .. }
        | Attachment::TestPci { address } => {
            hostdev.child(Element::new("source").child(pci(Element::new("address"), address)))
        }
    };
    Some(hostdev.children(address))
}

/// The XML of a mediated device as a node device.
pub(crate) fn mdev(uuid: uuid::Uuid, parent: &str, mdev_type: &str) -> String {
    Element::new("device")
        .child(Element::text("parent", parent))
        .child(
            Element::new("capability")
                .with("type", "mdev")
                .child(Element::new("type").with("id", mdev_type))
                .child(Element::text("uuid", uuid)),
        )
        .to_string()
}

/// The address of a device that can serve as a network interface: a whole PCI function.
pub(super) fn function(device: &Attachment) -> Option<&str> {
    match device {
        Attachment::Pci { address } | Attachment::Vfio { address, .. } => Some(address),
        Attachment::Mdev { .. } | Attachment::TestPci { .. } => None,
    }
}

/// Writes `0000:0c:1f.3` as four attributes.
pub(super) fn pci(element: Element, address: &str) -> Element {
    let mut parts = address.split([':', '.']);
    ["domain", "bus", "slot", "function"].into_iter().fold(element, |element, name| {
        element.with(name, format!("0x{}", parts.next().unwrap_or_default()))
    })
}
