//! Applies the hardware report of a host. A report lists all hardware but no owners. Therefore owned and dirty
//! handles are only marked absent. They are deleted when they are released or cleaned, or at a later report. A disabled
//! device keeps its row even without owned handles, so that it is still disabled when it reappears.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_node_api::{Device, Health};
use kilonova_placement::ledger::{self as placement, ProviderSpec};
use kilonova_store::{Asked, Tx};
use kilonova_wire::time;

use super::exclusions::{has_types, is_mixed};
use super::known::Known;
use super::orders::function_trait;
use super::plan::{DeployablePlan, DevicePlan, plan, units, with_places};
use super::unchanged;
use crate::Error;
use crate::db::attributes::{self, AttributeRow, NewAttribute};
use crate::db::deployables::{self, DeployableRow, NewDeployable};
use crate::db::devices::{self, DesiredDevice, DeviceHealth, DeviceRow};
use crate::db::handles::{self, HandleKey, HandleRow, MixedCard, NewHandle};
use crate::db::{orders, withheld};
use crate::states::{HandleState, HealthState};

/// The key in a deployable's `facts` that states its loaded function.
const FUNCTION: &str = "function_id";

/// Maximum number of characters of a reason that are stored.
const MAX_REASON: usize = 1000;

/// Announces the reads of an unchanged [`report`].
///
/// # Errors
/// Store errors only.
pub fn expect_report(tx: &mut Tx<'_>, host: &HostName, devices: &[Device]) -> Result<(), Error> {
    unchanged::expect(tx, host, devices)
}

/// Makes the rows match `devices`, the complete hardware of a host, and returns the children of the
/// host's provider for Placement. Writes nothing if nothing changed.
///
/// # Errors
/// [`Error::Report`] if the devices contradict each other or those of another host.
pub fn report(
    tx: &mut Tx<'_>,
    host: &HostName,
    devices: &[Device],
) -> Result<Vec<ProviderSpec>, Error> {
    let mut plans = plan(host, devices)?;
    if let Some(specs) = unchanged::if_unchanged(tx, host, devices, &plans)? {
        return Ok(specs);
    }
    let known = Known::read(tx, host)?;
    subtract_handles_in_use(&mut plans, &known);
    let now = time::now();
    let mut seen = Seen::default();
    let one_type = one_type_cards(&plans, &known);
    let mixed = mixed_cards(&plans, &known);
    let exclusions = Exclusions { mixed: &mixed, one_type: &one_type };
    // Each step asks for all devices before it reads an answer, and one statement writes many rows, so that
    // a report takes the same number of round trips with any number of devices.
    let is_new = |deployable: &&DeployablePlan<'_>| known.deployable(deployable.provider).is_none();
    let new = || plans.iter().flat_map(|device| &device.deployables).filter(is_new);
    let others = deployables::ask_hosts_of(tx, new().map(|deployable| deployable.provider))?;
    let device_ids = apply_devices(tx, host, &plans, exclusions, &known, now)?;
    let others = deployables::found_hosts(tx, others)?;
    if let Some((deployable, other)) =
        new().find_map(|deployable| Some((deployable, others.get(&deployable.provider)?)))
    {
        return Err(Error::Report {
            host: host.clone(),
            reason: format!("host {other} has a deployable with the name {}", deployable.name),
        });
    }
    let device_ids = device_ids.read(tx)?;
    seen.devices.extend(device_ids.iter().copied());
    let deployable_ids = apply_deployables(tx, &plans, &device_ids, &known, now)?;
    let mut new = NewRows::default();
    for (id, deployable) in &deployable_ids {
        seen.deployables.insert(*id);
        apply_attributes(tx, *id, deployable, &known, &mut new, now)?;
        apply_handles(tx, *id, &deployable.handles, &known, &mut new, now)?;
    }
    attributes::insert(tx, &new.attributes, now)?;
    handles::insert(tx, &new.handles, now)?;
    let unreadable = unreadable(&plans, &known);
    seen.deployables.extend(unreadable.iter().map(|row| row.id));
    let kept = drop_deployables(tx, &seen, &known, now)?;
    drop_devices(tx, &seen, &kept, exclusions, &known, now)?;
    let is_first = known.devices.is_empty();
    if !is_first {
        withheld::expect_of_host(tx, host)?;
    }
    unchanged::expect(tx, host, devices)?;
    let in_mig_mode: BTreeSet<&str> = cards_in_mig_mode(&plans).collect();
    let card = |card: &str| MixedCard { host: host.clone(), card: card.to_owned() };
    let in_mig_mode = in_mig_mode.into_iter().map(card);
    let some = match is_first {
        true => withheld::of_new_host(tx, in_mig_mode)?,
        false => withheld::of_host(tx, host, in_mig_mode)?,
    };
    unchanged::record(tx, host, devices)?;
    let withheld = |device: &DevicePlan<'_>, deployable: &DeployablePlan<'_>| {
        let health = effective_health(device, &known, now);
        match health.state {
            HealthState::Failed => withheld::ALL,
            HealthState::Healthy | HealthState::Degraded => {
                some.get(&deployable.provider).copied().unwrap_or(0)
            }
        }
    };
    let with_device = |device| move |deployable| (device, deployable);
    let deployables =
        plans.iter().flat_map(|device| device.deployables.iter().map(with_device(device)));
    let reported = deployables.map(|(device, deployable)| {
        let mut spec = deployable.provider(withheld(device, deployable));
        spec.traits.extend(loaded(deployable, &known));
        spec
    });
    let unreadable = unreadable.into_iter().map(|row| as_last_reported(row, &plans, &known));
    Ok(reported.chain(unreadable).collect())
}

