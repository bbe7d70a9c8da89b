//! What consumers hold, as clients of the API write it: the whole set of each consumer at once,
//! several consumers in one commit.
//!
//! Each provider's row is written before its capacity is looked at, so two writers to one provider
//! follow each other and neither sees a conflict that is not one. A write that leaves an
//! over-committed provider no worse than it was is let through.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_store::{Tx, params};
use kilonova_wire::Fault;
use kilonova_wire::time::now_micros;

use super::{classes, providers};
use crate::db::consumers::{ConsumerRow, HeldRow};
use crate::db::{self, consumers, inventories};
use crate::{Error, World, codes, ledger};

/// Project and user of consumers whose writer (before 1.8) did not say.
pub const INCOMPLETE: &str = "00000000-0000-0000-0000-000000000000";

/// What one consumer shall hold from now on.
#[derive(Debug, Clone)]
pub struct Change {
    /// Who.
    pub consumer: ConsumerId,
    /// Billed project and user, unless the client is too old to say.
    pub owner: Option<(String, String)>,
    /// From 1.38.
    pub consumer_type: Option<String>,
    /// From 1.28: what the client believes the consumer's generation to be; `Some(None)` means
    /// that it must not exist.
    pub generation: Option<Option<i64>>,
    /// Amounts by provider and class; none means nothing any more.
    pub holds: BTreeMap<ProviderId, BTreeMap<String, i64>>,
}

/// Another service that makes consumers by the ledger, in step with rows of its own. Clients of the API
/// must not change what these hold.
pub trait Keeper: Send + Sync + 'static {
    /// Why clients must not change the consumer, and what to do instead. `None` where they may.
    ///
    /// # Errors
    /// The store's.
    fn keeps(
        &self,
        tx: &mut Tx<'_>,
        consumer: ConsumerId,
    ) -> Result<Option<String>, kilonova_store::Error>;
}

/// Refuses a change of a consumer that another service keeps.
///
/// # Errors
/// 409 in the keeper's words.
pub fn refuse_kept(
    tx: &mut Tx<'_>,
    keeper: &dyn Keeper,
    consumer: ConsumerId,
) -> Result<(), Error> {
    match keeper.keeps(tx, consumer)? {
        None => Ok(()),
        Some(why) => Err(Fault::conflict(why).into()),
    }
}

/// Makes every consumer hold what its change says, all or nothing.
///
/// # Errors
/// 400 for an unknown provider or class, 409 for an old consumer generation or for amounts that do
/// not fit.
pub fn replace(tx: &mut Tx<'_>, world: &World, changes: &[Change]) -> Result<(), Error> {
    let now = now_micros();
    let mut known: Vec<Option<ConsumerRow>> = Vec::new();
    for change in changes {
        let row = consumers::get(tx, change.consumer)?;
        expect(change, row.as_ref())?;
        known.push(row);
    }
    let mut shifts = Shifts::default();
    for change in changes {
        for held in consumers::held(tx, change.consumer)? {
            shifts.give_back(&held, change.holds.is_empty());
        }
        for (provider, amounts) in &change.holds {
            if db::providers::by_id(tx, *provider)?.is_none() {
                return Err(Fault::bad_request(format!(
                    "Allocation for resource provider '{provider}' that does not exist."
                ))
                .into());
            }
            for (class, amount) in amounts {
                if !classes::exists(tx, class)? {
                    return Err(Fault::bad_request(format!(
                        "Unable to allocate inventory for consumer {}: {}",
                        change.consumer,
                        classes::unknown(class)
                    ))
                    .into());
                }
                shifts.take(*provider, class, *amount);
            }
        }
    }
    for (change, row) in changes.iter().zip(known) {
        tx.execute(consumers::LET_GO, params![change.consumer])?;
        own(tx, change, row.as_ref(), now)?;
    }
    shifts.carry_out(tx, world, now)?;
    for change in changes {
        for (provider, amounts) in &change.holds {
            for (class, amount) in amounts {
                tx.execute(
                    consumers::HOLD,
                    params![change.consumer, *provider, class, *amount, now],
                )?;
            }
        }
    }
    Ok(())
}

