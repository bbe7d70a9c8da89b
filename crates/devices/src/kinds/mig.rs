//! vGPUs of cards in MIG mode, whose GPU instances the agent creates (`[devices] mig_instances`).
//!
//! A card offers each of its enabled types on each of its virtual functions; the controller knows the geometry and
//! claims only what fits. An instance that no guest of ours has keeps its slices, and a function whose type no guest of
//! ours has is not offered.

use kilonova_node_api::{Deployable, DeviceKind, HandleSlot, Mig, MigProfile};

use super::KindInput;
use super::kept::{Capacity, kept};
use crate::bus::OnBus;
use crate::collector::{Collector, DeviceProblem, Naming, Offer};
use crate::discovery::MigScan;
use crate::mig::{InstanceType, MigCard};
use crate::traits::of_type;
use crate::{KernelObject, MdevConfig, Vgpu, VgpuState, vgpu_state};

const OPTION: &str = "[devices] mig_instances";
/// The maximum number of memory slices of a card. The controller refuses the report of a host with a card that has
/// more.
const MOST_SLICES: u8 = 8;

/// A card with the types that it may have, and the functions for them.
struct Usable<'a> {
    card: &'a MigCard,
    on_bus: &'a OnBus,
    types: Vec<&'a InstanceType>,
    /// The functions that can be vGPUs of guests.
    functions: Vec<&'a OnBus>,
    /// The number of functions including those that cannot be read or whose type no guest of ours has.
    capacity: u32,
}

pub(crate) fn find(config: &MdevConfig, host: KindInput<'_>, collector: &mut Collector) {
    let Some(scan) = host.context.mig.filter(|_| config.manages_instances()) else { return };
    let mut all = Vec::new();
    for card in scan.cards {
        match usable(config, host, scan, card, &mut collector.problems) {
            Ok(usable) if !usable.types.is_empty() => all.push(usable),
            Ok(_) => {}
            Err(reason) => {
                claim(host, card, collector);
                collector.problems.push(DeviceProblem::note(&card.address, reason));
            }
        }
    }
    keep(config, host, &mut all, collector);
    for one in all {
        claim(host, one.card, collector);
        if one.functions.is_empty() {
            let reason = "none of its virtual functions can be a vGPU, or all have a type already; see sriov-manage";
            collector.problems.push(DeviceProblem::note(&one.card.address, reason.to_owned()));
            continue;
        }
        collector.mig.insert(one.card.address.clone(), geometry(scan, &one));
        collector
            .offers
            .extend(one.types.iter().map(|of| offer(config, one.on_bus, of, &one.functions)));
    }
}

/// True for a type that needs a GPU instance of a card of this host.
pub(super) fn is_instance_type(config: &MdevConfig, host: KindInput<'_>, vgpu_type: &str) -> bool {
    let cards = host.context.mig.map_or(&[][..], |mig| mig.cards);
    let mut types = cards.iter().flat_map(|card| &card.types);
    config.manages_instances() && types.any(|one| one.id == vgpu_type)
}

/// Removes the other types of kept cards.
fn keep(
    config: &MdevConfig,
    host: KindInput<'_>,
    all: &mut [Usable<'_>],
    collector: &mut Collector,
) {
    let of_card = |one: &Usable<'_>| {
        let room = |of: &&InstanceType| {
            let profile = one.card.profiles.iter().find(|profile| profile.name == of.profile);
            let most = profile.map_or(0, |profile| u32::from(profile.most));
            (of.id.clone(), most.min(one.capacity))
        };
        (one.card.address.clone(), one.types.iter().map(room).collect())
    };
    let capacity: Capacity = all.iter().map(of_card).collect();
    let is_theirs = |one: &str| is_instance_type(config, host, one);
    let kept = kept(config, &capacity, is_theirs, &mut collector.problems);
    for one in all {
        if let Some(only) = kept.get(&one.card.address) {
            one.types.retain(|of| of.id == *only);
        }
    }
}

/// Claims the card and all of its functions, so that no other option offers them: a guest that got one would have no
/// instance, and the controller refuses a card in MIG mode that has other parts.
fn claim(host: KindInput<'_>, card: &MigCard, collector: &mut Collector) {
    let Some(on_bus) = host.bus.get_by(&card.address) else { return };
    collector.claim_if_free(&card.address, OPTION);
    for function in host.bus.virtuals(on_bus.place) {
        collector.claim_if_free(&function.address, OPTION);
    }
}

