//! Writes of allocations by clients of the API: each replaces the complete sets of allocations of
//! one or more consumers in one commit.
//!
//! Each provider's row is written before its capacity is read. Therefore two writers to one
//! provider are serialized and see no false conflict. A write that does not increase the
//! over-commitment of a provider is accepted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_store::Tx;
use kilonova_wire::{Refusal, time};

use super::{classes, providers};
use crate::db::consumers::{AllocationRow, ConsumerOwner, ConsumerRow};
use crate::db::{self, consumers, inventories};
use crate::{Error, World, codes, ledger};

/// Project and user of consumers whose writer (before 1.8) did not name them.
pub const INCOMPLETE: &str = "00000000-0000-0000-0000-000000000000";

/// The new allocations of one consumer.
#[derive(Debug, Clone)]
pub struct AllocationChange {
    /// The consumer.
    pub consumer: ConsumerId,
    /// Project and user, unless the client's version is too old to send them.
    pub owner: Option<(String, String)>,
    /// From 1.38.
    pub consumer_type: Option<String>,
    /// From 1.28: the consumer generation that the client expects. `Some(None)` means that the
    /// consumer must not exist.
    pub generation: Option<Option<i64>>,
    /// Amounts by provider and class. Empty removes the consumer.
    pub allocations: BTreeMap<ProviderId, BTreeMap<ResourceClass, i64>>,
}

/// Another service that creates consumers and reports providers through the ledger, together with rows of its own.
/// Clients of the API may change those consumers only as far as the service permits.
pub trait ConsumerManager: Send + Sync + 'static {
    /// The reason why clients must not change the consumer, and what to do instead. `None` if they
    /// may change it.
    ///
    /// # Errors
    /// Store errors only.
    fn refusal(
        &self,
        tx: &mut Tx<'_>,
        consumer: ConsumerId,
    ) -> Result<Option<String>, kilonova_store::Error>;

    /// Adjusts the manager's own rows to a change in a managed consumer's amounts, in the transaction that makes the
    /// change. Returns false if clients must not make the change; the caller must then abort the transaction.
    ///
    /// # Errors
    /// Store errors only.
    fn adjust(
        &self,
        tx: &mut Tx<'_>,
        consumer: ConsumerId,
        changes: &AmountChanges,
    ) -> Result<bool, kilonova_store::Error>;

    /// Called after a client has changed inventories, traits or providers of a tree, in the transaction of the change.
    /// If a host reports the tree, the manager has it report again, which repairs what the client damaged.
    ///
    /// # Errors
    /// Store errors only.
    fn tree_changed(&self, tx: &mut Tx<'_>, root: ProviderId) -> Result<(), kilonova_store::Error>;
}

/// The changes in a consumer's amounts, by provider and class. Every change is nonzero.
pub type AmountChanges = BTreeMap<(ProviderId, ResourceClass), i64>;

/// Refuses a change to a consumer that another service manages, unless the manager adjusts its own rows to the change.
/// `change` is `None` for a removal.
///
/// # Errors
/// 409 with the manager's reason.
pub fn refuse_managed(
    tx: &mut Tx<'_>,
    manager: &dyn ConsumerManager,
    consumer: ConsumerId,
    change: Option<&AllocationChange>,
) -> Result<(), Error> {
    let Some(why) = manager.refusal(tx, consumer)? else { return Ok(()) };
    if let Some(change) = change
        && let Some(changes) = amount_changes(tx, change)?
        && manager.adjust(tx, consumer, &changes)?
    {
        return Ok(());
    }
    Err(Refusal::conflict(why).into())
}

/// The changes in the consumer's amounts; `None` if it is new, is removed, or gets another owner or type.
fn amount_changes(
    tx: &mut Tx<'_>,
    change: &AllocationChange,
) -> Result<Option<AmountChanges>, Error> {
    let Some(row) = consumers::get(tx, change.consumer)? else { return Ok(None) };
    let is_owners = change
        .owner
        .as_ref()
        .is_none_or(|(project, user)| *project == row.project_id && *user == row.user_id);
    let is_type = change.consumer_type.is_none() || change.consumer_type == row.consumer_type;
    if change.allocations.is_empty() || !is_owners || !is_type {
        return Ok(None);
    }
    let mut changes = AmountChanges::new();
    for held in consumers::allocations(tx, change.consumer)? {
        *changes.entry((held.provider, held.class)).or_default() -= held.used;
    }
    for (provider, amounts) in &change.allocations {
        for (class, amount) in amounts {
            let sum = changes.entry((*provider, class.clone())).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }
    changes.retain(|_, amount| *amount != 0);
    Ok(Some(changes))
}

/// The request that replaces allocations. For each of them, upstream words the error for an unknown class
/// differently (`placement/handlers/allocation.py`, `placement/handlers/reshaper.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// `PUT /allocations/{consumer}`.
    One,
    /// `POST /allocations`.
    Many,
    /// `POST /reshaper`.
    Reshape,
}

