//! Applies the hardware report of a host. A report is complete about the hardware and says nothing
//! about owners. Therefore handles with an owner are never deleted, only marked absent, and are
//! deleted with the owner's release or at the next report. A disabled device is remembered even
//! without owned handles, so that it returns disabled.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_node_api::{Device, Health};
use kilonova_placement::ledger::{self as placement, ProviderSpec};
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use super::exclusions::is_mixed;
use super::known::Known;
use super::orders::function_trait;
use super::plan::{DeployablePlan, DevicePlan, plan, units};
use super::unchanged;
use crate::Error;
use crate::db::attributes::{self, AttributeRow};
use crate::db::deployables::{self, DeployableRow, NewDeployable};
use crate::db::devices::{self, DesiredDevice, DeviceHealth, DeviceRow};
use crate::db::handles::{self, HandleKey, HandleRow};
use crate::db::orders;

/// The fact with the loaded function of a deployable.
const FUNCTION: &str = "function_id";

/// Maximum number of characters of a reason that are stored.
const MAX_REASON: usize = 1000;

/// Makes the rows match `devices`, the complete hardware of a host, and returns the children of the
/// host's provider for Placement. Writes nothing if nothing changed.
///
/// # Errors
/// [`Error::Report`] if the devices contradict each other or those of another host.
pub fn report(tx: &mut Tx<'_>, host: &str, devices: &[Device]) -> Result<Vec<ProviderSpec>, Error> {
    let cards = plan(host, devices)?;
    if let Some(specs) = unchanged::if_unchanged(tx, host, devices, &cards)? {
        return Ok(specs);
    }
    let known = Known::read(tx, host)?;
    let now = now_micros();
    let mut seen = Seen::default();
    let mixed = mixed_cards(&cards, &known);
    for card in &cards {
        let device_id = apply_device(tx, host, card, &mixed, &known, now)?;
        seen.devices.insert(device_id);
        for part in &card.parts {
            let id = apply_deployable(tx, host, device_id, part, &known, now)?;
            seen.deployables.insert(id);
            apply_attributes(tx, id, part, &known, now)?;
            apply_handles(tx, id, &part.slots, &known, now)?;
        }
    }
    let unreadable = unreadable(&cards, &known);
    seen.deployables.extend(unreadable.iter().map(|row| row.id));
    let kept = drop_deployables(tx, &seen, &known, now)?;
    drop_devices(tx, &seen, &kept, &mixed, &known, now)?;
    unchanged::record(tx, host, devices)?;
    let some = handles::withheld_of_host(tx, host)?;
    let withheld = |card: &DevicePlan<'_>, part: &DeployablePlan<'_>| match effective_health(
        card, &known, now,
    )
    .is_failed()
    {
        true => handles::ALL,
        false => some.get(&part.provider).copied().unwrap_or(0),
    };
    let of_card = |card| move |part| (card, part);
    let parts = cards.iter().flat_map(|card| card.parts.iter().map(of_card(card)));
    let reported = parts.map(|(card, part)| {
        let mut spec = part.provider(withheld(card, part));
        spec.traits.extend(loaded(part, &known));
        spec
    });
    Ok(reported.chain(unreadable.into_iter().map(|row| as_last_reported(row, &known))).collect())
}

/// The trait of the function that an order has loaded, if the host does not report it itself.
fn loaded(part: &DeployablePlan<'_>, known: &Known) -> Option<String> {
    if part.deployable.facts.contains_key(FUNCTION) {
        return None;
    }
    let row = known.deployable(part.provider)?;
    function_trait(&row.driver, row.function.as_deref()?)
}

/// The deployables of devices that the host sees but cannot read. They keep their rows.
fn unreadable<'a>(cards: &[DevicePlan<'_>], known: &'a Known) -> Vec<&'a DeployableRow> {
    let unread = |card: &&DevicePlan<'_>| {
        card.parts.is_empty() && matches!(card.device.health, Health::Failed { .. })
    };
    let addresses: BTreeSet<&str> =
        cards.iter().filter(unread).map(|card| card.device.address.as_str()).collect();
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
fn as_last_reported(row: &DeployableRow, known: &Known) -> ProviderSpec {
    let is_trait = |one: &&AttributeRow| one.reported && one.name.starts_with("traits");
    let traits = known.attributes_of(row.id).iter().filter(is_trait);
    ProviderSpec {
        id: row.provider,
        name: row.name.clone(),
        inventories: units(&row.resource_class, row.handles, handles::ALL),
        traits: traits.map(|one| one.value.clone()).collect(),
    }
}