fn expect(change: &Change, row: Option<&ConsumerRow>) -> Result<(), Error> {
    let Some(believed) = change.generation else { return Ok(()) };
    let have = row.map(|row| row.generation);
    if believed == have {
        return Ok(());
    }
    let show = |generation: Option<i64>, none: &str| {
        generation.map_or_else(|| none.to_owned(), |n| n.to_string())
    };
    Err(Fault::conflict(format!(
        "consumer generation conflict - expected {} but got {}",
        show(have, "null"),
        show(believed, "None")
    ))
    .with_code(codes::CONCURRENT_UPDATE)
    .into())
}

/// The consumer's row: made, moved on, or gone with its last allocation.
fn own(tx: &mut Tx<'_>, change: &Change, row: Option<&ConsumerRow>, now: i64) -> Result<(), Error> {
    if change.holds.is_empty() {
        tx.execute(consumers::DELETE, params![change.consumer])?;
        return Ok(());
    }
    let (project, user) = match (&change.owner, row) {
        (Some((project, user)), _) => (project.as_str(), user.as_str()),
        (None, Some(row)) => (row.project_id.as_str(), row.user_id.as_str()),
        (None, None) => (INCOMPLETE, INCOMPLETE),
    };
    let kind = change.consumer_type.as_deref().or(row.and_then(|row| row.consumer_type.as_deref()));
    let sql = if row.is_some() { consumers::UPDATE } else { consumers::INSERT };
    tx.execute(sql, params![change.consumer, kind, project, user, now])?;
    Ok(())
}

/// Takes everything back from a consumer.
///
/// # Errors
/// 404 when it holds nothing.
pub fn delete(tx: &mut Tx<'_>, world: &World, consumer: ConsumerId) -> Result<(), Error> {
    if consumers::get(tx, consumer)?.is_none() {
        return Err(nothing_held(&consumer.to_string()).into());
    }
    ledger::release(tx, world, consumer)
}

/// The refusal of those who delete what is not there.
pub fn nothing_held(consumer: &str) -> Fault {
    Fault::not_found(format!("No allocations for consumer '{consumer}'"))
}

/// One provider's share of a write.
#[derive(Default)]
struct Share {
    /// Whether clients see the write by the provider's generation.
    visible: bool,
    /// Given back, by class.
    back: BTreeMap<String, i64>,
    /// Single amounts taken, by class.
    taken: BTreeMap<String, Vec<i64>>,
}

#[derive(Default)]
struct Shifts(BTreeMap<ProviderId, Share>);

impl Shifts {
    fn give_back(&mut self, held: &HeldRow, visible: bool) {
        let share = self.0.entry(held.provider).or_default();
        share.visible |= visible;
        *share.back.entry(held.class.clone()).or_default() += held.used;
    }

    fn take(&mut self, provider: ProviderId, class: &str, amount: i64) {
        let share = self.0.entry(provider).or_default();
        share.visible = true;
        share.taken.entry(class.to_owned()).or_default().push(amount);
    }

    fn carry_out(self, tx: &mut Tx<'_>, world: &World, now: i64) -> Result<(), Error> {
        let mut roots = BTreeSet::new();
        for (provider, share) in self.0 {
            let counters = if share.visible {
                db::providers::bump(tx, provider, now)?
            } else {
                db::providers::touch(tx, provider)?
            };
            let counters = counters.ok_or(Error::NoProvider(provider))?;
            share.carry_out(tx, provider)?;
            roots.insert(counters.root);
            ledger::tell_usage(tx, world, provider, counters.version)?;
        }
        ledger::note(tx, world, roots, now)
    }
}

impl Share {
    fn carry_out(self, tx: &mut Tx<'_>, provider: ProviderId) -> Result<(), Error> {
        let have = inventories::of_provider(tx, provider)?;
        let mut shifts: BTreeMap<&str, i64> =
            self.back.iter().map(|(class, amount)| (class.as_str(), -amount)).collect();
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
            let shift = shifts.entry(class.as_str()).or_default();
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
            inventories::shift(tx, provider, class, by)?;
        }
        Ok(())
    }
}

/// Who holds what on a provider.
///
/// # Errors
/// 404.
pub fn on_provider(
    tx: &mut Tx<'_>,
    id: ProviderId,
) -> Result<(db::providers::ProviderRow, Vec<consumers::OnProviderRow>), Error> {
    Ok((providers::get(tx, id)?, consumers::on_provider(tx, id)?))
}
