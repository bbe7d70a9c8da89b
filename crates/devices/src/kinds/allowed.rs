//! PCI functions and virtual functions of `[pci] device_spec`, as Nova's PCI devices in Placement:
//! one provider per card, which counts the card's virtual functions.
//!
//! A card and its virtual functions may both be named: the ledger allocates either the card or its
//! functions.

use std::collections::BTreeMap;

use kilonova_ids::ResourceClass;
use kilonova_node_api::{Deployable, HandleSlot};

use super::{KindInput, OWNER_NOVA};
use crate::bus::OnBus;
use crate::collector::{Collector, DeviceProblem, Naming, Offer};
use crate::health::is_vfio;
use crate::traits::{LIVE_MIGRATABLE, MANAGED, PciType, of_ids};
use crate::{DeviceSpec, MatchOf};

const OPTION: &str = "[pci] device_spec";
/// PCI base class of bridges, which are never offered themselves.
const BRIDGE: &str = "06";

pub(crate) fn find(specs: &[DeviceSpec], host: KindInput<'_>, collector: &mut Collector) {
    let mut groups: Vec<Offer> = Vec::new();
    let mut matched = vec![false; specs.len()];
    for on_bus in host.bus.all().filter(|one| !one.function.class.starts_with(BRIDGE)) {
        let wanted = MatchOf {
            vendor_id: &on_bus.function.vendor_id,
            product_id: &on_bus.function.product_id,
            address: on_bus.place,
            physical: on_bus.physical,
        };
        let Some(at) = specs.iter().position(|spec| spec.matches(&wanted)) else { continue };
        matched[at] = true;
        let spec = &specs[at];
        if on_bus.physical.is_some() && spec.one_time_use.is_some() {
            let reason = format!("{OPTION}: one_time_use is not supported for virtual functions");
            collector.problems.push(DeviceProblem::note(&on_bus.address, reason));
            continue;
        }
        // An entry that names a card ignores virtual functions that serve another purpose.
        let taken = if spec.names(on_bus.place) {
            collector.claim(&on_bus.address, OPTION)
        } else {
            collector.claim_if_free(&on_bus.address, OPTION)
        };
        if !taken {
            continue;
        }
        let driver = &on_bus.function.driver;
        if !spec.managed && !is_vfio(host.sysfs, &on_bus.address, driver) {
            let has = if driver.is_empty() { "none" } else { driver };
            let why = format!("{OPTION} has managed = no, which needs a vfio driver; it has {has}");
            collector.unusable.insert(on_bus.address.clone(), why);
        }
        let offer = offer(spec, on_bus, type_of(host, on_bus));
        let same = |other: &&mut Offer| {
            other.naming == Naming::ByCard
                && other.device == offer.device
                && other.part.resource_class == offer.part.resource_class
                && other.part.traits == offer.part.traits
                && other.part.facts == offer.part.facts
        };
        match groups.iter_mut().find(same).filter(|_| offer.naming == Naming::ByCard) {
            Some(group) => group.part.slots.extend(offer.part.slots),
            None => groups.push(offer),
        }
    }
    for (spec, _) in specs.iter().zip(&matched).filter(|(_, matched)| !**matched) {
        let reason = format!("{OPTION}: it matches no function of this host");
        collector.problems.push(DeviceProblem::note(&spec.to_string(), reason));
    }
    collector.offers.append(&mut groups);
}

/// A card that supports virtual functions has type PF even if it has none now.
fn type_of(host: KindInput<'_>, on_bus: &OnBus) -> PciType {
    if on_bus.physical.is_some() {
        return PciType::Virtual;
    }
    let most = host.sysfs.read(&format!("bus/pci/devices/{}/sriov_totalvfs", on_bus.address));
    let could = most.ok().and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(0) > 0;
    if could || host.bus.virtuals(on_bus.place).next().is_some() {
        PciType::Physical
    } else {
        PciType::Plain
    }
}

fn offer(spec: &DeviceSpec, on_bus: &OnBus, pci_type: PciType) -> Offer {
    let function = &on_bus.function;
    let address = on_bus.address.clone();
    let mut facts = BTreeMap::new();
    if let Some(network) = &spec.physical_network {
        facts.insert("physical_network".to_owned(), network.clone());
    }
    let by_ids = of_ids(&function.vendor_id, &function.product_id);
    let class =
        spec.resource_class.clone().unwrap_or_else(|| ResourceClass::verbatim(by_ids.as_str()));
    Offer {
        device: on_bus.card().to_string(),
        kind: function.kind(),
        naming: match pci_type {
            PciType::Virtual => Naming::ByCard,
            PciType::Plain | PciType::Physical => Naming::Fixed(address.clone()),
        },
        part: Deployable {
            name: String::new(),
            resource_class: class,
            traits: traits(spec, pci_type, by_ids),
            driver: function.driver.clone(),
            facts,
            slots: vec![if spec.managed {
                HandleSlot::Pci { address }
            } else {
                HandleSlot::Vfio { address, vgpu_type: String::new() }
            }],
        },
    }
}

fn traits(spec: &DeviceSpec, pci_type: PciType, by_ids: String) -> Vec<String> {
    let implied = [
        (true, OWNER_NOVA),
        (true, MANAGED),
        (true, pci_type.trait_name()),
        (spec.live_migratable == Some(true), LIVE_MIGRATABLE),
        (spec.one_time_use == Some(true), "HW_PCI_ONE_TIME_USE"),
    ];
    let implied = implied.iter().filter(|(so, _)| *so).map(|(_, name)| (*name).to_owned());
    let mut traits: Vec<String> = spec.traits.iter().cloned().chain(implied).collect();
    traits.push(by_ids);
    traits.sort_unstable();
    traits.dedup();
    traits
}
