//! Where the devices of a host are, relative to each other: NUMA node, PCIe switch, island.
//!
//! An island is a set of at least two cards that are all connected to each other. A card is in at most one island:
//! where only some cards are connected, as in a ring, each card, in address order, joins the first island whose cards
//! are all connected to it. Facts that a host does not report yield no trait.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kilonova_ids::{ProviderId, ResourceClass, nearness};
use kilonova_node_api::Device;
use kilonova_store::Tx;

use crate::{Error, db};

pub use crate::db::near::DevicePlace;

/// Where a device is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub switch: Option<String>,
    /// The first card of its island.
    pub island: Option<String>,
    /// The traits of its providers.
    pub traits: Vec<String>,
}

/// Where each device of a host is, in the order of the report.
pub(super) fn places(devices: &[Device]) -> Vec<Places> {
    let islands = islands(devices);
    let numbers = |all: BTreeSet<&str>| -> BTreeMap<String, usize> {
        all.into_iter().enumerate().map(|(number, one)| (one.to_owned(), number)).collect()
    };
    let switches = numbers(devices.iter().filter_map(|one| one.switch.as_deref()).collect());
    let island_numbers = numbers(islands.values().map(String::as_str).collect());
    let each = devices.iter().map(|device| {
        let switch = device.switch.clone();
        let island = islands.get(device.card_address()).cloned();
        let node = (device.numa_node >= 0).then(|| device.numa_node.to_string());
        let number = |of: &BTreeMap<String, usize>, name: &Option<String>| {
            name.as_ref().and_then(|name| of.get(name)).map(ToString::to_string)
        };
        let numbers = [
            (nearness::NUMA_NODE, node),
            (nearness::PCIE_SWITCH, number(&switches, &switch)),
            (nearness::GPU_ISLAND, number(&island_numbers, &island)),
        ];
        let named =
            numbers.into_iter().filter_map(|(prefix, number)| Some(prefix.to_owned() + &number?));
        Places { switch, island, traits: named.collect() }
    });
    each.collect()
}

/// Maps the address of each card that is in an island to the address of the island's first card.
fn islands(devices: &[Device]) -> BTreeMap<String, String> {
    let mut peers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let known: BTreeSet<&str> = devices.iter().map(Device::card_address).collect();
    for device in devices {
        let card = device.card_address();
        for peer in device.peers.iter().map(String::as_str) {
            if peer != card && known.contains(peer) {
                peers.entry(card).or_default().insert(peer);
                peers.entry(peer).or_default().insert(card);
            }
        }
    }
    let mut islands: BTreeMap<String, String> = BTreeMap::new();
    for (first, linked) in &peers {
        if islands.contains_key(*first) {
            continue;
        }
        let mut members = vec![*first];
        for card in linked.iter().filter(|card| *card > first && !islands.contains_key(**card)) {
            if members.iter().all(|member| peers[card].contains(member)) {
                members.push(card);
            }
        }
        if members.len() > 1 {
            islands.extend(members.iter().map(|one| ((*one).to_owned(), (*first).to_owned())));
        }
    }
    islands
}

/// Where the devices of providers are. Providers without a device are left out.
///
/// # Errors
/// Store errors only.
pub fn device_places(tx: &mut Tx<'_>, providers: &[ProviderId]) -> Result<Vec<DevicePlace>, Error> {
    Ok(db::near::of_providers(tx, providers)?)
}

/// The NUMA node of each provider's device; `None` if the kernel reports none. Providers without a
/// device are left out.
///
/// # Errors
/// Store errors only.
pub fn numa_nodes(
    tx: &mut Tx<'_>,
    providers: &[ProviderId],
) -> Result<HashMap<ProviderId, Option<u32>>, Error> {
    let node = |place: &DevicePlace| place.node.and_then(|node| u32::try_from(node).ok());
    let places = device_places(tx, providers)?;
    Ok(places.iter().map(|place| (place.provider, node(place))).collect())
}

/// Announces [`island_of`].
///
/// # Errors
/// Store errors only.
pub fn expect_island_of(tx: &mut Tx<'_>, provider: ProviderId) -> Result<(), Error> {
    Ok(db::near::expect_in_island_of(tx, provider)?)
}

/// The providers in the island of a provider's device, with their classes; empty if the device is not in an island.
///
/// # Errors
/// Store errors only.
pub fn island_of(
    tx: &mut Tx<'_>,
    provider: ProviderId,
) -> Result<Vec<(ProviderId, ResourceClass)>, Error> {
    Ok(db::near::in_island_of(tx, provider)?)
}

#[cfg(test)]
mod tests {
    use kilonova_node_api::{DeviceKind, Health};

    use super::*;

    fn device(address: &str, peers: &[&str]) -> Device {
        Device {
            address: address.to_owned(),
            card: None,
            one_type: false,
            switch: None,
            peers: peers.iter().map(|one| (*one).to_owned()).collect(),
            mig: None,
            kind: DeviceKind::Gpu,
            vendor_id: "10de".to_owned(),
            product_id: "2330".to_owned(),
            model: String::new(),
            numa_node: -1,
            health: Health::Healthy,
            deployables: Vec::new(),
        }
    }

    fn traits(devices: &[Device]) -> Vec<String> {
        places(devices).into_iter().map(|one| one.traits.join(" ")).collect()
    }

    #[test]
    fn what_a_host_does_not_report_is_absent() {
        let mut devices = [device("a", &[]), device("b", &[]), device("c", &[])];
        assert_eq!(traits(&devices), ["", "", ""]);
        devices[1].numa_node = 3;
        devices[1].switch = Some("0000:16:00.0".to_owned());
        devices[2].switch = Some("0000:06:00.0".to_owned());
        assert_eq!(
            traits(&devices),
            ["", "CUSTOM_NUMA_NODE_3 CUSTOM_PCIE_SWITCH_1", "CUSTOM_PCIE_SWITCH_0"]
        );
    }

    #[test]
    fn every_two_cards_of_an_island_are_connected() {
        // Two meshes of four, each card with one link to the other mesh.
        let linked =
            |n: usize| (0..8).filter(move |m| *m != n && (*m / 4 == n / 4 || *m % 4 == n % 4));
        let devices: Vec<Device> = (0..8)
            .map(|n| {
                let peers: Vec<String> = linked(n).map(|m| format!("gpu{m}")).collect();
                let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
                device(&format!("gpu{n}"), &peers)
            })
            .collect();
        let four = |number: u8| vec![format!("CUSTOM_GPU_ISLAND_{number}"); 4];
        assert_eq!(traits(&devices), [four(0), four(1)].concat());
        // A ring of four: two pairs.
        let ring = [("a", ["b", "d"]), ("b", ["a", "c"]), ("c", ["b", "d"]), ("d", ["a", "c"])];
        let ring = ring.map(|(name, peers)| device(name, &peers));
        let (first, second) = ("CUSTOM_GPU_ISLAND_0", "CUSTOM_GPU_ISLAND_1");
        assert_eq!(traits(&ring), [first, first, second, second]);
        // Only one side reports the link, and one peer is not a device of this host.
        let half = [device("a", &["b", "z", "a"]), device("b", &[]), device("c", &["z"])];
        assert_eq!(traits(&half), [first, first, ""]);
    }

    #[test]
    fn functions_are_in_the_island_of_their_card() {
        let mut function = device("a.4", &["b"]);
        function.card = Some("a".to_owned());
        let devices = [function, device("b", &["a"])];
        assert_eq!(traits(&devices), ["CUSTOM_GPU_ISLAND_0", "CUSTOM_GPU_ISLAND_0"]);
    }
}
