//! Claim and release. A claim first adds its amounts and then checks the resulting rows, which it
//! has locked: a stale snapshot can cost an attempt but never cause an over-commit. The consumer's
//! row is written first, then the providers' rows in the order of their ids, so that two claims
//! cannot deadlock.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kilonova_changes::{ask_append_tree, number_of};
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_store::{Asked, Tx};
use kilonova_wire::time;

use super::{Allocation, Claim};
use crate::db::consumers::{self, ConsumerOwner, HeldAllocation};
use crate::db::inventories::{self, InventoryRow};
use crate::db::providers;
use crate::{Error, World};

/// Claims resources for a new consumer, all or nothing.
///
/// # Errors
/// [`Error::Capacity`] and similar errors if the claim no longer fits ([`Error::no_longer_fits`]).
/// After any error the caller must abort the transaction.
pub fn claim(tx: &mut Tx<'_>, world: &World, claim: &Claim) -> Result<(), Error> {
    ask_claim(tx, claim)?.check(tx, world)?.record(tx, world)
}

/// A claim whose statements are part of the transaction, but whose answers have not been read yet.
#[must_use = "a claim may not fit"]
pub struct AskedClaim<'a> {
    consumer: ConsumerId,
    /// The insertion of a new consumer.
    inserted: Option<Asked>,
    parts: Vec<AskedPart<'a>>,
    now: Timestamp,
}

/// The amounts on one provider.
struct AskedPart<'a> {
    provider: ProviderId,
    amounts: Vec<(&'a ResourceClass, i64)>,
    bumped: Asked,
    claimed: Asked,
}

/// Asks for a [`claim`], so that other statements can share its round trip.
///
/// # Errors
/// [`Error::BadClaim`] for invalid amounts; store errors.
pub fn ask_claim<'a>(tx: &mut Tx<'_>, claim: &'a Claim) -> Result<AskedClaim<'a>, Error> {
    let wanted = wanted(claim.consumer, &claim.allocations)?;
    ask(tx, claim, wanted)
}

/// Asks for the part of a [`claim`] that is known first; [`CheckedClaim::and`] adds the rest. The first part may have
/// no amounts.
///
/// # Errors
/// Those of [`ask_claim`].
pub fn ask_first_part<'a>(tx: &mut Tx<'_>, claim: &'a Claim) -> Result<AskedClaim<'a>, Error> {
    let is_empty = claim.allocations.is_empty();
    let wanted = match is_empty {
        true => Amounts::new(),
        false => wanted(claim.consumer, &claim.allocations)?,
    };
    ask(tx, claim, wanted)
}

fn ask<'a>(
    tx: &mut Tx<'_>,
    claim: &'a Claim,
    wanted: Amounts<'a>,
) -> Result<AskedClaim<'a>, Error> {
    let now = time::now();
    let owner = ConsumerOwner {
        consumer_type: claim.consumer_type.as_deref(),
        project_id: &claim.project_id,
        user_id: &claim.user_id,
    };
    let inserted = Some(consumers::ask_insert(tx, claim.consumer, owner, now)?);
    let parts = ask_parts(tx, wanted, now)?;
    Ok(AskedClaim { consumer: claim.consumer, inserted, parts, now })
}

/// Claims additional resources for a consumer that already has allocations, all or nothing.
///
/// # Errors
/// Those of [`claim`].
pub fn extend(
    tx: &mut Tx<'_>,
    world: &World,
    consumer: ConsumerId,
    parts: &[Allocation],
) -> Result<(), Error> {
    let (wanted, now) = (wanted(consumer, parts)?, time::now());
    // As in a claim, the consumer's row is written first.
    consumers::bump(tx, consumer, now)?;
    let parts = ask_parts(tx, wanted, now)?;
    let checked = AskedClaim { consumer, inserted: None, parts, now }.check(tx, world)?;
    for (provider, class, amount) in &checked.amounts {
        consumers::add_allocation(tx, consumer, *provider, class, *amount, now)?;
    }
    log_trees(tx, world, checked.roots, now)
}

/// The amounts of a claim by provider and class.
type Amounts<'a> = BTreeMap<ProviderId, BTreeMap<&'a ResourceClass, i64>>;

