//! The resource side of the one ledger, for other services that have a transaction in hand: claim,
//! release, and what a host has to offer.
//!
//! The database is the truth. Each function writes rows and leaves a hook that tells the
//! in-memory [`World`] after the commit; it never tells before.

mod claim;
mod drain;
mod hand_over;
mod membership;
mod move_down;
mod report;
mod reserve;
mod traits;

use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_store::Tx;

pub use claim::{claim, release};
pub(crate) use claim::{note, tell_usage};
pub use drain::{drain, mark_drained};
pub use hand_over::hand_over;
pub use membership::{join, leave};
pub(crate) use report::delete as delete_provider;
pub use report::{report_below, report_host};
pub use reserve::{forget_said, reserve, reserve_anew, said_by_operator};
pub use traits::only_trait;

pub use crate::db::consumers::{Named as Held, named as held_by};

use crate::{Error, db};

/// One amount on one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Where.
    pub provider: ProviderId,
    /// Of which class.
    pub class: String,
    /// How much, more than zero.
    pub amount: i64,
}

/// What a new consumer takes.
#[derive(Debug, Clone)]
pub struct Claim {
    /// A server, or a migration.
    pub consumer: ConsumerId,
    /// `INSTANCE`, `MIGRATION`.
    pub consumer_type: Option<String>,
    /// Who is billed.
    pub project_id: String,
    /// And which user.
    pub user_id: String,
    /// Amounts; several on the same provider and class are added up.
    pub allocations: Vec<Allocation>,
}

/// A provider as its host reports it.
#[derive(Debug, Clone)]
pub struct ProviderSpec {
    /// Its uuid, chosen by the host's side.
    pub id: ProviderId,
    /// Unique name.
    pub name: String,
    /// What it has; `used` is not looked at.
    pub inventories: Vec<(String, kilonova_engine::Inventory)>,
    /// What it can.
    pub traits: Vec<String>,
}

/// The root provider of that name.
///
/// # Errors
/// Only of the store.
pub fn root_by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<ProviderId>, Error> {
    let row = db::providers::by_name(tx, name)?;
    Ok(row.filter(|row| row.parent.is_none()).map(|row| row.id))
}

/// The project of a consumer, where its writer has said one.
///
/// # Errors
/// Only of the store.
pub fn project_of(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Option<String>, Error> {
    let row = db::consumers::get(tx, consumer)?;
    Ok(row.map(|row| row.project_id).filter(|id| id != crate::app::allocations::INCOMPLETE))
}

/// Whether a consumer holds something of a provider.
///
/// # Errors
/// Only of the store.
pub fn holds_on(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    provider: ProviderId,
) -> Result<bool, Error> {
    Ok(db::consumers::holds_on(tx, consumer, provider)?)
}
