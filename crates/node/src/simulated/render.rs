//! Maps paths of the simulated sysfs to nodes. Nothing is stored: a path is resolved against the
//! tree and the existing mediated devices.

use uuid::Uuid;

use super::state::{Kind, Mdevs};
use crate::topology::Tree;

/// The target of a path with all links resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// `class/mdev_bus`.
    Parents,
    /// `bus/pci/devices`.
    Functions,
    /// `bus/mdev/devices`.
    Mdevs,
    /// The directory of a device.
    Device(usize),
    /// A file of a device.
    DeviceFile(usize, DeviceFile),
    /// `<device>/mdev_supported_types`.
    Types(usize),
    /// `<device>/mdev_supported_types/<type>`.
    Type(Kind),
    /// A file of a type.
    TypeFile(Kind, TypeFile),
    /// The directory of a mediated device.
    Mdev(Uuid, Kind),
    /// `<mdev>/remove`.
    Remove(Uuid),
    /// `bus/pci/drivers/<driver>`.
    Driver(String),
    /// `<device>/nvidia`.
    Vgpu(usize),
    /// A file in `<device>/nvidia`.
    VgpuFile(usize, VgpuFile),
    /// A directory that contains additional files of a device.
    Folder(usize, String),
    /// An additional file of a device.
    File(usize, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceFile {
    Vendor,
    Product,
    Class,
    NumaNode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VgpuFile {
    Creatable,
    Current,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeFile {
    Name,
    Description,
    DeviceApi,
    AvailableInstances,
    Create,
}

pub(super) fn resolve(tree: &Tree, mdevs: &Mdevs, path: &str) -> Option<Node> {
    let path = path.trim_matches('/');
    match path {
        "class/mdev_bus" => return Some(Node::Parents),
        "bus/pci/devices" => return Some(Node::Functions),
        "bus/mdev/devices" => return Some(Node::Mdevs),
        _ => {}
    }
    if let Some(driver) = path.strip_prefix("bus/pci/drivers/") {
        let known = !driver.is_empty() && tree.slots.iter().any(|slot| slot.card.driver == driver);
        return known.then(|| Node::Driver(driver.to_owned()));
    }
    if let Some(rest) = path.strip_prefix("class/mdev_bus/") {
        let (name, rest) = split(rest);
        let slot =
            tree.slots.iter().position(|slot| slot.is_parent() && last(&slot.path) == name)?;
        return below_device(tree, mdevs, slot, rest);
    }
    if let Some(rest) = path.strip_prefix("bus/pci/devices/") {
        let (name, rest) = split(rest);
        let slot = tree.slots.iter().position(|slot| slot.is_pci() && slot.address == name)?;
        return below_device(tree, mdevs, slot, rest);
    }
    if let Some(rest) = path.strip_prefix("bus/mdev/devices/") {
        let (name, rest) = split(rest);
        let uuid = Uuid::try_parse(name).ok()?;
        return below_mdev(uuid, mdevs.get(uuid)?, rest);
    }
    let inside = |slot_path: &str| {
        path.strip_prefix(slot_path).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let (slot, rest) =
        tree.slots.iter().enumerate().find_map(|(at, slot)| Some((at, inside(&slot.path)?)))?;
    below_device(tree, mdevs, slot, rest.trim_start_matches('/'))
}

fn below_device(tree: &Tree, mdevs: &Mdevs, slot: usize, rest: &str) -> Option<Node> {
    let here = &tree.slots[slot];
    if let Some(node) = further(tree, slot, rest) {
        return Some(node);
    }
    let (name, rest) = split(rest);
    let file = |file| (here.is_pci() && rest.is_empty()).then_some(Node::DeviceFile(slot, file));
    match name {
        "" => Some(Node::Device(slot)),
        "vendor" => file(DeviceFile::Vendor),
        "device" => file(DeviceFile::Product),
        "class" => file(DeviceFile::Class),
        "numa_node" => file(DeviceFile::NumaNode),
        "driver" if !here.card.driver.is_empty() && rest.is_empty() => {
            Some(Node::Driver(here.card.driver.clone()))
        }
        "physfn" => below_device(tree, mdevs, here.physical?, rest),
        "nvidia" if here.has_vfio_types() => match rest {
            "" => Some(Node::Vgpu(slot)),
            "creatable_vgpu_types" => Some(Node::VgpuFile(slot, VgpuFile::Creatable)),
            "current_vgpu_type" => Some(Node::VgpuFile(slot, VgpuFile::Current)),
            _ => None,
        },
        "mdev_supported_types" if here.is_parent() => below_types(tree, slot, rest),
        _ => match name.strip_prefix("virtfn") {
            Some(number) => {
                below_device(tree, mdevs, *here.virtuals.get(number.parse::<usize>().ok()?)?, rest)
            }
            None => {
                let uuid = Uuid::try_parse(name).ok()?;
                let kind = mdevs.get(uuid).filter(|kind| usize::from(kind.0) == slot)?;
                below_mdev(uuid, kind, rest)
            }
        },
    }
}

/// An additional file of the device, or a directory that contains one.
fn further(tree: &Tree, slot: usize, rest: &str) -> Option<Node> {
    let files = tree.slots[slot].files();
    if files.contains_key(rest) {
        return Some(Node::File(slot, rest.to_owned()));
    }
    let above = |file: &String| file.strip_prefix(rest).is_some_and(|below| below.starts_with('/'));
    (!rest.is_empty() && files.keys().any(above)).then(|| Node::Folder(slot, rest.to_owned()))
}

fn below_types(tree: &Tree, slot: usize, rest: &str) -> Option<Node> {
    let (id, rest) = split(rest);
    if id.is_empty() {
        return Some(Node::Types(slot));
    }
    let index = tree.slots[slot].card.types.iter().position(|one| one.id == id)?;
    let kind = (u16::try_from(slot).ok()?, u16::try_from(index).ok()?);
    let file = match rest {
        "" => return Some(Node::Type(kind)),
        "name" => TypeFile::Name,
        "description" => TypeFile::Description,
        "device_api" => TypeFile::DeviceApi,
        "available_instances" => TypeFile::AvailableInstances,
        "create" => TypeFile::Create,
        _ => return None,
    };
    Some(Node::TypeFile(kind, file))
}

fn below_mdev(uuid: Uuid, kind: Kind, rest: &str) -> Option<Node> {
    match rest {
        "" => Some(Node::Mdev(uuid, kind)),
        "mdev_type" => Some(Node::Type(kind)),
        "remove" => Some(Node::Remove(uuid)),
        _ => None,
    }
}

/// The path of a node with all links resolved; for a file, except an additional one, the path of its
/// directory.
pub(super) fn real(tree: &Tree, node: &Node) -> String {
    let device = |slot: usize| tree.slots[slot].path.as_str();
    let kind_path = |(slot, kind): Kind| {
        let slot = usize::from(slot);
        format!(
            "{}/mdev_supported_types/{}",
            device(slot),
            tree.slots[slot].card.types[usize::from(kind)].id
        )
    };
    match node {
        Node::Parents => "class/mdev_bus".to_owned(),
        Node::Functions => "bus/pci/devices".to_owned(),
        Node::Mdevs => "bus/mdev/devices".to_owned(),
        Node::Driver(driver) => format!("bus/pci/drivers/{driver}"),
        Node::Device(slot) | Node::DeviceFile(slot, _) => device(*slot).to_owned(),
        Node::Vgpu(slot) | Node::VgpuFile(slot, _) => format!("{}/nvidia", device(*slot)),
        Node::Folder(slot, path) | Node::File(slot, path) => format!("{}/{path}", device(*slot)),
        Node::Types(slot) => format!("{}/mdev_supported_types", device(*slot)),
        Node::Type(kind) | Node::TypeFile(kind, _) => kind_path(*kind),
        Node::Mdev(uuid, (slot, _)) => format!("{}/{uuid}", device(usize::from(*slot))),
        Node::Remove(uuid) => format!("bus/mdev/devices/{uuid}"),
    }
}

pub(super) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn split(path: &str) -> (&str, &str) {
    path.split_once('/').unwrap_or((path, ""))
}
