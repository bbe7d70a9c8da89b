//! Inventories of a provider. As clients expect, every write increments the provider's generation,
//! even if it changes nothing.

use std::collections::HashMap;

use kilonova_engine::Inventory;
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::Tx;
use kilonova_wire::{Microversion, Refusal, time};

use super::{classes, providers};
use crate::db;
use crate::db::inventories::InventoryRow;
use crate::db::providers::ProviderRow;
use crate::{Error, World, codes, names};

/// A class and its requested inventory.
pub type ClassInventory = (ResourceClass, Inventory);

/// A provider and its inventories.
///
/// # Errors
/// 404.
pub fn list(tx: &mut Tx<'_>, id: ProviderId) -> Result<(ProviderRow, Vec<InventoryRow>), Error> {
    Ok((providers::get(tx, id)?, db::inventories::of_provider(tx, id)?))
}

/// Replaces all inventories of a provider.
///
/// # Errors
/// 400 for an unknown class or invalid numbers, 404, 409 for an old generation or an inventory in
/// use.
pub fn replace(
    tx: &mut Tx<'_>,
    world: &World,
    id: ProviderId,
    generation: Option<i64>,
    wanted: &[ClassInventory],
    version: Microversion,
) -> Result<(), Error> {
    let row = providers::lock(tx, id)?;
    if let Some(generation) = generation {
        providers::check_generation(&row, generation, "resource provider generation conflict")?;
    }
    for (class, inventory) in wanted {
        check(id, class, inventory, version).map_err(|why| refused("update", id, &why))?;
    }
    write(tx, id, wanted, true)?;
    db::providers::bump(tx, id, time::now())?;
    world.tree_changed(tx, row.root)
}

/// Removes all inventories of a provider.
///
/// # Errors
/// 404, 409 for an inventory in use.
pub fn clear(tx: &mut Tx<'_>, world: &World, id: ProviderId) -> Result<(), Error> {
    let row = providers::lock(tx, id)?;
    let have = db::inventories::of_provider(tx, id)?;
    // Unlike `set_inventories`, upstream's `delete_inventories` puts nothing before this message.
    refuse_used(id, &have, "")?;
    write(tx, id, &[], true)?;
    db::providers::bump(tx, id, time::now())?;
    world.tree_changed(tx, row.root)
}

/// Adds the inventory of a class that the provider does not have yet.
///
/// # Errors
/// 400 for an unknown class or invalid numbers, 404, 409 if it exists.
pub fn add(
    tx: &mut Tx<'_>,
    world: &World,
    id: ProviderId,
    wanted: &ClassInventory,
    version: Microversion,
) -> Result<(), Error> {
    let row = providers::lock(tx, id)?;
    let have = db::inventories::of_provider(tx, id)?;
    let (class, inventory) = wanted;
    check(id, class, inventory, version).map_err(|why| refused("create", id, &why))?;
    if !classes::pin(tx, class)? {
        return Err(refused("create", id, &classes::unknown(class)).into());
    }
    if have.iter().any(|old| old.class == *class) {
        return Err(Refusal::conflict(format!(
            "Update conflict: resource provider {id} already has inventory of class {class}"
        ))
        .with_code(codes::CONCURRENT_UPDATE)
        .into());
    }
    write(tx, id, std::slice::from_ref(wanted), false)?;
    db::providers::bump(tx, id, time::now())?;
    world.tree_changed(tx, row.root)
}

/// Changes the inventory of a class.
///
/// # Errors
/// 400 if it does not exist or the numbers are invalid, 404 also for an unknown class, 409 for an old
/// generation.
pub fn update(
    tx: &mut Tx<'_>,
    world: &World,
    id: ProviderId,
    generation: i64,
    wanted: &ClassInventory,
    version: Microversion,
) -> Result<(), Error> {
    let row = providers::lock(tx, id)?;
    let have = db::inventories::of_provider(tx, id)?;
    providers::check_generation(&row, generation, "resource provider generation conflict")?;
    let (class, inventory) = wanted;
    check(id, class, inventory, version).map_err(|why| refused("update", id, &why))?;
    if !have.iter().any(|old| old.class == *class) {
        // Upstream's `update_inventory` (handlers/inventory.py) does not catch the error of an
        // unknown class.
        if !classes::exists(tx, class)? {
            return Err(Refusal::not_found(classes::unknown(class)).into());
        }
        return Err(Refusal::bad_request(format!(
            "No inventory record with resource class for resource provider {id}: No inventory of \
             class {class} found."
        ))
        .into());
    }
    write(tx, id, std::slice::from_ref(wanted), false)?;
    db::providers::bump(tx, id, time::now())?;
    world.tree_changed(tx, row.root)
}