impl Request {
    /// The error for an unknown class.
    fn unknown_class(self, consumer: ConsumerId, class: &ResourceClass) -> Refusal {
        let why = classes::unknown(class);
        Refusal::bad_request(match self {
            Self::One => format!("Unable to allocate inventory for consumer {consumer}: {why}"),
            Self::Many => format!("Unable to allocate inventory {why}"),
            Self::Reshape => malformed_reshape(&why),
        })
    }
}

/// The message about a reshape that names something unknown.
pub(super) fn malformed_reshape(why: &str) -> String {
    format!("malformed reshaper data: {why}")
}

/// Replaces the allocations of all these consumers, or of none. No consumer may occur twice.
///
/// # Errors
/// 400 for an unknown provider or class; 409 for an old consumer generation or for amounts that do
/// not fit.
pub fn replace(
    tx: &mut Tx<'_>,
    world: &World,
    changes: &[AllocationChange],
    request: Request,
) -> Result<(), Error> {
    let now = time::now();
    let mut known: Vec<Option<ConsumerRow>> = Vec::new();
    for change in changes {
        let row = consumers::get(tx, change.consumer)?;
        check_generation(change, row.as_ref())?;
        known.push(row);
    }
    let mut shifts = UsageChanges::default();
    for change in changes {
        for held in consumers::allocations(tx, change.consumer)? {
            shifts.release(&held, change.allocations.is_empty());
        }
        for (provider, amounts) in &change.allocations {
            if db::providers::by_id(tx, *provider)?.is_none() {
                return Err(Refusal::bad_request(format!(
                    "Allocation for resource provider '{provider}' that does not exist."
                ))
                .into());
            }
            for (class, amount) in amounts {
                if !classes::exists(tx, class)? {
                    return Err(request.unknown_class(change.consumer, class).into());
                }
                shifts.take(*provider, class, *amount);
            }
        }
    }
    for (change, row) in changes.iter().zip(known) {
        consumers::delete_allocations(tx, change.consumer)?;
        write_consumer(tx, change, row.as_ref(), now)?;
    }
    shifts.apply(tx, world, now)?;
    for change in changes {
        for (provider, amounts) in &change.allocations {
            for (class, amount) in amounts {
                consumers::insert_allocation(tx, change.consumer, *provider, class, *amount, now)?;
            }
        }
    }
    Ok(())
}

fn check_generation(change: &AllocationChange, row: Option<&ConsumerRow>) -> Result<(), Error> {
    let Some(expected) = change.generation else { return Ok(()) };
    let have = row.map(|row| row.generation);
    if expected == have {
        return Ok(());
    }
    let show = |generation: Option<i64>, none: &str| {
        generation.map_or_else(|| none.to_owned(), |n| n.to_string())
    };
    Err(Refusal::conflict(format!(
        "consumer generation conflict - expected {} but got {}",
        show(have, "null"),
        show(expected, "None")
    ))
    .with_code(codes::CONCURRENT_UPDATE)
    .into())
}

/// Creates, updates or deletes the consumer's row.
fn write_consumer(
    tx: &mut Tx<'_>,
    change: &AllocationChange,
    row: Option<&ConsumerRow>,
    now: Timestamp,
) -> Result<(), Error> {
    if change.allocations.is_empty() {
        return Ok(consumers::delete(tx, change.consumer)?);
    }
    let (project_id, user_id) = match (&change.owner, row) {
        (Some((project, user)), _) => (project.as_str(), user.as_str()),
        (None, Some(row)) => (row.project_id.as_str(), row.user_id.as_str()),
        (None, None) => (INCOMPLETE, INCOMPLETE),
    };
    let known_type = row.and_then(|row| row.consumer_type.as_deref());
    let consumer_type = change.consumer_type.as_deref().or(known_type);
    let owner = ConsumerOwner { consumer_type, project_id, user_id };
    if row.is_some() {
        consumers::update(tx, change.consumer, owner, now)?;
    } else {
        consumers::insert(tx, change.consumer, owner, now)?;
    }
    Ok(())
}

