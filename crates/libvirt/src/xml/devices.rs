//! All devices of a domain, in order.

use std::path::PathBuf;

use kilonova_hypervisor::Definition;
use kilonova_node_api::{Attachment, Bus, Machine};

use super::disks::{self, Disk};
use super::element::Element;
use super::expanders::Expanders;
use super::system::is_pcie;
use super::{HostProfile, hostdev, interface, volumes};

/// Maximum number of ports that are listed on the main bus of a guest with expander buses, which leave enough bus
/// numbers for this many.
const MOST_PORTS: u32 = 60;

/// The channel of QEMU's guest agent.
pub(crate) const GUEST_AGENT: &str = "org.qemu.guest_agent.0";

/// A guest's files on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The disks, in order.
    pub disks: Vec<Disk>,
    /// The kernel for direct kernel boot.
    pub kernel: Option<PathBuf>,
    /// The initial RAM disk of the kernel.
    pub ramdisk: Option<PathBuf>,
    /// The serial console log.
    pub console: PathBuf,
}

pub(super) fn devices(
    host: &HostProfile,
    definition: &Definition,
    machine: &Machine,
    machine_type: &str,
    layout: &Layout,
) -> Element {
    let mut devices = Element::new("devices");
    if let Some(emulator) = &host.emulator {
        devices.push(Element::text("emulator", emulator.display()));
    }
    let [root, others] = volumes::elements(host, definition);
    let taken: Vec<&str> =
        definition.config.volumes.iter().map(|volume| volume.device.as_str()).collect();
    let own = disks::disks(host, machine, machine_type, &layout.disks, &taken);
    root.into_iter().chain(own).chain(others).for_each(|disk| devices.push(disk));
    let has_tablet = definition.has_display();
    let ports = main_ports(host, definition, machine_type, layout);
    let mut expanders = Expanders::of(definition, machine_type, ports);
    let buses = std::mem::take(&mut expanders.controllers);
    controllers(host, definition, machine_type, layout, has_tablet, buses)
        .into_iter()
        .for_each(|one| devices.push(one));
    interface::elements(definition, &expanders).for_each(|one| devices.push(one));
    devices.push(
        Element::new("serial")
            .with("type", "pty")
            .child(Element::new("log").with("file", layout.console.display()).with("append", "on"))
            .child(Element::new("target").with("port", 0)),
    );
    if machine.guest_agent {
        devices.push(
            Element::new("channel")
                .with("type", "unix")
                .child(Element::new("target").with("type", "virtio").with("name", GUEST_AGENT)),
        );
    }
    if definition.has_display() {
        display(host, machine).into_iter().for_each(|one| devices.push(one));
    }
    hostdev::elements(definition, &expanders).for_each(|one| devices.push(one));
    if let Some(action) = machine.watchdog.as_deref().filter(|action| *action != "disabled") {
        devices.push(Element::new("watchdog").with("model", "i6300esb").with("action", action));
    }
    devices.push(
        Element::new("memballoon")
            .with("model", "virtio")
            .child(Element::new("stats").with("period", 10)),
    );
    if machine.rng {
        let backend = Element::text("backend", "/dev/urandom").with("model", "random");
        devices.push(Element::new("rng").with("model", "virtio").child(backend));
    }
    devices
}

/// A display without a listening port: the agent requests a socket to it from libvirt. The tablet keeps the
/// pointers of the client and the guest in sync.
fn display(host: &HostProfile, machine: &Machine) -> [Element; 3] {
    // Every firmware and every guest can use plain VGA, and every QEMU for x86 has it.
    let usual = if host.arch == "x86_64" { "vga" } else { "virtio" };
    let ram = machine.video_ram_mb.map(|mib| mib * 1024);
    let model = Element::new("model")
        .with("type", machine.video_model.as_deref().unwrap_or(usual))
        .with_some("vram", ram);
    [
        Element::new("input").with("type", "tablet").with("bus", "usb"),
        Element::new("graphics")
            .with("type", "vnc")
            .child(Element::new("listen").with("type", "none")),
        Element::new("video").child(model),
    ]
}

/// The controller of the guest's SCSI disks.
pub(super) fn scsi_controller(definition: &Definition) -> Element {
    let model = definition.machine().scsi_model.as_deref().unwrap_or("virtio-scsi");
    Element::new("controller").with("type", "scsi").with("index", 0).with("model", model)
}

/// The number of ports on the main bus of a guest with expander buses: one for each device that may need one, and a
/// free one; `num_pcie_ports` if that is more. libvirt adds missing ports.
fn main_ports(
    host: &HostProfile,
    definition: &Definition,
    machine_type: &str,
    layout: &Layout,
) -> u32 {
    let machine = definition.machine();
    let numa = definition.config.numa.as_deref();
    let near = |device: &&Attachment| numa.is_some_and(|numa| numa.cell_of(device).is_some());
    let devices = &definition.config.devices;
    let hosts = devices.len() - devices.iter().filter(near).count();
    let taps = definition.config.interfaces.iter().filter(|one| one.device.is_none()).count();
    let buses = layout.disks.iter().map(|disk| disks::bus(host, machine, machine_type, disk));
    let buses: Vec<Bus> = buses.chain(definition.connected().map(|(one, _)| one.bus)).collect();
    let disks = buses.iter().filter(|bus| **bus == Bus::Virtio).count();
    let watchdog = machine.watchdog.as_deref().is_some_and(|action| action != "disabled");
    // The controllers of SCSI, USB and the guest agent, the random number generator, the watchdog's bridge.
    let others = [
        buses.contains(&Bus::Scsi),
        buses.contains(&Bus::Usb) || definition.has_display(),
        machine.guest_agent,
        machine.rng,
        watchdog,
    ];
    let others = others.iter().filter(|has| **has).count();
    // The memory balloon and the free port.
    let ports = hosts + taps + disks + others + 2;
    u32::try_from(ports).unwrap_or(u32::MAX).max(host.config.num_pcie_ports).min(MOST_PORTS)
}

fn controllers(
    host: &HostProfile,
    definition: &Definition,
    machine_type: &str,
    layout: &Layout,
    has_tablet: bool,
    buses: Vec<Element>,
) -> Vec<Element> {
    let machine = definition.machine();
    let controller =
        |machine_type: &'static str| Element::new("controller").with("type", machine_type);
    let of_volume = |bus| definition.connected().any(|(volume, _)| volume.bus == bus);
    let of_disk =
        |bus| layout.disks.iter().any(|disk| disks::bus(host, machine, machine_type, disk) == bus);
    let has = |bus| of_disk(bus) || of_volume(bus);
    let mut all = Vec::new();
    if has(Bus::Scsi) {
        all.push(scsi_controller(definition));
    }
    if !buses.is_empty() {
        all.extend(buses);
    } else if is_pcie(machine_type) && host.config.num_pcie_ports > 0 {
        all.push(controller("pci").with("model", "pcie-root"));
        for _ in 0..host.config.num_pcie_ports {
            all.push(controller("pci").with("model", "pcie-root-port"));
        }
    }
    // With a USB device, libvirt adds the controller that suits the machine.
    if !has(Bus::Usb) && !has_tablet {
        all.push(controller("usb").with("model", "none"));
    }
    all
}
