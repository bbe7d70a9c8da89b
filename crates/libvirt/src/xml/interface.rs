//! Network interfaces: a tap on a bridge of ours or of Open vSwitch, a macvtap, or a PCI function of the
//! host.

use kilonova_hypervisor::Definition;
use kilonova_node_api::{Attachment, Interface, Vif};

use super::element::Element;
use super::expanders::Expanders;
use super::hostdev::{function, pci};

pub(super) fn elements<'a>(
    definition: &'a Definition,
    expanders: &'a Expanders,
) -> impl Iterator<Item = Element> + 'a {
    let interfaces = definition.config.interfaces.iter();
    interfaces.filter_map(|interface| element(definition, interface, expanders))
}

/// The XML of a single interface, if it is a tap: only taps are attached to a running guest.
pub(crate) fn plug(definition: &Definition, interface: &Interface) -> Option<String> {
    let element = element(definition, interface, &Expanders::default());
    Some(element.filter(|_| interface.device.is_none())?.to_string())
}

/// Returns `None` for fake test functions and mdevs, which libvirt cannot attach as an interface.
fn element(
    definition: &Definition,
    interface: &Interface,
    expanders: &Expanders,
) -> Option<Element> {
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
    Some(element.children(expanders.address(device)))
}

/// libvirt's type of a tap on a bridge.
const BRIDGE: &str = "bridge";

/// libvirt's type of a tap's interface.
fn kind(interface: &Interface) -> &'static str {
    match &interface.vif {
        None | Some(Vif::Ovs { .. } | Vif::OvsHybrid { .. }) => BRIDGE,
        Some(Vif::Macvtap { .. }) => "direct",
    }
}

/// libvirt's type of a tap's interface, and the elements that describe its connection. Only these may differ between
/// the hosts of a live migration.
pub(super) fn backend(interface: &Interface) -> (&'static str, Vec<Element>) {
    let elements = match &interface.vif {
        None => vec![Element::new("source").with("bridge", interface.bridge())],
        Some(Vif::Ovs { bridge }) => {
            let port = Element::new("parameters").with("interfaceid", interface.port);
            vec![
                Element::new("source").with("bridge", bridge),
                Element::new("virtualport").with("type", "openvswitch").child(port),
            ]
        }
        Some(Vif::OvsHybrid { .. }) => {
            vec![Element::new("source").with("bridge", interface.hybrid_bridge())]
        }
        Some(Vif::Macvtap { source, mode }) => {
            vec![Element::new("source").with("dev", source).with("mode", mode.as_str())]
        }
    };
    (kind(interface), elements)
}

fn tap(definition: &Definition, interface: &Interface, mac: Element) -> Element {
    let model = definition.machine().vif_model.as_deref().unwrap_or("virtio");
    let (kind, backend) = backend(interface);
    let element = Element::new("interface").with("type", kind).child(mac);
    let element = backend.into_iter().fold(element, Element::child);
    let mut element = element
        .child(Element::new("target").with("dev", interface.tap()))
        .child(Element::new("model").with("type", model));
    if definition.machine().vif_multiqueue && model == "virtio" && definition.config.vcpus > 1 {
        element.push(
            Element::new("driver").with("name", "vhost").with("queues", definition.config.vcpus),
        );
    }
    // libvirt refuses an MTU for a macvtap, which has the MTU of its link.
    if kind == BRIDGE {
        element.push(Element::new("mtu").with("size", interface.mtu));
    }
    element
}
