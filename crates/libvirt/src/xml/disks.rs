//! Disks, and what they are plugged into.

use std::path::{Path, PathBuf};

use kilonova_disks::Format;
use kilonova_node_api::{Bus, Machine, Medium};

use super::Host;
use super::element::Element;
use super::system::is_pcie;

/// A disk of a guest, on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    /// Its file.
    pub path: PathBuf,
    /// How the file holds it.
    pub format: Format,
    /// What it looks like.
    pub medium: Medium,
    /// What it is plugged into, where that is not as with the others.
    pub bus: Option<Bus>,
    /// Whether the guest starts from it.
    pub boots: bool,
}

pub(super) fn disks(host: &Host, machine: &Machine, kind: &str, disks: &[Disk]) -> Vec<Element> {
    let mut names = Names::default();
    disks
        .iter()
        .map(|disk| {
            let bus = bus(host, machine, kind, disk);
            element(host, disk, bus, &names.next(bus))
        })
        .collect()
}

/// The bus of a disk: the image's word, or the host's; discs go where the machine has a place for
/// them.
pub(super) fn bus(host: &Host, machine: &Machine, kind: &str, disk: &Disk) -> Bus {
    let usual = match disk.medium {
        Medium::Disk => machine.disk_bus.or_else(|| Bus::parse(&host.config.disk_bus)),
        Medium::Cdrom => machine.cdrom_bus.or(Some(match kind {
            kind if kind.starts_with("virt") => Bus::Scsi,
            kind if is_pcie(kind) => Bus::Sata,
            _ => Bus::Ide,
        })),
        Medium::Floppy => Some(Bus::Fdc),
    };
    disk.bus.or(usual).unwrap_or(Bus::Virtio)
}

/// What libvirt is asked for to copy one disk of a running guest to a file, with all that it is over.
pub(crate) fn backup(name: &str, others: &[String], format: Format, to: &Path) -> String {
    let copied = Element::new("disk")
        .with("name", name)
        .with("backup", "yes")
        .with("type", "file")
        .child(Element::new("target").with("file", to.display()))
        .child(Element::new("driver").with("type", format.as_str()));
    let not = |name: &String| Element::new("disk").with("name", name).with("backup", "no");
    let disks = Element::new("disks").child(copied).children(others.iter().map(not));
    Element::new("domainbackup").with("mode", "push").child(disks).to_string()
}

fn element(host: &Host, disk: &Disk, bus: Bus, name: &str) -> Element {
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

/// Names of disks, counted by prefix.
#[derive(Default)]
struct Names {
    given: Vec<(&'static str, u8)>,
}

impl Names {
    fn next(&mut self, bus: Bus) -> String {
        let prefix = match bus {
            Bus::Virtio => "vd",
            Bus::Ide => "hd",
            Bus::Fdc => "fd",
            Bus::Scsi | Bus::Sata | Bus::Usb => "sd",
        };
        let at = self.given.iter().position(|(given, _)| *given == prefix).unwrap_or_else(|| {
            self.given.push((prefix, b'a'));
            self.given.len() - 1
        });
        let letter = self.given[at].1;
        self.given[at].1 += 1;
        format!("{prefix}{}", char::from(letter))
    }
}
