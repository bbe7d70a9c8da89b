//! Disks of volumes.
//!
//! A disk is found again by its alias or its serial number, which both contain the volume's id, never by
//! its name or its address.

use std::path::Path;

use kilonova_hypervisor::Definition;
use kilonova_ids::VolumeId;
use kilonova_node_api::{Bus, IO_LIMITS, Medium, SourceHost, Volume, VolumeSource};
use roxmltree::{Document, Node};
use uuid::Uuid;

use super::HostProfile;
use super::devices::scsi_controller;
use super::element::Element;

/// The prefix of user-defined aliases, which libvirt preserves.
const ALIAS: &str = "ua-";

/// A disk of a volume in a domain's XML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeDisk {
    /// The volume.
    pub volume: VolumeId,
    /// The target's name.
    pub device: String,
    /// The name of its source: an image, a LUN, a device or a file.
    pub source: String,
    /// The disk's own XML.
    pub xml: String,
}

/// The disks of volumes in a domain's XML.
pub(crate) fn volume_disks(xml: &str) -> Vec<VolumeDisk> {
    let Ok(document) = Document::parse(xml) else { return Vec::new() };
    document
        .descendants()
        .filter(|node| node.has_tag_name("disk"))
        .filter_map(|node| {
            Some(VolumeDisk {
                volume: volume_of(node)?,
                device: target(node)?.to_owned(),
                source: source_name(node).unwrap_or_default().to_owned(),
                xml: xml[node.range()].to_owned(),
            })
        })
        .collect()
}

fn source_name<'a>(disk: Node<'a, '_>) -> Option<&'a str> {
    let source = disk.children().find(|child| child.has_tag_name("source"))?;
    ["name", "dev", "file"].into_iter().find_map(|name| source.attribute(name))
}

/// The name of a volume's source, as in [`VolumeDisk`].
pub(crate) fn name_of(source: &VolumeSource) -> String {
    match source {
        VolumeSource::Rbd { name, .. } => name.clone(),
        VolumeSource::Iscsi { iqn, lun, .. } => format!("{iqn}/{lun}"),
        VolumeSource::Block { path } | VolumeSource::File { path, .. } => {
            path.display().to_string()
        }
    }
}

/// The volume of a disk; `None` for other disks.
pub(crate) fn volume_of(disk: Node<'_, '_>) -> Option<VolumeId> {
    let child = |name| disk.children().find(move |child| child.has_tag_name(name));
    let alias = child("alias").and_then(|node| node.attribute("name"));
    let id = alias.and_then(|name| name.strip_prefix(ALIAS)?.parse().ok());
    id.or_else(|| child("serial")?.text()?.trim().parse().ok())
}

/// The name of a disk's target.
pub(crate) fn target<'a>(disk: Node<'a, '_>) -> Option<&'a str> {
    disk.children().find(|child| child.has_tag_name("target"))?.attribute("dev")
}

/// The XML of one volume's disk, to attach it to a running guest.
pub(crate) fn volume_xml(host: &HostProfile, volume: &Volume, source: &VolumeSource) -> String {
    element(host, volume, source, None).to_string()
}

/// The XML of the controller that a running guest lacks for a volume; libvirt's own choice would need a
/// bus that not every machine has.
pub(crate) fn missing_controller(
    definition: &Definition,
    volume: &Volume,
    running: &str,
) -> Option<String> {
    let document = Document::parse(running).ok()?;
    let is_scsi = |node: &Node<'_, '_>| {
        node.has_tag_name("controller") && node.attribute("type") == Some("scsi")
    };
    let needs = volume.bus == Bus::Scsi && !document.descendants().any(|node| is_scsi(&node));
    needs.then(|| scsi_controller(definition).to_string())
}

/// The disks of a definition's connected volumes, the root disk first.
pub(super) fn elements(host: &HostProfile, definition: &Definition) -> [Vec<Element>; 2] {
    // A rescued guest boots only from its rescue disk.
    let boots = definition.config.rescue.is_none();
    let disk = |(volume, source): (&Volume, &VolumeSource)| {
        let order = volume.boot_index.filter(|index| boots && *index >= 0);
        element(host, volume, source, order.map(|index| index + 1))
    };
    let (root, others): (Vec<_>, Vec<_>) =
        definition.connected().partition(|(volume, _)| volume.is_root());
    [root, others].map(|volumes| volumes.into_iter().map(disk).collect())
}

