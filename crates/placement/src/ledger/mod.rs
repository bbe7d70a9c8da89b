//! The resource ledger for other services, which call it in their own transactions: claim, release,
//! and the reports of hosts.
//!
//! The database is authoritative. Each function writes rows and registers a hook that updates the
//! in-memory [`World`] after the commit, and never before.

mod cells;
mod claim;
mod drain;
mod hand_over;
mod membership;
mod move_down;
mod report;
mod reserve;
mod traits;

use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_store::Tx;

pub use cells::{
    AskedCells, CellInventories, OfOperator, RootAllocation, allocations_of_root, ask_cells,
    cell_provider, cells, consumers_at_cells, divide, of_operator, unite,
};
pub use claim::{
    AskedClaim, CheckedClaim, Held, ask_claim, ask_first_part, claim, expect_held, extend, held,
    release, release_held, release_part,
};
pub(crate) use claim::{log_trees, publish_usage};
pub use drain::{drain, facts_changed, mark_drained};
pub use hand_over::hand_over;
pub use membership::{join, leave};
pub(crate) use report::delete as delete_provider;
pub use report::{report_below, report_host};
pub use reserve::{
    clear_operator_reserved, operator_reserved, reserve, reserve_at_least, reserve_each,
};
pub use traits::set_only_trait;

pub use crate::db::consumers::{NamedAllocation, allocations_of};

use crate::{Error, db};

/// One amount on one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The provider.
    pub provider: ProviderId,
    /// The class.
    pub class: ResourceClass,
    /// The amount, greater than zero.
    pub amount: i64,
}

/// The claim of a new consumer.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The consumer: a server or a migration.
    pub consumer: ConsumerId,
    /// `INSTANCE` or `MIGRATION`.
    pub consumer_type: Option<String>,
    /// The project.
    pub project_id: String,
    /// The user.
    pub user_id: String,
    /// Amounts. Several amounts of the same provider and class add up.
    pub allocations: Vec<Allocation>,
}

/// A provider as its host reports it.
#[derive(Debug, Clone)]
pub struct ProviderSpec {
    /// Its UUID, determined by the caller.
    pub id: ProviderId,
    /// Unique name.
    pub name: String,
    /// Its inventories; `used` is ignored.
    pub inventories: Vec<(ResourceClass, kilonova_engine::Inventory)>,
    /// The classes whose `allocation_ratio` applies only to a new inventory. A stored inventory keeps its own.
    pub initial_ratios: Vec<ResourceClass>,
    /// Its traits.
    pub traits: Vec<String>,
}

/// Announces [`root_by_name`].
///
/// # Errors
/// Store errors only.
pub fn expect_root_by_name(tx: &mut Tx<'_>, name: &str) -> Result<(), Error> {
    Ok(db::providers::expect_by_name(tx, name)?)
}

/// The root provider with this name.
///
/// # Errors
/// Store errors only.
pub fn root_by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<ProviderId>, Error> {
    let row = db::providers::by_name(tx, name)?;
    Ok(row.filter(|row| row.parent.is_none()).map(|row| row.id))
}

/// The project of a consumer, if it was recorded with one.
///
/// # Errors
/// Store errors only.
pub fn project_of(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Option<String>, Error> {
    let row = db::consumers::get(tx, consumer)?;
    Ok(row.map(|row| row.project_id).filter(|id| id != crate::app::allocations::INCOMPLETE))
}

/// True if another consumer has an allocation on any of these providers.
///
/// # Errors
/// Store errors only.
pub fn is_used_by_another(
    tx: &mut Tx<'_>,
    providers: &[ProviderId],
    consumer: ConsumerId,
) -> Result<bool, Error> {
    Ok(db::consumers::is_used_by_another(tx, providers, consumer)?)
}

/// True if a consumer has an allocation on a provider.
///
/// # Errors
/// Store errors only.
pub fn has_allocation_on(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    provider: ProviderId,
) -> Result<bool, Error> {
    Ok(db::consumers::has_allocation_on(tx, consumer, provider)?)
}
