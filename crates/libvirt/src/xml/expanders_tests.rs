//! Limits of the expander buses, and the ports of running guests.

use std::collections::BTreeSet;

use kilonova_node_api::GuestNumaCell;

use super::*;
use crate::config::LibvirtConfig;
use crate::files::layout;
use crate::xml::tests::{changed, distances, host, volumes, with_cells};
use crate::xml::{domain, missing_hostdevs};

/// A guest with `counts[n]` functions at cell `n`.
fn guest(counts: &[usize]) -> Definition {
    let cell = |host: u32| GuestNumaCell { host, vcpus: vec![], memory_mb: 64, page_kib: None };
    let mut numa =
        GuestNuma { cells: (0..).take(counts.len()).map(cell).collect(), ..GuestNuma::default() };
    let mut devices = Vec::new();
    for (cell, count) in (0_u32..).zip(counts) {
        for device in 0..*count {
            let address = format!("{cell:04x}:00:{device:02x}.0");
            numa.devices.insert(address.clone(), cell);
            devices.push(Attachment::Pci { address });
        }
    }
    changed(|config| {
        config.devices = devices;
        config.numa = Some(Box::new(numa));
    })
}

/// The numbers of the expander buses, each with its slot and the number of its ports.
fn buses(expanders: &Expanders) -> Vec<(u32, u32, usize)> {
    let xml: String = expanders.controllers.iter().map(ToString::to_string).collect();
    let xml = format!("<devices>{xml}</devices>");
    let document = Document::parse(&xml).expect("the controllers are valid XML");
    let number = |text: Option<&str>| {
        let text = text.expect("the attribute exists");
        match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).expect("the value is a number"),
            None => text.parse().expect("the value is a number"),
        }
    };
    let all: Vec<_> = document.root_element().children().filter(|node| node.is_element()).collect();
    let indexes: Vec<u32> = all.iter().map(|node| number(node.attribute("index"))).collect();
    assert_eq!(
        indexes,
        (0..).take(all.len()).collect::<Vec<_>>(),
        "libvirt would fill gaps with ports"
    );
    let expander = |node: &&Node<'_, '_>| node.attribute("model") == Some(EXPANDER);
    let describe = |node: &Node<'_, '_>| {
        let own = number(node.attribute("index"));
        let target = child(*node, "target").expect("the bus has a target");
        let slot = child(*node, "address").expect("the bus has an address").attribute("slot");
        let ports = all.iter().filter(|node| bus(**node) == Some(own)).count();
        (number(target.attribute("busNr")), number(slot), ports)
    };
    all.iter().filter(expander).map(describe).collect()
}

#[test]
fn each_cell_with_devices_has_a_bus_that_leaves_room_for_its_ports() {
    let expanders = Expanders::of(&guest(&[1, 0, 7, 8]), "pc-q35-9.2", 3);
    assert_eq!(buses(&expanders), [(248, 0x10, 1), (240, 0x11, 7), (224, 0x12, 8)]);
    let all: BTreeSet<u32> = expanders.buses.values().copied().collect();
    assert_eq!((all.len(), expanders.buses.len()), (16, 16), "no two devices share a port");
    assert!(Expanders::of(&guest(&[0, 0]), "q35", 3).controllers.is_empty());
}

#[test]
fn devices_beyond_the_limits_stay_on_the_main_bus() {
    let wide = Expanders::of(&guest(&[40]), "q35", 0);
    assert_eq!(buses(&wide), [(216, 0x10, PORTS)]);
    assert_eq!(wide.buses.len(), PORTS);
    let many = buses(&Expanders::of(&guest(&[1; 20]), "q35", 9));
    assert_eq!(many.len(), SLOTS.len());
    let deep = buses(&Expanders::of(&guest(&[32; 6]), "q35", 1));
    assert_eq!(deep.iter().map(|(number, _, _)| *number).collect::<Vec<_>>(), [216, 176, 136, 96]);
}

/// The buses of the host devices in a domain's XML.
fn addresses_of(xml: &str) -> Vec<Option<u32>> {
    let document = Document::parse(xml).expect("it is XML");
    document.descendants().filter(|node| node.has_tag_name("hostdev")).map(bus).collect()
}

#[test]
fn a_device_returns_to_a_free_port_of_its_cell() {
    let guest = with_cells();
    let host = host(LibvirtConfig::default());
    let running =
        domain(&host, &guest, &layout(&guest, volumes()), &distances(), None, &Default::default());
    let addresses = |running: &str| -> Vec<Option<u32>> {
        let missing = missing_hostdevs(&guest, running, |_| false);
        let own = |xml: &String| bus(Document::parse(xml).expect("it is XML").root_element());
        missing.iter().map(own).collect()
    };
    assert_eq!(addresses(&running), [None, None, None], "all ports have devices");
    let begin = running.find("    <hostdev ").expect("host devices exist");
    let end = running.rfind("</hostdev>").expect("host devices exist") + "</hostdev>".len();
    let mut without = running.clone();
    without.replace_range(begin..end, "");
    // The interface keeps the port of cell 1.
    let free = addresses(&without);
    assert!(free[0].is_none() && free[1].is_some() && free[2] > free[1], "{free:?}");
    let own = addresses_of(&running);
    assert_eq!(free, own, "the devices get the ports of the definition");
    let attached = |xml: &str| xml.contains("0x0c");
    assert_eq!(missing_hostdevs(&guest, &without, attached).len(), 2);
    assert_eq!(addresses("<domain><devices/></domain>"), [None, None, None], "of an earlier build");
    assert_eq!(addresses("no XML"), [None, None, None]);
}
