//! Host devices that are passed through to a guest.

use kilonova_hypervisor::Definition;
use kilonova_node_api::Attachment;

use super::element::Element;

/// The XML of each host device that is not a network interface, one element each. Suspend detaches
/// and reattaches them.
pub(crate) fn hostdevs(definition: &Definition) -> Vec<String> {
    elements(definition).map(|element| element.to_string()).collect()
}

pub(super) fn elements(definition: &Definition) -> impl Iterator<Item = Element> + '_ {
    let is_connection = |device: &Attachment| {
        let address = function(device);
        address.is_some()
            && definition.config.interfaces.iter().any(|one| one.device.as_deref() == address)
    };
    definition
        .config
        .devices
        .iter()
        .filter(move |device| !is_connection(device))
        .filter_map(element)
}

fn element(device: &Attachment) -> Option<Element> {
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
    Some(match device {
        Attachment::Mdev { uuid, .. } => hostdev
            .with("model", "vfio-pci")
            .child(Element::new("source").child(Element::new("address").with("uuid", uuid))),
        Attachment::Pci { address }
        | Attachment::Vfio { address, .. }
        | Attachment::TestPci { address } => {
            hostdev.child(Element::new("source").child(pci(Element::new("address"), address)))
        }
    })
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
