//! Disabling and enabling devices. Disabling is a drain: consumers keep their parts of the device,
//! and no further part is assigned. The drain commits together with the device's status.

use kilonova_ids::DeviceId;
use kilonova_placement::{World, ledger as placement};
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::Error;
use crate::db::{deployables, devices, withheld};
use crate::ledger::declare_released;
use crate::states::DeviceStatus;

/// Enables or disables a device with all of its deployables. Enabling also acknowledges all past
/// health events of the device, and declares that no guest uses a handle that an external instance
/// released. Health events that still persist remain in force.
pub(crate) fn set_enabled(
    tx: &mut Tx<'_>,
    world: &World,
    uuid: DeviceId,
    enabled: bool,
) -> Result<(), Error> {
    let row =
        devices::by_uuid(tx, uuid)?.ok_or_else(|| Error::not_found("Device", "uuid", uuid))?;
    let status = if enabled { DeviceStatus::Enabled } else { DeviceStatus::Maintaining };
    devices::set_status(tx, row.id, status, time::now())?;
    let acknowledged = enabled && devices::acknowledge_health(tx, row.id)?;
    if enabled {
        declare_released(tx, world, uuid)?;
    }
    let providers = deployables::providers_of(tx, row.id)?;
    if acknowledged {
        let withheld = withheld::each(tx, providers.iter().copied(), [])?;
        placement::reserve_each(tx, world, &withheld)?;
    }
    for provider in providers {
        placement::drain(tx, world, provider, !enabled)?;
    }
    if acknowledged && let Some(root) = placement::root_by_name(tx, &row.host)? {
        placement::facts_changed(tx, world, root)?;
    }
    Ok(())
}
