//! Unhealthy devices and the servers that use them, for operators.
//!
//! Read-only. No server is migrated: its owner decides.

use std::collections::BTreeMap;

use kilonova_ids::HostName;
use kilonova_store::Tx;

use crate::Error;
use crate::db::health::{self, CheckedDevice, HealthFilter, HeldHandles, UncleanDevice};

/// The handles that are not free, for each of these hosts with such handles.
///
/// # Errors
/// Store errors only.
pub fn held_on(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
) -> Result<BTreeMap<HostName, HeldHandles>, Error> {
    Ok(health::held_on(tx, hosts)?)
}

/// The devices of these hosts with a function that is not clean.
///
/// # Errors
/// Store errors only.
pub fn unclean_on(tx: &mut Tx<'_>, hosts: &[HostName]) -> Result<Vec<UncleanDevice>, Error> {
    Ok(health::unclean_on(tx, hosts)?)
}

/// The devices that match; without filters, the unhealthy ones.
///
/// # Errors
/// Store errors only.
pub fn health(tx: &mut Tx<'_>, filter: &HealthFilter) -> Result<Vec<CheckedDevice>, Error> {
    Ok(health::devices(tx, filter)?)
}
