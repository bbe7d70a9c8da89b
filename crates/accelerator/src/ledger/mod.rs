//! The device ledger, for callers that hold a transaction: what hosts have, and who holds it.
//!
//! The rules, checked by [`AUDIT`] after any commit:
//!
//! - an owned handle names one ARQ, and a bound ARQ has one handle (a unique key sees to it);
//! - the handle is of the ARQ's provider, on the ARQ's host;
//! - an ARQ that is not bound has neither consumer nor handle;
//! - a dirty handle has no owner and says whose it was, or why it waits.
//!
//! Nothing here opens a transaction or waits: the caller's commit makes it all true at once.

mod apart;
mod audit;
mod bind;
mod census;
mod dirty;
mod excluded;
mod hand_over;
mod health;
pub mod orders;
mod plan;
mod ports;
mod report;
mod story;
pub(crate) mod tally;
mod unchanged;
mod word;

use std::collections::BTreeMap;

use kilonova_ids::{DeviceProfileId, ProviderId};
use kilonova_store::Tx;

pub(crate) use apart::keep_apart;
pub use audit::AUDIT;
pub use bind::{Actor, Binding, Want, bind, bind_as, release, release_as};
pub(crate) use bind::{choose, own};
pub(crate) use census::STATEMENTS as CENSUS;
pub use census::{Census, Devices, Handles, census};
pub use dirty::{abandon, clean};
pub(crate) use excluded::STATEMENTS as EXCLUDED;
pub use excluded::excluded;
pub use hand_over::hand_over;
pub(crate) use health::STATEMENTS as HEALTH;
pub use health::{Checked, Question, health, held_on};
pub use ports::{PortDevice, is_port, of_ports};
pub use report::report;
pub(crate) use story::STATEMENTS as STORY;
pub use story::{Change, Handle, Held, Left, held_for, left_by, past_of};
pub use tally::{Binds, binds};
pub use word::{EVERYTHING, Silent, awaits, heard, silent};
pub(crate) use word::{give_up, vouched};

use crate::{Error, db};

/// A device profile as the scheduler reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its id.
    pub id: DeviceProfileId,
    /// Its name.
    pub name: String,
    /// Its groups, in order: `resources:…`, `trait:…` and `accel:…` keys.
    pub groups: Vec<BTreeMap<String, String>>,
}

/// The profile that a flavor or a port names.
///
/// # Errors
/// Only the store's.
pub fn profile_by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<Profile>, Error> {
    let row = db::profiles::by_name(tx, name)?;
    Ok(row.map(|row| Profile { id: row.uuid, name: row.name, groups: row.groups }))
}

/// Whether the provider is a device of ours, so that an allocation on it needs handles.
///
/// # Errors
/// Only the store's.
pub fn is_device_provider(tx: &mut Tx<'_>, provider: ProviderId) -> Result<bool, Error> {
    Ok(db::deployables::host_of(tx, provider)?.is_some())
}
