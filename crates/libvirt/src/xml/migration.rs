//! The XML of a running domain for the destination of a live migration.
//!
//! Libvirt compares it with the running domain and allows only differences that the guest cannot see. It is therefore
//! libvirt's own XML with the host devices and the sources of volumes and interfaces replaced, and the pinning to this
//! host's CPUs and NUMA nodes replaced by the destination's, or removed. The guest's own cells stay.

use std::ops::Range;

use kilonova_node_api::{
    Attachment, GuestNuma, Interface, OutgoingMigration, VolumeState, VolumeStatus,
};
use roxmltree::{Document, Node};

use super::element::Element;
use super::interface::backend;
use super::numa;
use super::volumes::{source_element, volume_of};

/// Rewrites a domain's XML for the destination of a migration. Each host device and each volume needs a counterpart
/// there; interfaces without one are unchanged. `numa` has the cells of the guest there and the priority of realtime
/// vCPUs.
pub(crate) fn migration_xml(
    xml: &str,
    migration: &OutgoingMigration,
    numa: Option<(&GuestNuma, u32)>,
) -> Result<String, String> {
    let OutgoingMigration { devices, volumes, interfaces, .. } = migration;
    let document =
        Document::parse(xml).map_err(|error| format!("could not parse libvirt's XML: {error}"))?;
    let domain = document.root_element();
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for node in domain.children() {
        if node.has_tag_name("numatune") {
            let new = numa.map(|(numa, _)| inline(&numa::numatune(numa)));
            edits.push((node.range(), new.unwrap_or_default()));
        }
        if node.has_tag_name("cputune") {
            match numa {
                Some((numa, priority)) => {
                    edits.push((node.range(), inline(&numa::cputune(numa, priority))));
                }
                None => {
                    let pins = node.children().filter(|child| is_pin(*child));
                    edits.extend(pins.map(|pin| (pin.range(), String::new())));
                }
            }
        }
        if node.has_tag_name("vcpu") {
            let cpuset = node.attributes().find(|attribute| attribute.name() == "cpuset");
            edits.extend(cpuset.map(|attribute| (attribute.range(), String::new())));
        }
    }
    let sources = domain
        .children()
        .filter(|node| node.has_tag_name("devices"))
        .flat_map(|node| node.children())
        .filter(|node| is_of_host(*node))
        .filter_map(|node| node.children().find(|child| child.has_tag_name("source")))
        .filter_map(|node| node.children().find(|child| child.has_tag_name("address")));
    for address in sources {
        match address.attribute("uuid") {
            Some(uuid) => {
                let new = mdev(uuid, devices).ok_or_else(|| {
                    format!(
                        "Unable to find the destination mediated device UUID to use for this \
                         source mdev UUID : {uuid}"
                    )
                })?;
                edits.extend(change(address, "uuid", &new));
            }
            None => {
                let old = pci_address(address);
                let new = function(&old, devices).ok_or_else(|| {
                    format!("no PCI function on the destination is assigned to replace {old}")
                })?;
                let mut parts = new.split([':', '.']);
                for name in ["domain", "bus", "slot", "function"] {
                    let part = format!("0x{}", parts.next().unwrap_or_default());
                    edits.extend(change(address, name, &part));
                }
            }
        }
    }
    for disk in domain.descendants().filter(|node| node.has_tag_name("disk")) {
        let Some(volume) = volume_of(disk) else { continue };
        let of = |state: &&VolumeState| state.volume_id == volume;
        let source = match volumes.iter().find(of).map(|state| &state.status) {
            Some(VolumeStatus::Attached { source, .. }) => source_element(source),
            Some(VolumeStatus::Failed { .. } | VolumeStatus::Held { .. }) | None => {
                return Err(format!("the destination has not connected volume {volume}"));
            }
        };
        let new = source.to_string().trim_end().to_owned();
        // Earlier versions of libvirt write the source's login next to it.
        for child in disk.children() {
            if child.has_tag_name("source") {
                edits.push((child.range(), new.clone()));
            } else if child.has_tag_name("auth") {
                edits.push((child.range(), String::new()));
            }
        }
    }
    for node in domain.descendants().filter(|node| node.has_tag_name("interface")) {
        let of = |one: &&Interface| mac(node).is_some_and(|mac| mac.eq_ignore_ascii_case(&one.mac));
        if let Some(interface) = interfaces.iter().find(of) {
            edits.extend(reconnect(node, interface));
        }
    }
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    let mut rewritten = xml.to_owned();
    for (range, text) in edits {
        rewritten.replace_range(range, &text);
    }
    Ok(rewritten)
}

