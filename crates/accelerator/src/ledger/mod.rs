//! The device ledger for callers with a transaction: the devices of hosts, and their owners.
//!
//! The rules, checked by [`AUDIT`] after any commit:
//!
//! - an owned handle names one ARQ, and a bound ARQ has one handle (enforced by a unique key);
//! - the handle belongs to the ARQ's provider, on the ARQ's host;
//! - an ARQ that is not bound has no consumer and no handle;
//! - a dirty handle has no owner, and records its last consumer or the reason why it waits;
//! - no other consumer has a handle of an island that a consumer has to itself.
//!
//! Nothing here opens a transaction or waits: the caller's commit makes all changes effective
//! together.

mod acknowledge;
mod bind;
mod census;
mod dirty;
mod excluded;
mod exclusions;
mod floor;
mod hand_over;
mod health;
mod history;
mod islands;
mod known;
mod near;
pub mod orders;
mod plan;
mod ports;
mod report;
pub(crate) mod tally;
mod unchanged;

use std::collections::BTreeMap;

use kilonova_ids::{DeviceProfileId, ProviderId};
use kilonova_store::Tx;

pub use acknowledge::{
    EVERYTHING, acknowledge, awaited_hosts, awaits_acknowledgement, expect_acknowledge,
    pending_releases,
};
pub(crate) use acknowledge::{declare_released, release_external};
pub use bind::{
    BindRequest, Binding, Held, bind, bind_as, expect_bind, expect_held, held, release, release_as,
    release_held,
};
pub(crate) use bind::{assign, choose};
pub use census::{Census, census};
pub use dirty::{abandon, clean, expect_left_dirty, left_dirty};
pub use excluded::excluded;
pub(crate) use exclusions::update_exclusions;
pub use floor::floor;
pub use hand_over::hand_over;
pub use health::{health, held_on, unclean_on};
pub use history::{accelerators_of, dirty_handles_of, handle_history};
pub use islands::close_island;
pub use near::{DevicePlace, device_places, expect_island_of, island_of, numa_nodes};
pub use ports::{PortDevice, of_ports, set_port};
pub use report::{expect_report, report};
pub use tally::{Binds, binds};

pub use crate::db::AUDIT;
pub use crate::db::awaiting::PendingRelease;
pub use crate::db::census::{Devices, Handles};
pub use crate::db::changes::Actor;
pub use crate::db::floor::{Extent, FloorDevice, FloorDevices, FloorHandle, FloorPart};
pub use crate::db::health::{CheckedDevice, HealthFilter, HeldHandles, UncleanDevice};
pub use crate::db::history::{Handle, HandleChange, HeldAccelerator, LeftHandle};

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
/// Store errors only.
pub fn profile_by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<Profile>, Error> {
    let row = db::profiles::by_name(tx, name)?;
    Ok(row.map(|row| Profile { id: row.uuid, name: row.name, groups: row.groups }))
}

/// True if the provider is one of our devices, so that an allocation on it needs handles.
///
/// # Errors
/// Store errors only.
pub fn is_device_provider(tx: &mut Tx<'_>, provider: ProviderId) -> Result<bool, Error> {
    Ok(db::deployables::host_of(tx, provider)?.is_some())
}