/// Subtracts from the planned deployables the handles that are still in use through a deployable that no longer
/// offers them: a host that enables its vGPU types in another order offers the same vGPUs under other names. The
/// handles in use are then absent, so the host's later reports are examined, and a released handle is offered again.
fn subtract_handles_in_use(plans: &mut [DevicePlan<'_>], known: &Known) {
    let deployables = plans.iter().flat_map(|device| &device.deployables);
    let offered: BTreeMap<i64, &DeployablePlan<'_>> =
        deployables.filter_map(|plan| Some((known.deployable(plan.provider)?.id, plan))).collect();
    let is_offered = |handle: &HandleRow| {
        offered
            .get(&handle.deployable_id)
            .is_some_and(|plan| plan.handles.contains_key(&handle.key))
    };
    let mut moved: BTreeMap<&HandleKey, i64> = BTreeMap::new();
    for handle in known.handles().filter(|handle| handle.is_held() && !is_offered(handle)) {
        *moved.entry(&handle.key).or_default() += 1;
    }
    for plan in plans.iter_mut().flat_map(|device| &mut device.deployables) {
        plan.handles.retain(|key, count| {
            *count -= moved.get(key).copied().unwrap_or(0);
            *count > 0
        });
    }
}

/// The trait of the function that an order has loaded, if the host does not report it itself.
fn loaded(plan: &DeployablePlan<'_>, known: &Known) -> Option<String> {
    if plan.deployable.facts.contains_key(FUNCTION) {
        return None;
    }
    let row = known.deployable(plan.provider)?;
    function_trait(&row.driver, row.function.as_deref()?)
}

/// The deployables of devices that the host detects but cannot read. They keep their rows.
fn unreadable<'a>(plans: &[DevicePlan<'_>], known: &'a Known) -> Vec<&'a DeployableRow> {
    let unread = |plan: &&DevicePlan<'_>| {
        plan.deployables.is_empty() && matches!(plan.device.health, Health::Failed { .. })
    };
    let addresses: BTreeSet<&str> =
        plans.iter().filter(unread).map(|plan| plan.device.address.as_str()).collect();
    let devices: BTreeSet<i64> = known
        .devices
        .iter()
        .filter(|row| addresses.contains(row.address.as_str()))
        .map(|row| row.id)
        .collect();
    let there = |row: &&DeployableRow| row.present && devices.contains(&row.device_id);
    known.deployables.iter().filter(there).collect()
}

/// The provider of a deployable that the host cannot read now. All of it is reserved.
fn as_last_reported(row: &DeployableRow, plans: &[DevicePlan<'_>], known: &Known) -> ProviderSpec {
    let is_trait = |one: &&AttributeRow| one.reported && one.name.starts_with("traits");
    let traits = known.attributes_of(row.id).iter().filter(is_trait);
    let device = known.devices.iter().find(|device| device.id == row.device_id);
    let plan = device.and_then(|row| plans.iter().find(|one| one.device.address == row.address));
    let places = plan.map_or(&[][..], |plan| &plan.places.traits);
    ProviderSpec {
        id: row.provider,
        name: row.name.clone(),
        inventories: units(&row.resource_class, row.handles, withheld::ALL),
        initial_ratios: Vec::new(),
        traits: with_places(traits.map(|one| one.value.clone()).collect(), places),
    }
}

/// The row ids of a report's devices, in the report's order; complete once the new devices are inserted.
struct DeviceIds<'a> {
    known: Vec<(&'a str, Option<i64>)>,
    new: Vec<Asked>,
}

impl DeviceIds<'_> {
    fn read(self, tx: &mut Tx<'_>) -> Result<Vec<i64>, Error> {
        let new = devices::inserted(tx, self.new)?;
        let ids = self.known.into_iter().map(|(address, known)| {
            known.or_else(|| new.get(address).copied()).ok_or_else(|| not_inserted(address))
        });
        ids.collect()
    }
}