/// The MAC address of an interface that is a tap or a macvtap.
fn mac<'a>(interface: Node<'a, '_>) -> Option<&'a str> {
    if !matches!(interface.attribute("type"), Some("bridge" | "direct")) {
        return None;
    }
    let mac = interface.children().find(|child| child.has_tag_name("mac"))?;
    mac.attribute("address")
}

/// Connects an interface as the destination does.
fn reconnect(node: Node<'_, '_>, interface: &Interface) -> Vec<(Range<usize>, String)> {
    let (kind, elements) = backend(interface);
    let new: String = elements.iter().map(inline).collect();
    let mut edits: Vec<(Range<usize>, String)> = change(node, "type", kind).into_iter().collect();
    for child in node.children() {
        if child.has_tag_name("source") {
            edits.push((child.range(), new.clone()));
        } else if child.has_tag_name("virtualport") {
            edits.push((child.range(), String::new()));
        }
    }
    edits
}

fn inline(element: &Element) -> String {
    element.to_string().trim_end().to_owned()
}

/// True for an element of `<cputune>` that names CPUs of the host. The others, such as `<shares>`, are valid on any
/// host.
fn is_pin(node: Node<'_, '_>) -> bool {
    ["vcpupin", "emulatorpin", "iothreadpin"].iter().any(|name| node.has_tag_name(*name))
}

fn is_of_host(node: Node<'_, '_>) -> bool {
    node.has_tag_name("hostdev")
        || (node.has_tag_name("interface") && node.attribute("type") == Some("hostdev"))
}

fn change(node: Node<'_, '_>, name: &str, value: &str) -> Option<(Range<usize>, String)> {
    let attribute = node.attributes().find(|attribute| attribute.name() == name)?;
    Some((attribute.range_value(), value.to_owned()))
}

fn mdev(old: &str, devices: &[(Attachment, Attachment)]) -> Option<String> {
    devices.iter().find_map(|pair| match pair {
        (Attachment::Mdev { uuid, .. }, Attachment::Mdev { uuid: new, .. }) => {
            (uuid.to_string() == old).then(|| new.to_string())
        }
        _ => None,
    })
}

fn function<'a>(old: &str, devices: &'a [(Attachment, Attachment)]) -> Option<&'a str> {
    let address = |device: &'a Attachment| match device {
        Attachment::Pci { address } | Attachment::Vfio { address, .. } => Some(address.as_str()),
        Attachment::Mdev { .. } | Attachment::TestPci { .. } => None,
    };
    let (_, new) = devices.iter().find(|(from, _)| address(from) == Some(old))?;
    address(new)
}

/// Joins the four attributes to `0000:0c:1f.3`.
fn pci_address(node: Node<'_, '_>) -> String {
    let part = |name| node.attribute(name).unwrap_or_default().trim_start_matches("0x");
    format!("{}:{}:{}.{}", part("domain"), part("bus"), part("slot"), part("function"))
}

#[cfg(test)]
mod tests {
    use kilonova_ids::HostName;
    use kilonova_node_api::{GuestNumaCell, GuestVcpu, Peer, Vif};

    use super::*;

    const XML: &str = "<domain type='kvm' id='4'>
  <vcpu placement='static' cpuset='0-3'>2</vcpu>
  <cputune><shares>512</shares><vcpupin vcpu='0' cpuset='2'/><emulatorpin cpuset='2-3'/></cputune>
  <numatune><memory mode='preferred' nodeset='0'/></numatune>
  <devices>
    <interface type='hostdev' managed='yes'>
      <source><address type='pci' domain='0x0000' bus='0x25' slot='0x00' function='0x4'/></source>
      <address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/>
    </interface>
    <hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci'>
      <source><address uuid='83b8f4f2-509f-382f-3c1e-e6bfe0fa1001'/></source>
      <address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x0'/>
    </hostdev>
  </devices>
</domain>";

    fn vfio(address: &str) -> Attachment {
        Attachment::Vfio { address: address.into(), vgpu_type: "nvidia-558".into(), instance: None }
    }

    fn mdev(uuid: &str) -> Attachment {
        Attachment::Mdev {
            uuid: uuid.parse().expect("the value is a UUID"),
            parent: "mtty_mtty".into(),
            mdev_type: "mtty-1".into(),
        }
    }

