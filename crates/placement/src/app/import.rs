//! Copies rows from another Placement, and reads them back for comparison. Generations are copied,
//! so that clients with cached generations continue to work. Unchanged rows are not written.
//!
//! The import ignores capacity, because the other Placement's allocations are in use. It removes no
//! provider and no consumer that exists only here.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
pub use kilonova_engine::Inventory;
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_store::Tx;
use kilonova_wire::time;
use uuid::Uuid;

use crate::db::consumers::ConsumerRow;
use crate::db::inventories::InventoryRow;
use crate::db::providers::NewProvider;
use crate::db::{aggregates, classes, consumers, copies, inventories, providers, traits};
use crate::{Error, World, ledger, names};

/// A provider as stored in the other Placement.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderCopy {
    /// Its UUID.
    pub id: ProviderId,
    /// Unique name.
    pub name: String,
    /// Parent; `None` for a root.
    pub parent: Option<ProviderId>,
    /// Root of its tree.
    pub root: ProviderId,
    /// The generation that clients see.
    pub generation: i64,
    /// Inventories by class; `used` is always 0.
    pub inventories: BTreeMap<ResourceClass, Inventory>,
    /// Traits.
    pub traits: BTreeSet<String>,
    /// Aggregates.
    pub aggregates: BTreeSet<Uuid>,
}

/// A consumer as stored in the other Placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerCopy {
    /// Its UUID.
    pub id: ConsumerId,
    /// The generation that clients see.
    pub generation: i64,
    /// The consumer type; `None` if it was never set.
    pub consumer_type: Option<String>,
    /// The project.
    pub project_id: String,
    /// The user.
    pub user_id: String,
    /// Amounts by provider and class.
    pub allocations: BTreeMap<(ProviderId, ResourceClass), i64>,
}

/// Creates custom classes and traits. Returns the names that cannot be created: standard names from
/// a newer release.
///
/// # Errors
/// Store errors only.
pub fn ensure_names(
    tx: &mut Tx<'_>,
    used: &[ResourceClass],
    have: &[String],
) -> Result<Vec<String>, Error> {
    let now = time::now();
    let mut unknown = Vec::new();
    for name in used.iter().filter(|name| !names::is_standard_class(name)) {
        if name.starts_with("CUSTOM_") {
            classes::ensure(tx, name, now)?;
        } else {
            unknown.push(name.to_string());
        }
    }
    for name in have.iter().filter(|name| !names::is_standard_trait(name)) {
        if name.starts_with("CUSTOM_") {
            traits::ensure(tx, name, now)?;
        } else {
            unknown.push(name.clone());
        }
    }
    Ok(unknown)
}

/// Writes the providers of one tree, parents first. Inventories that the other Placement does not
/// have stay until [`remove_unused`]. Returns whether anything was written.
///
/// # Errors
/// 409 if another provider here has the name.
pub fn import_tree(tx: &mut Tx<'_>, world: &World, tree: &[ProviderCopy]) -> Result<bool, Error> {
    let Some(root) = tree.first().map(|provider| provider.root) else { return Ok(false) };
    let now = time::now();
    let mut changed = false;
    let mut left = BTreeSet::new();
    for copy in tree {
        let have = read_provider(tx, copy.id)?;
        if have.as_ref() == Some(copy) {
            continue;
        }
        changed = true;
        match &have {
            None => {
                let (id, name) = (copy.id, &copy.name);
                let (parent, root) = (copy.parent, copy.root);
                let new = NewProvider::new(id, name, parent, root);
                if !providers::insert(tx, new, now)? {
                    return Err(Error::Taken { id, name: name.clone() });
                }
            }
            Some(have) => {
                providers::set_name_and_position(
                    tx,
                    copy.id,
                    &copy.name,
                    copy.parent,
                    copy.root,
                    now,
                )?;
                left.insert(have.root);
            }
        }
        write_contents(tx, copy, have.as_ref(), now)?;
        copies::set_generation(tx, copy.id, copy.generation, now)?;
    }
    left.remove(&root);
    for old in left {
        world.tree_changed(tx, old)?;
    }
    if changed {
        world.tree_changed(tx, root)?;
    }
    Ok(changed)
}

fn write_contents(
    tx: &mut Tx<'_>,
    copy: &ProviderCopy,
    have: Option<&ProviderCopy>,
    now: Timestamp,
) -> Result<(), Error> {
    for (class, inventory) in &copy.inventories {
        let before = have.and_then(|have| have.inventories.get(class));
        if before == Some(inventory) {
            continue;
        }
        if !names::is_standard_class(class) {
            classes::ensure(tx, class, now)?;
            classes::pin(tx, class)?;
        }
        let row = InventoryRow {
            class: class.clone(),
            inventory: *inventory,
            reported_reserved: None,
            operator_reserved: None,
            updated_at: now,
        };
        inventories::put(tx, copy.id, &row, before.is_none())?;
    }
    if have.is_none_or(|have| have.traits != copy.traits) {
        traits::clear(tx, copy.id)?;
        for name in &copy.traits {
            if !names::is_standard_trait(name) {
                traits::ensure(tx, name, now)?;
            }
            traits::add(tx, copy.id, name, false)?;
        }
    }
    if have.is_none_or(|have| have.aggregates != copy.aggregates) {
        aggregates::clear(tx, copy.id)?;
        for group in &copy.aggregates {
            aggregates::add(tx, copy.id, *group)?;
        }
    }
    Ok(())
}