fn not_inserted(what: &str) -> Error {
    kilonova_store::Error::Shape(format!("INSERT returned no row for {what}")).into()
}

/// Rows that are inserted together.
#[derive(Default)]
struct NewRows<'a> {
    attributes: Vec<NewAttribute<'a>>,
    handles: Vec<NewHandle<'a>>,
}

/// The ids of the rows that match the report.
#[derive(Default)]
struct Seen {
    devices: BTreeSet<i64>,
    deployables: BTreeSet<i64>,
}

/// The cards whose handles exclude each other.
#[derive(Clone, Copy)]
struct Exclusions<'a> {
    mixed: &'a BTreeSet<&'a str>,
    /// The cards that can have only one vGPU type at a time.
    one_type: &'a BTreeSet<&'a str>,
}

/// The handles in use, grouped by card, including absent ones.
fn used_by_card(known: &Known) -> BTreeMap<&str, Vec<&HandleKey>> {
    let mut used: BTreeMap<&str, Vec<&HandleKey>> = BTreeMap::new();
    let device_of: BTreeMap<i64, i64> =
        known.deployables.iter().map(|row| (row.id, row.device_id)).collect();
    let card_of: BTreeMap<i64, &str> =
        known.devices.iter().map(|row| (row.id, row.card.as_str())).collect();
    for handle in known.handles().filter(|handle| handle.state != HandleState::Free) {
        let device = device_of.get(&handle.deployable_id);
        if let Some(card) = device.and_then(|id| card_of.get(id)) {
            used.entry(card).or_default().push(&handle.key);
        }
    }
    used
}

/// The cards that can have only one vGPU type at a time, according to their host.
fn reported_one_type<'a>(plans: &'a [DevicePlan<'_>]) -> BTreeSet<&'a str> {
    plans.iter().filter(|plan| plan.device.one_type).map(DevicePlan::card).collect()
}

/// The cards that can have only one vGPU type at a time. A card that is in use with several types is left out.
fn one_type_cards<'a>(plans: &'a [DevicePlan<'_>], known: &Known) -> BTreeSet<&'a str> {
    let used = used_by_card(known);
    let mixes = |card: &str| used.get(card).is_some_and(|keys| has_types(keys.iter().copied()));
    reported_one_type(plans).into_iter().filter(|card| !mixes(card)).collect()
}

fn cards_in_mig_mode<'a>(plans: &'a [DevicePlan<'_>]) -> impl Iterator<Item = &'a str> {
    plans.iter().filter(|plan| plan.mig.is_some()).map(DevicePlan::card)
}

/// The cards with handles that exclude each other, including owned handles that are absent. A card whose types will
/// exclude each other only later is included, so that the next report examines it.
fn mixed_cards<'a>(plans: &'a [DevicePlan<'_>], known: &'a Known) -> BTreeSet<&'a str> {
    let mut of_card = used_by_card(known);
    for device in plans {
        let keys = device.deployables.iter().flat_map(|plan| plan.handles.keys());
        of_card.entry(device.card()).or_default().extend(keys);
    }
    let one_type = reported_one_type(plans);
    let in_mig_mode: BTreeSet<&str> = cards_in_mig_mode(plans).collect();
    let mixed = of_card.into_iter().filter(|(card, keys)| {
        let keys = || keys.iter().copied();
        in_mig_mode.contains(card)
            || is_mixed(card, keys())
            || (one_type.contains(card) && has_types(keys()))
    });
    mixed.map(|(card, _)| card).collect()
}

/// The effective health of a device: an acknowledged event does not count.
fn effective_health(plan: &DevicePlan<'_>, known: &Known, now: Timestamp) -> DeviceHealth {
    let reported = &plan.device.health;
    let row = known.device_at(&plan.device.address);
    let event = reported.since();
    let acknowledged = event.is_some() && row.and_then(|row| row.acknowledged) >= event;
    if acknowledged || *reported == Health::Healthy {
        return DeviceHealth { state: HealthState::Healthy, reason: None, since: None, event };
    }
    let fresh = DeviceHealth {
        state: reported.into(),
        reason: reported.reason().map(|reason| reason.chars().take(MAX_REASON).collect()),
        since: event.or(Some(now)),
        event,
    };
    match row {
        Some(row) if DeviceHealth { since: row.health.since, ..fresh.clone() } == row.health => {
            row.health.clone()
        }
        _ => fresh,
    }
}

fn apply_devices<'a>(
    tx: &mut Tx<'_>,
    host: &HostName,
    plans: &'a [DevicePlan<'_>],
    exclusions: Exclusions<'_>,
    known: &Known,
    now: Timestamp,
) -> Result<DeviceIds<'a>, Error> {
    let (mut ids, mut new) = (Vec::with_capacity(plans.len()), Vec::new());
    for plan in plans {
        let device = plan.device;
        let desired = DesiredDevice {
            device,
            card: plan.card(),
            mixed: exclusions.mixed.contains(plan.card()),
            one_type: exclusions.one_type.contains(plan.card()),
            mig: plan.mig.as_deref(),
            switch: plan.places.switch.as_deref(),
            island: plan.places.island.as_deref(),
            health: effective_health(plan, known, now),
        };
        let row = known.device_at(&device.address);
        ids.push((device.address.as_str(), row.map(|row| row.id)));
        let Some(row) = row else {
            new.push(desired);
            continue;
        };
        let same = row.present
            && row.kind == device.kind
            && row.vendor_id == device.vendor_id
            && row.product_id == device.product_id
            && row.model == device.model
            && row.numa_node == device.numa_node
            && row.card == desired.card
            && row.mixed == desired.mixed
            && row.one_type == desired.one_type
            && row.mig.as_deref() == desired.mig
            && row.switch.as_deref() == desired.switch
            && row.island.as_deref() == desired.island
            && row.health == desired.health;
        if !same {
            devices::update(tx, row.id, &desired, now)?;
        }
    }
    Ok(DeviceIds { known: ids, new: devices::ask_insert(tx, host, &new, now)? })
}