    fn to(devices: &[(Attachment, Attachment)]) -> OutgoingMigration {
        OutgoingMigration {
            to: Peer { host: HostName::verbatim("b"), address: "192.0.2.2".into() },
            devices: devices.to_vec(),
            force: false,
            volumes: Vec::new(),
            numa: None,
            interfaces: Vec::new(),
        }
    }

    #[test]
    fn interfaces_are_connected_as_the_destination_does() {
        let native = "<source bridge='br-int'/><virtualport type='openvswitch'>\
                      <parameters interfaceid='55555555-5555-4555-8555-555555555555'/></virtualport>";
        let hybrid = "<source bridge='qbr55555555-55'/>";
        let xml = |one: &str| {
            format!(
                "<domain><devices><interface type='bridge'><mac address='fa:16:3e:00:00:01'/>{one}\
                 <target dev='tap55555555-55'/></interface><interface type='bridge'>\
                 <mac address='fa:16:3e:00:00:02'/><source bridge='brq1'/></interface></devices></domain>"
            )
        };
        let bridge = || "br-int".to_owned();
        for (from, vif, wanted) in [
            (native, Vif::OvsHybrid { bridge: bridge() }, hybrid),
            (hybrid, Vif::Ovs { bridge: bridge() }, native),
        ] {
            let mut interface = crate::xml::tests::interface('5', None);
            interface.mac = "FA:16:3E:00:00:01".into();
            interface.vif = Some(vif);
            let migration = OutgoingMigration { interfaces: vec![interface], ..to(&[]) };
            let rewritten = migration_xml(&xml(from), &migration, None).expect("it is rewritten");
            let shape: String = rewritten.split('\n').map(str::trim).collect();
            assert_eq!(shape, xml(wanted));
        }
    }

    #[test]
    fn only_changes_invisible_to_the_guest() {
        let devices = [
            (vfio("0000:25:00.4"), vfio("0001:84:01.2")),
            (
                mdev("83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"),
                mdev("11111111-2222-4333-8444-555555555555"),
            ),
        ];
        let rewritten = migration_xml(XML, &to(&devices), None).expect("the XML is rewritten");
        let wanted = XML
            .replace(" cpuset='0-3'", " ")
            .replace("<vcpupin vcpu='0' cpuset='2'/><emulatorpin cpuset='2-3'/>", "")
            .replace("<numatune><memory mode='preferred' nodeset='0'/></numatune>", "")
            .replace(
                "domain='0x0000' bus='0x25' slot='0x00' function='0x4'",
                "domain='0x0001' bus='0x84' slot='0x01' function='0x2'",
            )
            .replace(
                "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001",
                "11111111-2222-4333-8444-555555555555",
            );
        assert_eq!(rewritten, wanted);
    }

    #[test]
    fn volumes_get_the_sources_of_the_destination() {
        let volume = "aaaaaaaa-7777-4777-8777-777777777777";
        let xml = format!(
            "<domain><devices><disk type='file'><source file='/i/disk'/><target dev='vda'/></disk>
            <disk type='network'><source protocol='iscsi' name='iqn.a/1' index='1'><host name='192.0.2.9'
            port='3260'/></source><auth username='me'/><backingStore/><target dev='vdb'/>
            <serial>{volume}</serial><alias name='ua-{volume}'/></disk></devices></domain>"
        );
        let attached = serde_json::json!({
            "volume_id": volume, "state": "attached", "device": "vdb", "source": {
                "type": "iscsi", "iqn": "iqn.a", "lun": 2,
                "portal": {"name": "192.0.2.9", "port": 3260}, "user": "me", "secret": volume,
            },
        });
        let state = serde_json::from_value(attached).expect("the state is readable");
        let migration = OutgoingMigration { volumes: vec![state], ..to(&[]) };
        let rewritten = migration_xml(&xml, &migration, None).expect("the XML is rewritten");
        assert!(
            rewritten.contains("name='iqn.a/2'") && !rewritten.contains("iqn.a/1"),
            "{rewritten}"
        );
        assert_eq!(rewritten.matches("<auth ").count(), 1, "{rewritten}");
        assert!(rewritten.contains("file='/i/disk'"), "{rewritten}");
        Document::parse(&rewritten).expect("it is XML");
        let missing = migration_xml(&xml, &to(&[]), None).expect_err("the XML is refused");
        assert!(missing.contains(volume), "{missing}");
    }

