//! Domain XML: writing and parsing.
//!
//! Values that libvirt does not know (the server, an mdev's parent and type, the last verb) are in
//! the `<metadata>` element in a namespace of our own, which libvirt preserves. The parser accepts
//! only domains with that metadata: foreign domains are refused.

use std::fmt::Write;

use kilonova_node_api::{
    Attachment, Boot, DomainConfig, GpuInstance, GuestMetadata, Interface, Machine, Medium,
    MigPlacement, Vif, Volume, VolumeSource,
};
use roxmltree::{Document, Node};
use serde::{Deserialize, Serialize};

use crate::{Definition, Error, Step};

/// XML namespace of the metadata.
pub const NAMESPACE: &str = "urn:kilonova:domain:1";

/// A volume in the metadata: without secrets, which a domain's XML must not contain.
#[derive(Serialize, Deserialize)]
struct RecordedVolume {
    volume: Volume,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<VolumeSource>,
}

impl Definition {
    /// The complete XML of the domain.
    pub fn to_xml(&self) -> String {
        let mut xml = String::with_capacity(1536);
        // Writing to a string cannot fail.
        let _ = self.write(&mut xml);
        xml
    }

    /// The element below `<metadata>`. A driver that writes the rest of the XML itself must include
    /// it, because [`Self::from_xml`] reads it.
    pub fn to_metadata(&self) -> String {
        let mut xml = String::with_capacity(1024);
        // Writing to a string cannot fail.
        let _ = self.write_metadata(&mut xml);
        xml
    }

    fn write_metadata(&self, xml: &mut String) -> std::fmt::Result {
        // The files of the config drive are on the drive, and anyone who may read the XML would see the secrets.
        let Self { config, done, sources, .. } = &self.without_secrets();
        let DomainConfig {
            display_name,
            boot,
            machine,
            guest,
            devices,
            interfaces,
            rescue,
            volumes,
            numa,
            ..
        } = config;
        writeln!(xml, "    <kilonova:server xmlns:kilonova='{NAMESPACE}'>")?;
        writeln!(xml, "      <kilonova:name>{}</kilonova:name>", Text(display_name))?;
        write!(xml, "      <kilonova:boot")?;
        if let Some(image) = boot.image {
            write!(xml, " image='{image}'")?;
        }
        if let Some(rebuilt) = boot.rebuilt {
            write!(xml, " rebuilt='{rebuilt}'")?;
        }
        writeln!(
            xml,
            " root_gb='{}' ephemeral_gb='{}' swap_mb='{}'/>",
            boot.root_gb, boot.ephemeral_gb, boot.swap_mb
        )?;
        if *machine != Machine::default() {
            write_json(xml, "machine", machine)?;
        }
        if *guest != GuestMetadata::default() {
            write_json(xml, "guest", guest)?;
        }
        if let Some(rescue) = rescue {
            write_json(xml, "rescue", rescue)?;
        }
        if let Some(numa) = numa {
            write_json(xml, "numa", numa)?;
        }
        if let Some(done) = done {
            writeln!(xml, "      <kilonova:done operation='{done}'/>")?;
        }
        for device in devices {
            match device {
                Attachment::Mdev { uuid, parent, mdev_type } => writeln!(
                    xml,
                    "      <kilonova:device kind='mdev' uuid='{uuid}' parent='{}' mdev_type='{}'/>",
                    Text(parent),
                    Text(mdev_type)
                )?,
                Attachment::Pci { address } => {
                    writeln!(
                        xml,
                        "      <kilonova:device kind='pci' address='{}'/>",
                        Text(address)
                    )?;
                }
                Attachment::Vfio { address, vgpu_type, instance: None } => writeln!(
                    xml,
                    "      <kilonova:device kind='vfio' address='{}' vgpu_type='{}'/>",
                    Text(address),
                    Text(vgpu_type)
                )?,
                Attachment::Vfio { address, vgpu_type, instance: Some(instance) } => writeln!(
                    xml,
                    "      <kilonova:device kind='vfio' address='{}' vgpu_type='{}' mig_card='{}' \
                     mig_profile='{}' mig_start='{}' mig_size='{}'/>",
                    Text(address),
                    Text(vgpu_type),
                    Text(&instance.card),
                    Text(&instance.profile),
                    instance.place.start,
                    instance.place.size
                )?,
                Attachment::TestPci { address } => {
                    writeln!(
                        xml,
                        "      <kilonova:device kind='test_pci' address='{}'/>",
                        Text(address)
                    )?;
                }
            }
        }
        for interface in interfaces {
            write_json(xml, "interface", interface)?;
        }
        for volume in volumes {
            let source = sources.get(&volume.volume_id).cloned();
            write_json(xml, "volume", &RecordedVolume { volume: volume.clone(), source })?;
        }
        writeln!(xml, "    </kilonova:server>")
    }