fn wanted(consumer: ConsumerId, parts: &[Allocation]) -> Result<Amounts<'_>, Error> {
    let mut wanted = Amounts::new();
    for part in parts {
        if part.amount <= 0 {
            return Err(Error::BadClaim(consumer));
        }
        let classes = wanted.entry(part.provider).or_default();
        let amount = classes.entry(&part.class).or_default();
        *amount = amount.checked_add(part.amount).ok_or(Error::BadClaim(consumer))?;
    }
    if wanted.is_empty() {
        return Err(Error::BadClaim(consumer));
    }
    Ok(wanted)
}

fn ask_parts<'a>(
    tx: &mut Tx<'_>,
    wanted: Amounts<'a>,
    now: Timestamp,
) -> Result<Vec<AskedPart<'a>>, Error> {
    let mut parts = Vec::with_capacity(wanted.len());
    for (provider, classes) in wanted {
        let amounts: Vec<_> = classes.into_iter().collect();
        let bumped = providers::ask_bump(tx, provider, now)?;
        let claimed = inventories::ask_claim(tx, provider, &amounts)?;
        parts.push(AskedPart { provider, amounts, bumped, claimed });
    }
    Ok(parts)
}

/// A claim that fits, but whose allocations are not recorded yet.
#[must_use = "a claim that is not recorded breaks the ledger"]
pub struct CheckedClaim<'a> {
    consumer: ConsumerId,
    amounts: Vec<(ProviderId, &'a ResourceClass, i64)>,
    roots: BTreeSet<ProviderId>,
    now: Timestamp,
}

