//! Taking in what a host has. The report is the whole truth about the hardware and says nothing
//! about who holds it, so: what is held is never removed, only marked as no longer there, and goes
//! away with its owner or at the report after that. What an administrator disabled is remembered even
//! when nothing is held on it, so that it comes back disabled.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_node_api::{Device, Health};
use kilonova_placement::ledger::{self as placement, ProviderSpec};
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use super::plan::{Card, Part, plan};
use crate::Error;
use crate::db::attributes::{self, AttributeRow};
use crate::db::deployables::{self, DeployableRow, NewDeployable};
use crate::db::devices::{self, DeviceRow};
use crate::db::handles::{self, HandleKey, HandleRow};

/// What the database knows of a host.
struct Known {
    devices: Vec<DeviceRow>,
    deployables: Vec<DeployableRow>,
    attributes: Vec<AttributeRow>,
    handles: Vec<HandleRow>,
}

/// Makes the ledger say what `devices`, a host's whole hardware, says, and returns the children of
/// the host's provider for Placement. Without a change nothing is written.
///
/// # Errors
/// [`Error::Report`] when the devices contradict each other or another host's.
pub fn report(tx: &mut Tx<'_>, host: &str, devices: &[Device]) -> Result<Vec<ProviderSpec>, Error> {
    let cards = plan(host, devices)?;
    let known = Known {
        devices: devices::of_host(tx, host)?,
        deployables: deployables::of_host(tx, host)?,
        attributes: attributes::of_host(tx, host)?,
        handles: handles::of_host(tx, host)?,
    };
    let now = now_micros();
    let mut seen = Seen::default();
    for card in &cards {
        let device_id = take_device(tx, host, card, &known, now)?;
        seen.devices.insert(device_id);
        for part in &card.parts {
            let id = take_deployable(tx, host, device_id, part, &known, now)?;
            seen.deployables.insert(id);
            take_attributes(tx, id, part, &known, now)?;
            take_handles(tx, id, &part.slots, &known, now)?;
        }
    }
    let kept = drop_deployables(tx, &seen, &known, now)?;
    drop_devices(tx, &seen, &kept, &known, now)?;
    let dirty = handles::dirty_of_host(tx, host)?;
    let withheld = |card: &Card<'_>, part: &Part<'_>| match card.device.health {
        Health::Failed { .. } => i64::MAX,
        _ => dirty.get(&part.provider).copied().unwrap_or(0),
    };
    let of_card = |card| move |part| (card, part);
    let parts = cards.iter().flat_map(|card| card.parts.iter().map(of_card(card)));
    Ok(parts.map(|(card, part)| part.provider(withheld(card, part))).collect())
}

/// Row ids that the report names.
#[derive(Default)]
struct Seen {
    devices: BTreeSet<i64>,
    deployables: BTreeSet<i64>,
}

fn take_device(
    tx: &mut Tx<'_>,
    host: &str,
    card: &Card<'_>,
    known: &Known,
    now: i64,
) -> Result<i64, Error> {
    let device = card.device;
    let Some(row) = known.devices.iter().find(|row| row.address == device.address) else {
        return Ok(devices::insert(tx, host, device, now)?);
    };
    let same = row.present
        && row.kind == device.kind.as_str()
        && row.vendor_id == device.vendor_id
        && row.product_id == device.product_id
        && row.model == device.model
        && row.numa_node == device.numa_node;
    if !same {
        tx.execute(
            devices::UPDATE,
            params![
                row.id,
                device.kind.as_str(),
                &device.vendor_id,
                &device.product_id,
                &device.model,
                device.numa_node,
                now
            ],
        )?;
    }
    Ok(row.id)
}

fn take_deployable(
    tx: &mut Tx<'_>,
    host: &str,
    device_id: i64,
    part: &Part<'_>,
    known: &Known,
    now: i64,
) -> Result<i64, Error> {
    let deployable = part.deployable;
    let device = known.devices.iter().find(|row| row.id == device_id);
    let maintaining = device.is_some_and(DeviceRow::is_maintaining);
    let Some(row) = known.deployables.iter().find(|row| row.provider == part.provider) else {
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

fn take_attributes(
    tx: &mut Tx<'_>,
    deployable_id: i64,
    part: &Part<'_>,
    known: &Known,
    now: i64,
) -> Result<(), Error> {
    let wanted = part.attributes();
    let of_part = |row: &&AttributeRow| row.deployable_id == deployable_id && row.reported;
    let have = || known.attributes.iter().filter(of_part);
    for row in have().filter(|row| !wanted.iter().any(|(name, _)| *name == row.name)) {
        tx.execute(attributes::DELETE, params![row.id])?;
    }
    for (name, value) in &wanted {
        match have().find(|row| row.name == *name) {
            Some(row) if row.value == *value => {}
            Some(row) => {
                tx.execute(attributes::UPDATE, params![row.id, value, now])?;
            }
            None => {
                let uuid = uuid::Uuid::new_v4().to_string();
                tx.execute(
                    attributes::INSERT,
                    params![uuid, deployable_id, name, value, true, now],
                )?;
            }
        }
    }
    Ok(())
}

/// Makes as many handles of each kind as wanted. Of too many the free ones go first; an owned one
/// stays and is marked. Returns how many owned ones stay.
fn take_handles(
    tx: &mut Tx<'_>,
    deployable_id: i64,
    wanted: &BTreeMap<HandleKey, i64>,
    known: &Known,
    now: i64,
) -> Result<usize, Error> {
    let mut have: BTreeMap<&HandleKey, Vec<&HandleRow>> = BTreeMap::new();
    for row in known.handles.iter().filter(|row| row.deployable_id == deployable_id) {
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
            let owned = row.state == "owned";
            held += usize::from(owned);
            let wanted = at < count;
            if !wanted && !owned {
                tx.execute(handles::DELETE, params![row.id])?;
                continue;
            }
            taken.insert(row.slot);
            if row.present != wanted {
                tx.execute(handles::PRESENT, params![row.id, wanted, now])?;
            }
        }
        let free_slots = (0..).filter(|slot| !taken.contains(slot));
        for slot in free_slots.take(count.saturating_sub(rows.len())) {
            handles::insert(tx, deployable_id, key, slot, now)?;
        }
    }
    Ok(held)
}

/// Removes the deployables that the report does not name; returns the devices of those that are
/// still held or disabled.
fn drop_deployables(
    tx: &mut Tx<'_>,
    seen: &Seen,
    known: &Known,
    now: i64,
) -> Result<BTreeSet<i64>, Error> {
    let mut kept = BTreeSet::new();
    for row in known.deployables.iter().filter(|row| !seen.deployables.contains(&row.id)) {
        let of_row = |device: &&DeviceRow| device.id == row.device_id;
        let disabled = known.devices.iter().find(of_row).is_some_and(DeviceRow::is_maintaining);
        if take_handles(tx, row.id, &BTreeMap::new(), known, now)? == 0 && !disabled {
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
    known: &Known,
    now: i64,
) -> Result<(), Error> {
    for row in known.devices.iter().filter(|row| !seen.devices.contains(&row.id)) {
        if !kept.contains(&row.id) && !row.is_maintaining() {
            tx.execute(devices::DELETE, params![row.id])?;
        } else if row.present {
            tx.execute(devices::VANISH, params![row.id, now])?;
        }
    }
    Ok(())
}