    fn write(&self, xml: &mut String) -> std::fmt::Result {
        let Self { server, config, .. } = self;
        let DomainConfig { name, vcpus, memory_mb, devices, interfaces, .. } = config;
        writeln!(xml, "<domain type='kvm'>")?;
        writeln!(xml, "  <uuid>{server}</uuid>")?;
        writeln!(xml, "  <name>{}</name>", Text(name))?;
        writeln!(xml, "  <metadata>")?;
        self.write_metadata(xml)?;
        writeln!(xml, "  </metadata>")?;
        writeln!(xml, "  <memory unit='MiB'>{memory_mb}</memory>")?;
        writeln!(xml, "  <vcpu>{vcpus}</vcpu>")?;
        writeln!(xml, "  <os>")?;
        writeln!(xml, "    <type arch='x86_64' machine='q35'>hvm</type>")?;
        writeln!(xml, "    <boot dev='hd'/>")?;
        writeln!(xml, "  </os>")?;
        writeln!(xml, "  <devices>")?;
        for (volume, source) in self.connected() {
            write_volume(xml, volume, source)?;
        }
        for interface in interfaces {
            write_interface(xml, interface, devices)?;
        }
        let is_interface = |device: &Attachment| {
            let address = network_address(device);
            address.is_some() && interfaces.iter().any(|i| i.device.as_deref() == address)
        };
        for device in devices.iter().filter(|device| !is_interface(device)) {
            match device {
                Attachment::Mdev { uuid, .. } => {
                    writeln!(
                        xml,
                        "    <hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci'>"
                    )?;
                    writeln!(xml, "      <source>")?;
                    writeln!(xml, "        <address uuid='{uuid}'/>")?;
                    writeln!(xml, "      </source>")?;
                    writeln!(xml, "    </hostdev>")?;
                }
                Attachment::Pci { address } => pci(xml, address, "yes")?,
                Attachment::Vfio { address, .. } => pci(xml, address, "no")?,
                Attachment::TestPci { .. } => {}
            }
        }
        writeln!(xml, "  </devices>")?;
        writeln!(xml, "</domain>")
    }

    /// Parses the XML of [`Self::to_xml`], or any XML that contains [`Self::to_metadata`], as
    /// written or as libvirt returns it.
    pub fn from_xml(xml: &str) -> Result<Self, Error> {
        let document = Document::parse(xml).map_err(|error| invalid(&error.to_string()))?;
        let domain = document.root_element();
        let server = child(domain, "metadata")?
            .children()
            .find(|node| node.has_tag_name((NAMESPACE, "server")))
            .ok_or_else(|| invalid("it was not defined by Kilonova"))?;
        let ours = |name: &'static str| {
            server.children().filter(move |node| node.has_tag_name((NAMESPACE, name)))
        };
        let boot = ours("boot").next().ok_or_else(|| invalid("the boot element is missing"))?;
        let recorded: Vec<RecordedVolume> =
            ours("volume").map(read_json).collect::<Result<_, _>>()?;
        let source = |one: &RecordedVolume| Some((one.volume.volume_id, one.source.clone()?));
        let sources = recorded.iter().filter_map(source).collect();
        Ok(Self {
            server: parse(text(child(domain, "uuid")?))?,
            config: DomainConfig {
                name: text(child(domain, "name")?).to_owned(),
                display_name: ours("name").next().map(text).unwrap_or_default().to_owned(),
                vcpus: parse(text(child(domain, "vcpu")?))?,
                memory_mb: mebibytes(child(domain, "memory")?)?,
                boot: Boot {
                    image: boot.attribute("image").map(parse).transpose()?,
                    root_gb: parse(attribute(boot, "root_gb")?)?,
                    ephemeral_gb: parse(attribute(boot, "ephemeral_gb")?)?,
                    swap_mb: parse(attribute(boot, "swap_mb")?)?,
                    rebuilt: boot.attribute("rebuilt").map(parse).transpose()?,
                },
                machine: ours("machine").next().map(read_json).transpose()?.unwrap_or_default(),
                guest: ours("guest").next().map(read_json).transpose()?.unwrap_or_default(),
                rescue: ours("rescue").next().map(read_json).transpose()?,
                devices: ours("device").map(device).collect::<Result<_, _>>()?,
                interfaces: ours("interface").map(read_json).collect::<Result<_, _>>()?,
                volumes: recorded.into_iter().map(|one| one.volume).collect(),
                numa: ours("numa").next().map(read_json).transpose()?,
            },
            done: ours("done")
                .next()
                .map(|done| parse(attribute(done, "operation")?))
                .transpose()?,
            sources,
            kept_machine_type: None,
        })
    }
}

