//! Taking a device out of service and back. Disabling is a drain: who holds a part of the device
//! keeps it, nobody gets more of it, and all of this commits together with the device's status.

use kilonova_ids::DeviceId;
use kilonova_placement::{World, ledger as placement};
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use crate::Error;
use crate::db::{deployables, devices, handles};
use crate::ledger::vouched;

/// Enables or disables a device with all of its parts. Enabling says too that what happened to the
/// device so far has been dealt with, and that no guest has anything of it that an instance elsewhere
/// gave up; what is wrong with it now stays wrong.
pub(crate) fn set_enabled(
    tx: &mut Tx<'_>,
    world: &World,
    uuid: DeviceId,
    enabled: bool,
) -> Result<(), Error> {
    let row =
        devices::by_uuid(tx, uuid)?.ok_or_else(|| Error::not_found("Device", "uuid", uuid))?;
    let status = if enabled { devices::ENABLED } else { devices::MAINTAINING };
    tx.execute(devices::STATUS, params![row.id, status, now_micros()])?;
    let dealt = enabled && tx.execute(devices::DEALT, params![row.id])? > 0;
    if enabled {
        vouched(tx, world, uuid)?;
    }
    for provider in deployables::providers_of(tx, row.id)? {
        if dealt {
            let withheld = handles::withheld_on(tx, provider)?;
            placement::reserve(tx, world, provider, withheld)?;
        }
        placement::drain(tx, world, provider, !enabled)?;
    }
    Ok(())
}