/// Writes the deployables, and returns each with its row id. `device_ids` are in the order of `plans`.
fn apply_deployables<'a>(
    tx: &mut Tx<'_>,
    plans: &'a [DevicePlan<'a>],
    device_ids: &[i64],
    known: &Known,
    now: Timestamp,
) -> Result<Vec<(i64, &'a DeployablePlan<'a>)>, Error> {
    let (mut ids, mut inserts) = (Vec::new(), Vec::new());
    for (device, device_id) in plans.iter().zip(device_ids) {
        for plan in &device.deployables {
            let row = apply_deployable(tx, *device_id, plan, known, &mut inserts, now)?;
            ids.push((row, plan));
        }
    }
    let asked = deployables::ask_insert(tx, &inserts, now)?;
    let new = deployables::inserted(tx, asked)?;
    let ids = ids.into_iter().map(|(row, plan)| {
        let id = row.or_else(|| new.get(&plan.provider).copied());
        Ok((id.ok_or_else(|| not_inserted(&plan.name))?, plan))
    });
    ids.collect()
}

/// Updates the row of a deployable and returns its id, or adds the deployable to the rows to insert.
fn apply_deployable<'a>(
    tx: &mut Tx<'_>,
    device_id: i64,
    plan: &'a DeployablePlan<'_>,
    known: &Known,
    inserts: &mut Vec<NewDeployable<'a>>,
    now: Timestamp,
) -> Result<Option<i64>, Error> {
    let deployable = plan.deployable;
    let device = known.device(device_id);
    let maintaining = device.is_some_and(DeviceRow::is_maintaining);
    let new = NewDeployable {
        device_id,
        provider: plan.provider,
        name: &plan.name,
        resource_class: &plan.class,
        driver: &deployable.driver,
    };
    let Some(row) = known.deployable(plan.provider) else {
        if device.is_some() {
            devices::touch(tx, device_id, now)?;
            placement::mark_drained(tx, plan.provider, maintaining)?;
        }
        inserts.push(new);
        return Ok(None);
    };
    let same = row.present
        && row.device_id == device_id
        && row.resource_class == plan.class
        && row.driver == deployable.driver;
    if row.device_id != device_id {
        devices::touch(tx, device_id, now)?;
        placement::mark_drained(tx, plan.provider, maintaining)?;
    }
    if !same {
        deployables::update(tx, row.id, &new, now)?;
    }
    Ok(Some(row.id))
}