    #[test]
    fn a_device_without_a_counterpart_is_refused() {
        let text = migration_xml(XML, &to(&[(vfio("0000:25:00.4"), vfio("0001:84:01.2"))]), None);
        assert!(text.expect_err("the XML is refused").contains("83b8f4f2"));
        let text = migration_xml(XML, &to(&[]), None).expect_err("the XML is refused");
        assert!(text.contains("0000:25:00.4"), "{text}");
        assert!(migration_xml("<domain", &to(&[]), None).is_err());
    }

    #[test]
    fn the_guest_keeps_its_buses_and_distances() {
        use crate::config::LibvirtConfig;
        use crate::files::layout;
        use crate::xml::tests::{distances, host, volumes, with_cells};

        let mut guest = with_cells();
        guest.config.devices.retain(|device| !matches!(device, Attachment::TestPci { .. }));
        let host = host(LibvirtConfig::default());
        let layout = layout(&guest, volumes());
        let running =
            crate::xml::domain(&host, &guest, &layout, &distances(), None, &Default::default());
        let replaced = |device: &Attachment| match device {
            Attachment::Mdev { parent, mdev_type, .. } => Attachment::Mdev {
                uuid: uuid::Uuid::new_v4(),
                parent: parent.clone(),
                mdev_type: mdev_type.clone(),
            },
            other => vfio(&other.key().replace("0000:", "0007:")),
        };
        let devices: Vec<_> =
            guest.config.devices.iter().map(|one| (one.clone(), replaced(one))).collect();
        let mut numa = guest.config.numa.as_deref().expect("the guest has cells").clone();
        numa.cells.iter_mut().for_each(|cell| cell.host += 4);
        let rewritten = migration_xml(&running, &to(&devices), Some((&numa, 1)));
        let rewritten = rewritten.expect("the XML is rewritten");
        // Only the parts that name the host differ.
        let of_host = [
            "<source",
            "<address uuid",
            "<address domain",
            "nodeset=",
            "<address type='pci' domain='0x0007'",
        ];
        let of_guest = |xml: &str| -> Vec<String> {
            let lines = xml.lines().map(str::trim).filter(|line| !line.is_empty());
            let lines = lines.filter(|line| !of_host.iter().any(|part| line.contains(part)));
            lines.map(str::to_owned).collect()
        };
        let (before, after) = (of_guest(&running), of_guest(&rewritten));
        let gone: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
        assert_eq!(
            gone,
            ["<address type='pci' domain='0x0000' bus='0x25' slot='0x00' function='0x4'/>"]
        );
        assert_eq!(before.iter().filter(|line| line.contains("pcie-expander-bus")).count(), 2);
        assert!(
            rewritten.contains("domain='0x0007' bus='0x25'") && rewritten.contains("nodeset='4-5'")
        );
        assert!(rewritten.contains("<sibling id='0' value='31'/>"), "{rewritten}");
    }

    #[test]
    fn the_cells_of_the_destination_replace_those_of_the_source() {
        let xml = "<domain><vcpu placement='static'>2</vcpu><cputune><vcpupin vcpu='0' cpuset='2'/>\
            <vcpupin vcpu='1' cpuset='3'/><emulatorpin cpuset='2-3'/></cputune><numatune>\
            <memory mode='strict' nodeset='0'/><memnode cellid='0' mode='strict' nodeset='0'/></numatune>\
            <cpu><numa><cell id='0' cpus='0-1' memory='524288' unit='KiB'/></numa></cpu><devices/></domain>";
        let vcpu = |id: u32, cpus: &str| GuestVcpu { id, cpus: cpus.into() };
        let cells = vec![GuestNumaCell {
            host: 1,
            vcpus: vec![vcpu(0, "10"), vcpu(1, "12")],
            memory_mb: 512,
            page_kib: None,
        }];
        let numa = GuestNuma { cells, emulator: "10,12".into(), ..GuestNuma::default() };
        let rewritten = migration_xml(xml, &to(&[]), Some((&numa, 1))).expect("it is rewritten");
        let document = Document::parse(&rewritten).expect("it is XML");
        let values = |tag: &str, attribute: &str| -> Vec<String> {
            let all = document.descendants().filter(|node| node.has_tag_name(tag));
            all.filter_map(|node| node.attribute(attribute).map(str::to_owned)).collect()
        };
        assert_eq!(values("vcpupin", "cpuset"), ["10", "12"]);
        assert_eq!(values("emulatorpin", "cpuset"), ["10,12"]);
        assert_eq!(values("memory", "nodeset"), ["1"]);
        assert_eq!(values("memnode", "nodeset"), ["1"]);
        assert_eq!(values("cell", "memory"), ["524288"], "the guest's own cells stay");
    }
}
