//! FPGA cards of Intel, Xilinx and Inspur, with the ids of their region and loaded function, if the
//! kernel shows them.
//!
//! Owns two sysfs layouts: the kernel's `dfl` drivers (`fpga_region/region*/dfl-fme.*`) and the
//! vendor's older drivers (`fpga/intel-fpga-dev.*`).

use std::collections::BTreeMap;

use kilonova_ids::ResourceClass;
use kilonova_node_api::{Deployable, DeviceKind, HandleSlot};

use super::{KindInput, OWNER_CYBORG, parts_of, whole};
use crate::Sysfs;
use crate::bus::OnBus;
use crate::collector::{Collector, Naming, Offer};
use crate::device_spec::custom;

/// Intel cards: Arria 10, N3000, D5005.
const INTEL: [(&str, &str); 3] =
    [("09c4", "PAC_ARRIA10"), ("0b30", "PAC_N3000"), ("0b2b", "PAC_D5005")];

pub(crate) fn intel(host: KindInput<'_>, collector: &mut Collector) {
    const DRIVER: &str = "intel_fpga_driver";
    let is_card = |one: &&OnBus| one.physical.is_none() && one.function.vendor_id == "8086";
    for card in host.bus.all().filter(is_card) {
        let Some((_, product)) = INTEL.iter().find(|(id, _)| *id == card.function.product_id)
        else {
            continue;
        };
        let region = region_of(host.sysfs, &card.address);
        let mut groups: Vec<Offer> = Vec::new();
        for part in parts_of(host.bus, card) {
            if !collector.claim_if_free(&part.address, DRIVER) {
                continue;
            }
            let function = id(host.sysfs, &part.address, &["afu_id"]);
            let mut facts = BTreeMap::new();
            let mut traits = vec![
                OWNER_CYBORG.to_owned(),
                custom("fpga_intel"),
                custom(&format!("fpga_intel_{product}")),
            ];
            for (name, id) in [("region", &region), ("function", &function)] {
                if let Some(id) = id {
                    traits.push(custom(&format!("fpga_{name}_{}intel_{id}", infix(name))));
                    facts.insert(format!("{name}_id"), id.clone());
                }
            }
            let slot = HandleSlot::Pci { address: part.address.clone() };
            match groups.iter_mut().find(|group| group.part.traits == traits) {
                Some(group) => group.part.slots.push(slot),
                None => groups.push(Offer {
                    device: card.address.clone(),
                    kind: DeviceKind::Fpga,
                    naming: Naming::ByCard,
                    part: Deployable {
                        name: String::new(),
                        resource_class: ResourceClass::verbatim("FPGA"),
                        traits,
                        driver: "intel".to_owned(),
                        facts,
                        slots: vec![slot],
                    },
                }),
            }
        }
        collector.offers.append(&mut groups);
    }
}

/// Upstream's names are `FPGA_FUNCTION_ID_INTEL_…` and `FPGA_REGION_INTEL_…`.
fn infix(name: &str) -> &'static str {
    if name == "function" { "id_" } else { "" }
}

/// The region id of an Intel card, which a bitstream must match, if the kernel shows it.
pub fn region_of(sysfs: &dyn Sysfs, address: &str) -> Option<String> {
    id(sysfs, address, &["compat_id", "interface_id"])
}

/// The first attribute with one of these names below a function's FPGA directories.
fn id(sysfs: &dyn Sysfs, address: &str, names: &[&str]) -> Option<String> {
    let base = format!("bus/pci/devices/{address}");
    let found = ["fpga_region", "fpga"]
        .iter()
        .find_map(|folder| below(sysfs, &format!("{base}/{folder}"), names, 5))?;
    let id: String = found.chars().filter(char::is_ascii_hexdigit).collect();
    (!id.is_empty()).then(|| id.to_ascii_lowercase())
}

/// Searches a directory and its FPGA subdirectories for an attribute.
fn below(sysfs: &dyn Sysfs, folder: &str, names: &[&str], depth: u32) -> Option<String> {
    let entries = sysfs.list(folder).ok()?;
    let here = names.iter().filter(|name| entries.iter().any(|entry| entry == *name));
    for name in here {
        if let Ok(text) = sysfs.read(&format!("{folder}/{name}")) {
            return Some(text);
        }
    }
    if depth == 0 {
        return None;
    }
    let inner = |name: &&String| {
        ["region", "dfl-", "intel-fpga-", "fpga_region", "pr"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    entries
        .iter()
        .filter(inner)
        .find_map(|name| below(sysfs, &format!("{folder}/{name}"), names, depth - 1))
}

pub(crate) fn xilinx(host: KindInput<'_>, collector: &mut Collector) {
    const DRIVER: &str = "xilinx_fpga_driver";
    let mut cards: BTreeMap<(u32, u8, u8), Vec<&OnBus>> = BTreeMap::new();
    for one in host.bus.all() {
        let processing = one.function.class.starts_with("12");
        if one.function.vendor_id == "10ee" && processing && one.physical.is_none() {
            let place = one.place;
            cards.entry((place.domain, place.bus, place.device)).or_default().push(one);
        }
    }
    for functions in cards.values() {
        // The first function manages the card. If the card has a second function, the first one
        // stays with the host.
        let (Some(management), Some(user)) =
            (functions.first(), functions.get(1).or(functions.first()))
        else {
            continue;
        };
        if collector.claim_if_free(&management.address, DRIVER)
            && (user.address == management.address
                || collector.claim_if_free(&user.address, DRIVER))
        {
            let product = format!("fpga_product_id_{}", management.function.product_id);
            let traits = vec![custom("fpga_xilinx"), custom(&product)];
            let mut offer = whole(management, DeviceKind::Fpga, "FPGA", traits, "xilinx");
            offer.part.slots = vec![HandleSlot::Pci { address: user.address.clone() }];
            collector.offers.push(offer);
        }
    }
}

pub(crate) fn inspur(host: KindInput<'_>, collector: &mut Collector) {
    for one in host.bus.all() {
        let function = &one.function;
        if function.vendor_id == "1bd4"
            && function.class.starts_with("12")
            && collector.claim_if_free(&one.address, "inspur_fpga_driver")
        {
            let product = format!("fpga_product_id_{}", function.product_id);
            let traits = vec![custom("fpga_inspur"), custom(&product)];
            collector.offers.push(whole(one, DeviceKind::Fpga, "FPGA", traits, "inspur"));
        }
    }
}