/// Updates and deletes the reported attributes of a deployable, and adds new ones to the rows to insert.
fn apply_attributes(
    tx: &mut Tx<'_>,
    deployable_id: i64,
    plan: &DeployablePlan<'_>,
    known: &Known,
    new: &mut NewRows<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    let wanted = plan.attributes();
    let have = || known.attributes_of(deployable_id).iter().filter(|row| row.reported);
    for row in have().filter(|row| !wanted.iter().any(|(name, _)| *name == row.name)) {
        attributes::delete(tx, row.id)?;
    }
    let function = |name: &str| name == FUNCTION;
    let was = have().find(|row| function(&row.name)).map(|row| &row.value);
    if was != wanted.iter().find(|(name, _)| function(name)).map(|(_, value)| value) {
        // The host reports other content, so the bitstream of the last order is gone.
        orders::clear_bitstream(tx, deployable_id, now)?;
    }
    for (name, value) in wanted {
        match have().find(|row| row.name == name) {
            Some(row) if row.value == value => {}
            Some(row) => attributes::update(tx, row.id, &value, now)?,
            None => new.attributes.push(NewAttribute {
                deployable_id,
                name: name.into(),
                value: value.into(),
                reported: true,
            }),
        }
    }
    Ok(())
}

/// Adds handles of each kind to the rows to insert, up to the reported number. Surplus handles are deleted, except
/// owned or dirty ones, which are marked absent. Returns the number of all owned or dirty handles.
fn apply_handles<'a>(
    tx: &mut Tx<'_>,
    deployable_id: i64,
    wanted: &'a BTreeMap<HandleKey, i64>,
    known: &'a Known,
    new: &mut NewRows<'a>,
    now: Timestamp,
) -> Result<usize, Error> {
    let mut have: BTreeMap<&HandleKey, Vec<&HandleRow>> = BTreeMap::new();
    for row in known.handles_of(deployable_id) {
        have.entry(&row.key).or_default().push(row);
    }
    for key in wanted.keys() {
        have.entry(key).or_default();
    }
    let mut held = 0;
    for (key, mut rows) in have {
        let count = usize::try_from(wanted.get(key).copied().unwrap_or(0)).unwrap_or(0);
        rows.sort_by_key(|row| {
            (row.state != HandleState::Owned, row.state == HandleState::Free, row.slot)
        });
        let mut taken: BTreeSet<i64> = BTreeSet::new();
        for (at, row) in rows.iter().enumerate() {
            held += usize::from(row.is_held());
            let wanted = at < count;
            if !wanted && !row.is_held() {
                handles::delete(tx, row.id)?;
                continue;
            }
            taken.insert(row.slot);
            if row.present != wanted {
                handles::set_present(tx, row.id, wanted, now)?;
            }
        }
        let free_slots = (0..).filter(|slot| !taken.contains(slot));
        let missing = free_slots.take(count.saturating_sub(rows.len()));
        new.handles.extend(missing.map(|slot| NewHandle { deployable_id, key, slot }));
    }
    Ok(held)
}

/// Deletes deployables that are not in the report, unless they have owned or dirty handles or their device is disabled.
/// Returns the devices of those that are kept.
fn drop_deployables(
    tx: &mut Tx<'_>,
    seen: &Seen,
    known: &Known,
    now: Timestamp,
) -> Result<BTreeSet<i64>, Error> {
    let (mut kept, nothing) = (BTreeSet::new(), BTreeMap::new());
    for row in known.deployables.iter().filter(|row| !seen.deployables.contains(&row.id)) {
        let disabled = known.device(row.device_id).is_some_and(DeviceRow::is_maintaining);
        let mut none = NewRows::default();
        if apply_handles(tx, row.id, &nothing, known, &mut none, now)? == 0 && !disabled {
            attributes::delete_of(tx, row.id)?;
            deployables::delete(tx, row.id)?;
            continue;
        }
        kept.insert(row.device_id);
        if row.present {
            deployables::mark_absent(tx, row.id, now)?;
        }
    }
    Ok(kept)
}

fn drop_devices(
    tx: &mut Tx<'_>,
    seen: &Seen,
    kept: &BTreeSet<i64>,
    exclusions: Exclusions<'_>,
    known: &Known,
    now: Timestamp,
) -> Result<(), Error> {
    for row in known.devices.iter().filter(|row| !seen.devices.contains(&row.id)) {
        if !kept.contains(&row.id) && !row.is_maintaining() {
            devices::delete(tx, row.id)?;
            continue;
        }
        if row.present {
            devices::mark_absent(tx, row.id, now)?;
        }
        let card = row.card.as_str();
        let mixed = exclusions.mixed.contains(card);
        let one_type = exclusions.one_type.contains(card);
        if (row.mixed, row.one_type) != (mixed, one_type) {
            devices::set_exclusions(tx, row.id, mixed, one_type, now)?;
        }
    }
    Ok(())
}