/// Row ids that the report names.
#[derive(Default)]
struct Seen {
    devices: BTreeSet<i64>,
    deployables: BTreeSet<i64>,
}

/// The cards with handles that exclude each other, including owned handles that are absent.
fn mixed_cards<'a>(cards: &'a [DevicePlan<'_>], known: &'a Known) -> BTreeSet<&'a str> {
    let mut of_card: BTreeMap<&str, Vec<&HandleKey>> = BTreeMap::new();
    for card in cards {
        let keys = card.parts.iter().flat_map(|part| part.slots.keys());
        of_card.entry(card.address()).or_default().extend(keys);
    }
    let device_of: BTreeMap<i64, i64> =
        known.deployables.iter().map(|row| (row.id, row.device_id)).collect();
    let card_of: BTreeMap<i64, &str> =
        known.devices.iter().map(|row| (row.id, row.card.as_str())).collect();
    for handle in known.handles().filter(|handle| handle.state != "free") {
        let device = device_of.get(&handle.deployable_id);
        if let Some(card) = device.and_then(|id| card_of.get(id)) {
            of_card.entry(card).or_default().push(&handle.key);
        }
    }
    let mixed = of_card.into_iter().filter(|(card, keys)| is_mixed(card, keys.iter().copied()));
    mixed.map(|(card, _)| card).collect()
}

