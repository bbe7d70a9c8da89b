//! Claim and release. A claim first adds its amounts and then checks the resulting rows, which it
//! has locked: a stale snapshot can cost an attempt but never an over-commit. The consumer's row is
//! written first, then the providers' rows in the order of their ids, so that two claims cannot
//! deadlock.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::Claim;
use crate::db::consumers::{self, ConsumerOwner};
use crate::db::inventories::{self, InventoryRow};
use crate::db::{changes, providers};
use crate::{Error, World};

/// Claims resources for a new consumer, all or nothing.
///
/// # Errors
/// [`Error::Capacity`] and similar errors if the claim no longer fits ([`Error::no_longer_fits`]).
/// After any error the caller must abort the transaction.
pub fn claim(tx: &mut Tx<'_>, world: &World, claim: &Claim) -> Result<(), Error> {
    let mut wanted: BTreeMap<ProviderId, BTreeMap<&str, i64>> = BTreeMap::new();
    for part in &claim.allocations {
        if part.amount <= 0 {
            return Err(Error::BadClaim(claim.consumer));
        }
        let classes = wanted.entry(part.provider).or_default();
        let amount = classes.entry(part.class.as_str()).or_default();
        *amount = amount.checked_add(part.amount).ok_or(Error::BadClaim(claim.consumer))?;
    }
    if wanted.is_empty() {
        return Err(Error::BadClaim(claim.consumer));
    }
    let now = time::now();
    let owner = ConsumerOwner {
        consumer_type: claim.consumer_type.as_deref(),
        project_id: &claim.project_id,
        user_id: &claim.user_id,
    };
    if !consumers::insert(tx, claim.consumer, owner, now)? {
        return Err(Error::ConsumerExists(claim.consumer));
    }
    let mut roots = BTreeSet::new();
    let mut amounts = Vec::new();
    for (provider, classes) in &wanted {
        let provider = *provider;
        let counters = providers::bump(tx, provider, now)?.ok_or(Error::NoProvider(provider))?;
        let here: Vec<(&str, i64)> = classes.iter().map(|(class, n)| (*class, *n)).collect();
        let rows = inventories::claim(tx, provider, &here)?;
        for (class, amount) in here {
            fits(&rows, provider, class, amount)?;
            amounts.push((provider, class, amount));
        }
        roots.insert(counters.root);
        let used = rows.into_iter().map(|row| (row.class, row.inventory.used)).collect();
        publish(tx, world, provider, counters.version, used);
    }
    consumers::insert_allocations(tx, claim.consumer, &amounts, now)?;
    log_trees(tx, world, roots, now)
}

/// Releases all resources of a consumer. A consumer without allocations is not an error.
///
/// # Errors
/// Store errors only.
pub fn release(tx: &mut Tx<'_>, world: &World, consumer: ConsumerId) -> Result<(), Error> {
    let rows = consumers::allocations(tx, consumer)?;
    let now = time::now();
    consumers::delete_allocations(tx, consumer)?;
    consumers::delete(tx, consumer)?;
    let mut roots = BTreeSet::new();
    for part in rows.chunk_by(|a, b| a.provider == b.provider) {
        let Some(provider) = part.first().map(|row| row.provider) else { continue };
        let counters = providers::touch(tx, provider)?.ok_or(Error::NoProvider(provider))?;
        for row in part {
            inventories::add_usage(tx, provider, &row.class, -row.used)?;
        }
        roots.insert(counters.root);
        publish_usage(tx, world, provider, counters.version)?;
    }
    log_trees(tx, world, roots, now)
}

/// Publishes the provider's usage of all classes after the commit. On PostgreSQL hooks may run in
/// either order, so an update must be complete to replace an older one.
pub(crate) fn publish_usage(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    version: i64,
) -> Result<(), Error> {
    let used = inventories::used(tx, provider)?;
    publish(tx, world, provider, version, used);
    Ok(())
}

fn publish(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    version: i64,
    used: Vec<(String, i64)>,
) {
    let world = world.clone();
    tx.on_commit(move || world.set_usage(provider, version, &used));
}

/// Logs the trees whose usage changed. Call it after [`publish_usage`].
pub(crate) fn log_trees(
    tx: &mut Tx<'_>,
    world: &World,
    roots: BTreeSet<ProviderId>,
    now: Timestamp,
) -> Result<(), Error> {
    for root in roots {
        let entry = changes::append(tx, root, now)?;
        let world = world.clone();
        tx.on_commit(move || world.shows(entry));
    }
    Ok(())
}

/// Checks a claimed amount against the provider's inventories after the claim.
fn fits(
    rows: &[InventoryRow],
    provider: ProviderId,
    class: &str,
    amount: i64,
) -> Result<(), Error> {
    let Some(row) = rows.iter().find(|row| row.class == class) else {
        return Err(Error::NoInventory { provider, class: class.to_owned() });
    };
    let inv = &row.inventory;
    if amount < inv.min_unit || amount > inv.max_unit || amount % inv.step_size != 0 {
        return Err(Error::Constraint { provider, class: class.to_owned() });
    }
    if inv.used as f64 > (inv.total - inv.reserved) as f64 * inv.allocation_ratio {
        return Err(Error::Capacity { provider, class: class.to_owned() });
    }
    Ok(())
}
