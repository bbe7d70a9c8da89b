//! The devices of many hosts, for operators. Read-only.

use kilonova_ids::HostName;
use kilonova_store::Tx;

use crate::Error;
use crate::db::floor::{self, Extent, FloorDevices};

/// The devices of these hosts, with the users of their parts. The number of statements depends on the number of hosts
/// and parts, not on how many parts are in use.
///
/// # Errors
/// Store errors only.
pub fn floor(tx: &mut Tx<'_>, hosts: &[HostName], extent: Extent) -> Result<FloorDevices, Error> {
    Ok(floor::devices(tx, hosts, extent)?)
}
