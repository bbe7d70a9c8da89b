//! Network interfaces: a tap on the network's bridge, or a PCI function of the host.

use kilonova_hypervisor::Definition;
use kilonova_node_api::{Attachment, Interface};

use super::element::Element;
use super::hostdev::{function, pci};

pub(super) fn elements(definition: &Definition) -> impl Iterator<Item = Element> + '_ {
    definition.config.interfaces.iter().filter_map(|interface| element(definition, interface))
}

/// The XML of a single interface, if it is a tap: only taps are attached to a running guest.
pub(crate) fn plug(definition: &Definition, interface: &Interface) -> Option<String> {
    let element = element(definition, interface).filter(|_| interface.device.is_none())?;
    Some(element.to_string())
}

/// Returns `None` for fake test functions and mdevs, which libvirt cannot attach as an interface.
fn element(definition: &Definition, interface: &Interface) -> Option<Element> {
    let mac = Element::new("mac").with("address", &interface.mac);
    let Some(address) = &interface.device else {
        return Some(tap(definition, interface, mac));
    };
    let device = definition
        .config
        .devices
        .iter()
        .find(|device| function(device) == Some(address.as_str()))?;
    let managed = if matches!(device, Attachment::Vfio { .. }) { "no" } else { "yes" };
    let source = pci(Element::new("address").with("type", "pci"), address);
    let mut element = Element::new("interface")
        .with("type", "hostdev")
        .with("managed", managed)
        .child(mac)
        .child(Element::new("source").child(source));
    if let Some(vlan) = interface.vlan {
        element.push(Element::new("vlan").child(Element::new("tag").with("id", vlan)));
    }
    Some(element)
}

fn tap(definition: &Definition, interface: &Interface, mac: Element) -> Element {
    let model = super::machine(definition).vif_model.as_deref().unwrap_or("virtio");
    let mut element = Element::new("interface")
        .with("type", "bridge")
        .child(mac)
        .child(Element::new("source").with("bridge", interface.bridge()))
        .child(Element::new("target").with("dev", interface.tap()))
        .child(Element::new("model").with("type", model));
    if super::machine(definition).vif_multiqueue && model == "virtio" && definition.config.vcpus > 1
    {
        element.push(
            Element::new("driver").with("name", "vhost").with("queues", definition.config.vcpus),
        );
    }
    element.child(Element::new("mtu").with("size", interface.mtu))
}
