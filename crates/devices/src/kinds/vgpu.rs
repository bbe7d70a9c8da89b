//! Virtual functions of a vendor's VFIO driver as vGPUs of the type in `[devices]
//! enabled_mdev_types` and `[mdev_<type>]`, including MIG-backed ones.
//!
//! The agent sets the type when a guest gets the function, so an idle function counts while the
//! card can still create the type there. A function that already has the type counts too, as
//! operators may have set types manually.

use std::collections::BTreeMap;

use kilonova_node_api::{Deployable, DeviceKind, HandleSlot};

use super::KindInput;
use crate::bus::OnBus;
use crate::collector::{Collector, DeviceProblem, Naming, Offer};
use crate::traits::of_type;
use crate::{MdevConfig, VgpuState, vgpu_state};

const OPTION: &str = "[devices] enabled_mdev_types";

struct Candidate<'a> {
    on_bus: &'a OnBus,
    vgpu_type: String,
    state: VgpuState,
}

impl Candidate<'_> {
    fn has_type(&self) -> bool {
        self.state.current.as_ref() == Some(&self.vgpu_type)
    }

    fn could_have_it(&self) -> bool {
        self.state.current.is_none()
            && self.state.creatable.iter().any(|one| one.id == self.vgpu_type)
    }
}

pub(crate) fn find(config: &MdevConfig, host: KindInput<'_>, collector: &mut Collector) {
    let mut all = Vec::new();
    for on_bus in host.bus.all() {
        let state = match vgpu_state(host.sysfs, &on_bus.address) {
            Ok(Some(state)) => state,
            Ok(None) => continue,
            Err(error) => {
                collector.problems.push(DeviceProblem::note(&on_bus.address, error.to_string()));
                continue;
            }
        };
        let Some(vgpu_type) = type_of(config, on_bus) else { continue };
        all.push(Candidate { on_bus, vgpu_type, state });
    }
    report_unsuitable(&all, collector);
    let mut offers: BTreeMap<(String, String), Offer> = BTreeMap::new();
    let mut left: BTreeMap<String, u32> = BTreeMap::new();
    let (typed, idle): (Vec<_>, Vec<_>) = all
        .into_iter()
        .filter(|one| one.has_type() || one.could_have_it())
        .partition(Candidate::has_type);
    for one in typed.into_iter().chain(idle) {
        let room = left
            .entry(one.vgpu_type.clone())
            .or_insert_with(|| config.max_instances(&one.vgpu_type).unwrap_or(u32::MAX));
        if (*room == 0 && !one.has_type()) || !collector.claim(&one.on_bus.address, OPTION) {
            continue;
        }
        *room = room.saturating_sub(1);
        let card = one.on_bus.card().to_string();
        let offer = offers
            .entry((card.clone(), one.vgpu_type.clone()))
            .or_insert_with(|| empty(config, card, &one));
        let (address, vgpu_type) = (one.on_bus.address.clone(), one.vgpu_type);
        offer.part.slots.push(HandleSlot::Vfio { address, vgpu_type });
    }
    for mut offer in offers.into_values() {
        offer.part.slots.sort_by(|a, b| address(a).cmp(address(b)));
        collector.offers.push(offer);
    }
}

fn address(slot: &HandleSlot) -> &str {
    match slot {
        HandleSlot::Vfio { address, .. } => address,
        _ => "",
    }
}

/// The type for the function, for its card, or the default.
fn type_of(config: &MdevConfig, on_bus: &OnBus) -> Option<String> {
    let card = on_bus.card().to_string();
    let listed = |address: &str| config.addresses().any(|one| one == address);
    let asked = if listed(&on_bus.address) { &on_bus.address } else { &card };
    config.type_of(asked).map(str::to_owned)
}

fn empty(config: &MdevConfig, card: String, one: &Candidate<'_>) -> Offer {
    let function = &one.on_bus.function;
    let offered = one.state.creatable.iter().find(|offered| offered.id == one.vgpu_type);
    let name = offered.map_or("", |offered| offered.name.as_str());
    let kind = match function.kind() {
        DeviceKind::Pci => DeviceKind::Gpu,
        kind => kind,
    };
    let (traits, facts) = of_type(&one.vgpu_type, name, Some(function));
    Offer {
        device: card,
        kind,
        naming: Naming::ByCard,
        part: Deployable {
            name: String::new(),
            resource_class: config.class_of(&one.vgpu_type),
            traits,
            driver: function.driver.clone(),
            facts,
            slots: Vec::new(),
        },
    }
}

/// Reports functions that will never match the options, with the reason. A card that is only full
/// now is not reported.
fn report_unsuitable(all: &[Candidate<'_>], collector: &mut Collector) {
    for one in all {
        let reason = match &one.state.current {
            Some(current) if *current != one.vgpu_type => format!(
                "it has vGPU type {current} but is configured for {}; it is not offered until the type \
                 is cleared",
                one.vgpu_type
            ),
            Some(_) => continue,
            None if one.could_have_it() || one.state.creatable.is_empty() => continue,
            None => {
                let on_card = |other: &&Candidate<'_>| {
                    other.on_bus.card() == one.on_bus.card() && other.has_type()
                };
                if all.iter().any(|other| on_card(&other)) {
                    continue;
                }
                let types: Vec<&str> =
                    one.state.creatable.iter().map(|offered| offered.id.as_str()).collect();
                let types = types.join(", ");
                format!("it is configured for vGPU type {} but offers only {types}", one.vgpu_type)
            }
        };
        collector.problems.push(DeviceProblem::note(&one.on_bus.address, reason));
    }
}
