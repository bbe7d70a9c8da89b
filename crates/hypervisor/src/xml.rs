//! Domain XML, as libvirt reads it, and back.
//!
//! The part that libvirt has no words for (whose device, which parent and type, the last verb) is in
//! the `<metadata>` element under a namespace of our own; libvirt keeps that as it is. Reading takes
//! only what writing wrote: the XML of a foreign domain is refused.

use std::fmt::Write;

use kilonova_node_api::{Attachment, Boot, Rescue};
use roxmltree::{Document, Node};

use crate::{Definition, Error, Step};

/// Namespace of the metadata.
pub const NAMESPACE: &str = "urn:kilonova:domain:1";

impl Definition {
    /// The whole XML of the domain.
    pub fn to_xml(&self) -> String {
        let mut xml = String::with_capacity(1536);
        // Writing to a string cannot fail.
        let _ = self.write(&mut xml);
        xml
    }

    fn write(&self, xml: &mut String) -> std::fmt::Result {
        let Self { server, name, display_name, vcpus, memory_mb, boot, devices, rescue, done } =
            self;
        writeln!(xml, "<domain type='kvm'>")?;
        writeln!(xml, "  <uuid>{server}</uuid>")?;
        writeln!(xml, "  <name>{}</name>", Text(name))?;
        writeln!(xml, "  <metadata>")?;
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
        if let Some(rescue) = rescue {
            write!(xml, "      <kilonova:rescue")?;
            if let Some(image) = rescue.image {
                write!(xml, " image='{image}'")?;
            }
            writeln!(xml, "/>")?;
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
                Attachment::Vfio { address, vgpu_type } => writeln!(
                    xml,
                    "      <kilonova:device kind='vfio' address='{}' vgpu_type='{}'/>",
                    Text(address),
                    Text(vgpu_type)
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
        writeln!(xml, "    </kilonova:server>")?;
        writeln!(xml, "  </metadata>")?;
        writeln!(xml, "  <memory unit='MiB'>{memory_mb}</memory>")?;
        writeln!(xml, "  <vcpu>{vcpus}</vcpu>")?;
        writeln!(xml, "  <os>")?;
        writeln!(xml, "    <type arch='x86_64' machine='q35'>hvm</type>")?;
        writeln!(xml, "    <boot dev='hd'/>")?;
        writeln!(xml, "  </os>")?;
        writeln!(xml, "  <devices>")?;
        for device in devices {
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

    /// Reads what [`Self::to_xml`] wrote.
    pub fn from_xml(xml: &str) -> Result<Self, Error> {
        let document = Document::parse(xml).map_err(|error| unreadable(&error.to_string()))?;
        let domain = document.root_element();
        let server = child(domain, "metadata")?
            .children()
            .find(|node| node.has_tag_name((NAMESPACE, "server")))
            .ok_or_else(|| unreadable("it was not defined by Kilonova"))?;
        let ours = |name: &'static str| {
            server.children().filter(move |node| node.has_tag_name((NAMESPACE, name)))
        };
        let boot = ours("boot").next().ok_or_else(|| unreadable("it says nothing of the disks"))?;
        Ok(Self {
            server: parse(text(child(domain, "uuid")?))?,
            name: text(child(domain, "name")?).to_owned(),
            display_name: ours("name").next().map(text).unwrap_or_default().to_owned(),
            vcpus: parse(text(child(domain, "vcpu")?))?,
            memory_mb: parse(text(child(domain, "memory")?))?,
            boot: Boot {
                image: boot.attribute("image").map(parse).transpose()?,
                root_gb: parse(attribute(boot, "root_gb")?)?,
                ephemeral_gb: parse(attribute(boot, "ephemeral_gb")?)?,
                swap_mb: parse(attribute(boot, "swap_mb")?)?,
                rebuilt: boot.attribute("rebuilt").map(parse).transpose()?,
            },
            rescue: ours("rescue")
                .next()
                .map(|rescue| {
                    let image = rescue.attribute("image").map(parse).transpose()?;
                    Ok::<_, Error>(Rescue { image })
                })
                .transpose()?,
            devices: ours("device").map(device).collect::<Result<_, _>>()?,
            done: ours("done")
                .next()
                .map(|done| parse(attribute(done, "operation")?))
                .transpose()?,
        })
    }
}

fn pci(xml: &mut String, address: &str, managed: &str) -> std::fmt::Result {
    let mut parts = address.split([':', '.']);
    let mut part = || parts.next().unwrap_or_default();
    let (domain, bus, slot, function) = (part(), part(), part(), part());
    writeln!(xml, "    <hostdev mode='subsystem' type='pci' managed='{managed}'>")?;
    writeln!(xml, "      <source>")?;
    writeln!(
        xml,
        "        <address domain='0x{}' bus='0x{}' slot='0x{}' function='0x{}'/>",
        Text(domain),
        Text(bus),
        Text(slot),
        Text(function)
    )?;
    writeln!(xml, "      </source>")?;
    writeln!(xml, "    </hostdev>")
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
        }),
        "test_pci" => Ok(Attachment::TestPci { address: address()? }),
        other => Err(unreadable(&format!("{other} is no kind of device"))),
    }
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Result<Node<'a, 'i>, Error> {
    node.children()
        .find(|child| child.has_tag_name(name))
        .ok_or_else(|| unreadable(&format!("it has no {name} element")))
}

fn attribute<'a>(node: Node<'a, '_>, name: &str) -> Result<&'a str, Error> {
    node.attribute(name).ok_or_else(|| unreadable(&format!("the attribute {name} is missing")))
}

fn text<'a>(node: Node<'a, '_>) -> &'a str {
    node.text().unwrap_or_default()
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| unreadable(&format!("'{text}' is not what it should be")))
}

fn unreadable(why: &str) -> Error {
    Error::new(Step::Define, format!("the XML of a domain cannot be read: {why}"))
}

/// Text for an element or a quoted attribute. Characters that XML cannot carry become U+FFFD; white
/// space that a parser would fold is written as a reference.
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