/// Removes all allocations of a consumer.
///
/// # Errors
/// 404 if it has none.
pub fn delete(tx: &mut Tx<'_>, world: &World, consumer: ConsumerId) -> Result<(), Error> {
    if consumers::get(tx, consumer)?.is_none() {
        return Err(no_allocations(&consumer.to_string()).into());
    }
    ledger::release(tx, world, consumer)
}

/// The error for a consumer without allocations.
pub fn no_allocations(consumer: &str) -> Refusal {
    Refusal::not_found(format!("No allocations for consumer '{consumer}'"))
}

/// The part of a write that concerns one provider.
#[derive(Default)]
struct ProviderChange {
    /// True if the provider's generation changes.
    bumps_generation: bool,
    /// Released amounts by class.
    released: BTreeMap<ResourceClass, i64>,
    /// The individual claimed amounts by class.
    taken: BTreeMap<ResourceClass, Vec<i64>>,
}

#[derive(Default)]
struct UsageChanges(BTreeMap<ProviderId, ProviderChange>);

impl UsageChanges {
    fn release(&mut self, held: &AllocationRow, bumps_generation: bool) {
        let change = self.0.entry(held.provider).or_default();
        change.bumps_generation |= bumps_generation;
        *change.released.entry(held.class.clone()).or_default() += held.used;
    }

    fn take(&mut self, provider: ProviderId, class: &ResourceClass, amount: i64) {
        let change = self.0.entry(provider).or_default();
        change.bumps_generation = true;
        change.taken.entry(class.clone()).or_default().push(amount);
    }

    fn apply(self, tx: &mut Tx<'_>, world: &World, now: Timestamp) -> Result<(), Error> {
        let mut roots = BTreeSet::new();
        for (provider, change) in self.0 {
            let counters = if change.bumps_generation {
                db::providers::bump(tx, provider, now)?
            } else {
                db::providers::touch(tx, provider)?
            };
            let counters = counters.ok_or(Error::NoProvider(provider))?;
            change.apply(tx, provider)?;
            roots.insert(counters.root);
            ledger::publish_usage(tx, world, provider, counters.version)?;
        }
        ledger::log_trees(tx, world, roots, now)
    }
}

impl ProviderChange {
    fn apply(self, tx: &mut Tx<'_>, provider: ProviderId) -> Result<(), Error> {
        let have = inventories::of_provider(tx, provider)?;
        let mut shifts: BTreeMap<&ResourceClass, i64> =
            self.released.iter().map(|(class, amount)| (class, -amount)).collect();
        for (class, amounts) in &self.taken {
            let class_name = class.clone();
            let Some(row) = have.iter().find(|row| row.class == *class) else {
                return Err(Error::NoInventory { provider, class: class_name });
            };
            let inv = &row.inventory;
            let broken = |n: &i64| *n < inv.min_unit || *n > inv.max_unit || n % inv.step_size != 0;
            if amounts.iter().any(broken) {
                return Err(Error::Constraint { provider, class: class_name });
            }
            let shift = shifts.entry(class).or_default();
            *shift = amounts
                .iter()
                .try_fold(*shift, |sum, n| sum.checked_add(*n))
                .ok_or_else(|| Error::Capacity { provider, class: class.clone() })?;
            let after = inv.used.saturating_add(*shift);
            let room = (inv.total - inv.reserved) as f64 * inv.allocation_ratio;
            if after as f64 > room && after > inv.used {
                return Err(Error::Capacity { provider, class: class_name });
            }
        }
        for (class, by) in shifts.into_iter().filter(|(_, by)| *by != 0) {
            inventories::add_usage(tx, provider, class, by)?;
        }
        Ok(())
    }
}

/// The allocations on a provider.
///
/// # Errors
/// 404.
pub fn on_provider(
    tx: &mut Tx<'_>,
    id: ProviderId,
) -> Result<(db::providers::ProviderRow, Vec<consumers::OnProviderRow>), Error> {
    Ok((providers::get(tx, id)?, consumers::on_provider(tx, id)?))
}