/// The types that a card may have, and its functions that can be vGPUs.
fn usable<'a>(
    config: &MdevConfig,
    host: KindInput<'a>,
    scan: MigScan<'_>,
    card: &'a MigCard,
    problems: &mut Vec<DeviceProblem>,
) -> Result<Usable<'a>, String> {
    if let Some(why) = &card.unreadable {
        return Err(format!("its GPU instances cannot be read, so it is not offered: {why}"));
    }
    let on_bus = host.bus.get_by(&card.address).ok_or("it is not on the PCI bus")?;
    let slices = card.slices;
    if slices > MOST_SLICES {
        return Err(format!("a card with {slices} memory slices is not supported"));
    }
    let wanted = config.types_of(&card.address);
    let mut types: Vec<&InstanceType> =
        wanted.iter().filter_map(|id| card.types.iter().find(|one| one.id == *id)).collect();
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|id| !types.iter().any(|one| one.id == **id))
        .map(String::as_str)
        .collect();
    if config.listed(&card.address).is_some() && !missing.is_empty() {
        return Err(format!("its vGPU types {} need no GPU instance", missing.join(", ")));
    }
    let (mut functions, mut capacity) = (Vec::new(), 0);
    for one in host.bus.virtuals(on_bus.place) {
        match vgpu_state(host.sysfs, &one.address) {
            Ok(None) => continue,
            Ok(Some(state)) if is_usable(scan, one, &state) => functions.push(one),
            Ok(Some(_)) => {}
            Err(error) => problems.push(DeviceProblem::note(&one.address, error.to_string())),
        }
        capacity += 1;
    }
    types.retain(|of| card.profiles.iter().any(|profile| profile.name == of.profile));
    Ok(Usable { card, on_bus, types, functions, capacity })
}

/// The geometry of a card for its types.
fn geometry(scan: MigScan<'_>, usable: &Usable<'_>) -> Mig {
    let Usable { card, types, .. } = usable;
    let profiles = card.profiles.iter().filter_map(|profile| {
        let of_it = types.iter().filter(|one| one.profile == profile.name);
        let vgpu_types: Vec<String> = of_it.map(|one| one.id.clone()).collect();
        (!vgpu_types.is_empty()).then(|| MigProfile {
            name: profile.name.clone(),
            vgpu_types,
            most: profile.most,
            placements: profile.placements.clone(),
        })
    });
    let is_ours = |one: &_| (scan.is_ours)(&KernelObject::Instance(Clone::clone(one)));
    let foreign = card.instances.iter().filter(|one| !is_ours(one)).map(|one| one.place);
    Mig { slices: card.slices, profiles: profiles.collect(), foreign: foreign.collect() }
}

fn is_usable(scan: MigScan<'_>, on_bus: &OnBus, state: &VgpuState) -> bool {
    let address = &on_bus.address;
    state.current.as_ref().is_none_or(|vgpu_type| {
        let vgpu = Vgpu { address: address.clone(), vgpu_type: vgpu_type.clone() };
        (scan.is_ours)(&KernelObject::Vgpu(vgpu))
    })
}

fn offer(config: &MdevConfig, card: &OnBus, one: &InstanceType, functions: &[&OnBus]) -> Offer {
    let function = functions.first().map(|function| &function.function);
    let (traits, mut facts) = of_type(&one.id, &one.name, function);
    facts.insert("mig_profile".to_owned(), one.profile.clone());
    let slot = |function: &&OnBus| HandleSlot::Vfio {
        address: function.address.clone(),
        vgpu_type: one.id.clone(),
    };
    Offer {
        device: card.address.clone(),
        kind: DeviceKind::Gpu,
        naming: Naming::Fixed(format!("{}_{}", card.address, one.id)),
        part: Deployable {
            name: String::new(),
            resource_class: config.class_of(&one.id),
            traits,
            driver: function.map(|function| function.driver.clone()).unwrap_or_default(),
            facts,
            slots: functions.iter().map(slot).collect(),
        },
    }
}
