//! The devices of many hosts at once, for operators. Read-only.

use std::collections::HashMap;

use kilonova_ids::HostName;
use kilonova_store::Tx;

use crate::Error;
use crate::db::floor::{self, FloorDevice};

/// The devices of those hosts with everybody who uses a part of them. The number of statements depends on the
/// numbers of hosts and parts alone, and not on who uses them.
///
/// # Errors
/// Store errors only.
pub fn floor(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
) -> Result<HashMap<HostName, Vec<FloorDevice>>, Error> {
    Ok(floor::devices(tx, hosts)?)
}
