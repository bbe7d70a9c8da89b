//! Intel X710 network cards, as found by Cyborg's `intel_nic_driver`, with the network and the
//! function of each port.

use std::collections::BTreeMap;

use kilonova_node_api::DeviceKind;

use super::{KindInput, parts_of, whole};
use crate::Error;
use crate::bus::OnBus;
use crate::collector::Collector;
use crate::device_spec::custom;

const DRIVER: &str = "intel_nic_driver";
const VENDOR: &str = "8086";
const CARDS: [&str; 2] = ["1572", "158b"];

/// `[x710_static]`: the network and the function of each interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NicOptions {
    networks: BTreeMap<String, String>,
    functions: BTreeMap<String, String>,
}

impl NicOptions {
    /// Parses `physical_device_mappings` and `function_device_mappings`:
    /// `net1:eth2|eth3,net2:eth4`.
    pub fn new(networks: &str, functions: &str) -> Result<Self, Error> {
        Ok(Self { networks: mappings(networks)?, functions: mappings(functions)? })
    }
}

/// Maps interfaces to names.
fn mappings(text: &str) -> Result<BTreeMap<String, String>, Error> {
    let wrong = Error::Mapping;
    let mut all = BTreeMap::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, interfaces) = entry.split_once(':').ok_or_else(|| {
            wrong(format!("{entry:?} does not have the form network:interface|interface"))
        })?;
        let (name, mut count) = (name.trim(), 0);
        for interface in interfaces.split('|').map(str::trim).filter(|one| !one.is_empty()) {
            count += 1;
            if let Some(other) = all.insert(interface.to_owned(), name.to_owned()) {
                return Err(wrong(format!("{interface} is listed for both {other} and {name}")));
            }
        }
        if name.is_empty() || count == 0 {
            return Err(wrong(format!(
                "{entry:?} does not have the form network:interface|interface"
            )));
        }
    }
    Ok(all)
}

pub(crate) fn find(options: &NicOptions, host: KindInput<'_>, collector: &mut Collector) {
    for card in host.bus.all().filter(|one| one.physical.is_none() && one.is(VENDOR, &CARDS)) {
        let interfaces = interfaces(host, card);
        let of = |all: &BTreeMap<String, String>| {
            interfaces.iter().find_map(|interface| all.get(interface)).cloned()
        };
        let (network, function) = (of(&options.networks), of(&options.functions));
        for part in parts_of(host.bus, card) {
            if !collector.claim_if_free(&part.address, DRIVER) {
                continue;
            }
            let place = if part.physical.is_some() { "vf" } else { "pf" };
            let mut traits = vec![custom(place)];
            traits.extend(function.as_deref().map(custom));
            traits.extend(network.as_deref().map(custom));
            let mut offer = whole(part, DeviceKind::Nic, "CUSTOM_NIC", traits, "intel");
            if let Some(network) = &network {
                offer.part.facts.insert("physical_network".to_owned(), network.clone());
            }
            collector.offers.push(offer);
        }
    }
}

/// Names of the card's network interfaces.
fn interfaces(host: KindInput<'_>, card: &OnBus) -> Vec<String> {
    host.sysfs.list(&format!("bus/pci/devices/{}/net", card.address)).unwrap_or_default()
}
