//! Functions that still have to be cleaned when their host is deleted. The machine, under any name, cleans them before
//! another guest gets them. So does any machine that takes the host's name: it may be the same one with a new system.

use kilonova_ids::HostName;
use kilonova_placement::World;
use kilonova_store::Tx;
use kilonova_wire::time;

use super::{Actor, orders};
use crate::Error;
use crate::db::left_handles::{self, LeftHandle};

/// Records the functions that a host has not cleaned, in the transaction that deletes it. `machine_id` is empty if its
/// agent did not report one.
///
/// # Errors
/// Store errors only.
pub fn leave_parked(tx: &mut Tx<'_>, host: &HostName, machine_id: &str) -> Result<(), Error> {
    Ok(left_handles::leave(tx, host, machine_id, time::now())?)
}

/// Functions that a machine has to clean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftParked(Vec<LeftHandle>);

/// Announces [`left_parked`].
///
/// # Errors
/// Store errors only.
pub fn expect_left_parked(tx: &mut Tx<'_>, host: &HostName, machine_id: &str) -> Result<(), Error> {
    Ok(left_handles::expect_of(tx, host, machine_id)?)
}

/// The functions that a registering machine has to clean. `machine_id` is empty if its agent does not report one.
///
/// # Errors
/// Store errors only.
pub fn left_parked(
    tx: &mut Tx<'_>,
    host: &HostName,
    machine_id: &str,
) -> Result<LeftParked, Error> {
    Ok(LeftParked(left_handles::of(tx, host, machine_id)?))
}

/// Parks the functions that a machine still has to clean, and orders their cleaning. The caller has applied the host's
/// report in the same transaction, so no guest can get them before. A function that the host does not report is parked
/// by a later registration. Returns true if it has ordered a cleaning; the caller then announces the orders ([`orders::announce`]).
///
/// # Errors
/// Store errors only.
pub fn return_parked(
    tx: &mut Tx<'_>,
    world: &World,
    host: &HostName,
    machine_id: &str,
    left: LeftParked,
) -> Result<bool, Error> {
    let now = time::now();
    let mut some = false;
    for left in left.0 {
        let Some(parked) = left_handles::park(tx, host, &left.address, now)? else { continue };
        some |= !parked.is_empty();
        orders::order_cleaning(tx, world, &Actor::default(), &parked, now)?;
        if left.machine_id.is_empty() || left.machine_id == machine_id {
            left_handles::remove(tx, &left)?;
        } else {
            left_handles::keep_for_machine(tx, &left)?;
        }
        tracing::info!(
            %host, address = %left.address, former_host = %left.host,
            "a function is cleaned that was not clean when the service of its host was deleted"
        );
    }
    Ok(some)
}