/// Writes a value as JSON, in the form of the document.
fn write_json(xml: &mut String, name: &str, value: &impl serde::Serialize) -> std::fmt::Result {
    let write_json = serde_json::to_string(value).map_err(|_| std::fmt::Error)?;
    writeln!(xml, "      <kilonova:{name}>{}</kilonova:{name}>", Text(&write_json))
}

fn read_json<T: serde::de::DeserializeOwned>(node: Node<'_, '_>) -> Result<T, Error> {
    serde_json::from_str(text(node)).map_err(|error| invalid(&error.to_string()))
}

/// The address of a device that can serve as a network interface: a whole PCI function.
fn network_address(device: &Attachment) -> Option<&str> {
    match device {
        Attachment::Pci { address } | Attachment::Vfio { address, .. } => Some(address),
        Attachment::Mdev { .. } | Attachment::TestPci { .. } => None,
    }
}

/// Writes the disk of a volume.
fn write_volume(xml: &mut String, volume: &Volume, source: &VolumeSource) -> std::fmt::Result {
    let (kind, format) = match source {
        VolumeSource::Rbd { .. } | VolumeSource::Iscsi { .. } => ("network", "raw"),
        VolumeSource::Block { .. } => ("block", "raw"),
        VolumeSource::File { format, .. } => ("file", format.as_str()),
    };
    let medium = volume.medium.unwrap_or(Medium::Disk).as_str();
    writeln!(xml, "    <disk type='{kind}' device='{medium}'>")?;
    writeln!(xml, "      <driver name='qemu' type='{}' cache='none'/>", Text(format))?;
    match source {
        VolumeSource::Rbd { name, .. } => {
            writeln!(xml, "      <source protocol='rbd' name='{}'/>", Text(name))?;
        }
        VolumeSource::Iscsi { iqn, lun, .. } => {
            writeln!(xml, "      <source protocol='iscsi' name='{}/{lun}'/>", Text(iqn))?;
        }
        VolumeSource::Block { path } => {
            writeln!(xml, "      <source dev='{}'/>", Text(&path.to_string_lossy()))?;
        }
        VolumeSource::File { path, .. } => {
            writeln!(xml, "      <source file='{}'/>", Text(&path.to_string_lossy()))?;
        }
    }
    let (device, bus) = (Text(&volume.device), volume.bus.as_str());
    writeln!(xml, "      <target dev='{device}' bus='{bus}'/>")?;
    writeln!(xml, "      <serial>{}</serial>", volume.volume_id)?;
    if volume.shareable {
        writeln!(xml, "      <shareable/>")?;
    }
    if volume.connection.readonly {
        writeln!(xml, "      <readonly/>")?;
    }
    writeln!(xml, "      <alias name='ua-{}'/>", volume.volume_id)?;
    writeln!(xml, "    </disk>")
}

/// Writes a network interface: a passed-through PCI function, a tap on a bridge, or a macvtap.
/// Omits a test function, as in the host devices.
fn write_interface(
    xml: &mut String,
    interface: &Interface,
    devices: &[Attachment],
) -> std::fmt::Result {
    let device = match &interface.device {
        None => None,
        Some(address) => {
            let of = |device: &&Attachment| network_address(device) == Some(address.as_str());
            match devices.iter().find(of) {
                Some(device) => Some((device, address)),
                None => return Ok(()),
            }
        }
    };
    match device {
        Some((device, address)) => {
            let managed = if matches!(device, Attachment::Vfio { .. }) { "no" } else { "yes" };
            writeln!(xml, "    <interface type='hostdev' managed='{managed}'>")?;
            writeln!(xml, "      <mac address='{}'/>", Text(&interface.mac))?;
            writeln!(xml, "      <source>")?;
            writeln!(xml, "        {}", pci_address(address, " type='pci'"))?;
            writeln!(xml, "      </source>")?;
            if let Some(vlan) = interface.vlan {
                writeln!(xml, "      <vlan><tag id='{vlan}'/></vlan>")?;
            }
        }
        None => {
            let kind = match &interface.vif {
                None | Some(Vif::Ovs { .. } | Vif::OvsHybrid { .. }) => "bridge",
                Some(Vif::Macvtap { .. }) => "direct",
            };
            writeln!(xml, "    <interface type='{kind}'>")?;
            writeln!(xml, "      <mac address='{}'/>", Text(&interface.mac))?;
            match &interface.vif {
                None => {
                    writeln!(xml, "      <source bridge='{}'/>", Text(&interface.bridge()))?;
                }
                Some(Vif::Ovs { bridge }) => {
                    writeln!(xml, "      <source bridge='{}'/>", Text(bridge))?;
                    writeln!(xml, "      <virtualport type='openvswitch'>")?;
                    writeln!(xml, "        <parameters interfaceid='{}'/>", interface.port)?;
                    writeln!(xml, "      </virtualport>")?;
                }
                Some(Vif::OvsHybrid { .. }) => {
                    writeln!(xml, "      <source bridge='{}'/>", Text(&interface.hybrid_bridge()))?;
                }
                Some(Vif::Macvtap { source, mode }) => {
                    let (source, mode) = (Text(source), mode.as_str());
                    writeln!(xml, "      <source dev='{source}' mode='{mode}'/>")?;
                }
            }
            writeln!(xml, "      <target dev='{}'/>", Text(&interface.tap()))?;
            writeln!(xml, "      <model type='virtio'/>")?;
            if kind == "bridge" {
                writeln!(xml, "      <mtu size='{}'/>", interface.mtu)?;
            }
        }
    }
    writeln!(xml, "    </interface>")
}