/// Removes the inventory of a class.
///
/// # Errors
/// 404, and 409 while it is in use.
pub fn delete(
    tx: &mut Tx<'_>,
    world: &World,
    id: ProviderId,
    class: &ResourceClass,
) -> Result<(), Error> {
    let row = providers::lock(tx, id)?;
    let have = db::inventories::of_provider(tx, id)?;
    let Some(old) = have.iter().find(|old| old.class == *class) else {
        return Err(Refusal::not_found(format!(
            "No inventory of class {class} found for delete: No inventory of class {class} found \
             for delete"
        ))
        .into());
    };
    if old.inventory.used > 0 || !db::inventories::delete_idle(tx, id, class)? {
        return Err(Refusal::conflict(format!(
            "Unable to delete inventory of class {class}: {}",
            in_use(id, class)
        ))
        .with_code(codes::CONCURRENT_UPDATE)
        .into());
    }
    db::providers::bump(tx, id, time::now())?;
    world.tree_changed(tx, row.root)
}

/// Writes rows. With `all`, removes classes that are not in `wanted`. An operator's `reserved` is
/// stored apart from the host's value, so that the host's next report does not overwrite it. While the
/// provider is drained, or its host cannot offer the device, a smaller value has no effect yet.
/// Sending back the amount shown changes nothing.
///
/// # Errors
/// 400 for an unknown class, 409 if an inventory to remove is in use.
pub fn write(
    tx: &mut Tx<'_>,
    id: ProviderId,
    wanted: &[ClassInventory],
    all: bool,
) -> Result<(), Error> {
    let now = time::now();
    let drained = db::drains::of(tx, &[id])?.contains(&id);
    let mut withheld = false;
    let mut old: HashMap<ResourceClass, InventoryRow> = db::inventories::of_provider(tx, id)?
        .into_iter()
        .map(|row| (row.class.clone(), row))
        .collect();
    for (class, inventory) in wanted {
        let before = old.remove(class);
        if before.is_none() && !classes::pin(tx, class)? {
            return Err(Refusal::bad_request(format!(
                "Unknown resource class in inventory for resource provider {id}: {}",
                classes::unknown(class)
            ))
            .into());
        }
        let reported = before.as_ref().and_then(|row| row.reported_reserved);
        let shown = before.as_ref().map(|row| row.inventory.reserved);
        withheld |= reported.is_some_and(|amount| amount > inventory.reserved);
        let by_operator = if shown == Some(inventory.reserved) {
            before.as_ref().and_then(|row| row.operator_reserved)
        } else {
            reported.filter(|amount| *amount != inventory.reserved).map(|_| inventory.reserved)
        };
        let row = InventoryRow {
            class: class.clone(),
            inventory: *inventory,
            reported_reserved: reported,
            operator_reserved: by_operator,
            updated_at: now,
        };
        db::inventories::put(tx, id, &row, before.is_none())?;
    }
    if drained {
        db::drains::reserve(tx, id, now)?;
    } else if withheld {
        db::inventories::withhold(tx, id)?;
    }
    if !all {
        return Ok(());
    }
    refuse_used(id, old.values(), "update conflict: ")?;
    for class in old.keys() {
        db::inventories::delete_idle(tx, id, class)?;
    }
    Ok(())
}

/// Refuses to remove inventories in use, with a message that begins with `prefix`.
fn refuse_used<'a>(
    id: ProviderId,
    removed: impl IntoIterator<Item = &'a InventoryRow>,
    prefix: &str,
) -> Result<(), Refusal> {
    let used = removed.into_iter().filter(|row| row.inventory.used > 0);
    let mut held: Vec<&str> = used.map(|row| row.class.as_str()).collect();
    if held.is_empty() {
        return Ok(());
    }
    held.sort_unstable_by_key(|class| (names::class_rank(class), *class));
    let why = in_use(id, &held.join(", "));
    Err(Refusal::conflict(format!("{prefix}{why}")).with_code(codes::INVENTORY_IN_USE))
}

fn in_use(id: ProviderId, classes: &str) -> String {
    format!("Inventory for '{classes}' on resource provider '{id}' in use.")
}

fn refused(action: &str, id: ProviderId, why: &str) -> Refusal {
    Refusal::bad_request(format!("Unable to {action} inventory for resource provider {id}: {why}"))
}

fn check(
    id: ProviderId,
    class: &ResourceClass,
    inventory: &Inventory,
    version: Microversion,
) -> Result<(), String> {
    let capacity = inventory.capacity();
    let may_be_full = version >= Microversion(1, 26);
    if capacity > 0 || (capacity == 0 && may_be_full) {
        return Ok(());
    }
    let than = if may_be_full { "greater than" } else { "greater than or equal to" };
    Err(format!(
        "Invalid inventory for '{class}' on resource provider '{id}'. The reserved value is {than} \
         total."
    ))
}
