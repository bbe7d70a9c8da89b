//! Finds the place of each device: the PCIe switch above it, and the cards to which it is connected
//! by NVLink or xGMI.
//!
//! The switch is the upstream port directly below a root port, so that all devices below cascaded
//! switches have the same switch. NVIDIA's driver describes NVLink only while it drives the GPUs,
//! and it does not drive GPUs for passthrough. An operator can therefore list the islands. xGMI is
//! read from sysfs. A place that cannot be read is left out, never guessed.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_node_api::Device;

use crate::{Error, NvidiaSmi, PciAddress, Sysfs};

/// The value of the option for connections that the driver describes.
const DRIVER: &str = "driver";

/// The cards that are connected by NVLink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// The other cards of each card.
    peers: BTreeMap<String, BTreeSet<String>>,
    from_driver: bool,
}

impl Links {
    /// Parses `[devices] nvlink_islands`: the cards of one island for each value, or `driver`.
    ///
    /// # Errors
    /// The reason, for the operator.
    pub fn parse(values: &[String]) -> Result<Self, String> {
        if let [only] = values
            && only.trim() == DRIVER
        {
            return Ok(Self { from_driver: true, ..Self::default() });
        }
        let (mut links, mut seen) = (Self::default(), BTreeSet::new());
        for value in values {
            let mut island = BTreeSet::new();
            for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
                let card = PciAddress::parse(word)
                    .ok_or_else(|| format!("'{word}' is neither a PCI address nor '{DRIVER}'"))?
                    .to_string();
                if !seen.insert(card.clone()) {
                    return Err(format!("{card} is listed twice"));
                }
                island.insert(card);
            }
            if island.len() < 2 {
                return Err(format!("'{value}' is not an island of at least two cards"));
            }
            for card in &island {
                let others = island.iter().filter(|other| *other != card);
                links.peers.insert(card.clone(), others.cloned().collect());
            }
        }
        Ok(links)
    }

    /// Replaces the links by the connections that NVIDIA's driver describes now, if the option is
    /// `driver`.
    ///
    /// # Errors
    /// [`Error::Links`] if the driver does not describe them.
    pub fn resolved(self, program: &NvidiaSmi) -> Result<Self, Error> {
        if !self.from_driver {
            return Ok(self);
        }
        let mut links = Self { from_driver: true, ..Self::default() };
        for (one, other) in program.nvlinks().map_err(Error::Links)? {
            links.peers.entry(one.clone()).or_default().insert(other.clone());
            links.peers.entry(other).or_default().insert(one);
        }
        Ok(links)
    }

    /// The listed cards that the host does not have.
    pub(crate) fn absent<'a>(&'a self, sysfs: &'a dyn Sysfs) -> impl Iterator<Item = &'a String> {
        self.peers.keys().filter(|card| !sysfs.exists(&path_of(card)))
    }
}

/// The directory of a function in sysfs.
fn path_of(address: &str) -> String {
    format!("bus/pci/devices/{address}")
}

/// Sets the switch and the connected cards of each device.
pub(crate) fn set_places(links: &Links, sysfs: &dyn Sysfs, devices: &mut [Device]) {
    let on_bus = |card: &&str| PciAddress::parse(card).is_some();
    let cards: BTreeSet<&str> = devices.iter().map(Device::card_address).filter(on_bus).collect();
    let switches: BTreeMap<String, Option<String>> =
        cards.into_iter().map(|card| (card.to_owned(), switch(sysfs, card))).collect();
    let mut hives: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for card in switches.keys() {
        if let Some(hive) = hive(sysfs, card) {
            hives.entry(hive).or_default().insert(card.clone());
        }
    }
    for device in devices {
        let card = device.card_address();
        let Some(switch) = switches.get(card) else { continue };
        let hive = hives.values().find(|hive| hive.contains(card));
        let peers = links.peers.get(card).into_iter().chain(hive).flatten();
        let peers: BTreeSet<&String> = peers.filter(|peer| *peer != card).collect();
        device.peers = peers.into_iter().cloned().collect();
        device.switch.clone_from(switch);
    }
}

/// The upstream port of the outermost PCIe switch above a function. In the path below the last host
/// bridge, it is the second of at least three functions above this one (root port, upstream port,
/// downstream port).
fn switch(sysfs: &dyn Sysfs, address: &str) -> Option<String> {
    let real = sysfs.real(&path_of(address)).ok()?;
    let mut above: Vec<&str> = Vec::new();
    for name in real.split('/') {
        if name.starts_with("pci") {
            // A further host bridge, such as that of a volume management device.
            above.clear();
        } else if PciAddress::parse(name).is_some() {
            above.push(name);
        }
    }
    let own = above.pop()?;
    (own == address && above.len() >= 3).then(|| above[1].to_owned())
}

/// The hive of an AMD GPU. xGMI connects all GPUs of a hive to each other.
fn hive(sysfs: &dyn Sysfs, address: &str) -> Option<String> {
    let path = path_of(address) + "/xgmi_hive_info/xgmi_hive_id";
    let hive = sysfs.read(&path).ok()?.trim().to_owned();
    let is_one = !hive.is_empty() && hive.trim_start_matches("0x").bytes().any(|byte| byte != b'0');
    is_one.then_some(hive)
}

#[cfg(test)]
#[path = "near_tests.rs"]
mod tests;
