//! All devices of a domain, in order.

use std::path::PathBuf;

use kilonova_hypervisor::Definition;
use kilonova_node_api::{Bus, Machine};

use super::disks::{self, Disk};
use super::element::Element;
use super::system::is_pcie;
use super::{Host, hostdev, interface};

/// Where a guest's files are on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Its disks; the first is what it starts from.
    pub disks: Vec<Disk>,
    /// The kernel that it starts without a boot loader.
    pub kernel: Option<PathBuf>,
    /// The memory disk that goes with the kernel.
    pub ramdisk: Option<PathBuf>,
    /// Where what it says on its serial line is kept.
    pub console: PathBuf,
}

pub(super) fn devices(
    host: &Host,
    definition: &Definition,
    machine: &Machine,
    kind: &str,
    layout: &Layout,
) -> Element {
    let mut devices = Element::new("devices");
    if let Some(emulator) = &host.emulator {
        devices.push(Element::text("emulator", emulator.display()));
    }
    for disk in disks::disks(host, machine, kind, &layout.disks) {
        devices.push(disk);
    }
    controllers(host, machine, kind, layout).into_iter().for_each(|one| devices.push(one));
    interface::elements(definition).for_each(|one| devices.push(one));
    devices.push(
        Element::new("serial")
            .with("type", "pty")
            .child(Element::new("log").with("file", layout.console.display()).with("append", "on"))
            .child(Element::new("target").with("port", 0)),
    );
    if machine.guest_agent {
        devices.push(Element::new("channel").with("type", "unix").child(
            Element::new("target").with("type", "virtio").with("name", "org.qemu.guest_agent.0"),
        ));
    }
    if let Some(model) = machine.video_model.as_deref().filter(|model| *model != "none") {
        let ram = machine.video_ram_mb.map(|mib| mib * 1024);
        let model = Element::new("model").with("type", model).with_some("vram", ram);
        devices.push(Element::new("video").child(model));
    }
    hostdev::elements(definition).for_each(|one| devices.push(one));
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

fn controllers(host: &Host, machine: &Machine, kind: &str, layout: &Layout) -> Vec<Element> {
    let controller = |kind: &'static str| Element::new("controller").with("type", kind);
    let has = |bus| layout.disks.iter().any(|disk| disks::bus(host, machine, kind, disk) == bus);
    let mut all = Vec::new();
    if has(Bus::Scsi) {
        let model = machine.scsi_model.as_deref().unwrap_or("virtio-scsi");
        all.push(controller("scsi").with("index", 0).with("model", model));
    }
    if is_pcie(kind) && host.config.num_pcie_ports > 0 {
        all.push(controller("pci").with("model", "pcie-root"));
        for _ in 0..host.config.num_pcie_ports {
            all.push(controller("pci").with("model", "pcie-root-port"));
        }
    }
    if !has(Bus::Usb) {
        all.push(controller("usb").with("model", "none"));
    }
    all
}
