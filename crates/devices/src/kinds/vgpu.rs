//! Virtual functions of a vendor's VFIO driver as vGPUs of the type in `[devices]
//! enabled_mdev_types` and `[mdev_<type>]`, including MIG-backed ones.
//!
//! The agent sets the type when a guest gets the function, so an idle function counts while the
//! card can still create the type there. A function that already has the type counts too, as
//! operators may have set types manually.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_node_api::{Deployable, DeviceKind, HandleSlot};

use super::KindInput;
use super::kept::{Capacity, kept};
use super::mig;
use crate::bus::OnBus;
use crate::collector::{Collector, DeviceProblem, Naming, Offer};
use crate::traits::of_type;
use crate::{MdevConfig, VgpuState, vgpu_state};

const OPTION: &str = "[devices] enabled_mdev_types";

struct Candidate<'a> {
    on_bus: &'a OnBus,
    /// The types that it may have.
    types: Vec<String>,
    state: VgpuState,
}

impl Candidate<'_> {
    fn has(&self, vgpu_type: &str) -> bool {
        self.state.current.as_deref() == Some(vgpu_type)
    }

    fn has_one_of_its_types(&self) -> bool {
        self.types.iter().any(|one| self.has(one))
    }

    fn could_have(&self, vgpu_type: &str) -> bool {
        self.state.current.is_none() && self.state.creatable.iter().any(|one| one.id == vgpu_type)
    }

    fn is_on_the_card_of(&self, other: &Self) -> bool {
        self.on_bus.card() == other.on_bus.card()
    }
}

/// A function, and a type that it could have for a guest.
struct Choice<'a> {
    candidate: &'a Candidate<'a>,
    card: String,
    vgpu_type: &'a str,
    /// True if the deployable of this type has the card's name.
    is_first: bool,
}

pub(crate) fn find(config: &MdevConfig, host: KindInput<'_>, collector: &mut Collector) {
    let mut all = Vec::new();
    for on_bus in host.bus.all().filter(|one| !is_in_mig_mode(config, host, one)) {
        let state = match vgpu_state(host.sysfs, &on_bus.address) {
            Ok(Some(state)) => state,
            Ok(None) => continue,
            Err(error) => {
                collector.problems.push(DeviceProblem::note(&on_bus.address, error.to_string()));
                continue;
            }
        };
        let types = types_of(config, on_bus);
        if !types.is_empty() {
            all.push(Candidate { on_bus, types, state });
        }
    }
    learn_names(&all, host);
    report_unsuitable(&all, collector);
    let mut offers: BTreeMap<(String, String), Offer> = BTreeMap::new();
    let mut left: BTreeMap<&str, u32> = BTreeMap::new();
    let mut claimed: BTreeSet<&str> = BTreeSet::new();
    let has_it = |one: &Choice<'_>| one.candidate.has(one.vgpu_type);
    let (typed, idle): (Vec<_>, Vec<_>) =
        choices(config, host, &all, collector).into_iter().partition(has_it);
    for one in typed.into_iter().chain(idle) {
        let room = left
            .entry(one.vgpu_type)
            .or_insert_with(|| config.max_instances(one.vgpu_type).unwrap_or(u32::MAX));
        let address = one.candidate.on_bus.address.as_str();
        if (*room == 0 && !has_it(&one))
            || !(claimed.contains(address) || collector.claim(address, OPTION))
        {
            continue;
        }
        claimed.insert(address);
        *room = room.saturating_sub(1);
        if one.candidate.types.len() > 1 {
            collector.one_type.insert(one.card.clone());
        }
        let offer = offers
            .entry((one.card.clone(), one.vgpu_type.to_owned()))
            .or_insert_with(|| empty(config, host, &one));
        let (address, vgpu_type) = (address.to_owned(), one.vgpu_type.to_owned());
        offer.part.slots.push(HandleSlot::Vfio { address, vgpu_type });
    }
    for mut offer in offers.into_values() {
        offer.part.slots.sort_by(|a, b| address(a).cmp(address(b)));
        collector.offers.push(offer);
    }
}

/// True for a function of a card whose GPU instances the agent creates.
fn is_in_mig_mode(config: &MdevConfig, host: KindInput<'_>, on_bus: &OnBus) -> bool {
    let cards = host.context.mig.map_or(&[][..], |mig| mig.cards);
    let card = on_bus.card().to_string();
    config.manages_instances() && cards.iter().any(|one| one.address == card)
}