fn pci_address(address: &str, kind: &str) -> String {
    let mut parts = address.split([':', '.']);
    let mut part = || parts.next().unwrap_or_default();
    let (domain, bus, slot, function) = (part(), part(), part(), part());
    format!(
        "<address{kind} domain='0x{}' bus='0x{}' slot='0x{}' function='0x{}'/>",
        Text(domain),
        Text(bus),
        Text(slot),
        Text(function)
    )
}

fn pci(xml: &mut String, address: &str, managed: &str) -> std::fmt::Result {
    writeln!(xml, "    <hostdev mode='subsystem' type='pci' managed='{managed}'>")?;
    writeln!(xml, "      <source>")?;
    writeln!(xml, "        {}", pci_address(address, ""))?;
    writeln!(xml, "      </source>")?;
    writeln!(xml, "    </hostdev>")
}

/// Memory in MiB. Libvirt returns it in KiB.
fn mebibytes(node: Node<'_, '_>) -> Result<i64, Error> {
    let amount: i64 = parse(text(node))?;
    match node.attribute("unit").unwrap_or("KiB") {
        "MiB" => Ok(amount),
        "KiB" => Ok(amount / 1024),
        other => Err(invalid(&format!("memory is in {other}"))),
    }
}

fn device(node: Node<'_, '_>) -> Result<Attachment, Error> {
    let address = || attribute(node, "address").map(str::to_owned);
    match attribute(node, "kind")? {
        "mdev" => Ok(Attachment::Mdev {
            uuid: parse(attribute(node, "uuid")?)?,
            parent: attribute(node, "parent")?.to_owned(),
            mdev_type: attribute(node, "mdev_type")?.to_owned(),
        }),
        "pci" => Ok(Attachment::Pci { address: address()? }),
        "vfio" => Ok(Attachment::Vfio {
            address: address()?,
            vgpu_type: attribute(node, "vgpu_type")?.to_owned(),
            instance: instance(node)?,
        }),
        "test_pci" => Ok(Attachment::TestPci { address: address()? }),
        other => Err(invalid(&format!("unknown kind of device: {other}"))),
    }
}

/// The GPU instance of a device, if it has one.
fn instance(node: Node<'_, '_>) -> Result<Option<GpuInstance>, Error> {
    let Some(card) = node.attribute("mig_card") else { return Ok(None) };
    Ok(Some(GpuInstance {
        card: card.to_owned(),
        profile: attribute(node, "mig_profile")?.to_owned(),
        place: MigPlacement {
            start: parse(attribute(node, "mig_start")?)?,
            size: parse(attribute(node, "mig_size")?)?,
        },
    }))
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Result<Node<'a, 'i>, Error> {
    node.children()
        .find(|child| child.has_tag_name(name))
        .ok_or_else(|| invalid(&format!("it has no {name} element")))
}

fn attribute<'a>(node: Node<'a, '_>, name: &str) -> Result<&'a str, Error> {
    node.attribute(name).ok_or_else(|| invalid(&format!("the attribute {name} is missing")))
}

fn text<'a>(node: Node<'a, '_>) -> &'a str {
    node.text().unwrap_or_default()
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| invalid(&format!("'{text}' is invalid")))
}

fn invalid(why: &str) -> Error {
    Error::new(Step::Define, format!("could not parse the domain XML: {why}"))
}

/// Text for an element or a quoted attribute. Characters that XML cannot represent become U+FFFD;
/// white space that a parser would normalize is written as a character reference.
struct Text<'a>(&'a str);

impl std::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '\'' => f.write_str("&apos;")?,
                '"' => f.write_str("&quot;")?,
                '\t' | '\n' | '\r' => write!(f, "&#{};", u32::from(c))?,
                '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "xml_tests.rs"]
mod tests;