/// Replaces a consumer's allocations with those of the other Placement. Returns whether anything
/// was written.
///
/// # Errors
/// 409 if the provider has no inventory of an allocated class.
pub fn import_consumer(tx: &mut Tx<'_>, world: &World, copy: &ConsumerCopy) -> Result<bool, Error> {
    let have = read_consumer(tx, copy.id)?;
    if have.as_ref() == Some(copy) {
        return Ok(false);
    }
    let now = time::now();
    consumers::delete_allocations(tx, copy.id)?;
    let row = ConsumerRow {
        generation: copy.generation,
        consumer_type: copy.consumer_type.clone(),
        project_id: copy.project_id.clone(),
        user_id: copy.user_id.clone(),
        updated_at: now,
    };
    copies::set_consumer(tx, copy.id, &row)?;
    let mut shifts: BTreeMap<(ProviderId, ResourceClass), i64> = BTreeMap::new();
    for (place, amount) in have.into_iter().flat_map(|have| have.allocations) {
        *shifts.entry(place).or_default() -= amount;
    }
    for (place, amount) in &copy.allocations {
        *shifts.entry(place.clone()).or_default() += amount;
    }
    let touched: BTreeSet<ProviderId> = shifts.keys().map(|(provider, _)| *provider).collect();
    let mut versions = Vec::new();
    for provider in touched {
        let counters = providers::touch(tx, provider)?.ok_or(Error::NoProvider(provider))?;
        versions.push((provider, counters));
    }
    for ((provider, class), by) in shifts {
        if !inventories::add_usage(tx, provider, &class, by)? {
            return Err(Error::NoInventory { provider, class });
        }
    }
    for ((provider, class), amount) in &copy.allocations {
        consumers::insert_allocation(tx, copy.id, *provider, class, *amount, now)?;
    }
    let mut roots = BTreeSet::new();
    for (provider, counters) in versions {
        roots.insert(counters.root);
        ledger::publish_usage(tx, world, provider, counters.version)?;
    }
    ledger::log_trees(tx, world, roots, now)?;
    Ok(true)
}

/// Removes inventories that the other Placement does not have and that are not in use. Call it
/// after the consumers have been imported.
///
/// # Errors
/// Store errors only.
pub fn remove_unused(tx: &mut Tx<'_>, world: &World, tree: &[ProviderCopy]) -> Result<(), Error> {
    let Some(root) = tree.first().map(|provider| provider.root) else { return Ok(()) };
    let mut changed = false;
    for copy in tree {
        copies::mark_shrunk(tx, copy.id)?;
        for row in inventories::of_provider(tx, copy.id)? {
            if !copy.inventories.contains_key(&row.class) {
                changed |= inventories::delete_idle(tx, copy.id, &row.class)?;
            }
        }
    }
    if changed {
        world.tree_changed(tx, root)?;
    }
    Ok(())
}

/// A provider in this Placement.
///
/// # Errors
/// Store errors only.
pub fn read_provider(tx: &mut Tx<'_>, id: ProviderId) -> Result<Option<ProviderCopy>, Error> {
    let Some(row) = providers::by_id(tx, id)? else { return Ok(None) };
    let inventories = inventories::of_provider(tx, id)?
        .into_iter()
        .map(|row| (row.class, Inventory { used: 0, ..row.inventory }))
        .collect();
    Ok(Some(ProviderCopy {
        id,
        name: row.name,
        parent: row.parent,
        root: row.root,
        generation: row.generation,
        inventories,
        traits: traits::of_provider(tx, id)?.into_iter().map(|(name, _)| name).collect(),
        aggregates: aggregates::of_provider(tx, id)?.into_iter().collect(),
    }))
}

/// A consumer in this Placement.
///
/// # Errors
/// Store errors only.
pub fn read_consumer(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Option<ConsumerCopy>, Error> {
    let Some(row) = consumers::get(tx, id)? else { return Ok(None) };
    let allocations = consumers::allocations(tx, id)?
        .into_iter()
        .map(|part| ((part.provider, part.class), part.used))
        .collect();
    Ok(Some(ConsumerCopy {
        id,
        generation: row.generation,
        consumer_type: row.consumer_type,
        project_id: row.project_id,
        user_id: row.user_id,
        allocations,
    }))
}

/// The consumers with allocations on a provider in this Placement.
///
/// # Errors
/// Store errors only.
pub fn consumers_of(tx: &mut Tx<'_>, id: ProviderId) -> Result<BTreeSet<ConsumerId>, Error> {
    Ok(consumers::on_provider(tx, id)?.into_iter().map(|row| row.consumer).collect())
}