fn element(
    host: &HostProfile,
    volume: &Volume,
    source: &VolumeSource,
    order: Option<i64>,
) -> Element {
    let connection = &volume.connection;
    let (kind, format) = match source {
        VolumeSource::Rbd { .. } | VolumeSource::Iscsi { .. } => ("network", "raw"),
        VolumeSource::Block { .. } => ("block", "raw"),
        VolumeSource::File { format, .. } => ("file", format.as_str()),
    };
    let chosen = match source {
        VolumeSource::Rbd { .. } | VolumeSource::Iscsi { .. } => &host.config.network_cache,
        VolumeSource::Block { .. } => &host.config.block_cache,
        VolumeSource::File { .. } => &host.config.disk_cache,
    };
    // Guests that share a volume must not read stale data from a host's cache.
    let cache = chosen.as_deref().filter(|_| !volume.shareable).unwrap_or("none");
    // Linux's own asynchronous I/O needs a file without a cache.
    let native = kind != "network" && matches!(cache, "none" | "directsync");
    let medium = volume.medium.unwrap_or(Medium::Disk);
    let mut disk = Element::new("disk")
        .with("type", kind)
        .with("device", medium.as_str())
        .child(
            Element::new("driver")
                .with("name", "qemu")
                .with("type", format)
                .with("cache", cache)
                .with_some("io", native.then_some("native"))
                .with_some("discard", connection.discard.then_some("unmap")),
        )
        .child(source_element(source))
        .child(Element::new("target").with("dev", &volume.device).with("bus", volume.bus.as_str()));
    let limits = IO_LIMITS.iter().filter_map(|name| Some((*name, connection.qos.get(*name)?)));
    let limits: Vec<Element> = limits.map(|(name, limit)| Element::text(name, limit)).collect();
    if !limits.is_empty() {
        disk.push(Element::new("iotune").children(limits));
    }
    let (logical, physical) = (connection.logical_block_size, connection.physical_block_size);
    if logical.is_some() || physical.is_some() {
        let sizes = Element::new("blockio").with_some("logical_block_size", logical);
        disk.push(sizes.with_some("physical_block_size", physical));
    }
    if let Some(order) = order {
        disk.push(Element::new("boot").with("order", order));
    }
    disk.push(Element::text("serial", volume.volume_id));
    if volume.shareable {
        disk.push(Element::new("shareable"));
    }
    if connection.readonly || medium == Medium::Cdrom {
        disk.push(Element::new("readonly"));
    }
    disk.push(Element::new("alias").with("name", format_args!("{ALIAS}{}", volume.volume_id)));
    // Without an address, libvirt assigns units to at most seven disks of a controller.
    if volume.bus == Bus::Scsi
        && let Some(unit) = unit(&volume.device)
    {
        disk.push(
            Element::new("address")
                .with("type", "drive")
                .with("controller", 0)
                .with("bus", 0)
                .with("target", 0)
                .with("unit", unit),
        );
    }
    disk
}

/// The position of a name among the names of its bus.
fn unit(device: &str) -> Option<usize> {
    Bus::Scsi.disk_names().position(|name| name == device).filter(|unit| *unit < 256)
}

/// The `<source>` of a volume, with the login of a network disk.
pub(super) fn source_element(source: &VolumeSource) -> Element {
    let element = Element::new("source");
    match source {
        VolumeSource::Rbd { name, hosts, user, secret } => {
            let element = element.with("protocol", "rbd").with("name", name);
            login(element.children(hosts.iter().map(host)), "ceph", user.as_deref(), *secret)
        }
        VolumeSource::Iscsi { iqn, lun, portal, initiator, user, secret } => {
            let name = format!("{iqn}/{lun}");
            let element = element.with("protocol", "iscsi").with("name", name).child(host(portal));
            let mut element = login(element, "iscsi", user.as_deref(), *secret);
            if let Some(initiator) = initiator {
                let iqn = Element::new("iqn").with("name", initiator);
                element.push(Element::new("initiator").child(iqn));
            }
            element
        }
        VolumeSource::Block { path } => element.with("dev", show(path)),
        VolumeSource::File { path, .. } => element.with("file", show(path)),
    }
}

fn show(path: &Path) -> impl std::fmt::Display + '_ {
    path.display()
}

fn host(host: &SourceHost) -> Element {
    Element::new("host").with("name", &host.name).with("port", host.port)
}

fn login(element: Element, kind: &str, user: Option<&str>, secret: Option<Uuid>) -> Element {
    let (Some(user), Some(secret)) = (user, secret) else { return element };
    let secret = Element::new("secret").with("type", kind).with("uuid", secret);
    element.child(Element::new("auth").with("username", user).child(secret))
}

/// The XML of a libvirt secret.
pub(crate) fn secret(uuid: Uuid, kind: &str, usage: &str) -> String {
    let name = if kind == "ceph" { "name" } else { "target" };
    Element::new("secret")
        .with("ephemeral", "no")
        .with("private", "yes")
        .child(Element::text("uuid", uuid))
        .child(Element::new("usage").with("type", kind).child(Element::text(name, usage)))
        .to_string()
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
