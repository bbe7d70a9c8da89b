//! Disk elements and their buses.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kilonova_disks::Format;
use kilonova_hypervisor::Definition;
use kilonova_node_api::{Bus, Machine, Medium};

use super::HostProfile;
use super::element::Element;
use super::system::is_pcie;

/// A virtual disk of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The file on the host.
    pub path: PathBuf,
    /// The format of the file.
    pub format: Format,
    /// Disk, CD-ROM or floppy.
    pub medium: Medium,
    /// The bus, if it differs from the guest's other disks.
    pub bus: Option<Bus>,
    /// True if the guest boots from it.
    pub boots: bool,
}

pub(super) fn disks(
    host: &HostProfile,
    machine: &Machine,
    machine_type: &str,
    disks: &[Disk],
    taken: &[&str],
) -> Vec<Element> {
    let mut names = Names::new(taken);
    disks
        .iter()
        .map(|disk| {
            let bus = bus(host, machine, machine_type, disk);
            element(host, disk, bus, &names.next(bus))
        })
        .collect()
}

/// The name of the disk with the root file system: of the root volume, or of the guest's first disk, which in some rescues
/// is the rescue disk.
pub(super) fn root(
    host: &HostProfile,
    definition: &Definition,
    machine_type: &str,
    disks: &[Disk],
) -> String {
    let volumes = &definition.config.volumes;
    let is_replaced =
        definition.config.rescue.as_ref().is_some_and(|rescue| rescue.device.is_none());
    match volumes.iter().find(|volume| volume.is_root() && !is_replaced) {
        Some(volume) => volume.device.clone(),
        None => {
            let machine = definition.machine();
            let bus = |disk| bus(host, machine, machine_type, disk);
            let taken: Vec<&str> = volumes.iter().map(|volume| volume.device.as_str()).collect();
            Names::new(&taken).next(disks.first().map_or(Bus::Virtio, bus))
        }
    }
}

/// The bus of a disk: the image's, else the host's. CD-ROMs use the bus that the machine type
/// offers.
pub(super) fn bus(host: &HostProfile, machine: &Machine, machine_type: &str, disk: &Disk) -> Bus {
    let usual = match disk.medium {
        Medium::Disk => machine.disk_bus.or_else(|| Bus::parse(&host.config.disk_bus)),
        Medium::Cdrom => machine.cdrom_bus.or(Some(match machine_type {
            machine_type if machine_type.starts_with("virt") => Bus::Scsi,
            machine_type if is_pcie(machine_type) => Bus::Sata,
            _ => Bus::Ide,
        })),
        Medium::Floppy => Some(Bus::Fdc),
    };
    disk.bus.or(usual).unwrap_or(Bus::Virtio)
}

/// The XML of a backup job that copies one disk with its backing chain to a file.
pub(crate) fn backup(name: &str, others: &[String], format: Format, to: &Path) -> String {
    let disk_copy = Element::new("disk")
        .with("name", name)
        .with("backup", "yes")
        .with("type", "file")
        .child(Element::new("target").with("file", to.display()))
        .child(Element::new("driver").with("type", format.as_str()));
    let not = |name: &String| Element::new("disk").with("name", name).with("backup", "no");
    let disks = Element::new("disks").child(disk_copy).children(others.iter().map(not));
    Element::new("domainbackup").with("mode", "push").child(disks).to_string()
}

fn element(host: &HostProfile, disk: &Disk, bus: Bus, name: &str) -> Element {
    let cache = host.config.disk_cache.as_ref().filter(|_| disk.medium == Medium::Disk);
    let mut element = Element::new("disk")
        .with("type", "file")
        .with("device", disk.medium.as_str())
        .child(
            Element::new("driver")
                .with("name", "qemu")
                .with("type", disk.format.as_str())
                .with_some("cache", cache)
                .with_some("discard", (disk.medium == Medium::Disk).then_some("unmap")),
        )
        .child(Element::new("source").with("file", disk.path.display()))
        .child(Element::new("target").with("dev", name).with("bus", bus.as_str()));
    if disk.boots {
        element.push(Element::new("boot").with("order", 1));
    }
    if disk.medium == Medium::Cdrom {
        element.push(Element::new("readonly"));
    }
    element
}

/// Assigns target names that no volume uses.
struct Names {
    taken: BTreeSet<String>,
}

impl Names {
    fn new(taken: &[&str]) -> Self {
        Self { taken: taken.iter().map(|name| (*name).to_owned()).collect() }
    }

    fn next(&mut self, bus: Bus) -> String {
        let name = bus.disk_names().find(|name| !self.taken.contains(name)).unwrap_or_default();
        self.taken.insert(name.clone());
        name
    }
}