/// The effective health of a device: an acknowledged event does not count.
fn effective_health(card: &DevicePlan<'_>, known: &Known, now: i64) -> DeviceHealth {
    let reported = &card.device.health;
    let row = known.device_at(&card.device.address);
    let event = reported.since();
    let acknowledged = event.is_some() && row.and_then(|row| row.acknowledged) >= event;
    if acknowledged || *reported == Health::Healthy {
        return DeviceHealth {
            state: devices::HEALTHY.to_owned(),
            event,
            ..DeviceHealth::default()
        };
    }
    let fresh = DeviceHealth {
        state: reported.as_str().to_owned(),
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

fn apply_device(
    tx: &mut Tx<'_>,
    host: &str,
    card: &DevicePlan<'_>,
    mixed: &BTreeSet<&str>,
    known: &Known,
    now: i64,
) -> Result<i64, Error> {
    let device = card.device;
    let wanted = DesiredDevice {
        device,
        card: card.address(),
        mixed: mixed.contains(card.address()),
        health: effective_health(card, known, now),
    };
    let Some(row) = known.device_at(&device.address) else {
        return Ok(devices::insert(tx, host, &wanted, now)?);
    };
    let same = row.present
        && row.kind == device.kind.as_str()
        && row.vendor_id == device.vendor_id
        && row.product_id == device.product_id
        && row.model == device.model
        && row.numa_node == device.numa_node
        && row.card == wanted.card
        && row.mixed == wanted.mixed
        && row.health == wanted.health;
    if !same {
        devices::update(tx, row.id, &wanted, now)?;
    }
    Ok(row.id)
}

fn apply_deployable(
    tx: &mut Tx<'_>,
    host: &str,
    device_id: i64,
    part: &DeployablePlan<'_>,
    known: &Known,
    now: i64,
) -> Result<i64, Error> {
    let deployable = part.deployable;
    let device = known.device(device_id);
    let maintaining = device.is_some_and(DeviceRow::is_maintaining);
    let Some(row) = known.deployable(part.provider) else {
        if let Some(other) = deployables::host_of(tx, part.provider)? {
            return Err(Error::Report {
                host: host.to_owned(),
                reason: format!("host {other} has a deployable of the name {}", part.name),
            });
        }
        let new = NewDeployable {
            device_id,
            provider: part.provider,
            name: &part.name,
            resource_class: &deployable.resource_class,
            driver: &deployable.driver,
        };
        let id = deployables::insert(tx, &new, now)?;
        if device.is_some() {
            tx.execute(devices::TOUCH, params![device_id, now])?;
            placement::mark_drained(tx, part.provider, maintaining)?;
        }
        return Ok(id);
    };
    let same = row.present
        && row.device_id == device_id
        && row.resource_class == deployable.resource_class
        && row.driver == deployable.driver;
    if row.device_id != device_id {
        tx.execute(devices::TOUCH, params![device_id, now])?;
        placement::mark_drained(tx, part.provider, maintaining)?;
    }
    if !same {
        tx.execute(
            deployables::UPDATE,
            params![row.id, device_id, &deployable.resource_class, &deployable.driver, now],
        )?;
    }
    Ok(row.id)
}

fn apply_attributes(
    tx: &mut Tx<'_>,
    deployable_id: i64,
    part: &DeployablePlan<'_>,
    known: &Known,
    now: i64,
) -> Result<(), Error> {
    let wanted = part.attributes();
    let have = || known.attributes_of(deployable_id).iter().filter(|row| row.reported);
    for row in have().filter(|row| !wanted.iter().any(|(name, _)| *name == row.name)) {
        tx.execute(attributes::DELETE, params![row.id])?;
    }
    let function = |name: &str| name == FUNCTION;
    let was = have().find(|row| function(&row.name)).map(|row| &row.value);
    if was != wanted.iter().find(|(name, _)| function(name)).map(|(_, value)| value) {
        // The host reports other content, so the bitstream of the last order is gone.
        tx.execute(orders::DROP_BITSTREAM, params![deployable_id, now])?;
    }
    for (name, value) in &wanted {
        match have().find(|row| row.name == *name) {
            Some(row) if row.value == *value => {}
            Some(row) => {
                tx.execute(attributes::UPDATE, params![row.id, value, now])?;
            }
            None => {
                let uuid = uuid::Uuid::now_v7().to_string();
                tx.execute(
                    attributes::INSERT,
                    params![uuid, deployable_id, name, value, true, now],
                )?;
            }
        }
    }
    Ok(())
}

/// Creates handles of each kind up to the requested number. Surplus free handles are deleted; owned
/// or dirty ones stay and are marked absent. Returns the number of those.
fn apply_handles(
    tx: &mut Tx<'_>,
    deployable_id: i64,
    wanted: &BTreeMap<HandleKey, i64>,
    known: &Known,
    now: i64,
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
        rows.sort_by_key(|row| (row.state != "owned", row.state == "free", row.slot));
        let mut taken: BTreeSet<i64> = BTreeSet::new();
        for (at, row) in rows.iter().enumerate() {
            let is_held = ["owned", "dirty"].contains(&row.state.as_str());
            held += usize::from(is_held);
            let wanted = at < count;
            if !wanted && !is_held {
                tx.execute(handles::DELETE, params![row.id])?;
                continue;
            }
            taken.insert(row.slot);
            if row.present != wanted {
                tx.execute(handles::PRESENT, params![row.id, wanted, now])?;
            }
        }
        let free_slots = (0..).filter(|slot| !taken.contains(slot));
        let new: Vec<i64> = free_slots.take(count.saturating_sub(rows.len())).collect();
        handles::insert(tx, deployable_id, key, &new, now)?;
    }
    Ok(held)
}

/// Deletes deployables that are not in the report. Returns the devices of those that still have
/// owners or are disabled.
fn drop_deployables(
    tx: &mut Tx<'_>,
    seen: &Seen,
    known: &Known,
    now: i64,
) -> Result<BTreeSet<i64>, Error> {
    let mut kept = BTreeSet::new();
    for row in known.deployables.iter().filter(|row| !seen.deployables.contains(&row.id)) {
        let disabled = known.device(row.device_id).is_some_and(DeviceRow::is_maintaining);
        if apply_handles(tx, row.id, &BTreeMap::new(), known, now)? == 0 && !disabled {
            tx.execute(attributes::DELETE_OF, params![row.id])?;
            tx.execute(deployables::DELETE, params![row.id])?;
            continue;
        }
        kept.insert(row.device_id);
        if row.present {
            tx.execute(deployables::VANISH, params![row.id, now])?;
        }
    }
    Ok(kept)
}

fn drop_devices(
    tx: &mut Tx<'_>,
    seen: &Seen,
    kept: &BTreeSet<i64>,
    mixed: &BTreeSet<&str>,
    known: &Known,
    now: i64,
) -> Result<(), Error> {
    for row in known.devices.iter().filter(|row| !seen.devices.contains(&row.id)) {
        if !kept.contains(&row.id) && !row.is_maintaining() {
            tx.execute(devices::DELETE, params![row.id])?;
            continue;
        }
        if row.present {
            tx.execute(devices::VANISH, params![row.id, now])?;
        }
        let now_mixed = mixed.contains(row.card.as_str());
        if row.mixed != now_mixed {
            tx.execute(devices::MIXED, params![row.id, now_mixed, now])?;
        }
    }
    Ok(())
}
