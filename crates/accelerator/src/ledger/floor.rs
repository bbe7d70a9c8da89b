//! The devices of many hosts at once, for operators. Read-only.

use std::collections::HashMap;

use kilonova_ids::HostName;
use kilonova_store::Tx;

use crate::Error;
use crate::db::floor::{self, FloorDevice};

/// The devices of these hosts, with the users of their parts. The number of statements depends only on the numbers
/// of hosts and parts, and not on their use.
///
/// # Errors
/// Store errors only.
pub fn floor(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
) -> Result<HashMap<HostName, Vec<FloorDevice>>, Error> {
    Ok(floor::devices(tx, hosts)?)
}
