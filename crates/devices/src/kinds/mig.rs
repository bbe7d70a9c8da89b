//! vGPUs of cards in MIG mode, whose GPU instances the agent creates (`[devices] mig_instances`).
//!
//! A card offers each of its enabled types on each of its virtual functions; the control plane knows the geometry and
//! claims only what fits. An instance that no guest of ours has keeps its slices, and a function whose type no guest of
//! ours has is not offered.

use std::collections::BTreeMap;

use kilonova_node_api::{Deployable, DeviceKind, HandleSlot, Mig, MigProfile};

use super::KindInput;
use crate::bus::OnBus;
use crate::collector::{Collector, DeviceProblem, Naming, Offer};
use crate::discovery::MigScan;
use crate::mig::{InstanceType, MigCard};
use crate::traits::of_type;
use crate::{KernelObject, MdevConfig, Vgpu, VgpuState, vgpu_state};

const OPTION: &str = "[devices] mig_instances";
/// The maximum number of memory slices of a card. The control plane refuses the report of a host with a card that has
/// more.
const MOST_SLICES: u8 = 8;

pub(crate) fn find(config: &MdevConfig, host: KindInput<'_>, collector: &mut Collector) {
    let Some(scan) = host.context.mig.filter(|_| config.manages_instances()) else { return };
    for card in scan.cards {
        match offers(config, host, scan, card, &mut collector.problems) {
            Ok((mig, offers)) if !offers.is_empty() => {
                collector.mig.insert(card.address.clone(), mig);
                claim(host, card, collector);
                collector.offers.extend(offers);
            }
            Ok(_) => {}
            Err(reason) => {
                claim(host, card, collector);
                collector.problems.push(DeviceProblem::note(&card.address, reason));
            }
        }
    }
}

/// Claims the card and all of its functions, so that no other option offers them: a guest that got one would have no
/// instance, and the control plane refuses a card in MIG mode that has other parts.
fn claim(host: KindInput<'_>, card: &MigCard, collector: &mut Collector) {
    let Some(on_bus) = host.bus.get_by(&card.address) else { return };
    collector.claim_if_free(&card.address, OPTION);
    for function in host.bus.virtuals(on_bus.place) {
        collector.claim_if_free(&function.address, OPTION);
    }
}

/// The geometry of a card, and a part for each of its types.
fn offers(
    config: &MdevConfig,
    host: KindInput<'_>,
    scan: MigScan<'_>,
    card: &MigCard,
    problems: &mut Vec<DeviceProblem>,
) -> Result<(Mig, Vec<Offer>), String> {
    let on_bus = host.bus.get_by(&card.address).ok_or("it is not on the PCI bus")?;
    let slices = card.slices;
    if slices > MOST_SLICES {
        return Err(format!("a card with {slices} memory slices is not supported"));
    }
    let wanted = config.types_of(&card.address);
    let types: Vec<&InstanceType> =
        wanted.iter().filter_map(|id| card.types.iter().find(|one| one.id == *id)).collect();
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|id| !types.iter().any(|one| one.id == **id))
        .map(String::as_str)
        .collect();
    if config.listed(&card.address).is_some() && !missing.is_empty() {
        return Err(format!("its vGPU types {} need no GPU instance", missing.join(", ")));
    }
    let mut functions = Vec::new();
    for one in host.bus.virtuals(on_bus.place) {
        match vgpu_state(host.sysfs, &one.address) {
            Ok(state) => {
                functions.extend(state.filter(|state| is_usable(scan, one, state)).map(|_| one));
            }
            Err(error) => problems.push(DeviceProblem::note(&one.address, error.to_string())),
        }
    }
    if !types.is_empty() && functions.is_empty() {
        return Err(
            "none of its virtual functions can be a vGPU, or all have a type already; see sriov-manage"
                .to_owned(),
        );
    }
    let mut vgpu_types: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in &types {
        vgpu_types.entry(&one.profile).or_default().push(one.id.clone());
    }
    let profiles = card.profiles.iter().filter_map(|profile| {
        Some(MigProfile {
            name: profile.name.clone(),
            vgpu_types: vgpu_types.remove(profile.name.as_str())?,
            most: profile.most,
            placements: profile.placements.clone(),
        })
    });
    let profiles: Vec<MigProfile> = profiles.collect();
    let is_ours = |one: &_| (scan.is_ours)(&KernelObject::Instance(Clone::clone(one)));
    let foreign = card.instances.iter().filter(|one| !is_ours(one)).map(|one| one.place);
    let mig = Mig { slices: card.slices, profiles, foreign: foreign.collect() };
    let known = |one: &&&InstanceType| {
        mig.profiles.iter().any(|profile| profile.vgpu_types.contains(&one.id))
    };
    let offers = types.iter().filter(known).map(|one| offer(config, on_bus, one, &functions));
    let offers = offers.collect();
    Ok((mig, offers))
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