/// Records the names of the types that the driver shows now.
fn learn_names(all: &[Candidate<'_>], host: KindInput<'_>) {
    let Some(names) = host.context.names else { return };
    let shown = all.iter().flat_map(|one| {
        let types = one.state.creatable.iter().filter(|shown| one.types.contains(&shown.id));
        types.map(|shown| (one.on_bus.card().to_string(), shown.id.as_str(), shown.name.as_str()))
    });
    names.learn(shown, |card| host.bus.get_by(card).is_some());
}

/// The types that the functions have, could have now, or could have if guests did not exclude them. Kept cards have
/// only their type.
fn choices<'a>(
    config: &MdevConfig,
    host: KindInput<'_>,
    all: &'a [Candidate<'a>],
    collector: &mut Collector,
) -> Vec<Choice<'a>> {
    let mut choices = Vec::new();
    let mut capacity = Capacity::new();
    for candidate in all {
        let card = candidate.on_bus.card().to_string();
        for (at, vgpu_type) in candidate.types.iter().enumerate() {
            // All functions count, because the number that can have the type now depends on the guests.
            let types = capacity.entry(card.clone()).or_default();
            *types.entry(vgpu_type.clone()).or_insert(0) += 1;
            let suits = candidate.has(vgpu_type)
                || candidate.could_have(vgpu_type)
                || is_excluded(all, candidate, vgpu_type);
            if suits {
                let card = card.clone();
                choices.push(Choice { candidate, card, vgpu_type, is_first: at == 0 });
            }
        }
    }
    let is_theirs = |one: &str| !mig::is_instance_type(config, host, one);
    let kept = kept(config, &capacity, is_theirs, &mut collector.problems);
    choices.retain(|one| kept.get(&one.card).is_none_or(|kept| kept == one.vgpu_type));
    choices
}

/// True if only one other type, in use on the same card, excludes a type from a function. The driver does not show an
/// excluded type, so the options decide.
fn is_excluded(all: &[Candidate<'_>], of: &Candidate<'_>, vgpu_type: &str) -> bool {
    let typed = all.iter().filter(|one| one.is_on_the_card_of(of));
    let in_use: BTreeSet<&str> = typed.filter_map(|one| one.state.current.as_deref()).collect();
    let is_other = |one: &&str| *one != vgpu_type && of.types.iter().any(|own| own == one);
    of.types.len() > 1 && in_use.len() == 1 && in_use.iter().all(is_other)
}

fn address(slot: &HandleSlot) -> &str {
    match slot {
        HandleSlot::Vfio { address, .. } => address,
        _ => "",
    }
}

/// The types listed for the function, or else for its card, or else the first default type. Only listed functions and
/// cards may change their type.
fn types_of(config: &MdevConfig, on_bus: &OnBus) -> Vec<String> {
    let card = on_bus.card().to_string();
    let listed = config.listed(&on_bus.address).or_else(|| config.listed(&card));
    match listed {
        Some(types) => types.to_vec(),
        None => config.types_of(&card).iter().take(1).cloned().collect(),
    }
}

fn empty(config: &MdevConfig, host: KindInput<'_>, one: &Choice<'_>) -> Offer {
    let Choice { candidate, card, vgpu_type, is_first } = one;
    let function = &candidate.on_bus.function;
    let offered = candidate.state.creatable.iter().find(|offered| offered.id == *vgpu_type);
    let known = || host.context.names.map(|names| names.name(card, vgpu_type));
    let name = offered.map(|offered| offered.name.clone()).or_else(known).unwrap_or_default();
    let kind = match function.kind() {
        DeviceKind::Pci => DeviceKind::Gpu,
        kind => kind,
    };
    let (traits, facts) = of_type(vgpu_type, &name, Some(function));
    Offer {
        device: card.clone(),
        kind,
        naming: match is_first {
            true => Naming::ByCard,
            false => Naming::Fixed(format!("{card}_{vgpu_type}")),
        },
        part: Deployable {
            name: String::new(),
            resource_class: config.class_of(vgpu_type),
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
        let configured = one.types.join(" or ");
        let reason = match &one.state.current {
            Some(_) if one.has_one_of_its_types() => continue,
            Some(current) => format!(
                "it has vGPU type {current} but is configured for {configured}; it is not offered until \
                 the type is cleared"
            ),
            None if one.state.creatable.is_empty() => continue,
            None if one.types.iter().any(|own| one.could_have(own)) => continue,
            None => {
                let mut others = all.iter().filter(|other| other.is_on_the_card_of(one));
                if others.any(Candidate::has_one_of_its_types) {
                    continue;
                }
                let types: Vec<&str> =
                    one.state.creatable.iter().map(|offered| offered.id.as_str()).collect();
                let types = types.join(", ");
                format!("it is configured for vGPU type {configured} but offers only {types}")
            }
        };
        collector.problems.push(DeviceProblem::note(&one.on_bus.address, reason));
    }
}