impl<'a> AskedClaim<'a> {
    /// Checks the answers. Writes nothing.
    ///
    /// # Errors
    /// Those of [`claim`].
    pub fn check(self, tx: &mut Tx<'_>, world: &World) -> Result<CheckedClaim<'a>, Error> {
        let Self { consumer, inserted, parts, now } = self;
        if let Some(inserted) = inserted
            && !consumers::inserted(tx, inserted)?
        {
            return Err(Error::ConsumerExists(consumer));
        }
        let mut roots = BTreeSet::new();
        let mut all = Vec::new();
        for AskedPart { provider, amounts, bumped, claimed } in parts {
            let counters = providers::bumped(tx, bumped)?.ok_or(Error::NoProvider(provider))?;
            let rows = inventories::claimed(tx, claimed)?;
            for (class, amount) in amounts {
                fits(&rows, provider, class, amount)?;
                all.push((provider, class, amount));
            }
            roots.insert(counters.root);
            publish(tx, world, provider, counters.version, usage_of(rows));
        }
        Ok(CheckedClaim { consumer, amounts: all, roots, now })
    }
}

impl<'a> CheckedClaim<'a> {
    /// Adds the rest of a claim, and checks it.
    ///
    /// # Errors
    /// Those of [`claim`].
    pub fn and<'b>(
        self,
        tx: &mut Tx<'_>,
        world: &World,
        parts: &'b [Allocation],
    ) -> Result<CheckedClaim<'b>, Error>
    where
        'a: 'b,
    {
        let Self { consumer, amounts, mut roots, now } = self;
        let mut amounts: Vec<(ProviderId, &'b ResourceClass, i64)> = amounts;
        if !parts.is_empty() || amounts.is_empty() {
            let parts = ask_parts(tx, wanted(consumer, parts)?, now)?;
            let more = AskedClaim { consumer, inserted: None, parts, now }.check(tx, world)?;
            amounts.extend(more.amounts);
            roots.extend(more.roots);
        }
        Ok(CheckedClaim { consumer, amounts, roots, now })
    }

    /// Records the allocations.
    ///
    /// # Errors
    /// Store errors only.
    pub fn record(self, tx: &mut Tx<'_>, world: &World) -> Result<(), Error> {
        consumers::insert_allocations(tx, self.consumer, &self.amounts, self.now)?;
        log_trees(tx, world, self.roots, self.now)
    }
}

fn usage_of(rows: Vec<InventoryRow>) -> Vec<(ResourceClass, i64)> {
    rows.into_iter().map(|row| (row.class, row.inventory.used)).collect()
}

/// Releases all resources of a consumer. A consumer without allocations is not an error.
///
/// # Errors
/// Store errors only.
pub fn release(tx: &mut Tx<'_>, world: &World, consumer: ConsumerId) -> Result<(), Error> {
    let held = held(tx, consumer)?;
    release_held(tx, world, consumer, &held)
}

/// The claims of a consumer, read before their release.
#[derive(Debug)]
pub struct Held(Vec<HeldAllocation>);

/// Announces [`held`].
///
/// # Errors
/// Store errors only. The same applies to the functions below.
pub fn expect_held(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<(), Error> {
    Ok(consumers::expect_held(tx, consumer)?)
}

/// The claims of a consumer, for [`release_held`] in the same transaction.
pub fn held(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Held, Error> {
    Ok(Held(consumers::held(tx, consumer)?))
}

/// [`release`] with the claims from [`held`]. Does not wait for an answer: the usage is published
/// with the commit.
pub fn release_held(
    tx: &mut Tx<'_>,
    world: &World,
    consumer: ConsumerId,
    held: &Held,
) -> Result<(), Error> {
    let now = time::now();
    consumers::delete_allocations(tx, consumer)?;
    consumers::delete(tx, consumer)?;
    release_usage(tx, world, &held.0, now)
}

/// Subtracts amounts, ordered by provider, from the usage of their providers.
fn release_usage(
    tx: &mut Tx<'_>,
    world: &World,
    amounts: &[HeldAllocation],
    now: Timestamp,
) -> Result<(), Error> {
    let mut roots = BTreeSet::new();
    for part in amounts.chunk_by(|a, b| a.provider == b.provider) {
        let Some(HeldAllocation { provider, root, .. }) = part.first() else { continue };
        providers::defer_touch(tx, *provider)?;
        let amounts: Vec<_> = part.iter().map(|row| (&row.class, row.used)).collect();
        let asked = inventories::ask_release(tx, *provider, &amounts)?;
        let (world, provider) = (world.clone(), *provider);
        tx.on_commit_with(asked, move |rows| {
            if let Some((version, used)) = inventories::released(&rows) {
                world.set_usage(provider, version, &used);
            }
        });
        roots.insert(*root);
    }
    log_trees(tx, world, roots, now)
}

/// Releases some of a consumer's resources; the consumer keeps the others.
///
/// # Errors
/// Store errors only.
pub fn release_part(
    tx: &mut Tx<'_>,
    world: &World,
    consumer: ConsumerId,
    parts: &[Allocation],
) -> Result<(), Error> {
    let (now, held) = (time::now(), held(tx, consumer)?);
    let mut released = Vec::new();
    for mut row in held.0 {
        let matching =
            parts.iter().filter(|part| part.provider == row.provider && part.class == row.class);
        let amount: i64 = matching.map(|part| part.amount).sum();
        let (provider, class) = (row.provider, &row.class);
        if amount >= row.used {
            consumers::delete_allocation(tx, consumer, provider, class)?;
        } else if amount > 0 {
            consumers::reduce_allocation(tx, consumer, provider, class, amount, now)?;
        } else {
            continue;
        }
        row.used = row.used.min(amount);
        released.push(row);
    }
    consumers::bump(tx, consumer, now)?;
    release_usage(tx, world, &released, now)
}

/// Publishes the provider's usage of all classes after the commit. On PostgreSQL, the hooks of two
/// transactions may run in either order, so each update must be complete and replace any older one.
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
    used: Vec<(ResourceClass, i64)>,
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
        let (entry, world) = (ask_append_tree(tx, &root.to_string(), now)?, world.clone());
        tx.on_commit_with(entry, move |rows| {
            // Without the number, this process takes the entry for another controller's, and merely rereads the tree.
            if let Some(number) = number_of(&rows) {
                world.record_own_entry(number);
            }
        });
    }
    Ok(())
}

/// Checks a claimed amount against the provider's inventories after the claim.
fn fits(
    rows: &[InventoryRow],
    provider: ProviderId,
    class: &ResourceClass,
    amount: i64,
) -> Result<(), Error> {
    let Some(row) = rows.iter().find(|row| row.class == *class) else {
        return Err(Error::NoInventory { provider, class: class.clone() });
    };
    let inv = &row.inventory;
    if amount < inv.min_unit || amount > inv.max_unit || amount % inv.step_size != 0 {
        return Err(Error::Constraint { provider, class: class.clone() });
    }
    if inv.used as f64 > (inv.total - inv.reserved) as f64 * inv.allocation_ratio {
        return Err(Error::Capacity { provider, class: class.clone() });
    }
    Ok(())
}
